/* cli.h: what the commands share: arguments, exit codes, interruption, output.
 *
 * Owns:      the command table, the meaning of an argument, exit codes.
 * Rules:     stdout is data, stderr is narration. --json gives one line of JSON on stdout. No colour, no cursor
 * movement when stderr is no terminal. An error is one sentence on stderr.
 *
 * args.c: arguments. common.c: exit codes, checkpoints. interrupt.c: Ctrl-C. printing.c: lines. number_text.c: numbers. input.c: files
 * and standard input.
 */
#ifndef AN_CLI_CLI_H
#define AN_CLI_CLI_H

#include "io/formats/json.h"
#include "train/session.h"
#include <anneal_tools.h>
#include <stdio.h>

enum { AN_EXIT_OK = 0, AN_EXIT_USAGE = 1, AN_EXIT_ENVIRONMENT = 2, AN_EXIT_NUMERIC = 3, AN_EXIT_INTERRUPTED = 130 };

/* A table of keys and the struct they go to. */
typedef struct an_key_set {
    const an_config *keys;
    void *values;
} an_key_set;

typedef struct an_setting {
    const char *key, *value; /* key without dashes in front and with underscores */
} an_setting;

enum { AN_CLI_MAX_WORDS = 8, AN_CLI_MAX_SETTINGS = 128 };

typedef struct an_args {
    const char *words[AN_CLI_MAX_WORDS]; /* arguments that are neither settings nor flags; NULL past the last */
    int n_words;
    an_setting settings[AN_CLI_MAX_SETTINGS];
    size_t n_settings;
    bool json, quiet;
    char keys[AN_CLI_MAX_SETTINGS][64]; /* memory of the settings' keys */
} an_args;

typedef struct an_command {
    const char *name, *usage, *summary, *details;
    const an_config *keys;             /* of its own; NULL: none */
    bool run_keys;                     /* takes the settings of a run too, of any model */
    bool eval_keys;                    /* takes the models' settings eval_KEY, as KEY */
    void (*put_details)(an_text *out); /* more details, made of tables; NULL: none */
    int min_words, max_words;
    bool json; /* takes --json */
    an_status (*run)(an_err *err, const an_args *args, int *exit_code);
} an_command;

extern const an_command an_commands[];
extern const size_t an_n_commands;
const an_command *an_command_find(const char *name);
an_status an_command_unknown(an_err *err, const char *name); /* the sentence, with the nearest name */

/* argv after the command's name: words, key=value, --key=value, --key value, --flag. Every key is checked against the
 * tables of the command. */
an_status an_args_parse(an_err *err, const an_command *c, int argc, char **argv, an_args *out);
/* Applies the settings in their order to the first set that has the key. */
an_status an_args_apply(an_err *err, const an_args *args, const an_key_set *sets, size_t n_sets);
/* The same onto a command's own values (NULL: it has none) and the settings of a run, where a key of another model is
 * refused. */
an_status an_args_apply_run(an_err *err, const an_args *args, const an_config *own, void *values, an_train_config *c);
/* Calls `take` for every table of keys of a command, its own first (owner ""). */
void an_command_each_table(const an_command *c, an_table_fn *take, void *arg);
/* details and put_details. */
void an_command_details(const an_command *c, an_text *out);
/* Usage, summary and keys of a command, to stdout. */
void an_command_help(const an_command *c);

/* The tables as parts of a manual page ("man") or as a shell's completion ("bash", "zsh", "fish"). */
void an_completions(const char *format, an_text *out);

int an_exit_code(an_status status);

/* How this program was called, for commands that are shown to be typed: a path where it was called by one. */
extern const char *an_program;

/* Lines of text; on a terminal those of more than 79 columns are folded between words, further ones indented to the
 * second column of a table. */
void an_print_folded(FILE *f, const char *text);
/* Launches of a bill that the CPU runs for the GPU: how many, why, their bytes and waits. */
enum { AN_CLI_ON_CPU_BYTES = 160 };
const char *an_cli_on_cpu(const an_bill *b, an_cpu_launches n, char out[AN_CLI_ON_CPU_BYTES]);
/* The columns that a line on stderr may have: 79, or those of a narrower terminal less one. */
enum { AN_CLI_COLUMNS = 79 };
int an_terminal_columns(void);
/* Says on stderr which settings have no effect on this device, or may do harm. */
void an_cli_warn(an_ctx *cx);
/* Writes a sentence and a newline to stderr, folded; the line of an open progress bar is taken away first. */
void an_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The commit that the program was built from, followed by "-dirty" when files differed; "" outside of a git checkout. */
extern const char an_commit[];
/* The compiler that the program was built with; clang has its name in __VERSION__, gcc has not. */
#ifdef __clang__
#define AN_COMPILER __VERSION__
#else
#define AN_COMPILER "gcc " __VERSION__
#endif

/* Called first: files that shrink or grow too large become errors, and compilers end with the program. */
void an_signals_begin(void);
/* From now on the first SIGINT, SIGTERM or SIGHUP only sets a flag; the second one ends the process. (SIGHUP stays ignored
 * where nohup made it so.) A file size limit is an error. */
void an_interrupt_catch(void);
bool an_interrupt_seen(void *unused);
/* Waits; a signal that is caught ends the wait early. */
void an_nap(double seconds);

/* A regular file, or for "-" standard input to its end or until the program is interrupted; above max_bytes it is
 * refused. */
an_status an_input_read(an_err *err, const char *path, size_t max_bytes, an_text *out);
/* A line of standard input without its end, cut at 1 MiB. False where no more come, and when the program was
 * interrupted. */
bool an_input_line(an_text *out);

/* The checkpoint of a run: the last one; with `best`, the one of the lowest validation loss; with step >= 0, the one
 * after so many updates. A file's path is returned unchanged. */
an_status an_cli_find_checkpoint(an_err *err, const char *run_or_file, bool best, int64_t step,
                                 char out[AN_CKPT_PATH_BYTES]);
/* Opens it for a command that only reads weights, with the settings in it. */
an_status an_cli_open_weights(an_err *err, const char *run_or_file, bool best, int64_t step, an_train_config *cfg,
                              an_st **out);

/* The command that asks a trained model of this task, "anneal solve", for sentences of those that cannot. */
const char *an_cli_ask(const an_task *t);
/* The name of the device that is used: for "auto", the one that an_open would choose. */
const char *an_cli_device(const char *name);
/* What divide_batch= asks for: the settings of the new run `r` in micro-batches that fit, into `c`. When that changed them,
 * *r is closed and NULL, and a note says so: open it again. */
an_status an_cli_divide(an_err *err, an_train_config *c, an_session **r);
/* Whether these settings ask for the same bits on every device there. */
bool an_cli_exact(const an_train_config *c, const char *device);
/* Whether float32 GEMMs with these settings are rounded to tf32 there: printed with every time and dtype. */
bool an_cli_tf32(const an_train_config *c, const char *device);

/* "211.3 TFLOP/s", below ten of them "9876.5 GFLOP/s". */
const char *an_flops_text(double gflops, char out[32]);

/* A JSON number, null when it is not finite; `,"key":` in front. */
void an_put_json(an_text *out, const char *key, double value);
/* Writes a line (or several) to stdout, folded on a terminal where it is not JSON; a failure to write (a full disk, a
 * closed pipe) is an error. Frees the text. */
an_status an_print_line(an_err *err, an_text *line);

/* What is wrong with a run that has ended, to stderr: the first finding, and how to read the others; nothing where there
 * is none. */
void an_cli_diagnosis_line(const char *dir);

/* anneal profile diff A B; `logbook`: a run, or "". */
an_status an_profile_diff_print(an_err *err, const an_args *args, const char *logbook);

void an_export_put_layouts(an_text *out); /* a line a model */

/* One row of the table each. */
an_status an_cmd_train(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_resume(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_sample(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_generate(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_plan(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_bench(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_predict(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_solve(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_eval(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_prepare(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_export(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_inspect(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_profile(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_selftest(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_doctor(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_diagnose(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_sweep(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_report(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_compare(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_pack(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_handoff(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_collect(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_top(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_ps(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_stop(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_logs(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_decide(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_note(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_help(an_err *err, const an_args *args, int *exit_code);
an_status an_cmd_version(an_err *err, const an_args *args, int *exit_code);

extern const an_config an_resume_keys, an_sample_keys, an_generate_keys, an_plan_keys, an_bench_keys, an_eval_keys,
    an_predict_keys, an_solve_keys, an_inspect_keys, an_doctor_keys, an_diagnose_keys, an_profile_keys, an_prepare_keys,
    an_export_keys, an_help_keys, an_selftest_keys, an_compare_keys, an_decide_keys, an_train_command_keys,
    an_stop_keys, an_pack_keys, an_handoff_keys, an_logs_keys, an_note_keys, an_sweep_keys, an_report_keys, an_top_keys;

#endif
