/* arc_set.c: choosing images of puzzles, and writing both splits. See arc_set.h. */
#include "io/data/arc_set.h"
#include "base/rng.h"
#include "io/data/puzzle_write.h"
#include "io/formats/json.h"
#include <stdlib.h>
#include <string.h>

enum { TRIES = 5, MAX_SUBSETS = 16, SUBSET_BYTES = 64, PATH_BYTES = 1024 };

/* Numbers of a puzzle: the next ones of its own stream, so that a puzzle's images do not depend on the others. */
typedef struct draws {
    uint32_t key, stream;
    uint64_t used;
} draws;

typedef struct builder {
    const an_arc_options *o;
    an_arc_result *result;
    an_arc_tasks tasks;
    an_puzzle_writer *writer[2]; /* train, test */
    an_arena names;
    const char **name; /* of the identifiers */
    int64_t n_names;
    an_map seen; /* hashes of the images of a puzzle */
} builder;

static int draw(draws *d, int n)
{
    return (int)((uint64_t)an_rng_u32(d->key, d->stream, d->used++) * (uint64_t)n >> 32);
}

static bool is_in(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at++)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return n > 0;
    return false;
}

/* ---- reading */

/* The next name of a list with commas; false: there is none. */
static bool next_word(const char **at, char word[SUBSET_BYTES])
{
    *at += strspn(*at, ", ");
    const size_t n = strcspn(*at, ", ");
    snprintf(word, SUBSET_BYTES, "%.*s", (int)AN_MIN(n, (size_t)SUBSET_BYTES - 1), *at);
    *at += n;
    return n > 0;
}

static an_status read_subsets(an_err *err, builder *b)
{
    char word[SUBSET_BYTES];
    const char *at = b->o->test_subsets;
    while (next_word(&at, word))
        if (!is_in(b->o->subsets, word))
            return an_fail(err, AN_E_USAGE, "the test subset %s is none of the subsets %s", word, b->o->subsets);
    at = b->o->subsets;
    int n = 0;
    for (; next_word(&at, word); n++) {
        if (n == MAX_SUBSETS) return an_fail(err, AN_E_USAGE, "more than %d subsets", MAX_SUBSETS);
        AN_TRY(an_arc_tasks_read(err, b->o->prefix, word, &b->tasks));
    }
    return n > 0 ? AN_OK : an_fail(err, AN_E_USAGE, "subsets is empty; it names training,evaluation,concept or others");
}

/* ---- images */

static an_arc_image draw_image(draws *d)
{
    an_arc_image image = an_arc_itself;
    image.turn = (uint8_t)draw(d, AN_ARC_TURNS);
    for (int c = AN_ARC_COLOURS - 1; c > 1; c--) { /* colour 0 stays */
        const int other = 1 + draw(d, c);
        const uint8_t was = image.colour[c];
        image.colour[c] = image.colour[other];
        image.colour[other] = was;
    }
    return image;
}

/* The same for images whose pairs are the same, in whatever order. */
static uint64_t form_of(const builder *b, const an_arc_task *t, const an_arc_image *image)
{
    uint64_t sum = 0;
    an_arc_grid g;
    for (int32_t i = 0; i < t->n_train + t->n_test; i++) {
        const an_arc_pair *p = &b->tasks.pair[t->first + i];
        an_arc_apply(image, &p->in, &g);
        const uint64_t in = an_arc_hash(&g, i < t->n_train ? 1 : 2);
        an_arc_apply(image, &p->out, &g);
        sum += an_arc_hash(&g, in);
    }
    return sum;
}

/* False: it was there already. */
static an_status is_new(an_err *err, builder *b, uint64_t form, bool *out)
{
    uint64_t seen;
    *out = !an_map_get(&b->seen, form, &seen);
    return !*out || an_map_set(&b->seen, form, 1) ? AN_OK : an_fail_nomem(err, "images of a puzzle", b->seen.cap);
}

/* ---- writing */

/* Anywhere where both grids fit, or at the corner. */
static an_status write_pair(an_err *err, an_puzzle_writer *w, const an_arc_image *image, const an_arc_pair *p, draws *d)
{
    an_arc_grid in, out;
    int32_t inputs[AN_ARC_CELLS], labels[AN_ARC_CELLS];
    an_arc_apply(image, &p->in, &in);
    an_arc_apply(image, &p->out, &out);
    const int row = d ? draw(d, AN_ARC_SIDE - AN_MAX(in.rows, out.rows) + 1) : 0,
              col = d ? draw(d, AN_ARC_SIDE - AN_MAX(in.cols, out.cols) + 1) : 0;
    an_arc_tokens(&in, row, col, inputs);
    an_arc_tokens(&out, row, col, labels);
    return an_puzzle_writer_example(err, w, inputs, labels);
}

static an_status write_image(an_err *err, builder *b, const an_arc_task *t, bool tested, const an_arc_image *image,
                             draws *d)
{
    const an_arc_pair *pair = &b->tasks.pair[t->first];
    const int32_t id = (int32_t)(b->o->identifiers_start + b->n_names), trained = t->n_train + (tested ? 0 : t->n_test);
    char ending[AN_ARC_IMAGE_NAME_BYTES] = "";
    if (memcmp(image, &an_arc_itself, sizeof *image) != 0) an_arc_image_name(image, ending);
    const char *name = an_arena_printf(&b->names, "%s%s", t->name, ending);
    if (!name) return an_fail_nomem(err, "names of puzzles", sizeof ending);
    b->name[b->o->identifiers_start + b->n_names++] = name;
    const int still = draw(d, trained);
    for (int32_t i = 0; i < trained; i++) AN_TRY(write_pair(err, b->writer[0], image, pair + i, i == still ? NULL : d));
    AN_TRY(an_puzzle_writer_puzzle(err, b->writer[0], id));
    for (int32_t i = trained; i < t->n_train + t->n_test; i++)
        AN_TRY(write_pair(err, b->writer[1], image, pair + i, NULL));
    return tested ? an_puzzle_writer_puzzle(err, b->writer[1], id) : AN_OK;
}

/* A puzzle and its images: a group of either split. */
static an_status write_task(an_err *err, builder *b, const an_arc_task *t)
{
    const bool tested = is_in(b->o->test_subsets, t->subset);
    draws d = {.key = an_rng_key(b->o->seed, an_hash(t->name, strlen(t->name), 0)),
               .stream = an_rng_stream(an_hash("arc", 3, 0), 0)};
    int64_t images = 0;
    bool fresh;
    an_map_clear(&b->seen);
    AN_TRY(is_new(err, b, form_of(b, t, &an_arc_itself), &fresh));
    AN_TRY(write_image(err, b, t, tested, &an_arc_itself, &d));
    for (int64_t tries = 0; tries < TRIES * b->o->num_aug && images < b->o->num_aug; tries++) {
        const an_arc_image image = draw_image(&d);
        AN_TRY(is_new(err, b, form_of(b, t, &image), &fresh));
        if (!fresh) continue;
        AN_TRY(write_image(err, b, t, tested, &image, &d));
        images++;
    }
    b->result->few += images < b->o->num_aug;
    b->result->images += images + 1;
    b->result->train++;
    AN_TRY(an_puzzle_writer_group(err, b->writer[0]));
    if (!tested) return AN_OK;
    b->result->test++;
    b->result->unsolved += !t->solved;
    return an_puzzle_writer_group(err, b->writer[1]);
}

static void put_pairs(const an_arc_pair *p, int32_t n, an_text *out)
{
    for (int32_t i = 0; i < n; i++) {
        an_text_puts(out, i ? ", {\"input\": " : "[{\"input\": ");
        an_arc_put_json(&p[i].in, out);
        an_text_puts(out, ", \"output\": ");
        an_arc_put_json(&p[i].out, out);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
}

static an_status write_test_puzzles(an_err *err, const builder *b)
{
    char path[PATH_BYTES];
    an_text t = {0};
    bool first = true;
    if (snprintf(path, sizeof path, "%s/test_puzzles.json", b->o->out) >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", b->o->out);
    an_text_puts(&t, "{");
    for (int32_t i = 0; i < b->tasks.n; i++) {
        const an_arc_task *task = &b->tasks.task[i];
        if (!is_in(b->o->test_subsets, task->subset)) continue;
        an_text_puts(&t, first ? "\n" : ",\n");
        first = false;
        an_json_put(&t, task->name);
        an_text_puts(&t, ": {\"train\": ");
        put_pairs(&b->tasks.pair[task->first], task->n_train, &t);
        an_text_puts(&t, ", \"test\": ");
        put_pairs(&b->tasks.pair[task->first + task->n_train], task->n_test, &t);
        an_text_puts(&t, "}");
    }
    an_text_puts(&t, "\n}\n");
    an_status status = an_json_save(err, path, &t);
    an_text_free(&t);
    return status;
}

/* ---- the data set: all tasks, written example by example */

static an_status open_writers(an_err *err, builder *b)
{
    an_puzzle_meta meta = {.vocab_size = AN_ARC_VOCABULARY, .seq_len = AN_ARC_CELLS, .ignores = true};
    const int64_t start = b->o->identifiers_start, most = start + (int64_t)b->tasks.n * (b->o->num_aug + 1);
    if (most > INT32_MAX) return an_fail(err, AN_E_USAGE, "num_aug=%lld: too many images", (long long)b->o->num_aug);
    b->name = calloc((size_t)most, sizeof *b->name);
    if (!b->name) return an_fail_nomem(err, "names of puzzles", (size_t)most * sizeof *b->name);
    for (int64_t i = 0; i < start; i++) b->name[i] = "<blank>";
    meta.num_puzzle_identifiers = most; /* written anew below, when it is known */
    AN_TRY(an_puzzle_writer_open(err, b->o->out, "train", &meta, AN_U8, &b->writer[0]));
    return an_puzzle_writer_open(err, b->o->out, "test", &meta, AN_U8, &b->writer[1]);
}

static an_status build(an_err *err, builder *b)
{
    AN_TRY(read_subsets(err, b));
    AN_TRY(open_writers(err, b));
    for (int32_t i = 0; i < b->tasks.n; i++) {
        if (b->o->tell) b->o->tell(b->o->tell_arg, i, b->tasks.n);
        AN_TRY(write_task(err, b, &b->tasks.task[i]));
    }
    if (b->result->test == 0)
        return an_fail(err, AN_E_USAGE, "no subset is for testing; name one of %s with test_set_name", b->o->subsets);
    b->result->train_examples = an_puzzle_writer_examples(b->writer[0]);
    b->result->test_examples = an_puzzle_writer_examples(b->writer[1]);
    for (int k = 0; k < 2; k++) an_puzzle_writer_identifiers(b->writer[k], b->o->identifiers_start + b->n_names);
    AN_TRY(an_puzzle_identifiers_write(err, b->o->out, b->name, b->o->identifiers_start + b->n_names));
    return write_test_puzzles(err, b);
}

an_status an_arc_build(an_err *err, const an_arc_options *o, an_arc_result *out)
{
    builder b = {.o = o, .result = out};
    *out = (an_arc_result){0};
    an_status status = build(err, &b);
    for (int k = 0; k < 2; k++) {
        if (status == AN_OK)
            status = an_puzzle_writer_end(err, b.writer[k]);
        else
            an_puzzle_writer_abort(b.writer[k]);
        b.writer[k] = NULL;
    }
    an_arc_tasks_free(&b.tasks);
    an_arena_free(&b.names);
    an_map_free(&b.seen);
    free(b.name);
    return status;
}
