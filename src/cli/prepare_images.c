/* prepare_images.c: anneal prepare fashion-mnist: its four files, unpacked, where data=fashion-mnist finds them. */
#define _DEFAULT_SOURCE
#include "cli/cmd_prepare.h"
#include "io/data/download.h"
#include "io/formats/idx.h"
#include "io/formats/sha256.h"
#include "platform/platform.h"
#include <signal.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    char out[AN_CONFIG_TEXT_BYTES], from[AN_CONFIG_TEXT_BYTES], mirror[AN_CONFIG_TEXT_BYTES];
} values;

#define AT(name) offsetof(values, name)
static const an_config_field fields[] = {
    {"out", AN_CONFIG_TEXT, AT(out), "data/fashion-mnist", 0, 0, NULL, "folder for the four files"},
    {"from", AN_CONFIG_TEXT, AT(from), "", 0, 0, NULL,
     "folder that has them, plain or .gz; empty: that of Debian's package dataset-fashion-mnist, or a download"},
    {"mirror", AN_CONFIG_TEXT, AT(mirror), "", 0, 0, NULL, "address of a folder with the four .gz files to download"},
};
const an_config an_prepare_fashion_mnist_keys = {.fields = fields, .n = AN_COUNT(fields)};

static const char debian[] = "/usr/share/datasets/fashion-mnist",
                  address[] = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion";

/* Xiao, Rasul and Vollgraf, "Fashion-MNIST", 2017: the packed files as published, and the data in them after the header
 * (Debian packs them anew). */
static const struct {
    const char *name, *packed_sha256;
    uint64_t packed_bytes;
    const char *sha256;
} files[] = {
    {"train-images-idx3-ubyte", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880,
     "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012"},
    {"train-labels-idx1-ubyte", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515,
     "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7"},
    {"t10k-images-idx3-ubyte", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102,
     "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a"},
    {"t10k-labels-idx1-ubyte", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148,
     "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9"},
};

enum { PATH_BYTES = 2 * AN_CONFIG_TEXT_BYTES };

static an_status download(an_err *err, const values *v, bool quiet)
{
    char url[PATH_BYTES], path[PATH_BYTES];
    for (size_t i = 0; i < AN_COUNT(files); i++) {
        snprintf(url, sizeof url, "%s/%s.gz", *v->mirror ? v->mirror : address, files[i].name);
        snprintf(path, sizeof path, "%s/%s.gz", v->out, files[i].name);
        const an_download d = {.url = url,
                               .path = path,
                               .sha256 = files[i].packed_sha256,
                               .bytes = files[i].packed_bytes,
                               .otherwise = "install Debian's package dataset-fashion-mnist, or name a folder with "
                                            "the four files with --from DIR",
                               .tell = !quiet && isatty(STDERR_FILENO) ? an_prepare_tell_download : NULL,
                               .arg = (void *)(uintptr_t)files[i].name};
        AN_TRY(an_download_file(err, &d));
    }
    return AN_OK;
}

static void big_endian(uint32_t x, unsigned char out[4])
{
    for (int i = 0; i < 4; i++) out[i] = (unsigned char)(x >> (24 - 8 * i));
}

static an_status write_file(an_err *err, const char *path, const an_idx *x)
{
    an_save save;
    unsigned char head[4 + 4 * AN_IDX_MAX_RANK] = {0, 0, 8 /* bytes */, (unsigned char)x->rank};
    for (int i = 0; i < x->rank; i++) big_endian((uint32_t)x->dim[i], head + 4 + 4 * i);
    AN_TRY(an_save_begin(err, path, &save));
    an_status status = an_save_write(err, &save, head, 4 + 4 * (size_t)x->rank);
    if (status == AN_OK) status = an_save_write(err, &save, x->data, x->bytes);
    if (status == AN_OK) return an_save_commit(err, &save);
    an_save_abort(&save);
    return status;
}

/* File i of a folder, checked and written plain into v->out. */
static an_status take(an_err *err, const char *folder, size_t i, const char *out)
{
    char path[PATH_BYTES], sha256[AN_SHA256_TEXT_BYTES];
    an_idx x;
    snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
    AN_TRY(an_idx_open(err, path, &x));
    an_sha256(x.data, x.bytes, sha256);
    an_status status = AN_OK;
    if (strcmp(sha256, files[i].sha256) != 0)
        status = an_fail(err, AN_E_DATA,
                         "%s: not Fashion-MNIST's (sha256 %s after the header, not %s); data=%s takes any such folder",
                         path, sha256, files[i].sha256, folder);
    snprintf(path, sizeof path, "%s/%s", out, files[i].name);
    if (status == AN_OK) status = write_file(err, path, &x);
    an_idx_close(&x);
    return status;
}

static bool is_there(const char *folder)
{
    char path[PATH_BYTES];
    bool all = true;
    for (size_t i = 0; i < AN_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        all &= an_idx_is_there(path);
    }
    return all;
}

an_status an_cmd_prepare_fashion_mnist(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    values v;
    an_text line = {0};
    AN_TRY(an_config_defaults(err, &an_prepare_fashion_mnist_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_prepare_fashion_mnist_keys, &v}, 1));
    signal(SIGXFSZ, SIG_IGN);
    AN_TRY(an_make_dirs(err, v.out, 0777));
    const bool downloads = !*v.from && (*v.mirror || !is_there(debian));
    if (downloads) AN_TRY(download(err, &v, args->quiet));
    const char *folder = downloads ? v.out : *v.from ? v.from : debian;
    for (size_t i = 0; i < AN_COUNT(files); i++) AN_TRY(take(err, folder, i, v.out));
    if (args->json) {
        an_text_puts(&line, "{\"out\":");
        an_json_put(&line, v.out);
        an_text_puts(&line, ",\"train\":60000,\"test\":10000}");
    } else {
        an_text_printf(&line, "%s: 60000 images for training and 10000 for testing, from %s", v.out,
                       downloads ? "a download" : folder);
    }
    return an_print_line(err, &line);
}
