/* trm_command.c: tables of the guides' words, and the rewriting of a command line by them. See trm_command.h. */
#define _DEFAULT_SOURCE
#include "cli/trm_command.h"
#include "cli/cli.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* ---- the command */

typedef struct renaming {
    const char *theirs, *ours, *part; /* part: the second word; NULL: there is none */
} renaming;

static const renaming scripts[] = {{"pretrain", "train", NULL},
                                   {"pretrain.py", "train", NULL},
                                   {"generate.py", "generate", NULL},
                                   {"prepare_example_chat_dataset.sh", "prepare", "example-chat"},
                                   {"build_chat_dataset.py", "prepare", "chat"},
                                   {"build_sudoku_dataset.py", "prepare", "sudoku"},
                                   {"build_maze_dataset.py", "prepare", "maze"},
                                   {"build_arc_dataset.py", "prepare", "arc"}};
static const renaming modules[] = {{"pretrain", "train", NULL},
                                   {"generate", "generate", NULL},
                                   {"dataset.build_chat_dataset", "prepare", "chat"},
                                   {"dataset.build_sudoku_dataset", "prepare", "sudoku"},
                                   {"dataset.build_maze_dataset", "prepare", "maze"},
                                   {"dataset.build_arc_dataset", "prepare", "arc"}};

/* A script may be named with its path. */
static const renaming *find_script(const char *word)
{
    const char *slash = strrchr(word, '/');
    for (size_t i = 0; i < AN_COUNT(scripts); i++)
        if (is(slash ? slash + 1 : word, scripts[i].theirs)) return &scripts[i];
    return NULL;
}

static const renaming *find_module(const char *word)
{
    for (size_t i = 0; i < AN_COUNT(modules); i++)
        if (is(word, modules[i].theirs)) return &modules[i];
    return NULL;
}

static an_status refuse_torchrun(an_err *err)
{
    return an_fail(
        err, AN_E_ENV,
        "torchrun cannot start pretrain.py here: anneal is no Python program. anneal pretrain.py ... devices=0,1 "
        "starts a "
        "process for each CUDA GPU itself, ranks=2 on a CPU; or torchrun --no-python --nproc-per-node 2 anneal "
        "pretrain.py ...");
}

/* The command word or words; *used: how many of theirs they replace. *trains: pretrain. */
static an_status add_command(an_err *err, int argc, char **argv, an_argv *out, int *used, bool *trains)
{
    const char *word = argv[1];
    const renaming *r = find_script(word);
    *used = 1;
    if (is(word, "torchrun")) return refuse_torchrun(err);
    if (is(word, "-m")) {
        if (argc < 3) return an_fail(err, AN_E_USAGE, "-m needs a module: -m dataset.build_chat_dataset");
        *used = 2;
        r = find_module(argv[2]);
        if (!r)
            return an_fail(err, AN_E_USAGE,
                           "-m %.100s: there is no such module; dataset.build_chat_dataset, build_sudoku_dataset, "
                           "build_maze_dataset and build_arc_dataset are known, pretrain and generate",
                           argv[2]);
    }
    *trains = r && is(r->ours, "train");
    AN_TRY(an_argv_add(err, out, r ? r->ours : word));
    return r && r->part ? an_argv_add(err, out, r->part) : AN_OK;
}

/* ---- settings */

/* `ours` NULL: the setting has no meaning here and is ignored, with a note. `may_lack`: null is a value of it there. */
static const struct {
    const char *theirs, *ours;
    bool may_lack;
} names[] = {{"lr", "learning_rate", false},
             {"global_batch_size", "batch_size", false},
             {"data_paths", "data", false},
             {"grad_clip_norm", "grad_clip", true},
             {"checkpoint_every_eval", "always_save_checkpoint", false},
             {"checkpoint_path", "out", true},
             {"load_checkpoint", "init_from", true},
             {"run_name", "note", false},
             {"arch.forward_dtype", "dtype", false},
             {"forward_dtype", "dtype", false},
             {"loss_type", "arch.loss.loss_type", false},
             {"evaluators", NULL, false},
             {"eval_save_outputs", NULL, false},
             {"arch.loss.name", NULL, false},
             {"arch.H_layers", NULL, false},
             {"dataset_type", NULL, false}};

/* [a] is a, so that a list of one is what a path is, and [] nothing; other lists stay. NULL: no memory. */
static const char *plain_value(an_argv *a, const char *value)
{
    const size_t n = strlen(value);
    if (n < 2 || value[0] != '[' || value[n - 1] != ']') return value;
    an_text item = {0}, next = {0};
    an_list list = an_list_begin(value);
    const bool one = an_list_next(&list, &item) && !an_list_next(&list, &next) && !list.bad;
    an_text_clear(&next);
    if (one) an_list_put(&next, item.data);
    const char *plain = item.failed || next.failed   ? NULL
                        : one                        ? an_argv_printf(a, "%s", next.data)
                        : item.len == 0 && !list.bad ? ""
                                                     : value;
    an_text_free(&item);
    an_text_free(&next);
    return plain;
}

static an_status put_setting(an_err *err, an_argv *out, const char *key, const char *value)
{
    const char *plain = plain_value(out, value);
    char *text = plain ? an_argv_printf(out, "%s=%s", key, plain) : NULL;
    return text ? an_argv_add(err, out, text) : an_fail_nomem(err, "arguments", strlen(value));
}

/* A model whose settings are under TinyRecursiveModels' names. */
static bool is_recursive(const an_model *m)
{
    return m && an_config_find(m->keys, "arch.H_cycles");
}

/* What is kept of the settings while they are rewritten: some have another name where the task is puzzles, some make up
 * the name of the run's folder. */
typedef struct schedule {
    bool puzzles, own; /* own: the command is this program's, where only a preset made their names possible */
    bool has_out, has_updates, has_path;   /* max_iters is given; settings come from files */
    const char *data, *run_name, *project; /* as given, owned by the rewritten arguments; NULL: not given */
    const char *preset;                    /* what the settings begin with; NULL: not known */
    const char *epochs;                    /* as given, likewise */
    bool ends_alone;                       /* eval_interval=null: the only evaluation is that at the end */
} schedule;

/* What is counted in epochs there, and what here has another beginning; *taken: it was one of these.
 *
 * An evaluation interval is a pass of its own there. A warm-up of w updates reaches the peak at update w, counted from
 * 1: warmup_iters=w-1. */
static an_status add_schedule(an_err *err, schedule *s, const char *key, const char *value, an_argv *out, bool *taken)
{
    const bool interval = is(key, "eval_interval");
    *taken = interval || (s->puzzles && is(key, "lr_warmup_steps"));
    if (!*taken) return AN_OK;
    if (!interval) {
        char *end, number[32];
        const long long w = strtoll(value, &end, 10);
        if (*end || w < 1) return put_setting(err, out, "warmup_iters", value);
        snprintf(number, sizeof number, "%lld", w - 1);
        return put_setting(err, out, "warmup_iters", number);
    }
    s->ends_alone = an_recursive_null(value);
    if (s->ends_alone) return AN_OK; /* the number of epochs may still follow */
    if (s->puzzles) AN_TRY(put_setting(err, out, "epochs_per_pass", value));
    if (s->own)
        an_say("note    eval_interval=%.24s is TinyRecursiveModels' here: %s, in epochs; --eval_interval=%.24s counts "
               "updates",
               value, s->puzzles ? "epochs_per_pass" : "eval_epochs", value);
    return put_setting(err, out, "eval_epochs", value);
}

/* Without files of settings arch=trm and arch=trm_chat are what cfg_pretrain and cfg_chat have; with another configuration there
 * they would take its model's sizes away, and with the other one of these its task. */
static an_status check_group(an_err *err, const char *value, const schedule *s)
{
    char name[32];
    const size_t n = strcspn(value, "_");
    const bool chat = is(value + n, "_chat");
    const char *whose = chat ? "cfg_chat" : "cfg_pretrain", *preset = s->preset ? s->preset : "the preset";
    snprintf(name, sizeof name, "%.*s", (int)AN_MIN(n, sizeof name - 1), value);
    if (is_recursive(an_model_find(name)) && (chat || is(value + n, ""))) {
        if (is(preset, whose)) return AN_OK;
        return an_fail(err, AN_E_USAGE,
                       "arch=%s is the architecture of %s, and %.64s has its own: leave one of them out", value, whose,
                       preset);
    }
    return an_fail(err, AN_E_USAGE,
                   "arch=%.64s: of TinyRecursiveModels' architectures trm and trm_chat are here; --config-path DIR "
                   "takes DIR/arch/%.64s.yaml, whose model is trm with other sizes",
                   value, value);
}

/* arch.name, recursive_reasoning.trm@TinyRecursiveReasoningModel_ACTV1: the model, behind the last point before @ or :. */
static an_status check_model(an_err *err, const char *value)
{
    char name[32];
    const size_t n = strcspn(value, "@:");
    size_t begin = n;
    while (begin > 0 && value[begin - 1] != '.') begin--;
    snprintf(name, sizeof name, "%.*s", (int)AN_MIN(n - begin, sizeof name - 1), value + begin);
    if (is_recursive(an_model_find(name))) return AN_OK;
    return an_fail(err, AN_E_USAGE, "arch.name=%.100s: of TinyRecursiveModels' models trm is here", value);
}

/* Keeps the values that the name of a run's folder is made of: copies, since those of a file are freed before. */
static an_status note_folder(an_err *err, schedule *s, const char *key, const char *value, an_argv *out)
{
    if (is(key, "out") || is(key, "out_dir") || (is(key, "checkpoint_path") && !an_recursive_null(value)))
        s->has_out = true;
    if (is(key, "max_iters")) s->has_updates = true;
    const char **kept = is(key, "data_paths") || is(key, "data") ? &s->data
                        : is(key, "run_name")                    ? &s->run_name
                        : is(key, "project_name")                ? &s->project
                        : is(key, "epochs")                      ? &s->epochs
                                                                 : NULL;
    if (!kept) return AN_OK;
    *kept = NULL;
    if (an_recursive_null(value)) return AN_OK;
    *kept = an_argv_printf(out, "%s", value);
    return *kept ? AN_OK : an_fail_nomem(err, "arguments", strlen(value));
}

/* freeze_weights: all that an optimizer trains. */
static an_status add_freeze(an_err *err, const char *value, an_argv *out)
{
    if (is(value, "true") || is(value, "True") || is(value, "1")) return put_setting(err, out, "freeze", "*");
    if (is(value, "false") || is(value, "False") || is(value, "0")) return put_setting(err, out, "freeze", "");
    return an_fail(err, AN_E_USAGE, "freeze_weights=%.64s: it is true or false", value);
}

/* What has no meaning here, at the value that it always has there, or that says what is so: no note. */
static bool is_usual(const char *key, const char *value, const schedule *s)
{
    if (is(key, "dataset_type")) return is(value, "chat") != s->puzzles;
    if (is(key, "arch.loss.name")) return is(value, "losses@ACTLossHead") || is(value, "losses:ACTLossHead");
    return is(value, "0") || is(value, "[]") || an_recursive_null(value);
}

/* Adds one argument of TinyRecursiveModels' pretrain.py, key=value under the names of this program. */
static an_status add_setting(an_err *err, const char *argument, schedule *s, an_argv *out)
{
    const char *equals = strchr(argument, '='), *begin = argument;
    char key[128], arch[160];
    while (*begin == '+') begin++;
    const size_t n = equals ? (size_t)(equals - begin) : 0;
    if (strncmp(begin, "--out", 5) == 0) s->has_out = true;
    if (!equals || *begin == '-' || n == 0 || n >= sizeof key) return an_argv_add(err, out, argument);
    memcpy(key, begin, n);
    key[n] = 0;
    if (is(key, "arch")) return s->has_path ? AN_OK : check_group(err, equals + 1, s);
    if (is(key, "arch.name")) return check_model(err, equals + 1);
    AN_TRY(note_folder(err, s, key, equals + 1, out));
    if (is(key, "project_name") || (is(key, "run_name") && an_recursive_null(equals + 1))) return AN_OK;
    if (is(key, "freeze_weights")) return add_freeze(err, equals + 1, out);
    bool scheduled;
    AN_TRY(add_schedule(err, s, key, equals + 1, out, &scheduled));
    if (scheduled) return AN_OK;
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        if (!is(key, names[i].theirs)) continue;
        if (names[i].may_lack && an_recursive_null(equals + 1)) return AN_OK;
        if (names[i].ours) return put_setting(err, out, names[i].ours, equals + 1);
        if (!is_usual(key, equals + 1, s)) an_say("note    %s means nothing here and is passed over", key);
        return AN_OK;
    }
    snprintf(arch, sizeof arch, "arch.%s", key);
    return put_setting(err, out, !an_train_key_find(key) && an_train_key_find(arch) ? arch : key, equals + 1);
}

/* ---- the configuration */

typedef struct choice {
    const char *name, *path, *arch; /* of --config-name, --config-path, arch=; NULL: not given */
} choice;

/* --name VALUE or --name=VALUE; *used: arguments taken, 0: it is another one. */
static const char *option(const char *argument, const char *next, const char *name, int *used)
{
    const size_t n = strlen(name);
    *used = 0;
    if (strncmp(argument, name, n) != 0 || (argument[n] && argument[n] != '=')) return NULL;
    if (argument[n] == '=') return *used = 1, argument + n + 1;
    return *used = 2, next;
}

static an_status take_choice(an_err *err, const char *argument, const char *next, choice *c, int *used)
{
    static const char *const of_name[] = {"--config-name", "-cn"}, *const of_path[] = {"--config-path", "--config-dir",
                                                                                       "-cp"};
    const char *value = NULL;
    *used = 0;
    for (size_t i = 0; i < AN_COUNT(of_name) && !*used; i++)
        if ((value = option(argument, next, of_name[i], used)) != NULL) c->name = value;
    for (size_t i = 0; i < AN_COUNT(of_path) && !*used; i++)
        if ((value = option(argument, next, of_path[i], used)) != NULL) c->path = value;
    return *used && !value ? an_fail(err, AN_E_USAGE, "%s needs a value", argument) : AN_OK;
}

/* Whether a word names a preset of these models, so that its settings may have their names. */
static bool is_theirs(const char *word, schedule *s)
{
    const an_model *model = NULL;
    const an_preset *p = an_preset_find(word, &model);
    if (!p || !is_recursive(model)) return false;
    s->preset = p->name;
    s->puzzles = p->task == NULL;
    return true;
}

/* The presets are called chat_tiny and so on; the short names are taken too. */
static const char *preset_of(const char *word)
{
    static const char *const sizes[][2] = {
        {"tiny", "chat_tiny"}, {"small", "chat_small"}, {"medium", "chat_medium"}, {"large", "chat_large"}};
    for (size_t i = 0; i < AN_COUNT(sizes); i++)
        if (is(word, sizes[i][0])) return sizes[i][1];
    return word;
}

static an_status add_config(an_err *err, const choice *c, bool trains, schedule *s, an_argv *out)
{
    bool chat = false;
    const char *name = c->name ? preset_of(c->name) : "cfg_pretrain";
    if (!c->path && (c->name || trains)) {
        if (!is_theirs(name, s))
            return an_fail(err, AN_E_USAGE,
                           "--config-name %.64s: cfg_pretrain and cfg_chat are built in; --config-path DIR "
                           "reads DIR/%.64s.yaml",
                           name, name);
        return an_argv_add(err, out, name);
    }
    if (!c->path) return AN_OK;
    an_argv file = {.argc = 0};
    an_status status = an_recursive_settings(err, c->path, name, c->arch, &file, &chat);
    if (status == AN_OK) status = an_argv_add(err, out, chat ? "cfg_chat" : "cfg_pretrain");
    s->puzzles = !chat;
    for (int i = 0; status == AN_OK && i < file.argc; i++) status = add_setting(err, file.argv[i], s, out);
    an_argv_free(&file);
    return status;
}

/* A name that is one part of a path: without blanks, which no shell pattern would find. */
static void make_part(char *name)
{
    for (char *c = name; *c; c++)
        if (strchr(" \t\r\n/\\\"'", *c) || (c == name && *c == '.')) *c = '-';
}

/* out=checkpoints/PROJECT/RUN where pretrain is not told another folder. PROJECT is project_name, or the data's name with
 * a large first letter and "-ACT-torch"; RUN is run_name, or the class and the time. */
static an_status add_folder(an_err *err, const schedule *s, an_argv *out)
{
    char data[64], project[96], run[64], now[24];
    an_text first = {0};
    const an_model *model = NULL;
    const an_preset *p = out->argc > 2 ? an_preset_find(out->argv[2], &model) : NULL;
    const char *at = s->data ? s->data : p && strstr(p->settings, "data=") ? strstr(p->settings, "data=") + 5 : "data";
    const time_t t = time(NULL);
    struct tm local;
    an_list list = an_list_begin(at);
    if (!an_list_next(&list, &first)) an_text_puts(&first, "data");
    if (first.failed) return an_fail_nomem(err, "arguments", strlen(at));
    at = first.data;
    const char *end = s->data ? at + first.len : at + strcspn(at, " "); /* a preset's settings go on */
    while (end > at + 1 && end[-1] == '/') end--;
    for (const char *c = at; c + 1 < end; c++)
        if (*c == '/') at = c + 1;
    snprintf(data, sizeof data, "%.*s", (int)AN_MIN(end - at, 60), at);
    an_text_free(&first);
    for (char *c = data; *c; c++) *c = (char)(c == data ? toupper((unsigned char)*c) : tolower((unsigned char)*c));
    if (!localtime_r(&t, &local) || strftime(now, sizeof now, "%Y%m%d-%H%M%S", &local) == 0) now[0] = 0;
    if (s->project)
        snprintf(project, sizeof project, "%s", s->project);
    else
        snprintf(project, sizeof project, "%s-ACT-torch", data);
    if (s->run_name)
        snprintf(run, sizeof run, "%s", s->run_name);
    else
        snprintf(run, sizeof run, "%s%s-%s", model ? model->name : "run", s->puzzles ? "" : "_chat", now);
    make_part(project);
    make_part(run);
    char *text = an_argv_printf(out, "out=checkpoints/%s/%s", project, run);
    return text ? an_argv_add(err, out, text) : an_fail_nomem(err, "arguments", sizeof project);
}

/* eval_interval=null: one interval of all epochs, those that were given or the preset's. */
static an_status add_one_interval(an_err *err, const schedule *s, an_argv *out)
{
    const an_model *model;
    const an_preset *p = out->argc > 2 ? an_preset_find(out->argv[2], &model) : NULL;
    const char *epochs = s->epochs, *given = p && !epochs ? strstr(p->settings, " epochs=") : NULL;
    if (given) {
        given += strlen(" epochs=");
        epochs = an_argv_printf(out, "%.*s", (int)strcspn(given, " "), given);
        if (!epochs) return an_fail_nomem(err, "arguments", strlen(given));
    }
    if (!epochs) return an_fail(err, AN_E_USAGE, "eval_interval=null: set epochs= too");
    if (s->puzzles) AN_TRY(put_setting(err, out, "epochs_per_pass", epochs));
    return put_setting(err, out, "eval_epochs", epochs);
}

/* The settings of a command that takes those of a run. */
static an_status add_arguments(an_err *err, int argc, char **argv, int first, bool trains, an_argv *out)
{
    choice c = {NULL, NULL, NULL};
    schedule s = {.own = !trains};
    bool theirs = trains;
    for (int i = first, used; i < argc; i += used ? used : 1) {
        AN_TRY(take_choice(err, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &c, &used));
        const char *setting = argv[i] + strspn(argv[i], "+"); /* as add_setting takes it */
        if (strncmp(setting, "arch=", 5) == 0) c.arch = setting + 5;
        theirs |= used > 0 || (!strchr(argv[i], '=') && is_theirs(preset_of(argv[i]), &s));
    }
    s.has_path = c.path != NULL;
    const bool has_word = first < argc && argv[first][0] != '-' && !strchr(argv[first], '=');
    if (theirs && !(trains && has_word && !c.name && !c.path)) AN_TRY(add_config(err, &c, trains, &s, out));
    for (int i = first, used; i < argc; i += used ? used : 1) {
        AN_TRY(take_choice(err, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &c, &used));
        if (used) continue;
        AN_TRY(theirs ? add_setting(err, preset_of(argv[i]), &s, out) : an_argv_add(err, out, argv[i]));
    }
    if (trains && s.epochs && is(s.epochs, "0") && !s.has_updates)
        return an_fail(err, AN_E_USAGE,
                       "epochs=0 trains nothing: set epochs=, or the number of updates with max_iters=");
    if (trains && !s.has_out) AN_TRY(add_folder(err, &s, out));
    return s.ends_alone ? add_one_interval(err, &s, out) : AN_OK;
}

/* The words after --subsets, up to the next option, as one word with commas between them. */
static an_status add_list(an_err *err, int n, char **kept, int *i, an_argv *out)
{
    an_text list = {0};
    while (*i + 1 < n && kept[*i + 1][0] != '-' && !strchr(kept[*i + 1], '='))
        an_text_printf(&list, "%s%s", list.len ? "," : "", kept[++*i]);
    an_status status = list.failed ? an_fail_nomem(err, "arguments", list.len)
                       : list.len  ? an_argv_add(err, out, list.data)
                                   : AN_OK;
    an_text_free(&list);
    return status;
}

static bool is_blank(const char *text)
{
    return *text && text[strspn(text, " \t")] == 0;
}

an_status an_recursive_command(an_err *err, int argc, char **argv, an_argv *out)
{
    char *kept[AN_MAX_ARGUMENTS];
    int n = 0, used = 0;
    bool trains = false;
    *out = (an_argv){.argc = 0};
    for (int i = 0; i < argc; i++) {
        if (i > 0 && is_blank(argv[i])) {
            an_say(
                "note    an argument of blanks is passed over; a line goes on only where nothing, not even a comment, "
                "follows its backslash");
            continue;
        }
        if (n == AN_MAX_ARGUMENTS) return an_fail(err, AN_E_USAGE, "more than %d arguments", AN_MAX_ARGUMENTS);
        kept[n++] = argv[i];
    }
    AN_TRY(an_argv_add(err, out, n > 0 ? kept[0] : "anneal"));
    if (n < 2) return AN_OK;
    AN_TRY(add_command(err, n, kept, out, &used, &trains));
    const an_command *c = an_command_find(out->argv[1]);
    if (c && c->run_keys) return add_arguments(err, n, kept, 1 + used, trains, out);
    for (int i = 1 + used; i < n; i++) {
        AN_TRY(an_argv_add(err, out, kept[i]));
        if (is(kept[i], "--subsets")) AN_TRY(add_list(err, n, kept, &i, out));
    }
    return AN_OK;
}
