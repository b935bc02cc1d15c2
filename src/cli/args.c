/* args.c: parses argv into words, flags and checked settings, suggests the nearest name for a misspelt one, and applies the
 * environment and the command line to a run's settings (an_args_apply_run; precedence: train/config.h). */
#include "cli/cli.h"
#include <stdlib.h>
#include <string.h>

/* Finds a key in the command's table, or in any model's: which model a run uses is not known yet. */
static const an_config_field *find_key(const an_command *c, const char *key)
{
    const an_config_field *f = c->keys ? an_config_find(c->keys, key) : NULL;
    if (!f && c->run_keys) f = an_train_key_find(key);
    return f || !c->eval_keys ? f : an_train_eval_key_find(key);
}

void an_command_each_table(const an_command *c, an_table_fn *take, void *arg)
{
    if (c->keys) take(arg, "", c->keys);
    if (c->run_keys) an_train_each_table(take, arg);
    if (c->eval_keys) an_train_each_eval_table(take, arg);
}

typedef struct name_list {
    const char *name[192];
    size_t n;
} name_list;

static void add_names(void *arg, const char *owner, const an_config *keys)
{
    name_list *l = arg;
    (void)owner;
    for (size_t i = 0; i < keys->n && l->n < AN_COUNT(l->name); i++) l->name[l->n++] = keys->fields[i].name;
}

/* Names of settings in other programs, which spelling correction would not find; NULL: none, or ours is not among the
 * keys. */
static const char *other_name(const char *key, bool (*has)(const void *keys, const char *ours), const void *keys)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {
        {"lr", "learning_rate"},
        {"batch", "batch_size"},
        {"bs", "batch_size"},
        {"per_device_train_batch_size", "batch_size"},
        {"num_workers", "workers"},
        {"fp16", "dtype=float16"},
        {"bf16", "dtype=bfloat16"},
        {"amp", "dtype=bfloat16"},
        {"precision", "dtype"},
        {"wd", "weight_decay"},
        {"optim", "optimizer"},
        {"steps", "max_iters"},
        {"max_steps", "max_iters"},
        {"num_epochs", "epochs"},
        {"num_train_epochs", "epochs"},
        {"warmup", "warmup_iters"},
        {"warmup_steps", "warmup_iters"},
        {"num_warmup_steps", "warmup_iters"},
        {"lr_scheduler", "decay_lr"},
        {"lr_scheduler_type", "decay_lr"},
        {"max_grad_norm", "grad_clip"},
        {"grad_clip_norm", "grad_clip"},
        {"gradient_clip_val", "grad_clip"},
        {"accumulation", "gradient_accumulation_steps"},
        {"accumulate_grad_batches", "gradient_accumulation_steps"},
        {"grad_accum", "gradient_accumulation_steps"},
        {"seq_len", "block_size"},
        {"max_seq_len", "block_size"},
        {"context_length", "block_size"},
        {"n_ctx", "block_size"},
        {"hidden_size", "n_embd"},
        {"d_model", "n_embd"},
        {"dim", "n_embd"},
        {"num_layers", "n_layer"},
        {"layers", "n_layer"},
        {"depth", "n_layer"},
        {"num_heads", "n_head"},
        {"heads", "n_head"},
        {"output_dir", "out"},
        {"save_dir", "out"},
        {"logdir", "out"},
        {"log_dir", "out"},
        {"dataset_path", "data"},
        {"resume", "init_from=resume"},
        {"resume_from_checkpoint", "init_from=resume"},
        {"checkpoint", "init_from"},
        {"gpus", "device"},
        {"device_map", "device"},
        {"gradient_checkpointing", "recompute"},
        {"activation_checkpointing", "recompute"},
    };
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        char ours[64];
        if (strcmp(key, names[i].theirs) != 0) continue;
        snprintf(ours, sizeof ours, "%.*s", (int)strcspn(names[i].ours, "="), names[i].ours);
        return has(keys, ours) ? names[i].ours : NULL;
    }
    return NULL;
}

static bool command_has(const void *c, const char *key)
{
    return find_key(c, key) != NULL;
}

static bool table_has(const void *keys, const char *key)
{
    return an_config_find(keys, key) != NULL;
}

static an_status unknown_key(an_err *err, const an_command *c, const char *key)
{
    name_list l = {.n = 0};
    l.name[l.n++] = "quiet";
    if (c->json) l.name[l.n++] = "json";
    an_command_each_table(c, add_names, &l);
    const char *near = other_name(key, command_has, c);
    if (!near) near = an_nearest(key, l.name, l.n);
    if (near) return an_fail(err, AN_E_USAGE, "%s: unknown setting %.64s; did you mean %s?", c->name, key, near);
    const char *name = strstr(c->usage, c->name); /* prepare sudoku */
    if (name && name != c->usage)
        return an_fail(err, AN_E_USAGE, "%s: unknown setting %.64s; anneal %.*s --help lists them", c->name, key,
                       (int)(name - c->usage + (ptrdiff_t)strlen(c->name)), c->usage);
    return an_fail(err, AN_E_USAGE, "%s: unknown setting %.64s; anneal help %s lists them", c->name, key, c->name);
}

/* "--top-k" and "top_k" are one key: copied without leading dashes, with underscores, up to `n` bytes. */
static an_status add_setting(an_err *err, const an_command *c, an_args *a, const char *key, size_t n, const char *value)
{
    if (a->n_settings == AN_CLI_MAX_SETTINGS)
        return an_fail(err, AN_E_USAGE, "%s: more than %d settings", c->name, AN_CLI_MAX_SETTINGS);
    char *copy = a->keys[a->n_settings];
    if (n >= sizeof a->keys[0]) n = sizeof a->keys[0] - 1;
    for (size_t i = 0; i < n; i++) copy[i] = key[i] == '-' ? '_' : key[i];
    copy[n] = 0;
    if (!find_key(c, copy)) return unknown_key(err, c, copy);
    a->settings[a->n_settings++] = (an_setting){copy, value};
    return AN_OK;
}

static bool is_key(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(text[i] == '_' || text[i] == '-' || text[i] == '.' || (text[i] >= 'a' && text[i] <= 'z') ||
              (text[i] >= 'A' && text[i] <= 'Z') || (text[i] >= '0' && text[i] <= '9')))
            return false;
    return n > 0;
}

static bool is_truth(const char *text)
{
    return text && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0);
}

/* --name: a flag, or a key whose value is the next argument (a switch may lack one). *used counts what was consumed.
 */
static an_status add_dashed(an_err *err, const an_command *c, an_args *a, const char *name, const char *next, int *used)
{
    char key[64];
    *used = 1;
    if (!*name) return an_fail(err, AN_E_USAGE, "%s: -- has no name after it; usage: anneal %s", c->name, c->usage);
    if (strcmp(name, "json") == 0 && c->json) return a->json = true, AN_OK;
    if (strcmp(name, "quiet") == 0) return a->quiet = true, AN_OK;
    snprintf(key, sizeof key, "%s", name);
    for (char *p = key; *p; p++)
        if (*p == '-') *p = '_';
    const an_config_field *f = find_key(c, key);
    if (!f) return unknown_key(err, c, key);
    if (f->type == AN_CONFIG_BOOL && !is_truth(next)) return add_setting(err, c, a, key, strlen(key), "true");
    if (!next) return an_fail(err, AN_E_USAGE, "%s: --%s needs a value (%s)", c->name, name, f->doc);
    *used = 2;
    return add_setting(err, c, a, key, strlen(key), next);
}

static an_status add_word(an_err *err, const an_command *c, an_args *a, const char *word)
{
    if (a->n_words == c->max_words && find_key(c, word))
        return an_fail(err, AN_E_USAGE, "%s: %.64s is a setting and needs a value: %.64s=...", c->name, word, word);
    if (a->n_words == c->max_words)
        return an_fail(err, AN_E_USAGE, "%s: %.128s is one argument too many; usage: anneal %s", c->name, word,
                       c->usage);
    a->words[a->n_words++] = word;
    return AN_OK;
}

an_status an_args_parse(an_err *err, const an_command *c, int argc, char **argv, an_args *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < argc;) {
        const char *arg = argv[i], *name = strncmp(arg, "--", 2) == 0 ? arg + 2 : arg, *equals = strchr(name, '=');
        int used = 1;
        if (equals && is_key(name, (size_t)(equals - name)))
            AN_TRY(add_setting(err, c, out, name, (size_t)(equals - name), equals + 1));
        else if (name != arg)
            AN_TRY(add_dashed(err, c, out, name, i + 1 < argc ? argv[i + 1] : NULL, &used));
        else
            AN_TRY(add_word(err, c, out, arg));
        i += used;
    }
    if (out->n_words < c->min_words) return an_fail(err, AN_E_USAGE, "%s: usage: anneal %s", c->name, c->usage);
    return AN_OK;
}

an_status an_args_apply(an_err *err, const an_args *args, const an_key_set *sets, size_t n_sets)
{
    for (size_t i = 0; i < args->n_settings; i++) {
        const an_setting *s = &args->settings[i];
        size_t t = 0;
        while (t < n_sets && !an_config_find(sets[t].keys, s->key)) t++;
        if (t == n_sets) continue; /* in a table that the command applies itself */
        AN_TRY(an_config_set(err, sets[t].keys, sets[t].values, "", s->key, s->value));
    }
    return AN_OK;
}

/* The error for a key of another model. */
static an_status foreign_key(an_err *err, const an_train_config *c, const char *key)
{
    const an_config keys = an_train_keys(c);
    name_list l = {.n = 0};
    add_names(&l, "", &keys);
    const char *near = other_name(key, table_has, &keys);
    if (!near) near = an_nearest(key, l.name, l.n);
    return an_fail(err, AN_E_USAGE, "%s is no setting of model %s (%.64s)%s%s%s", key, c->model->name, c->preset,
                   near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* DISABLE_COMPILE in the environment means compile=false, whatever its value. What the command line says comes later. */
static an_status apply_environment(an_err *err, an_train_config *c)
{
    const char *set = getenv("DISABLE_COMPILE");
    const an_config keys = an_train_keys(c);
    return set && *set ? an_config_set(err, &keys, c, "", "compile", "false") : AN_OK;
}

/* Of settings that say the same in other units, the one that is given sets the other aside: epochs, or the task's. */
static an_status set_aside(an_err *err, const an_config *keys, an_train_config *c, const an_setting *s)
{
    if (strcmp(s->key, "max_iters") == 0) AN_TRY(an_config_set(err, keys, c, "", "epochs", "0"));
    for (const an_task_unit *u = c->task->other_units; u && u->common; u++)
        if (strcmp(s->key, u->common) == 0) AN_TRY(an_config_set(err, keys, c, "", u->key, u->value));
    return AN_OK;
}

an_status an_args_apply_run(an_err *err, const an_args *args, const an_config *own, void *values, an_train_config *c)
{
    const an_config keys = an_train_keys(c);
    const an_key_set set = {own, values};
    if (own) AN_TRY(an_args_apply(err, args, &set, 1));
    AN_TRY(apply_environment(err, c));
    for (size_t i = 0; i < args->n_settings; i++) {
        const an_setting *s = &args->settings[i];
        if (own && an_config_find(own, s->key)) continue;
        if (!an_config_find(&keys, s->key)) return foreign_key(err, c, s->key);
        AN_TRY(an_config_set(err, &keys, c, "", s->key, s->value));
        AN_TRY(set_aside(err, &keys, c, s));
    }
    return AN_OK;
}
