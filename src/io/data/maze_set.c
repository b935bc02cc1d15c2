/* maze_set.c: generating, checking and writing mazes. See maze_set.h. */
#define _DEFAULT_SOURCE
#include "io/data/maze_set.h"
#include "base/map.h"
#include "base/rng.h"
#include "io/data/order.h"
#include "io/data/puzzle_write.h"
#include "io/formats/csv.h"
#include "io/formats/line_reader.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_CELLS = AN_MAZE_MAX_SIDE * AN_MAZE_MAX_SIDE, TRIES = 1000, IMAGES = 8 };
static const char tokens[] = "# SGo"; /* from 1 on */

/* ---- paths */

/* Steps from cell `begin` to every cell, -1 where none leads; of an answer, `o` is free too. */
static void distances(int side, const char *text, int begin, int16_t *out)
{
    int16_t queue[MAX_CELLS];
    int head = 0, tail = 0;
    for (int i = 0; i < side * side; i++) out[i] = -1;
    out[begin] = 0;
    queue[tail++] = (int16_t)begin;
    while (head < tail) {
        const int at = queue[head++], r = at / side, c = at % side;
        const int next[4] = {r > 0 ? at - side : -1, r + 1 < side ? at + side : -1, c > 0 ? at - 1 : -1,
                             c + 1 < side ? at + 1 : -1};
        for (int k = 0; k < 4; k++) {
            if (next[k] < 0 || text[next[k]] == '#' || out[next[k]] >= 0) continue;
            out[next[k]] = (int16_t)(out[at] + 1);
            queue[tail++] = (int16_t)next[k];
        }
    }
}

/* Where the only `c` is; -1: there is none, or another. */
static int find_only(int side, const char *text, char c)
{
    int found = -1;
    for (int i = 0; i < side * side; i++) {
        if (text[i] != c) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

int64_t an_maze_path(int side, const char *text)
{
    int16_t steps[MAX_CELLS];
    const int begin = find_only(side, text, 'S'), end = find_only(side, text, 'G');
    if (begin < 0 || end < 0) return -1;
    distances(side, text, begin, steps);
    return steps[end];
}

/* NULL: the answer is its maze with a shortest path; else what is wrong. */
static const char *check_answer(int side, const char *text, const char *answer, int64_t *steps)
{
    char marked[MAX_CELLS];
    int64_t path = 0;
    *steps = an_maze_path(side, text);
    if (*steps < 0) return "no path leads from its S to its G, or it has not one of each";
    for (int i = 0; i < side * side; i++) {
        if (!strchr("# SG", text[i]) || text[i] == 0) return "a maze is of #, blank, S and G";
        const bool on_path = answer[i] == 'o' && text[i] == ' ';
        if (answer[i] != text[i] && !on_path) return "the answer is of another maze";
        path += on_path;
        marked[i] = on_path || text[i] == 'S' || text[i] == 'G' ? answer[i] : '#';
    }
    if (path == *steps - 1 && an_maze_path(side, marked) == *steps) return NULL;
    return "the answer is no shortest path";
}

/* ---- generating */

/* Carves a maze by a random depth-first walk over every other cell: to a new cell while there is one, else back. */
static void carve(int side, uint32_t key, uint32_t stream, char *text)
{
    const int n = (side + 1) / 2; /* nodes in a row */
    int16_t stack[MAX_CELLS];
    uint64_t at = 0;
    int depth = 0;
    memset(text, '#', (size_t)(side * side));
    stack[depth++] = (int16_t)an_multiply_high((uint64_t)an_rng_u32(key, stream, at++) << 32, (uint64_t)(n * n));
    text[stack[0] / n * 2 * side + stack[0] % n * 2] = ' ';
    while (depth > 0) {
        const int node = stack[depth - 1], r = node / n, c = node % n;
        int ways[4], count = 0;
        for (int k = 0; k < 4; k++) {
            const int to_r = r + (k == 0) - (k == 1), to_c = c + (k == 2) - (k == 3);
            if (to_r < 0 || to_c < 0 || to_r >= n || to_c >= n || text[2 * to_r * side + 2 * to_c] == ' ') continue;
            ways[count++] = to_r * n + to_c;
        }
        if (count == 0) {
            depth--;
            continue;
        }
        const int to = ways[(uint64_t)an_rng_u32(key, stream, at++) * (uint64_t)count >> 32];
        text[2 * (to / n) * side + 2 * (to % n)] = ' ';
        text[(r + to / n) * side + c + to % n] = ' '; /* the cell between */
        stack[depth++] = (int16_t)to;
    }
}

bool an_maze_generate(int side, uint64_t seed, uint64_t number, int64_t min_path, char *text, char *answer)
{
    const uint32_t key = an_rng_key(seed, number);
    const uint32_t ways = an_rng_stream(an_hash("maze", 4, 0), 0), ends = an_rng_stream(an_hash("maze", 4, 0), 1);
    int16_t steps[MAX_CELLS];
    int far[MAX_CELLS], count = 0, begin = 0;
    carve(side, key, ways, text);
    /* from a random free cell to a random one that is far enough */
    for (uint64_t k = 0; text[begin] != ' ' || k == 0; k++)
        begin = (int)((uint64_t)an_rng_u32(key, ends, 1 + k) * (uint64_t)(side * side) >> 32);
    distances(side, text, begin, steps);
    for (int i = 0; i < side * side; i++)
        if (steps[i] >= AN_MAX(min_path, 1)) far[count++] = i;
    if (count == 0) return false;
    const int end = far[(uint64_t)an_rng_u32(key, ends, 0) * (uint64_t)count >> 32];
    text[begin] = 'S';
    text[end] = 'G';
    memcpy(answer, text, (size_t)(side * side));
    distances(side, text, begin, steps);
    for (int at = end; steps[at] > 1;) {
        const int r = at / side, c = at % side;
        const int next[4] = {r > 0 ? at - side : at, r + 1 < side ? at + side : at, c > 0 ? at - 1 : at,
                             c + 1 < side ? at + 1 : at};
        int k = 0;
        while (steps[next[k]] != steps[at] - 1) k++;
        at = next[k];
        answer[at] = 'o';
    }
    return true;
}

/* ---- reflections and rotations: image k of eight */

static void turn(int side, int k, const char *text, char *out)
{
    for (int r = 0; r < side; r++)
        for (int c = 0; c < side; c++) {
            const int a = k & 1 ? side - 1 - r : r, b = k & 2 ? side - 1 - c : c;
            out[r * side + c] = k & 4 ? text[b * side + a] : text[a * side + b];
        }
}

/* The same for all eight images of a maze. */
static uint64_t form_of(int side, const char *text)
{
    char image[MAX_CELLS];
    uint64_t least = UINT64_MAX;
    for (int k = 0; k < IMAGES; k++) {
        turn(side, k, text, image);
        least = AN_MIN(least, an_hash(image, (size_t)(side * side), 1));
    }
    return least;
}

/* ---- the data set */

typedef struct list {
    const char *path;
    char *text; /* [cap][2][side*side] */
    int64_t n, cap;
    int side;
} list;

typedef struct builder {
    const an_maze_options *o;
    an_maze_result *result;
    int side;
    an_puzzle_writer *writer[2];
    an_map seen;
} builder;

/* A maze that was seen before, also rotated or reflected, is skipped. */
static an_status add_maze(an_err *err, builder *b, list *l, const char *text, const char *answer, int64_t steps)
{
    const size_t cells = (size_t)(l->side * l->side);
    const uint64_t form = form_of(l->side, text);
    uint64_t seen;
    if (an_map_get(&b->seen, form, &seen)) return AN_OK;
    if (!an_map_set(&b->seen, form, 1)) return an_fail_nomem(err, "mazes", b->seen.cap);
    const int64_t most = b->o->most > 0 ? b->o->most : AN_MAZE_MOST;
    if (l->n == most)
        return an_fail(err, AN_E_DATA, "%s: more than %lld mazes; split the file", l->path, (long long)most);
    if (l->n == l->cap) {
        const int64_t cap = l->cap ? 2 * l->cap : 64;
        char *more = realloc(l->text, (size_t)cap * 2 * cells);
        if (!more) return an_fail_nomem(err, "mazes", (size_t)cap * 2 * cells);
        l->text = more;
        l->cap = cap;
    }
    memcpy(l->text + (size_t)(2 * l->n) * cells, text, cells);
    memcpy(l->text + (size_t)(2 * l->n++ + 1) * cells, answer, cells);
    b->result->shortest = AN_MIN(b->result->shortest, steps);
    b->result->longest = AN_MAX(b->result->longest, steps);
    return AN_OK;
}

static an_status bad_line(an_err *err, const list *l, uint64_t line, const char *why)
{
    return an_fail(err, AN_E_DATA, "%s:%llu: %s", l->path, (unsigned long long)line, why);
}

static an_status read_maze(an_err *err, builder *b, list *l, uint64_t number, const char *line, size_t n)
{
    size_t text_n, answer_n;
    int64_t steps;
    const char *text = an_csv_line_field(line, n, 1, &text_n), *answer = an_csv_line_field(line, n, 2, &answer_n);
    if (text_n == SIZE_MAX || answer_n == SIZE_MAX)
        return bad_line(err, l, number, "a quote has no end, or no comma behind it");
    if (!text || !answer) return bad_line(err, l, number, "not source,question,answer,rating");
    int side = 1;
    while ((size_t)(side * side) < text_n && side < AN_MAZE_MAX_SIDE) side++;
    if ((size_t)(side * side) != text_n || answer_n != text_n || (b->side && side != b->side))
        return bad_line(err, l, number, "question and answer are no squares of one size, of 64 at most");
    l->side = b->side = side;
    const char *why = check_answer(side, text, answer, &steps);
    if (why) return bad_line(err, l, number, why);
    return add_maze(err, b, l, text, answer, steps);
}

static an_status read_list(an_err *err, builder *b, const char *path, list *l)
{
    an_line_reader *reader;
    const char *line = "";
    size_t n;
    l->path = path;
    AN_TRY(an_line_reader_open(err, path, &reader));
    an_status status = AN_OK;
    while (status == AN_OK && (status = an_line_reader_next(err, reader, &line, &n)) == AN_OK && line) {
        const uint64_t number = an_line_reader_number(reader);
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n')) n--;
        if (n == 0 || (number == 1 && n >= 6 && memcmp(line, "source", 6) == 0)) continue;
        status = read_maze(err, b, l, number, line, n);
    }
    an_line_reader_close(reader);
    if (status == AN_OK && l->n == 0) status = an_fail(err, AN_E_DATA, "%s: there is no maze in it", path);
    return status;
}

static an_status make_list(an_err *err, builder *b, int64_t wanted, list *l)
{
    char text[MAX_CELLS], answer[MAX_CELLS];
    l->side = b->side = b->o->side;
    for (uint64_t number = 0; l->n < wanted; number++) {
        if (number > (uint64_t)wanted * TRIES)
            return an_fail(err, AN_E_DATA, "mazes of %dx%d have no paths of %lld steps, or not so many; lower min_path",
                           b->side, b->side, (long long)b->o->min_path);
        if (!an_maze_generate(b->side, b->o->seed, number, b->o->min_path, text, answer)) continue;
        if (b->o->tell) b->o->tell(b->o->tell_arg, l->n, wanted);
        AN_TRY(add_maze(err, b, l, text, answer, an_maze_path(b->side, text)));
    }
    return AN_OK;
}

static an_status write_maze(an_err *err, builder *b, const char *text, const char *answer, an_puzzle_writer *w)
{
    int32_t inputs[MAX_CELLS], labels[MAX_CELLS];
    for (int i = 0; i < b->side * b->side; i++) {
        inputs[i] = (int32_t)(strchr(tokens, text[i]) - tokens) + 1;
        labels[i] = (int32_t)(strchr(tokens, answer[i]) - tokens) + 1;
    }
    AN_TRY(an_puzzle_writer_example(err, w, inputs, labels));
    return an_puzzle_writer_puzzle(err, w, 0);
}

/* Maze i of a list, for training with its images. */
static an_status write_group(an_err *err, builder *b, const list *l, int64_t i, bool train)
{
    const size_t cells = (size_t)(l->side * l->side);
    const char *text = l->text + (size_t)(2 * i) * cells, *answer = text + cells;
    an_puzzle_writer *w = b->writer[train ? 0 : 1];
    char turned[2][MAX_CELLS];
    for (int k = 0; k < (train && b->o->aug ? IMAGES : 1); k++) {
        turn(l->side, k, text, turned[0]);
        turn(l->side, k, answer, turned[1]);
        AN_TRY(write_maze(err, b, turned[0], turned[1], w));
    }
    train ? b->result->train++ : b->result->test++;
    return an_puzzle_writer_group(err, w);
}

static an_status write_split(an_err *err, builder *b, const list *l, int64_t begin, int64_t n, bool train)
{
    const uint32_t key = an_rng_key(b->o->seed, train || !b->o->test ? 0 : 1),
                   order = an_rng_stream(an_hash("mazes", 5, 0), 0);
    if (n < 1 || begin + n > l->n)
        return an_fail(err, AN_E_DATA,
                       "%s: the %s split would have %lld of %lld mazes; change subsample_size or test_size",
                       l->path ? l->path : b->o->out, train ? "training" : "test", (long long)n, (long long)l->n);
    for (int64_t k = begin; k < begin + n; k++) {
        if (b->o->tell) b->o->tell(b->o->tell_arg, k - begin, n);
        AN_TRY(write_group(err, b, l, (int64_t)an_shuffled((uint64_t)k, (uint64_t)l->n, key, order), train));
    }
    return AN_OK;
}

static an_status build_lists(an_err *err, builder *b, list *train, list *test)
{
    const an_maze_options *o = b->o;
    const int64_t made_tests = o->test_size > 0 ? o->test_size : AN_MAX(o->generate / 10, 1);
    const int64_t most = o->most > 0 ? o->most : AN_MAZE_MOST;
    if (!o->from && (o->generate > most || made_tests > most - o->generate))
        return an_fail(err, AN_E_USAGE, "generate and test_size are %lld mazes together: at most %lld are made",
                       (long long)o->generate + made_tests, (long long)most);
    AN_TRY(o->from ? read_list(err, b, o->from, train) : make_list(err, b, o->generate + made_tests, train));
    if (o->test) AN_TRY(read_list(err, b, o->test, test));
    const an_puzzle_meta meta = {.vocab_size = 6,
                                 .seq_len = b->side * b->side,
                                 .ignores = true,
                                 .num_puzzle_identifiers = 1,
                                 .mean_puzzle_examples = 1};
    AN_TRY(an_puzzle_writer_open(err, o->out, "train", &meta, AN_U8, &b->writer[0]));
    AN_TRY(an_puzzle_writer_open(err, o->out, "test", &meta, AN_U8, &b->writer[1]));
    const int64_t rest = o->test   ? 0
                         : o->from ? (o->test_size > 0 ? o->test_size : AN_MAX(train->n / 10, 1))
                                   : made_tests;
    const int64_t count = o->subsample > 0 ? o->subsample : train->n - rest;
    AN_TRY(write_split(err, b, train, 0, count, true));
    if (o->test) return write_split(err, b, test, 0, o->test_size > 0 ? o->test_size : test->n, false);
    return write_split(err, b, train, count, rest, false);
}

an_status an_maze_build(an_err *err, const an_maze_options *o, an_maze_result *out)
{
    builder b = {.o = o, .result = out};
    list train = {0}, test = {0};
    static const char *const names[] = {"<blank>"};
    *out = (an_maze_result){.shortest = INT64_MAX};
    an_status status = build_lists(err, &b, &train, &test);
    for (int k = 0; k < 2; k++) {
        if (k == 0 && b.writer[0]) out->examples = an_puzzle_writer_examples(b.writer[0]);
        if (status == AN_OK)
            status = an_puzzle_writer_end(err, b.writer[k]);
        else
            an_puzzle_writer_abort(b.writer[k]);
    }
    if (status == AN_OK) status = an_puzzle_identifiers_write(err, o->out, names, 1);
    free(train.text);
    free(test.text);
    an_map_free(&b.seen);
    return status;
}
