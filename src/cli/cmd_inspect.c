/* cmd_inspect.c: lists the tensors of a checkpoint and its state_hash, which two runs with equal bits share. The hash is computed
 * here and not kept in the file. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include <anneal_import.h>
#include "io/formats/json.h"
#include "io/formats/torch_file.h"
#include <stdlib.h>
#include <string.h>

typedef struct inspect_values {
    bool best;
} inspect_values;

static const an_config_field fields[] = {
    {"best", AN_CONFIG_BOOL, offsetof(inspect_values, best), "false", 0, 0, NULL,
     "of a run: the checkpoint with the lowest validation loss"},
};
const an_config an_inspect_keys = {.fields = fields, .n = AN_COUNT(fields)};

static void put_tensor(an_text *out, const an_st_tensor *t, an_hash128 hash, bool json)
{
    char shape[AN_ST_SHAPE_BYTES], digits[AN_HASH_TEXT_BYTES];
    an_st_shape_text(t->rank, t->shape, shape);
    an_hash_text(hash, digits);
    if (!json) {
        an_text_printf(out, "%s  %-9s %-16s %s\n", digits, an_dtype_text(t->dtype), shape, t->name);
        return;
    }
    an_text_puts(out, "{\"name\":");
    an_json_put(out, t->name);
    an_text_printf(out, ",\"shape\":%s,\"dtype\":\"%s\",\"hash\":\"%s\"}", shape, an_dtype_text(t->dtype), digits);
}

/* The run's state as one line of JSON; "null" where the file's is not valid JSON: the file is untrusted. free() it. */
static char *state_of(const an_st *st)
{
    const char *text = an_st_meta(st, AN_CKPT_STATE);
    json_t *state;
    if (!text || an_json_parse(NULL, an_st_path(st), 0, text, strlen(text), &state) != AN_OK) return strdup("null");
    char *line = json_dumps(state, JSON_COMPACT);
    json_decref(state);
    return line;
}

/* Tensors in the order of names, so that two checkpoints can be compared line by line. */
static an_status print(an_err *err, const an_st *st, bool json)
{
    const size_t n = an_st_count(st);
    char digits[AN_HASH_TEXT_BYTES];
    an_text out = {0};
    an_hash128 whole, *each = malloc((n + 1) * sizeof *each);
    char *state = state_of(st);
    an_status status =
        each && state ? an_ckpt_hash(err, st, &whole, each) : an_fail_nomem(err, "hashes", n * sizeof *each);
    if (json) an_text_puts(&out, "{\"tensors\":[");
    for (size_t i = 0; i < n && status == AN_OK; i++) {
        if (json && i) an_text_puts(&out, ",");
        put_tensor(&out, an_st_tensor_by_name(st, i), each[i], json);
    }
    if (status == AN_OK) {
        an_hash_text(whole, digits);
        if (json)
            an_text_printf(&out, "],\"state\":%s,\"state_hash\":\"%s\"}", state, digits);
        else
            an_text_printf(&out, "%s  state_hash; state %s", digits, state);
    }
    free(state);
    free(each);
    if (status == AN_OK) return an_print_line(err, &out);
    an_text_free(&out);
    return status;
}

/* ---- an archive of torch.export */

static void put_entries(an_text *out, const an_import *file, an_import_kind kind, const char *title, bool json)
{
    char shape[AN_ST_SHAPE_BYTES];
    an_import_entry e;
    if (json)
        an_text_printf(out, "%s\"%s\":[", kind == AN_IMPORT_INPUT ? "{" : ",", title);
    else
        an_text_printf(out, "%s\n", title);
    for (int i = 0; an_import_get(file, kind, i, &e); i++) {
        an_st_shape_text(e.shape.rank, e.shape.dim, shape);
        if (json) {
            an_text_puts(out, i ? ",{\"name\":" : "{\"name\":");
            an_json_put(out, e.name ? e.name : "");
            an_text_printf(out, ",\"shape\":%s,\"dtype\":\"%s\",\"first_axis_free\":%s,\"requires_grad\":%s", shape,
                           e.torch_dtype, e.first_axis_free ? "true" : "false", e.requires_grad ? "true" : "false");
            if (e.tied_to) an_text_puts(out, ",\"tied_to\":"), an_json_put(out, e.tied_to);
            an_text_puts(out, "}");
            continue;
        }
        an_text_printf(out, "    %-9s %-16s %s%s%s%s%s\n", e.torch_dtype, shape, e.name ? e.name : "",
                       e.first_axis_free ? "  (any first axis)" : "", e.tied_to ? "  = " : "",
                       e.tied_to ? e.tied_to : "", kind == AN_IMPORT_PARAMETER && !e.requires_grad ? "  (frozen)" : "");
    }
    if (json) an_text_puts(out, "]");
}

static an_status print_archive(an_err *err, an_import *file, bool json)
{
    static const char *const titles[] = {"inputs", "outputs", "parameters", "buffers"};
    char why[AN_IMPORT_WHY] = "";
    an_text out = {0};
    const bool known = an_import_check(file, why) == AN_OK;
    for (int k = AN_IMPORT_INPUT; k <= AN_IMPORT_BUFFER; k++)
        put_entries(&out, file, (an_import_kind)k, titles[k], json);
    if (json) {
        an_text_printf(&out, ",\"evaluation\":%s,\"missing\":", an_import_has_eval(file) ? "true" : "false");
        if (known)
            an_text_puts(&out, "null");
        else
            an_json_put(&out, why);
        an_import_note(file, why);
        if (why[0]) an_text_puts(&out, ",\"note\":"), an_json_put(&out, why);
        an_text_puts(&out, "}");
        return an_print_line(err, &out);
    }
    char *operations = an_import_operations(file);
    an_text_printf(&out, "operations%s\n%s%s", an_import_has_eval(file) ? " (of the program for training)" : "",
                   operations ? operations : "", known ? "all are known" : why);
    free(operations);
    an_import_note(file, why);
    if (why[0]) an_text_printf(&out, "\nnote: %s", why);
    an_text_printable(out.data, out.len);
    return an_print_line(err, &out);
}

static bool is_archive(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && strcmp(dot, ".pt2") == 0;
}

static an_status inspect_archive(an_err *err, const char *path, bool json)
{
    char why[AN_IMPORT_WHY] = "";
    an_import *file = an_import_open(path, why);
    if (!file) return an_fail(err, AN_E_IO, "%s", why);
    an_status status = print_archive(err, file, json);
    an_import_close(file);
    return status;
}

an_status an_cmd_inspect(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    inspect_values v;
    char path[AN_CKPT_PATH_BYTES];
    an_st *st;
    AN_TRY(an_config_defaults(err, &an_inspect_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_inspect_keys, &v}, 1));
    if (is_archive(args->words[0])) return inspect_archive(err, args->words[0], args->json);
    AN_TRY(an_ckpt_find(err, args->words[0], v.best, path));
    AN_TRY(an_weights_open(err, path, &st));
    an_status status = print(err, st, args->json);
    an_st_close(st);
    return status;
}
