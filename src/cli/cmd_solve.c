/* cmd_solve.c: a trained model solves Sudokus or mazes; prints the board after each supervision step. */
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "infer/solve.h"
#include <stdlib.h>
#include <string.h>

typedef struct solve_values {
    int64_t threads, batch_size, step, steps;
    bool best, halt, trace;
    char device[AN_CONFIG_TEXT_BYTES];
} solve_values;

#define AT(name) offsetof(solve_values, name)
static const an_config_field fields[] = {
    {"steps", AN_CONFIG_INT, AT(steps), "0", 0, 1 << 16, NULL, "supervision steps at most; 0: as in training"},
    {"halt", AN_CONFIG_BOOL, AT(halt), "false", 0, 0, NULL, "a board is done once the model says so"},
    {"trace", AN_CONFIG_BOOL, AT(trace), "false", 0, 0, NULL, "the board after each step too"},
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
    {"step", AN_CONFIG_INT, AT(step), "-1", -1, 9e15, NULL, "of a run: the checkpoint after so many updates"},
    {"batch_size", AN_CONFIG_INT, AT(batch_size), "0", 0, 1 << 20, NULL, "boards at a time; 0: as in training"},
    {"device", AN_CONFIG_TEXT, AT(device), "auto", 0, 0, NULL, "where to run"},
    {"threads", AN_CONFIG_INT, AT(threads), "0", 0, 4096, NULL, "CPU threads; 0: every core"},
};
const an_config an_solve_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MAX_INPUT_BYTES = 1 << 28 };

/* Steps of one board, kept until its answer is printed: batches run many boards side by side. */
typedef struct tracer {
    const an_boards *b;
    an_text *line; /* [boards] */
    bool json;
} tracer;

static void put_text(const an_boards *b, const int32_t *token, bool json, an_text *out)
{
    an_text plain = {0};
    an_board_put(b, token, &plain);
    if (json)
        an_json_put(out, plain.data ? plain.data : "");
    else
        an_text_puts(out, plain.data ? plain.data : "");
    out->failed |= plain.failed;
    an_text_free(&plain);
}

static void trace(void *arg, int64_t board, int64_t step, const int32_t *answer, double done)
{
    tracer *t = arg;
    an_text *out = &t->line[board];
    if (t->json) {
        an_text_printf(out, "%s{\"step\":%lld,\"done\":%.6g,\"board\":", step > 1 ? "," : "", (long long)step, done);
        put_text(t->b, answer, true, out);
        an_text_puts(out, "}");
        return;
    }
    const bool maze = t->b->kind == AN_BOARD_MAZE;
    an_text_printf(out, "step %3lld  done %.3f%s", (long long)step, done, maze ? "\n" : "  ");
    put_text(t->b, answer, false, out);
    an_text_puts(out, "\n");
}

static void put_answer(const tracer *t, const an_answers *a, int64_t i, bool json, an_text *out)
{
    const int64_t cells = t->b->side * t->b->side;
    const int32_t *board = t->b->token + i * cells, *answer = a->token + i * cells;
    if (!json) {
        if (t->line && t->line[i].data) an_text_puts(out, t->line[i].data);
        put_text(t->b, answer, false, out);
        return;
    }
    an_text_puts(out, "{\"board\":");
    put_text(t->b, board, true, out);
    an_text_puts(out, ",\"answer\":");
    put_text(t->b, answer, true, out);
    an_text_printf(out, ",\"steps\":%lld,\"sure\":%.6g,\"holds\":%s", (long long)a->steps[i], a->sure[i],
                   an_board_holds(t->b, board, answer) ? "true" : "false");
    if (t->line) an_text_printf(out, ",\"trace\":[%s]", t->line[i].data ? t->line[i].data : "");
    an_text_puts(out, "}");
}

static an_status print_answers(an_err *err, const tracer *t, const an_answers *a, const an_args *args)
{
    const bool maze = t->b->kind == AN_BOARD_MAZE;
    const int64_t cells = t->b->side * t->b->side;
    int64_t broken = 0;
    an_text out = {0};
    if (args->json) an_text_puts(&out, "[");
    for (int64_t i = 0; i < t->b->n; i++) {
        if (i > 0) an_text_puts(&out, args->json ? "," : maze ? "\n\n" : "\n");
        put_answer(t, a, i, args->json, &out);
        broken += !an_board_holds(t->b, t->b->token + i * cells, a->token + i * cells);
    }
    if (args->json) an_text_puts(&out, "]");
    AN_TRY(an_print_line(err, &out));
    if (broken && !args->quiet)
        an_say("%lld of %lld answers %s", (long long)broken, (long long)t->b->n,
               maze ? "are no path from S to G, or change the maze" : "break a rule or change a given digit");
    return AN_OK;
}

static an_status solve(an_err *err, an_session *r, const an_boards *b, const solve_values *v, const an_args *args)
{
    an_answers a;
    tracer t = {.b = b, .json = args->json};
    if (v->trace) t.line = calloc((size_t)b->n, sizeof *t.line);
    if (v->trace && !t.line) return an_fail_nomem(err, "traces", (size_t)b->n * sizeof *t.line);
    const an_solve_options o = {.steps = v->steps, .halt = v->halt, .trace = v->trace ? trace : NULL, .arg = &t};
    an_bar *bar = an_bar_open(args, "solve", "boards", NULL, NULL);
    r->tell = an_bar_tell;
    r->tell_arg = bar;
    an_status status = an_solve_boards(err, r, b, &o, &a);
    r->tell = NULL;
    an_bar_close(bar);
    if (status == AN_OK) status = print_answers(err, &t, &a, args);
    if (status == AN_OK) an_answers_free(&a);
    for (int64_t i = 0; t.line && i < b->n; i++) an_text_free(&t.line[i]);
    free(t.line);
    return status;
}

an_status an_cmd_solve(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    solve_values v;
    an_train_config c;
    an_st *st;
    an_session *r = NULL;
    an_text text = {0};
    an_boards boards = {0};
    AN_TRY(an_config_defaults(err, &an_solve_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_solve_keys, &v}, 1));
    AN_TRY(an_cli_open_weights(err, args->words[0], v.best, v.step, &c, &st));
    if (v.batch_size) c.batch_size = v.batch_size;
    snprintf(c.device, sizeof c.device, "%s", v.device);
    c.threads = v.threads;
    an_status status = an_input_read(err, args->words[1], MAX_INPUT_BYTES, &text);
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    an_st_close(st);
    const char *name = strcmp(args->words[1], "-") == 0 ? "standard input" : args->words[1];
    if (status == AN_OK) status = an_boards_read(err, r, name, text.data ? text.data : "", text.len, &boards);
    if (status == AN_OK) status = solve(err, r, &boards, &v, args);
    an_boards_free(&boards);
    an_session_close(r);
    an_text_free(&text);
    return status;
}
