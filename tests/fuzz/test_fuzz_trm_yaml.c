/* Settings of TinyRecursiveModels: a file, and behind a form feed the file arch/trm.yaml beside it, which its `defaults` may
 * name. What is taken are arguments key=value, as many as a command line has, in memory of their own. */
#include "cli/trm_command.h"
#include "fuzz.h"

#include <unistd.h>

/* FOLDER/main.yaml and FOLDER/arch/trm.yaml. */
static const char *folder(const char *data, size_t bytes)
{
    static char dir[256];
    char path[320];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%s", test_path("settings"));
        snprintf(path, sizeof path, "%s/arch", dir);
        FUZZ_CHECK(an_make_dirs(NULL, path, 0700) == AN_OK);
    }
    const char *second = memchr(data, '\f', bytes);
    const size_t n = second ? (size_t)(second - data) : bytes;
    snprintf(path, sizeof path, "%s/main.yaml", dir);
    test_write_file(path, data, n);
    snprintf(path, sizeof path, "%s/arch/trm.yaml", dir);
    test_write_file(path, second ? second + 1 : "", second ? bytes - n - 1 : 0);
    return dir;
}

static bool fuzz_one(const char *data, size_t bytes)
{
    an_err err = {0};
    an_argv a = {.argc = 1, .argv = {(char[]){"anneal"}}};
    bool chat;
    an_status status =
        an_recursive_settings(&err, folder(data, bytes), "main", bytes % 3 == 0 ? "trm" : NULL, &a, &chat);
    fuzz_check_sentence(status, &err);
    FUZZ_CHECK(a.argc >= 1 && a.argc <= AN_MAX_ARGUMENTS && a.argv[a.argc] == NULL);
    for (int i = 1; i < a.argc; i++) FUZZ_CHECK(strchr(a.argv[i], '=') != NULL);
    an_argv_free(&a);
    return status == AN_OK;
}

static const fuzz_seed seeds[] = {
    SEED("defaults:\n  - arch: trm\n  - _self_\nhydra:\n  output_subdir: null\ndata_paths: ['a/b', c]\nlr: 1e-4\n"
         "evaluators:\n  - name: x\nema: True\n\fname: a@B\nloss:\n  name: c@d\nhidden_size: 512\npuzzle_emb_ndim: "
         "${.hidden_size}\ncausal: true\n"),
    SEED("lr: 0.1\nmin: ${.lr}\nempty: ~\nlist: []\n"),
    SEED("defaults: [{arch: trm}, {override x: y}]\n\f{a: {b: {c: 1}}}\n"),
    SEED("defaults: [{arch: trm}, {arch: trm}]\n\fdefaults: [{override arch: null}]\na: 1\n"),
};

static size_t fuzz_seeds(const fuzz_seed **out)
{
    *out = seeds;
    return AN_COUNT(seeds);
}
