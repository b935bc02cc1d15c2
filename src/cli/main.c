/* main.c: the table of commands, and the entry and exit of the program. */
#include "cli/cmd_prepare.h"
#include "platform/platform.h"
#include "platform/system_info.h"
#include "cli/trm_command.h"
#include <string.h>

#define RUN_DETAILS                                                                                                    \
    "The run's folder gets metrics.jsonl (a line a logged update), loss.svg,\n"                                        \
    "config.yaml, logbook.jsonl (versions, machine, data, bill), last.safetensors,\n"                                  \
    "best.safetensors (of the lowest validation loss) and step_N.safetensors.\n"                                       \
    "Ctrl-C finishes the update and saves. FILE.py is one of nanoGPT's: read as\n"                                     \
    "assignments of literals, never executed. FILE.pt2 is a model that PyTorch exported.\n"

/* clang-format off */
const an_command an_commands[] = {
    {.name = "train", .run = an_cmd_train, .min_words = 0, .max_words = 1, .json = true, .keys = &an_train_command_keys, .run_keys = true,
     .usage = "train PRESET|FILE.yaml|FILE.py|FILE.pt2 [key=value ...]",
     .summary = "train a model",
     .details = RUN_DETAILS},
    {.name = "resume", .run = an_cmd_resume, .min_words = 1, .max_words = 1, .json = true, .keys = &an_resume_keys, .run_keys = true,
     .usage = "resume RUN|FILE [key=value ...]",
     .summary = "continue a run, to the same bits as if it had never stopped",
     .details = RUN_DETAILS},
    {.name = "top", .run = an_cmd_top, .min_words = 0, .max_words = 0, .json = true, .keys = &an_top_keys,
     .usage = "top [key=value ...]",
     .summary = "this machine and the runs on it now: busy, memory, swap, heat, watts, GPUs, speed of each run",
     .details = "Reads what any user may read and the runs' own lines, so no device waits for it. What is unreadable says why. Ctrl-C ends it.\n"},
    {.name = "ps", .run = an_cmd_ps, .min_words = 0, .max_words = 0, .json = true,
     .usage = "ps",
     .summary = "the runs in the background of this machine, which train or resume --detach started",
     .details = "An ended run is printed once, then removed from the list.\n"},
    {.name = "stop", .run = an_cmd_stop, .min_words = 1, .max_words = 1, .json = false, .keys = &an_stop_keys,
     .usage = "stop RUN [key=value ...]",
     .summary = "let the process that trains in a folder finish its update, save, and end",
     .details = ""},
    {.name = "logs", .run = an_cmd_logs, .min_words = 1, .max_words = 2, .json = false, .keys = &an_logs_keys,
     .usage = "logs RUN [-f]",
     .summary = "what a run in the background has printed; -f goes on until it ends",
     .details = ""},
    {.name = "sample", .run = an_cmd_sample, .min_words = 0, .max_words = 1, .json = false, .keys = &an_sample_keys,
     .usage = "sample RUN|FILE [key=value ...]",
     .summary = "write text with a trained model",
     .details = "Text goes to stdout as it is drawn, narration to stderr.\n"},
    {.name = "generate", .run = an_cmd_generate, .min_words = 0, .max_words = 1, .json = false, .keys = &an_generate_keys,
     .usage = "generate --checkpoint RUN|FILE --prompt TEXT|--interactive [key=value ...]",
     .summary = "talk with a model that was trained on conversations",
     .details = "The answer goes to stdout as it is drawn, notes to stderr.\n"},
    {.name = "eval", .run = an_cmd_eval, .min_words = 1, .max_words = 2, .json = true, .keys = &an_eval_keys, .eval_keys = true,
     .usage = "eval RUN|FILE [DATA] [key=value ...]",
     .summary = "loss and accuracy over other data, or over the run's validation split",
     .details = "DATA is read whole, in the forms of the setting data: a text, a .bin file of 16-bit token ids, a folder, a .csv, ...\n"
                "A model's settings eval_KEY are taken as KEY; those that are not given are as the run has them.\n"},
    {.name = "predict", .run = an_cmd_predict, .min_words = 2, .max_words = 2, .json = true, .keys = &an_predict_keys,
     .usage = "predict RUN|FILE TEXT|FILE|FOLDER|- [key=value ...]",
     .summary = "predictions of a trained model for texts, images or rows of numbers",
     .details = "One line each: the most probable class and the probabilities, or the values. A run on texts takes a text, a file with one\n"
                "on each line, or a .csv; a run on images an image or a folder of them; others a .npy file. - reads standard input.\n"},
    {.name = "solve", .run = an_cmd_solve, .min_words = 2, .max_words = 2, .json = true, .keys = &an_solve_keys,
     .usage = "solve RUN|FILE FILE|- [key=value ...]",
     .summary = "solve Sudokus or mazes with a trained model",
     .details = "A Sudoku is a line of digits, . or 0 where a cell is empty; a maze, lines of #, blanks, S and G.\n"
                "trace=true shows the board after each step. - reads standard input.\n"},
    {.name = "plan", .run = an_cmd_plan, .min_words = 1, .max_words = 1, .json = true, .keys = &an_plan_keys, .run_keys = true,
     .usage = "plan PRESET|FILE.yaml|FILE.pt2 [key=value ...]",
     .summary = "what a training step needs: memory, launches, work; runs nothing",
     .details = ""},
    {.name = "bench", .run = an_cmd_bench, .min_words = 1, .max_words = 2, .json = true, .keys = &an_bench_keys, .run_keys = true,
     .usage = "bench PRESET|matmul|copy|read|conv|sample PRESET|RUN [key=value ...]",
     .summary = "time training steps on random tokens, the tokens of a text, or one operation",
     .details = "Batch, shape and dropout are the preset's; clip 1.0, AdamW. device=a,b runs on both and compares;\n"
                "compile=false times the step fused and unfused. sample times one text, token by token, of a run or of a preset's first weights.\n"},
    {.name = "sweep", .run = an_cmd_sweep, .min_words = 1, .max_words = 1, .json = true, .keys = &an_sweep_keys, .run_keys = true,
     .usage = "sweep PRESET|FILE.yaml [key=value ...]",
     .summary = "which batch size: speed and memory of a series, the knee, the largest that fits",
     .details = "Each point is a short run of its own. Interrupted, the same command goes on where it was.\n"
                "--budget 16GiB --budget 64GiB answers for both; --over dtype=float32,bfloat16 sweeps each.\n"},
    {.name = "profile", .run = an_cmd_profile, .min_words = 1, .max_words = 3, .json = true, .keys = &an_profile_keys, .run_keys = true,
     .usage = "profile PRESET|FILE.yaml|diff A.json B.json [key=value ...]",
     .summary = "where the time of a step goes, launch by launch",
     .details = "profile diff compares two that --json wrote: the three operations that matter most, and what to do about them.\n"
                "roof: the share of what this machine can do, measured now: its arithmetic or its memory, whichever limits.\n"},
    {.name = "prepare", .run = an_cmd_prepare, .min_words = 1, .max_words = 1, .json = true, .keys = &an_prepare_keys, .put_details = an_prepare_put_sets,
     .usage = "prepare FILE|FOLDER|shakespeare|openwebtext|fineweb|sudoku|maze|arc|chat|example-chat|fashion-mnist [key=value ...]",
     .summary = "make a data set: the tokens of a text, puzzles, mazes or conversations",
     .details = "Of a text: train.bin, val.bin and meta.json. shakespeare is nanoGPT's, downloaded and checked; run again, a download goes on where it broke.\n"
                "Further data sets, each with settings of its own (anneal prepare sudoku --help):\n"},
    {.name = "export", .run = an_cmd_export, .min_words = 1, .max_words = 1, .json = false, .keys = &an_export_keys,
     .usage = "export RUN|FILE [key=value ...]",
     .summary = "write weights as safetensors for nanoGPT, Hugging Face or PyTorch",
     .details = "FILE is a checkpoint, or other programs' weights that init_from= takes.\n"
                "A model's layouts, of which the first is the default:\n",
     .put_details = an_export_put_layouts},
    {.name = "inspect", .run = an_cmd_inspect, .min_words = 1, .max_words = 1, .json = true, .keys = &an_inspect_keys,
     .usage = "inspect RUN|FILE",
     .summary = "a checkpoint's tensors and hashes",
     .details = ""},
    {.name = "diagnose", .run = an_cmd_diagnose, .min_words = 1, .max_words = 1, .json = true, .keys = &an_diagnose_keys,
     .usage = "diagnose RUN [key=value ...]",
     .summary = "what is wrong with a run: symptom, evidence in its numbers, hypothesis, first fix",
     .details = "Reads the run's files and nothing else. A run of less than ten seconds of updates is not judged by its times.\n"},
    {.name = "report", .run = an_cmd_report, .min_words = 1, .max_words = AN_CLI_MAX_WORDS, .json = true, .keys = &an_report_keys,
     .usage = "report RUN... [key=value ...]",
     .summary = "one HTML page about runs: machine, curves, memory, diagnosis, comparison; is the speed proven",
     .details = "The page has no script and loads nothing. Of several runs, the first is compared with each other.\n"},
    {.name = "compare", .run = an_cmd_compare, .min_words = 2, .max_words = 2, .json = true, .keys = &an_compare_keys,
     .usage = "compare RUN_A RUN_B [key=value ...]",
     .summary = "two runs beside each other: losses, gradient norms, state; pass or fail",
     .details = "Of two devices, two dtypes, or before and after a change; at updates that both logged. Exit code 3: beyond what is allowed.\n"},
    {.name = "decide", .run = an_cmd_decide, .min_words = 1, .max_words = AN_CLI_MAX_WORDS, .json = true, .keys = &an_decide_keys, .run_keys = true,
     .usage = "decide PRESET|RUN_REFERENCE [RUN|PACK ...] [key=value ...]",
     .summary = "where to train: runs of the same settings on several devices or machines, judged by rules",
     .details = "The first run is the reference, on a processor: the others are compared with it. Each rule is printed with its two numbers.\n"
                "Of a PRESET some updates are trained on each device of this machine first; a PACK is what anneal pack made elsewhere.\n"},
    {.name = "pack", .run = an_cmd_pack, .min_words = 1, .max_words = 1, .json = true, .keys = &an_pack_keys,
     .usage = "pack RUN|PRESET|FILE [key=value ...]",
     .summary = "a run as one file for another machine: settings, checkpoint, history, data",
     .details = "Of a preset or a file of settings: these and the data, before there is a run.\n"},
    {.name = "handoff", .run = an_cmd_handoff, .min_words = 1, .max_words = 1, .json = true, .keys = &an_handoff_keys,
     .usage = "handoff FILE [key=value ...]",
     .summary = "take up a packed run: verify it, try it, compare it with its origin, say how it goes on",
     .details = "A pack is not trusted: every file is checked, and command and units are made here. Exit code 3: memory grows,\n"
                "or an update takes longer or shorter than at the origin, unexplained.\n"},
    {.name = "collect", .run = an_cmd_collect, .min_words = 2, .max_words = 2, .json = true,
     .usage = "collect FILE RUN",
     .summary = "bring a run home: the pack of where it went on takes the place of the older state here",
     .details = "The pack must go on with this very run: the same data, the same losses so far. What was here is kept in RUN/previous.\n"},
    {.name = "note", .run = an_cmd_note, .min_words = 1, .max_words = 2, .json = true, .keys = &an_note_keys,
     .usage = "note RUN [TEXT] [key=value ...]",
     .summary = "write a sentence into a run's logbook, or a hypothesis that was rejected",
     .details = ""},
    {.name = "doctor", .run = an_cmd_doctor, .min_words = 0, .max_words = 0, .json = true, .keys = &an_doctor_keys,
     .usage = "doctor [key=value ...]",
     .summary = "this machine: devices, compiler, memory, limits, speeds; what is wrong",
     .details = "Exit code 2: there is a fault, which a line of the output describes.\n"},
    {.name = "selftest", .run = an_cmd_selftest, .min_words = 0, .max_words = 1, .json = true, .keys = &an_selftest_keys, .run_keys = true,
     .usage = "selftest [PRESET|FILE.yaml] [key=value ...]",
     .summary = "every kernel of a model at its shapes, against plain loops in double; a GPU's driver, speeds and training",
     .details = "Without a preset: demo. Exit code 3: something is wrong. Large models want batch_size=1.\n"
                "device=metal or cuda: also the driver's answers, speeds, and training of shakespeare_char beside the CPU; minutes. report=FILE has it all.\n"},
    {.name = "help", .run = an_cmd_help, .min_words = 0, .max_words = 1, .json = false, .keys = &an_help_keys,
     .usage = "help [COMMAND] [key=value ...]",
     .summary = "this, or a command's settings",
     .details = "source <(anneal help --format bash) completes commands and settings in this shell.\n"},
    {.name = "version", .run = an_cmd_version, .min_words = 0, .max_words = 0, .json = true,
     .usage = "version",
     .summary = "the version",
     .details = ""},
};
/* clang-format on */
const size_t an_n_commands = sizeof an_commands / sizeof an_commands[0];

const an_command *an_command_find(const char *name)
{
    for (size_t i = 0; i < an_n_commands; i++)
        if (strcmp(an_commands[i].name, name) == 0) return &an_commands[i];
    return NULL;
}

/* What other programs call our commands. */
static const char *other_name(const char *name)
{
    static const char *const of[][2] = {
        {"benchmark", "bench"},
        {"chat", "generate"},
        {"check", "doctor"},
        {"classify", "predict"},
        {"continue", "resume"},
        {"convert", "export"},
        {"evaluate", "eval"},
        {"finetune", "train"},
        {"fit", "train"},
        {"info", "inspect"},
        {"kill", "stop"},
        {"list", "ps"},
        {"ls", "ps"},
        {"models", "help train"},
        {"monitor", "top"},
        {"presets", "help train"},
        {"run", "train"},
        {"show", "inspect"},
        {"status", "ps"},
        {"test", "eval"},
        {"tokenize", "prepare"},
        {"validate", "eval"},
        {"-V", "version"},
        {"-v", "version"},
    };
    for (size_t i = 0; i < AN_COUNT(of); i++)
        if (strcmp(name, of[i][0]) == 0) return of[i][1];
    return NULL;
}

an_status an_command_unknown(an_err *err, const char *name)
{
    const char *names[64], *near = other_name(name);
    for (size_t i = 0; i < an_n_commands; i++) names[i] = an_commands[i].name;
    if (!near) near = an_nearest(name, names, an_n_commands);
    return an_fail(err, AN_E_USAGE, "unknown command %.64s%s%s%s; try anneal help", name, near ? "; did you mean " : "",
                   near ? near : "", near ? "?" : "");
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static an_status run(an_err *err, int argc, char **argv, int *exit_code)
{
    const char *name = argc > 1 ? argv[1] : "help";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0) name = "version";
    const an_command *c = an_command_find(name);
    if (!c) return an_command_unknown(err, name);
    const an_command *part = argc > 2 && strcmp(name, "prepare") == 0 ? an_prepare_find(argv[2]) : NULL;
    if (part) { /* a command of two words */
        c = part;
        argc--;
        argv++;
    }
    if (argc > 2 && asks_for_help(argc - 2, argv + 2)) {
        an_command_help(c);
        return AN_OK;
    }
    an_args args;
    if (argc > 1 && argv[1][0] != '-')
        AN_TRY(an_args_parse(err, c, argc - 2, argv + 2, &args));
    else
        AN_TRY(an_args_parse(err, c, 0, NULL, &args));
    return c->run(err, &args, exit_code);
}

int main(int argc, char **argv)
{
    an_err err = {0};
    int exit_code = AN_EXIT_OK;
    an_signals_begin();
    if (argc > 0 && strchr(argv[0], '/')) an_program = argv[0];
    an_argv words = {0};
    an_status status = an_enough_stack(&err);
    if (status == AN_OK) status = an_recursive_command(&err, argc, argv, &words);
    if (status == AN_OK) status = run(&err, words.argc, words.argv, &exit_code);
    if (status == AN_OK && (fflush(stdout) != 0 || ferror(stdout)))
        status = an_fail(&err, AN_E_IO, "stdout cannot be written to");
    an_argv_free(&words);
    if (status != AN_OK) an_say("anneal: %s", err.text);
    return an_guard_exit(status == AN_OK ? exit_code : an_exit_code(status));
}
