/* gemm_body.c: which body computes products on this Mac's GPU. All of them give the same bits (gpu_gemm_tiles.c), so that the
 * choice is of the machine and no part of a run: $ANNEAL_METAL_GEMM, else what `anneal selftest` timed and kept in the
 * kernel cache's folder for a GPU of this name, else by size.
 *
 *     gemm-bodies:    gpu Apple M1
 *                     float32 64x64x16/2x2
 *                     16-bit direct-64x64/2x2 */
#include "device/metal/metal_internal.h"

#include "codegen/gpu_module.h"
#include "device/kernel_cache.h"
#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char by_size[] = "by-size";
static const char *const operands[AN_N_GEMM] = {[AN_GEMM_F32] = "float32", [AN_GEMM_16] = "16-bit"};

/* The number of a body in an_gpu.gemm_body; -1: there is none of that name. */
static int find_body(const char *name)
{
    if (strcmp(name, by_size) == 0) return 0;
    for (int i = 0; an_gemm_body_name(i); i++)
        if (strcmp(an_gemm_body_name(i), name) == 0) return i + 1;
    return -1;
}

static bool path_of_kept(const an_device *d, char *path, size_t bytes)
{
    char dir[900], why[512];
    an_cache_find("metal", d->options.cache_dir, dir, sizeof dir, why, sizeof why);
    const int n = dir[0] ? snprintf(path, bytes, "%s/gemm-bodies", dir) : -1;
    return n > 0 && (size_t)n < bytes;
}

/* Lines that say anything else, of another GPU or another version, are passed over. */
static void read_kept(an_device *d)
{
    char path[1000], line[128], gpu[96];
    if (!path_of_kept(d, path, sizeof path) || !an_cache_ours(path)) return;
    FILE *f = fopen(path, "r");
    if (!f) return;
    snprintf(gpu, sizeof gpu, "gpu %s", d->facts.name);
    bool here = false;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "gpu ", 4) == 0) here = strcmp(line, gpu) == 0;
        for (int k = 0; here && k < AN_N_GEMM; k++) {
            const size_t n = strlen(operands[k]);
            const int body = strncmp(line, operands[k], n) == 0 && line[n] == ' ' ? find_body(line + n + 1) : -1;
            if (body >= 0) d->gpu.gemm_body[k] = body;
        }
    }
    fclose(f);
}

an_status an_mtl_gemm_bodies(an_err *err, an_device *d)
{
    const char *wish = getenv("ANNEAL_METAL_GEMM");
    if (!wish || !*wish) {
        read_kept(d);
        return AN_OK;
    }
    char names[400] = "by-size";
    for (int i = 0; an_gemm_body_name(i); i++) {
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, ", %s", an_gemm_body_name(i));
    }
    const int body = find_body(wish);
    if (body < 0)
        return an_fail(err, AN_E_USAGE, "metal: ANNEAL_METAL_GEMM is %.40s; a body of products is one of %s", wish,
                       names);
    for (int k = 0; k < AN_N_GEMM; k++) d->gpu.gemm_body[k] = body;
    return AN_OK;
}

const char *an_mtl_gemm_body(int i)
{
    return i == 0 ? by_size : an_gemm_body_name(i - 1);
}

void an_mtl_gemm_use(an_device *d, an_dtype dtype, int i)
{
    d->gpu.gemm_body[dtype == AN_F32 ? AN_GEMM_F32 : AN_GEMM_16] = i;
}

an_status an_mtl_gemm_keep(an_err *err, an_device *d)
{
    char path[1000], text[400];
    if (!path_of_kept(d, path, sizeof path))
        return an_fail(err, AN_E_ENV,
                       "metal: there is no kernel cache to keep the choice in; `anneal doctor` says why");
    int n = snprintf(text, sizeof text, "gpu %s\n", d->facts.name);
    for (int k = 0; k < AN_N_GEMM; k++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %s\n", operands[k], an_mtl_gemm_body(d->gpu.gemm_body[k]));
    an_save save;
    AN_TRY(an_save_begin(err, path, &save));
    const an_status status = an_save_write(err, &save, text, (size_t)n);
    if (status == AN_OK) return an_save_commit(err, &save);
    an_save_abort(&save);
    return status;
}
