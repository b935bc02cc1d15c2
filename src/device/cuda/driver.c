/* driver.c: finds NVIDIA's libraries in the places where they are installed, and their functions.
 *
 * Order of the search:
 *     1. the folders in ANNEAL_CUDA_PATH, and no others when it is set: a test or a user can say exactly what is used
 *     2. the loader's own path
 *     3. the toolkit: $CUDA_HOME, $CUDA_PATH, /usr/local/cuda
 *     4. Python wheels: of the active environment, of the python3 on PATH, and the usual folders
 */
#define _DARWIN_C_SOURCE
#define _GNU_SOURCE
#include "device/cuda/driver.h"

#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include "base/text.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OLDEST_DRIVER = 12000, OLDEST_MAJOR = 12, NEWEST_MAJOR = 13 };

/* A library by its exact path; a name without a folder ("NAME.so.MAJOR") is searched for by the loader. */
static void *load(const char *path)
{
    an_err quiet = {0};
    return an_dl_open(&quiet, path);
}

/* The first match of DIR/NAME, DIR being a pattern. */
static void *load_from(const char *dir, const char *name, char *path, size_t capacity)
{
    glob_t found;
    char pattern[1024];
    void *library = NULL;
    if (snprintf(pattern, sizeof pattern, "%s/%s", dir, name) >= (int)sizeof pattern) return NULL;
    if (glob(pattern, 0, NULL, &found)) return NULL;
    for (size_t i = 0; i < found.gl_pathc && !library; i++)
        if (snprintf(path, capacity, "%s", found.gl_pathv[i]) < (int)capacity) library = load(path);
    globfree(&found);
    return library;
}

static void *load_from_list(const char *dirs, const char *name, char *path, size_t capacity)
{
    char dir[900];
    for (; *dirs; dirs += strcspn(dirs, ":"), dirs += *dirs == ':') {
        int n = (int)strcspn(dirs, ":");
        void *library = NULL;
        if (n > 0 && snprintf(dir, sizeof dir, "%.*s", n, dirs) < (int)sizeof dir)
            library = load_from(dir, name, path, capacity);
        if (library) return library;
    }
    return NULL;
}

/* The folder above bin/python3 of each entry of PATH. */
static void *load_from_pythons(const char *name, char *path, size_t capacity)
{
    const char *dirs = getenv("PATH");
    char file[900], dir[900];
    for (; dirs && *dirs; dirs += strcspn(dirs, ":"), dirs += *dirs == ':') {
        int n = (int)strcspn(dirs, ":");
        if (n < 5 || memcmp(dirs + n - 4, "/bin", 4) != 0) continue;
        if (snprintf(file, sizeof file, "%.*s/python3", n, dirs) >= (int)sizeof file || access(file, X_OK)) continue;
        snprintf(dir, sizeof dir, "%.*s/lib/python3*/site-packages/nvidia/*/lib", n - 4, dirs);
        void *library = load_from(dir, name, path, capacity);
        if (library) return library;
    }
    return NULL;
}

static void *load_from_places(const char *name, char *path, size_t capacity)
{
    static const struct {
        const char *variable, *format;
    } places[] = {
        {"CUDA_HOME", "%s/lib64"},       {"CUDA_PATH", "%s/lib64"},
        {NULL, "/usr/local/cuda/lib64"}, {NULL, "/usr/local/cuda-1[0-9]*/lib64"},
        {NULL, "/usr/lib/wsl/lib"},      {"VIRTUAL_ENV", "%s/lib/python3*/site-packages/nvidia/*/lib"},
        {"CONDA_PREFIX", "%s/lib"},      {"CONDA_PREFIX", "%s/lib/python3*/site-packages/nvidia/*/lib"},
    };
    static const struct {
        const char *variable, *format;
    } late[] = {
        {"HOME", "%s/.local/lib/python3*/site-packages/nvidia/*/lib"},
        {"HOME", "%s/.pyenv/versions/*/lib/python3*/site-packages/nvidia/*/lib"},
        {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
        {NULL, "/usr/lib/python3/dist-packages/nvidia/*/lib"},
    };
    char dir[900];
    void *library = load(name);
    if (library) {
        snprintf(path, capacity, "%s", name);
        return library;
    }
    for (size_t i = 0; i < AN_COUNT(places) + AN_COUNT(late); i++) {
        bool early = i < AN_COUNT(places);
        if (i == AN_COUNT(places) && (library = load_from_pythons(name, path, capacity))) return library;
        const char *variable = early ? places[i].variable : late[i - AN_COUNT(places)].variable,
                   *format = early ? places[i].format : late[i - AN_COUNT(places)].format,
                   *value = variable ? getenv(variable) : "";
        if (!value || (variable && !*value)) continue;
        an_text t = {0};
        const char *mark = strstr(format, "%s");
        an_text_putn(&t, format, mark ? (size_t)(mark - format) : strlen(format));
        if (mark) an_text_puts(&t, value), an_text_puts(&t, mark + 2);
        bool fits = t.data && snprintf(dir, sizeof dir, "%s", t.data) < (int)sizeof dir;
        an_text_free(&t);
        if (fits && (library = load_from(dir, name, path, capacity))) return library;
    }
    return NULL;
}

static void *find(const char *name, char *path, size_t capacity)
{
    const char *only = getenv("ANNEAL_CUDA_PATH");
    return only && *only ? load_from_list(only, name, path, capacity) : load_from_places(name, path, capacity);
}

#define DRIVER_SYMBOL(name, symbol, arguments) {symbol, offsetof(an_cuda_driver, name)},
#define NVRTC_SYMBOL(name, symbol, arguments)  {symbol, offsetof(an_nvrtc, name)},
#define NCCL_SYMBOL(name, symbol, arguments)   {symbol, offsetof(an_nccl, name)},
#define DNN_SYMBOL(name, symbol, arguments)    {symbol, offsetof(an_cudnn, name)},
#define LT_SYMBOL(name, symbol, arguments)     {symbol, offsetof(an_cublaslt, name)},

an_status an_cuda_driver_find(an_err *err, an_cuda_driver *out)
{
    static const an_dl_symbol symbols[] = {AN_CUDA_DRIVER(DRIVER_SYMBOL)};
    char path[512];
    memset(out, 0, sizeof *out);
    out->library = find("libcuda.so.1", path, sizeof path);
    if (!out->library)
        return an_fail(err, AN_E_ENV,
                       "libcuda.so.1 not found: no NVIDIA driver here; install one, or name its folder in "
                       "ANNEAL_CUDA_PATH");
    const char *missing = an_dl_fill(out->library, symbols, AN_COUNT(symbols), out);
    if (missing)
        return an_fail(err, AN_E_ENV, "%s has no %s: the NVIDIA driver is too old; install one for CUDA %d or newer",
                       path, missing, OLDEST_DRIVER / 1000);
    if (out->driver_version(&out->version)) out->version = 0;
    if (out->version < OLDEST_DRIVER)
        return an_fail(err, AN_E_ENV, "the NVIDIA driver is for CUDA %d.%d; install one for CUDA %d or newer",
                       out->version / 1000, out->version % 1000 / 10, OLDEST_DRIVER / 1000);
    return AN_OK;
}

/* Tries libNAME.so.13, then .12, ...: the newest that the driver accepts. */
static void *find_versions(const char *name, int newest, char *path, size_t capacity)
{
    char file[64];
    void *library = NULL;
    for (int major = AN_MIN(newest, NEWEST_MAJOR); major >= OLDEST_MAJOR && !library; major--) {
        snprintf(file, sizeof file, "%s.so.%d", name, major);
        library = find(file, path, capacity);
    }
    return library;
}

static const an_dl_symbol nvrtc_symbols[] = {AN_CUDA_NVRTC(NVRTC_SYMBOL)};

an_status an_nvrtc_find(an_err *err, int newest, an_nvrtc *out)
{
    memset(out, 0, sizeof *out);
    out->library = find_versions("libnvrtc", newest, out->path, sizeof out->path);
    if (!out->library)
        return an_fail(err, AN_E_ENV,
                       "libnvrtc.so.%d not found (loader path, /usr/local/cuda, Python packages): kernels cannot be "
                       "compiled. Install CUDA, or the Python package nvidia-cuda-nvrtc, or name its folder in "
                       "ANNEAL_CUDA_PATH",
                       AN_MIN(newest, NEWEST_MAJOR));
    const char *missing = an_dl_fill(out->library, nvrtc_symbols, AN_COUNT(nvrtc_symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "%s has no %s; install a newer NVRTC", out->path, missing);
    if (out->version(&out->major, &out->minor))
        return an_fail(err, AN_E_ENV, "%s does not tell its version; reinstall it", out->path);
    out->build = an_dl_build(an_dl_sym(out->library, "nvrtcVersion"));
    return AN_OK;
}

void *an_nvrtc_builtins(const an_nvrtc *c)
{
    an_err quiet = {0};
    char file[600];
    const char *path = an_dl_path(an_dl_sym(c->library, "nvrtcVersion")), *name = path ? strrchr(path, '/') : NULL;
    const int folder = name ? (int)(name - path) + 1 : 0;
    const int n =
        snprintf(file, sizeof file, "%.*slibnvrtc-builtins.so.%d.%d", folder, path ? path : "", c->major, c->minor);
    return n > 0 && n < (int)sizeof file ? an_dl_open(&quiet, file) : NULL;
}

an_status an_nvrtc_fill(an_err *err, void *library, const an_nvrtc *like, an_nvrtc *out)
{
    *out = *like;
    out->library = library;
    const char *missing = an_dl_fill(library, nvrtc_symbols, AN_COUNT(nvrtc_symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "a copy of %s has no %s", like->path, missing);
    if (out->compile == like->compile) return an_fail(err, AN_E_ENV, "a copy of %s is the library itself", like->path);
    return AN_OK;
}

an_status an_cublaslt_find(an_err *err, int newest, an_cublaslt *out)
{
    static const an_dl_symbol symbols[] = {AN_CUDA_LT(LT_SYMBOL)};
    memset(out, 0, sizeof *out);
    out->library = find_versions("libcublasLt", newest, out->path, sizeof out->path);
    if (!out->library)
        return an_fail(err, AN_E_ENV,
                       "libcublasLt.so.%d not found: GEMMs run on the portable kernels, several times slower. "
                       "Install CUDA, or the Python package nvidia-cublas, or name its folder in ANNEAL_CUDA_PATH",
                       AN_MIN(newest, NEWEST_MAJOR));
    const char *missing = an_dl_fill(out->library, symbols, AN_COUNT(symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "%s has no %s; install a newer cuBLAS", out->path, missing);
    void *version = an_dl_sym(out->library, "cublasLtGetVersion");
    size_t (*get)(void);
    memcpy(&get, &version, sizeof get);
    out->library_version = version ? get() : 0;
    return AN_OK;
}

an_status an_cudnn_find(an_err *err, an_cudnn *out)
{
    static const an_dl_symbol symbols[] = {
        AN_CUDA_DNN(DNN_SYMBOL){"cudnnGetErrorString", offsetof(an_cudnn, error_text)}};
    enum { OLDEST = 8600 }; /* the first for Hopper */
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so.8"};
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < AN_COUNT(names) && !out->library; i++)
        out->library = find(names[i], out->path, sizeof out->path);
    if (!out->library)
        return an_fail(
            err, AN_E_ENV,
            "libcudnn.so.9 not found (loader path, /usr/local/cuda, Python packages): convolutions run on the "
            "portable kernels, several times slower. Install cuDNN, or the Python package nvidia-cudnn-cu13, "
            "or name its folder in ANNEAL_CUDA_PATH");
    const char *missing = an_dl_fill(out->library, symbols, AN_COUNT(symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "%s has no %s; install a newer cuDNN", out->path, missing);
    void *version = an_dl_sym(out->library, "cudnnGetVersion");
    size_t (*get)(void);
    memcpy(&get, &version, sizeof get);
    out->library_version = version ? get() : 0;
    if (out->library_version < OLDEST)
        return an_fail(err, AN_E_ENV, "%s is cuDNN of version code %zu; install 8.6 or newer", out->path,
                       out->library_version);
    return AN_OK;
}

an_status an_nccl_find(an_err *err, an_nccl *out)
{
    static const an_dl_symbol symbols[] = {
        AN_CUDA_NCCL(NCCL_SYMBOL){"ncclGetErrorString", offsetof(an_nccl, error_text)}};
    enum { OLDEST = 21000 }; /* the first whose calls can be captured with any other work */
    memset(out, 0, sizeof *out);
    out->library = find("libnccl.so.2", out->path, sizeof out->path);
    if (!out->library)
        return an_fail(
            err, AN_E_ENV,
            "cuda: libnccl.so.2 not found (loader path, /usr/local/cuda, Python packages): several GPUs cannot add "
            "their gradients. Install NCCL, or the Python package nvidia-nccl-cu13, or name its folder in "
            "ANNEAL_CUDA_PATH");
    const char *missing = an_dl_fill(out->library, symbols, AN_COUNT(symbols), out);
    if (missing) return an_fail(err, AN_E_ENV, "%s has no %s; install a newer NCCL", out->path, missing);
    if (out->get_version(&out->version) || out->version < OLDEST)
        return an_fail(err, AN_E_ENV, "%s is NCCL of version code %d; install 2.10 or newer", out->path, out->version);
    return AN_OK;
}
