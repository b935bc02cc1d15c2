/* cmd_export.c: writes the weights of a run or file in a layout that other programs read. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "models/model.h"
#include "platform/platform.h"
#include "train/run_dir.h"
#include <signal.h>
#include <string.h>

typedef struct export_values {
    bool best;
    char out[AN_CONFIG_TEXT_BYTES], layout[AN_CONFIG_TEXT_BYTES];
} export_values;

#define AT(name) offsetof(export_values, name)
static const an_config_field fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "model.safetensors", 0, 0, NULL, "the file to write"},
    {"layout", AN_CONFIG_TEXT, AT(layout), "", 0, 0, NULL, "one of the model's layouts; empty: its first"},
    {"best", AN_CONFIG_BOOL, AT(best), "false", 0, 0, NULL, "of a run: the checkpoint with the lowest validation loss"},
};
const an_config an_export_keys = {.fields = fields, .n = AN_COUNT(fields)};

void an_export_put_layouts(an_text *out)
{
    for (size_t i = 0; i < an_n_models; i++) {
        const an_weight_formats *w = an_models[i]->weights;
        if (w) an_text_printf(out, "  %-22s%s\n", an_models[i]->name, w->layouts_doc);
    }
    an_text_puts(out, "  others                the names and shapes of our checkpoints; without layout=\n");
}

/* Endings of formats that are not written: such a file would be another one than its name says. */
static an_status check_ending(an_err *err, const char *out)
{
    static const char *const others[] = {".onnx",  ".gguf",   ".ggml",    ".npz",       ".npy", ".h5",
                                         ".keras", ".tflite", ".mlmodel", ".mlpackage", ".pb",  ".msgpack"};
    const char *slash = strrchr(out, '/'), *dot = strrchr(slash ? slash : out, '.');
    for (size_t i = 0; dot && i < AN_COUNT(others); i++)
        if (strcmp(dot, others[i]) == 0)
            return an_fail(err, AN_E_USAGE,
                           "out=%.200s: %s is not written; a model's weights are written as .safetensors, an imported "
                           "one's archive as .pt2, and other layouts by layout= (anneal export --help)",
                           out, others[i]);
    return AN_OK;
}

/* Creates the folder of the output file, and its parents. */
static an_status make_folder_of(an_err *err, const char *path)
{
    char folder[AN_CONFIG_TEXT_BYTES];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return AN_OK;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return an_make_dirs(err, folder, 0777);
}

/* About what will be written: parameters are, moments and averages are not. */
static int64_t parameter_bytes(const an_st *st)
{
    int64_t sum = 0;
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i);
        if (strncmp(t->name, "optimizer.", 10) != 0 && strncmp(t->name, "ema.", 4) != 0) sum += (int64_t)t->bytes;
    }
    return sum;
}

an_status an_cmd_export(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    export_values v;
    char path[AN_CKPT_PATH_BYTES];
    an_st *st;
    const an_model *model;
    AN_TRY(an_config_defaults(err, &an_export_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_export_keys, &v}, 1));
    AN_TRY(check_ending(err, v.out));
    AN_TRY(an_run_dir_check_output(err, v.out));
    AN_TRY(an_ckpt_find(err, args->words[0], v.best, path));
    AN_TRY(an_model_open_weights(err, path, &model, &st));
    signal(SIGXFSZ, SIG_IGN); /* exceeding a file size limit becomes an error, not a signal */
    an_status status = make_folder_of(err, v.out);
    an_bar_file file = {v.out, parameter_bytes(st)};
    an_bar *bar = an_bar_open(args, "export", "bytes", an_bar_probe_file, &file);
    if (status == AN_OK) status = an_model_export(err, st, model, v.layout, v.out);
    an_bar_close(bar);
    if (status == AN_OK && !args->quiet) an_say("wrote   %s", v.out);
    an_st_close(st);
    return status;
}
