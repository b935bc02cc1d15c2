/* arc_votes.c: counting votes, pass@K and the submission. See arc_votes.h. */
#define _DEFAULT_SOURCE
#include "infer/arc_votes.h"
#include "io/data/arc_tasks.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int pass_k[] = {1, 2, 5, 10, 100, 1000};

typedef struct score {
    double pass[AN_COUNT(pass_k)];
    int64_t puzzles, tests;
    int64_t votes, unanswered; /* tests without a vote */
} score;

enum { MAX_FILE_BYTES = 1 << 30, MAX_FOLDERS = 64, PATH_BYTES = 1056 };

/* A grid that was voted for, as an answer to a question. */
typedef struct candidate {
    const uint8_t *grid; /* rows, columns, cells */
    int32_t question, votes;
    double sure; /* sum of the votes' probabilities of being right */
} candidate;

/* A question is the input of one test of a puzzle, named by its index in `tasks.pair`. */
typedef struct election {
    an_arc_tasks tasks;         /* the test puzzles */
    json_t *names[MAX_FOLDERS]; /* names of the identifiers, by directory */
    int n_names;
    candidate *candidate;
    int32_t n, cap;
    an_map by_grid, by_input; /* hash with the question: candidate; hash with the puzzle: question */
    an_arena grids;
    int64_t votes;
} election;

/* ---- files beside the data */

static bool path_of(const char *dir, const char *name, char path[PATH_BYTES])
{
    return snprintf(path, PATH_BYTES, "%s/%s", dir, name) < PATH_BYTES && access(path, F_OK) == 0;
}

static const char *folder_of(const an_session *r, int i)
{
    return r->cfg.task->folder ? r->cfg.task->folder(r->data, AN_VAL, i) : NULL;
}

static bool has_tests(const an_session *r)
{
    char path[PATH_BYTES];
    const char *dir;
    for (int i = 0; (dir = folder_of(r, i)) != NULL; i++)
        if (path_of(dir, "test_puzzles.json", path)) return r->cfg.model->answer != NULL;
    return false;
}

static an_status open_dir(an_err *err, const char *dir, election *e)
{
    char path[PATH_BYTES];
    an_text text = {0};
    if (!path_of(dir, "test_puzzles.json", path)) return AN_OK;
    an_status status = an_text_file_read(err, path, MAX_FILE_BYTES, &text);
    if (status == AN_OK)
        status = an_arc_tasks_parse(err, path, dir, text.data ? text.data : "", text.len, NULL, NULL, 0, &e->tasks);
    an_text_free(&text);
    if (status != AN_OK) return status;
    if (!path_of(dir, "identifiers.json", path))
        return an_fail(err, AN_E_IO,
                       "%s: there is no such file, which has the names of the puzzles; prepare the data again", path);
    AN_TRY(an_json_read(err, path, MAX_FILE_BYTES, &e->names[e->n_names++]));
    return json_is_array(e->names[e->n_names - 1])
               ? AN_OK
               : an_fail(err, AN_E_DATA, "%s: it is not a JSON list of names", path);
}

/* The puzzle of an identifier, and which transformation of it (*image); NULL: it is no test puzzle. */
static const an_arc_task *find_task(const election *e, int32_t id, an_arc_image *image)
{
    size_t n;
    for (int i = 0; i < e->n_names; i++) {
        const char *name = json_string_value(json_array_get(e->names[i], (size_t)id));
        const an_arc_task *task =
            name && an_arc_name_read(name, &n, image) ? an_arc_tasks_find(&e->tasks, name, n) : NULL;
        if (task) return task;
    }
    return NULL;
}

/* ---- votes */

static uint64_t question_key(const election *e, const an_arc_task *t, const an_arc_grid *input)
{
    return an_arc_hash(input, (uint64_t)(t - e->tasks.task));
}

static an_status open_questions(an_err *err, election *e)
{
    for (int32_t i = 0; i < e->tasks.n; i++) {
        const an_arc_task *t = &e->tasks.task[i];
        for (int32_t k = t->first + t->n_train; k < t->first + t->n_train + t->n_test; k++) {
            uint64_t other;
            const uint64_t key = question_key(e, t, &e->tasks.pair[k].in);
            if (an_map_get(&e->by_input, key, &other)) continue; /* the puzzle has this test twice */
            if (!an_map_set(&e->by_input, key, (uint64_t)k)) return an_fail_nomem(err, "tests", e->by_input.cap);
        }
    }
    return AN_OK;
}

static an_status add_candidate(an_err *err, election *e, int32_t question, const an_arc_grid *g, uint64_t key)
{
    const size_t cells = (size_t)(g->rows * g->cols);
    uint8_t *copy = an_arena_alloc(&e->grids, cells + 2);
    if (!copy || e->n == INT32_MAX || !an_grow((void **)&e->candidate, e->n, &e->cap, sizeof *e->candidate) ||
        !an_map_set(&e->by_grid, key, (uint64_t)e->n))
        return an_fail_nomem(err, "votes", cells);
    copy[0] = g->rows;
    copy[1] = g->cols;
    memcpy(copy + 2, g->cell, cells);
    e->candidate[e->n++] = (candidate){.grid = copy, .question = question};
    return AN_OK;
}

/* Counts the answer to an image of a test: inputs and answer i32 [900]; q: the logit of the answer being right. */
static an_status vote(an_err *err, election *e, int32_t id, const int32_t *inputs, const int32_t *answer, double q)
{
    an_arc_image image;
    an_arc_grid seen, g;
    uint64_t question, at;
    const an_arc_task *t = find_task(e, id, &image);
    if (!t) return AN_OK;
    an_arc_crop(inputs, &seen);
    an_arc_undo(&image, &seen, &g);
    if (!an_map_get(&e->by_input, question_key(e, t, &g), &question)) return AN_OK;
    an_arc_crop(answer, &seen);
    if (seen.rows == 0) return AN_OK;
    an_arc_undo(&image, &seen, &g);
    const uint64_t key = an_arc_hash(&g, an_hash_u64(question, 1));
    if (!an_map_get(&e->by_grid, key, &at)) {
        at = (uint64_t)e->n;
        AN_TRY(add_candidate(err, e, (int32_t)question, &g, key));
    }
    e->candidate[at].votes++;
    e->candidate[at].sure += 1 / (1 + exp(-q));
    e->votes++;
    return AN_OK;
}

/* ---- the test split through the model */

typedef struct work {
    an_array in[AN_MAX_ARRAYS];
    an_arrays batch; /* of B samples */
    int n_inputs;
    int32_t *answer; /* [B,900] */
    float *q;        /* [B] */
} work;

/* Runs graph `call` of the batch; after the last one the answers are read. */
static an_status run_call(an_err *err, an_session *r, const work *w, int64_t call, bool last)
{
    const int64_t B = r->cfg.batch_size;
    an_tensor *in[AN_MAX_ARRAYS], *out[2];
    for (int i = 0; i < w->n_inputs; i++)
        in[i] = an_input_at(AN_AT, r->cx, w->in[i].dtype, w->in[i].shape, w->batch.data[i]);
    r->cfg.model->place(r->model, &(an_place){.micros = 1, .call = call});
    r->cfg.model->answer(r->model, in, &out[0], &out[1]);
    an_status status = an_eval_at(AN_AT, out, out[1] ? 2 : 1);
    if (status == AN_OK && last) status = an_read(out[0], w->answer, (size_t)(B * AN_ARC_CELLS) * sizeof *w->answer);
    if (status == AN_OK && last && out[1]) status = an_read(out[1], w->q, (size_t)B * sizeof *w->q);
    status = an_session_result(err, r->cx, status);
    an_reset(r->cx);
    return status;
}

static an_status run_all(an_err *err, an_session *r, work *w, election *e)
{
    const int64_t B = r->cfg.batch_size, calls = r->cfg.model->calls(an_model_settings(&r->cfg));
    int64_t samples;
    AN_TRY(r->cfg.task->count(err, r->data, AN_VAL, &samples));
    for (int64_t first = 0; first < samples; first += B) {
        const int64_t n = AN_MIN(B, samples - first);
        if (r->stop && r->stop(r->stop_arg)) return an_fail(err, AN_E_USAGE, "the evaluation was stopped");
        AN_TRY(r->cfg.task->read(err, r->data, AN_VAL, first, n, B, w->batch.data));
        for (int64_t call = 0; call < calls; call++) AN_TRY(run_call(err, r, w, call, call == calls - 1));
        const int32_t *inputs = w->batch.data[0], *ids = w->batch.data[2];
        for (int64_t i = 0; i < n; i++)
            AN_TRY(vote(err, e, ids[i], inputs + i * AN_ARC_CELLS, w->answer + i * AN_ARC_CELLS, (double)w->q[i]));
    }
    return AN_OK;
}

static an_status ask(an_err *err, an_session *r, election *e)
{
    work w = {.n_inputs = 0};
    const size_t B = (size_t)r->cfg.batch_size;
    w.n_inputs = r->cfg.model->inputs(an_model_settings(&r->cfg), r->cfg.batch_size, w.in);
    if (w.n_inputs != 3 || w.in[0].shape.dim[1] != AN_ARC_CELLS)
        return an_fail(err, AN_E_DATA,
                       "data=%s: test_puzzles.json is of ARC's grids of %d cells, the model's have %lld", r->cfg.data,
                       AN_ARC_CELLS, (long long)w.in[0].shape.dim[1]);
    an_status status = an_arrays_open(err, w.in, w.n_inputs, &w.batch);
    w.answer = malloc(B * AN_ARC_CELLS * sizeof *w.answer);
    w.q = calloc(B, sizeof *w.q);
    if (status == AN_OK && (!w.answer || !w.q)) status = an_fail_nomem(err, "answers", B * AN_ARC_CELLS * 4);
    if (status == AN_OK) status = run_all(err, r, &w, e);
    an_arrays_close(&w.batch);
    free(w.answer);
    free(w.q);
    return status;
}

/* ---- the result */

static int by_rank(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    const double mean_a = a->sure / a->votes, mean_b = b->sure / b->votes;
    if (a->question != b->question) return a->question < b->question ? -1 : 1;
    if (a->votes != b->votes) return a->votes > b->votes ? -1 : 1;
    if (mean_a != mean_b) return mean_a > mean_b ? -1 : 1;
    return memcmp(a->grid, b->grid, 2) ? memcmp(a->grid, b->grid, 2)
                                       : memcmp(a->grid + 2, b->grid + 2, (size_t)(a->grid[0] * a->grid[1]));
}

static an_arc_grid grid_of(const candidate *c)
{
    an_arc_grid g = {.rows = c->grid[0], .cols = c->grid[1]};
    memcpy(g.cell, c->grid + 2, (size_t)(g.rows * g.cols));
    return g;
}

/* The ranked candidates of pair k. */
static const candidate *candidates_of(const election *e, const an_arc_task *t, int32_t k, int32_t *n)
{
    uint64_t question = 0;
    int32_t low = 0, high = e->n;
    an_map_get(&e->by_input, question_key(e, t, &e->tasks.pair[k].in), &question);
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (e->candidate[middle].question < (int32_t)question)
            low = middle + 1;
        else
            high = middle;
    }
    for (*n = 0; low + *n < e->n && e->candidate[low + *n].question == (int32_t)question;) ++*n;
    return e->candidate + low;
}

/* Returns the rank of test k's solution among the candidates, from 0; -1: it has no vote. Appends the test's two attempts
 * to `out`. */
static int32_t count_test(const election *e, const an_arc_task *t, int32_t k, score *sum, an_text *out)
{
    int32_t n, rank = -1;
    const candidate *c = candidates_of(e, t, k, &n);
    const an_arc_grid none = {.rows = 1, .cols = 1};
    for (int32_t i = 0; i < n && rank < 0; i++) {
        const an_arc_grid g = grid_of(&c[i]);
        if (an_arc_equal(&g, &e->tasks.pair[k].out)) rank = i;
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        const an_arc_grid g = n > 0 ? grid_of(&c[attempt < n ? attempt : 0]) : none;
        an_text_printf(out, "%s\"attempt_%d\": ", attempt ? ", " : "{", attempt + 1);
        an_arc_put_json(&g, out);
    }
    an_text_puts(out, "}");
    sum->tests++;
    sum->unanswered += n == 0;
    return rank;
}

static void count_all(const election *e, score *sum, an_text *out)
{
    *sum = (score){.puzzles = e->tasks.n, .votes = e->votes};
    an_text_puts(out, "{");
    for (int32_t i = 0; i < e->tasks.n; i++) {
        const an_arc_task *t = &e->tasks.task[i];
        an_text_puts(out, i ? ",\n" : "\n");
        an_json_put(out, t->name);
        an_text_puts(out, ": [");
        for (int32_t k = 0; k < t->n_test; k++) {
            if (k > 0) an_text_puts(out, ", ");
            const int32_t rank = count_test(e, t, t->first + t->n_train + k, sum, out);
            for (int j = 0; j < (int)AN_COUNT(pass_k); j++)
                if (rank >= 0 && rank < pass_k[j]) sum->pass[j] += 1.0 / t->n_test / e->tasks.n;
        }
        an_text_puts(out, "]");
    }
    an_text_puts(out, "\n}\n");
}

static an_status elect(an_err *err, an_session *r, election *e, const char *path, score *out)
{
    const char *dir;
    an_text text = {0};
    for (int i = 0; (dir = folder_of(r, i)) != NULL; i++) {
        if (e->n_names == MAX_FOLDERS)
            return an_fail(err, AN_E_USAGE, "data=: more than %d folders of test puzzles: evaluate them in parts",
                           MAX_FOLDERS);
        AN_TRY(open_dir(err, dir, e));
    }
    AN_TRY(open_questions(err, e));
    AN_TRY(ask(err, r, e));
    if (e->n > 0) qsort(e->candidate, (size_t)e->n, sizeof *e->candidate, by_rank);
    count_all(e, out, &text);
    an_status status = text.failed ? an_fail_nomem(err, "a submission", text.len) : AN_OK;
    if (status == AN_OK && path) status = an_json_save(err, path, &text);
    an_text_free(&text);
    return status;
}

static an_status vote_all(an_err *err, an_session *r, const char *path, score *out)
{
    election e = {.n = 0};
    *out = (score){0};
    an_status status = elect(err, r, &e, path, out);
    for (int i = 0; i < e.n_names; i++) json_decref(e.names[i]);
    an_arc_tasks_free(&e.tasks);
    an_map_free(&e.by_grid);
    an_map_free(&e.by_input);
    an_arena_free(&e.grids);
    free(e.candidate);
    return status;
}

an_status an_arc_report(an_err *err, an_session *r, const char *submission, bool json, an_text *out)
{
    score s;
    if (!has_tests(r)) return AN_OK;
    AN_TRY(vote_all(err, r, submission, &s));
    if (json) {
        for (size_t i = 0; i < AN_COUNT(pass_k); i++) an_text_printf(out, ",\"pass@%d\":%.9g", pass_k[i], s.pass[i]);
        an_text_printf(out, ",\"test_puzzles\":%lld,\"votes\":%lld,\"unanswered\":%lld,\"submission\":",
                       (long long)s.puzzles, (long long)s.votes, (long long)s.unanswered);
        an_json_put(out, submission);
        return AN_OK;
    }
    for (size_t i = 0; i < AN_COUNT(pass_k); i++)
        an_text_printf(out, "%spass@%d %.4f", i ? ", " : "\n", pass_k[i], s.pass[i]);
    an_text_printf(out, " over %lld test puzzles (%lld tests, %lld votes", (long long)s.puzzles, (long long)s.tests,
                   (long long)s.votes);
    if (s.unanswered) an_text_printf(out, "; %lld tests without a vote", (long long)s.unanswered);
    an_text_printf(out, "): %s", submission);
    return AN_OK;
}
