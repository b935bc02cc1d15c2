/* arc_tasks.c: parsing and validating the published files. See arc_tasks.h. */
#define _DEFAULT_SOURCE
#include "io/data/arc_tasks.h"
#include "io/formats/json.h"
#include "io/formats/line_reader.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_FILE_BYTES = 64 << 20, MAX_PAIRS = 64, MAX_NAME_BYTES = 64, PATH_BYTES = 1024, MAX_STEPS = 6 };

/* A file, and the way from its beginning to the value that is being read: keys, and "#i" for places in lists. */
typedef struct reader {
    an_arc_tasks *out;
    const char *file, *text, *subset;
    size_t n;
    char step[MAX_STEPS][MAX_NAME_BYTES + 1];
    int depth;
} reader;

static void enter(reader *r, const char *key)
{
    snprintf(r->step[r->depth++], sizeof r->step[0], "%s", key);
}

static void enter_place(reader *r, size_t i)
{
    snprintf(r->step[r->depth++], sizeof r->step[0], "#%zu", i);
}

static void leave(reader *r)
{
    r->depth--;
}

/* FILE:LINE: puzzle "x", train 2, input, 3: WHY; places in lists are counted from 1. */
static an_status bad(an_err *err, const reader *r, const char *why)
{
    const char *steps[MAX_STEPS];
    char quoted[AN_QUOTED_BYTES];
    an_text place = {0};
    for (int i = 0; i < r->depth; i++) {
        steps[i] = r->step[i];
        if (i > 0 && r->step[i][0] == '#')
            an_text_printf(&place, " %ld", strtol(r->step[i] + 1, NULL, 10) + 1);
        else if (i > 0)
            an_text_printf(&place, ", %s", r->step[i]);
    }
    const unsigned long long line = an_json_line(r->text, r->n, steps, r->depth);
    an_status status = r->depth == 0
                           ? an_fail(err, AN_E_DATA, "%s: %s", r->file, why)
                           : an_fail(err, AN_E_DATA, "%s:%llu: puzzle %s%s: %s", r->file, line,
                                     an_quoted(r->step[0], quoted), place.data && !place.failed ? place.data : "", why);
    an_text_free(&place);
    return status;
}

/* ---- grids and pairs */

static an_status read_row(an_err *err, reader *r, const json_t *row, an_arc_grid *g)
{
    char why[128];
    const size_t n = json_array_size(row);
    if (!json_is_array(row) || n < 1 || n > AN_ARC_SIDE) return bad(err, r, "a row is a list of 1 to 30 colours");
    if (g->rows == 0) g->cols = (uint8_t)n;
    if (n != g->cols) {
        snprintf(why, sizeof why, "the row has %zu cells, the first one %d; a grid is a rectangle", n, g->cols);
        return bad(err, r, why);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(row, i);
        const long long colour = json_is_integer(v) ? json_integer_value(v) : -1;
        if (colour < 0 || colour >= AN_ARC_COLOURS) {
            if (json_is_integer(v))
                snprintf(why, sizeof why, "cell %zu is of colour %lld; colours are 0 to 9", i + 1,
                         (long long)json_integer_value(v));
            else
                snprintf(why, sizeof why, "cell %zu is no whole number; colours are 0 to 9", i + 1);
            return bad(err, r, why);
        }
        g->cell[g->rows * g->cols + (int)i] = (uint8_t)colour;
    }
    g->rows++;
    return AN_OK;
}

static an_status read_grid(an_err *err, reader *r, const json_t *grid, an_arc_grid *out)
{
    const size_t n = json_array_size(grid);
    *out = (an_arc_grid){0};
    if (!json_is_array(grid) || n < 1 || n > AN_ARC_SIDE) return bad(err, r, "a grid is a list of 1 to 30 rows");
    for (size_t i = 0; i < n; i++) {
        enter_place(r, i);
        AN_TRY(read_row(err, r, json_array_get(grid, i), out));
        leave(r);
    }
    return AN_OK;
}

static an_status add_pair(an_err *err, reader *r, const json_t *pair, bool needs_output, bool *has_output)
{
    an_arc_tasks *t = r->out;
    const json_t *output = json_object_get(pair, "output");
    if (!json_is_object(pair)) return bad(err, r, "a pair is an object with \"input\" and \"output\"");
    if (!an_grow((void **)&t->pair, t->n_pairs, &t->cap_pairs, sizeof *t->pair))
        return an_fail_nomem(err, r->file, sizeof *t->pair);
    an_arc_pair *p = &t->pair[t->n_pairs++];
    enter(r, "input");
    AN_TRY(read_grid(err, r, json_object_get(pair, "input"), &p->in));
    leave(r);
    *has_output = output != NULL;
    p->out = (an_arc_grid){.rows = 1, .cols = 1};
    if (!output && !needs_output) return AN_OK;
    enter(r, "output");
    AN_TRY(read_grid(err, r, output, &p->out));
    leave(r);
    return AN_OK;
}

static an_status add_pairs(an_err *err, reader *r, const json_t *task, const char *key, bool needs_output,
                           int32_t *count, bool *have_outputs)
{
    const json_t *list = json_object_get(task, key);
    const size_t n = json_array_size(list);
    char why[96];
    if (!json_is_array(list) || n < 1 || n > MAX_PAIRS) {
        snprintf(why, sizeof why, "\"%s\" is no list of 1 to %d pairs", key, MAX_PAIRS);
        return bad(err, r, why);
    }
    enter(r, key);
    *have_outputs = true;
    for (size_t i = 0; i < n; i++) {
        bool has = false;
        enter_place(r, i);
        AN_TRY(add_pair(err, r, json_array_get(list, i), needs_output, &has));
        *have_outputs &= has;
        leave(r);
    }
    leave(r);
    *count = (int32_t)n;
    return AN_OK;
}

/* ---- puzzles */

static const char *fault_of_name(const char *name)
{
    if (!*name || strlen(name) > MAX_NAME_BYTES) return "a name has 1 to 64 bytes";
    if (name[0] == '#' || strstr(name, "|||")) return "a name neither begins with # nor has ||| in it";
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127) return "a name has no blanks or control characters";
    return NULL;
}

static an_status add_task(an_err *err, reader *r, const char *name, const json_t *task)
{
    an_arc_tasks *t = r->out;
    bool solved, all;
    char why[160];
    const char *fault = fault_of_name(name);
    const an_arc_task *other = an_arc_tasks_find(t, name, strlen(name));
    enter(r, name);
    if (fault) return bad(err, r, fault);
    if (other) {
        snprintf(why, sizeof why, "it is in subset %.40s too, so that tests would be trained on; leave one of both out",
                 other->subset);
        return bad(err, r, why);
    }
    if (!json_is_object(task)) return bad(err, r, "a puzzle is an object with \"train\" and \"test\"");
    if (!an_grow((void **)&t->task, t->n, &t->cap, sizeof *t->task))
        return an_fail_nomem(err, r->file, sizeof *t->task);
    an_arc_task *made = &t->task[t->n];
    *made = (an_arc_task){
        .name = an_arena_strdup(&t->names, name), .subset = an_arena_strdup(&t->names, r->subset), .first = t->n_pairs};
    if (!made->name || !made->subset || !an_map_set(&t->by_name, an_hash(name, strlen(name), 0), (uint64_t)t->n))
        return an_fail_nomem(err, r->file, strlen(name));
    t->n++;
    AN_TRY(add_pairs(err, r, task, "train", true, &made->n_train, &all));
    AN_TRY(add_pairs(err, r, task, "test", false, &made->n_test, &solved));
    made->solved = solved;
    leave(r);
    return AN_OK;
}

static an_status solve_task(an_err *err, reader *r, an_arc_task *t, const json_t *list)
{
    char why[96];
    enter(r, t->name);
    if (!json_is_array(list) || json_array_size(list) != (size_t)t->n_test) {
        snprintf(why, sizeof why, "no list of %d grids, as many as the puzzle has tests", t->n_test);
        return bad(err, r, why);
    }
    for (int32_t i = 0; i < t->n_test; i++) {
        enter_place(r, (size_t)i);
        AN_TRY(read_grid(err, r, json_array_get(list, (size_t)i), &r->out->pair[t->first + t->n_train + i].out));
        leave(r);
    }
    t->solved = true;
    leave(r);
    return AN_OK;
}

static an_status open_object(an_err *err, const reader *r, json_t **out)
{
    AN_TRY(an_json_parse(err, r->file, 0, r->text, r->n, out));
    if (json_is_object(*out)) return AN_OK;
    json_decref(*out);
    return bad(err, r, "an object is needed, of puzzles by their names");
}

static an_status read_challenges(an_err *err, reader *r)
{
    json_t *root;
    const int32_t before = r->out->n;
    AN_TRY(open_object(err, r, &root));
    an_status status = AN_OK;
    for (void *at = json_object_iter(root); at && status == AN_OK; at = json_object_iter_next(root, at))
        status = add_task(err, r, json_object_iter_key(at), json_object_iter_value(at));
    json_decref(root);
    if (status == AN_OK && r->out->n == before) status = bad(err, r, "there is no puzzle in it");
    return status;
}

/* Of the puzzles from number `first` on. */
static an_status read_solutions(an_err *err, reader *r, int32_t first)
{
    json_t *root;
    AN_TRY(open_object(err, r, &root));
    an_status status = AN_OK;
    for (int32_t i = first; i < r->out->n && status == AN_OK; i++) {
        const json_t *list = json_object_get(root, r->out->task[i].name);
        if (list) status = solve_task(err, r, &r->out->task[i], list);
    }
    json_decref(root);
    return status;
}

an_status an_arc_tasks_parse(an_err *err, const char *name, const char *subset, const char *text, size_t n,
                             const char *solutions_name, const char *solutions, size_t solutions_n, an_arc_tasks *out)
{
    const int32_t first = out->n;
    reader r = {.out = out, .file = name, .text = text, .n = n, .subset = subset};
    AN_TRY(read_challenges(err, &r));
    if (!solutions) return AN_OK;
    r = (reader){.out = out, .file = solutions_name, .text = solutions, .n = solutions_n, .subset = subset};
    return read_solutions(err, &r, first);
}

/* ---- files */

/* PREFIX_SUBSET_KIND.json or that with .gz; false: neither is there. */
static bool find_file(const char *prefix, const char *subset, const char *kind, char path[PATH_BYTES])
{
    static const char *const endings[] = {".json", ".json.gz"};
    for (size_t i = 0; i < AN_COUNT(endings); i++)
        if (snprintf(path, PATH_BYTES, "%s_%s_%s%s", prefix, subset, kind, endings[i]) < PATH_BYTES &&
            access(path, F_OK) == 0)
            return true;
    return false;
}

an_status an_arc_tasks_read(an_err *err, const char *prefix, const char *subset, an_arc_tasks *out)
{
    char path[PATH_BYTES], solutions_path[PATH_BYTES];
    an_text text = {0}, solutions = {0};
    if (!find_file(prefix, subset, "challenges", path))
        return an_fail(err, AN_E_IO,
                       "%.400s_%.100s_challenges.json is not there, nor with .gz behind it; name the part before "
                       "_%.100s_challenges.json, as in from=kaggle/combined/arc-agi",
                       prefix, subset, subset);
    const bool solved = find_file(prefix, subset, "solutions", solutions_path);
    an_status status = an_text_file_read(err, path, MAX_FILE_BYTES, &text);
    if (status == AN_OK && solved) status = an_text_file_read(err, solutions_path, MAX_FILE_BYTES, &solutions);
    if (status == AN_OK)
        status = an_arc_tasks_parse(err, path, subset, text.data ? text.data : "", text.len, solutions_path,
                                    solved ? (solutions.data ? solutions.data : "") : NULL, solutions.len, out);
    an_text_free(&text);
    an_text_free(&solutions);
    return status;
}

const an_arc_task *an_arc_tasks_find(const an_arc_tasks *t, const char *name, size_t n)
{
    uint64_t at;
    if (!an_map_get(&t->by_name, an_hash(name, n, 0), &at)) return NULL;
    const an_arc_task *task = &t->task[at];
    return strlen(task->name) == n && memcmp(task->name, name, n) == 0 ? task : NULL;
}

void an_arc_tasks_free(an_arc_tasks *t)
{
    free(t->task);
    free(t->pair);
    an_arena_free(&t->names);
    an_map_free(&t->by_name);
    *t = (an_arc_tasks){0};
}
