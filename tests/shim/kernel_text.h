/* kernel_text.h: kernel source as a renderer will make it: defines, dialect, exact.h, tiles.h, arguments, body; and
 * the configurations that the tests of every dialect go through. Files are read from the source tree: tests and benches
 * run in its root. */
#ifndef AN_KERNEL_TEXT_H
#define AN_KERNEL_TEXT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t an_i64;
typedef uint32_t an_u32;
#include "kernels/gpu/attn_args.h"
#include "kernels/gpu/gemm_args.h"

enum { KIND_F32, KIND_TF32, KIND_BF16, KIND_F16 };

/* Appends a file to text[*at]; exits when it is not there, since nothing can be tested then. */
static inline void kernel_append(char *text, size_t room, size_t *at, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s: not found; run this in the root of the source tree\n", path);
        exit(1);
    }
    *at += (size_t)snprintf(text + *at, room - *at, "#line 1 \"%s\"\n", path);
    *at += fread(text + *at, 1, room - *at - 1, f);
    text[*at] = 0;
    fclose(f);
}

/* dialect: "cuda" or "msl"; body: "attn_forward", "attn_backward" or "gemm"; defines: lines of text. free() it. */
static inline char *kernel_text(const char *dialect, const char *body, const char *defines)
{
    const size_t room = 1u << 18;
    char path[256], *text = malloc(room);
    if (!text) exit(1);
    size_t at = (size_t)snprintf(text, room, "%s", defines);
    snprintf(path, sizeof path, "src/kernels/dialect/%s.h", dialect);
    kernel_append(text, room, &at, path);
    kernel_append(text, room, &at, "src/base/exact.h");
    kernel_append(text, room, &at, "src/kernels/dialect/tiles.h");
    if (strncmp(body, "gemm", 4)) {
        kernel_append(text, room, &at, "src/kernels/gpu/attn_args.h");
        kernel_append(text, room, &at, "src/kernels/gpu/dropout_mask.h");
    } else {
        kernel_append(text, room, &at, "src/kernels/gpu/gemm_args.h");
    }
    snprintf(path, sizeof path, "src/kernels/gpu/%s.inc", body);
    kernel_append(text, room, &at, path);
    return text;
}

typedef struct attn_config {
    int store, mul, exact, vec, D, dc, causal, dropout; /* dropout: whether the code for it is there */
    int forward_threads, backward_threads, cols;
    int bias;    /* a mask, */
    int sliding; /* a window, which the portable bodies take */
    int group;   /* heads of q for each of k and v; 0 is 1 */
} attn_config;

static inline const char *kind_name(int kind)
{
    static const char *const names[] = {"F32", "TF32", "BF16", "F16"};
    return names[kind];
}

static inline void attn_defines(char *out, size_t room, const attn_config *c, int backward)
{
    snprintf(
        out, room,
        "#define AN_STORE AN_KIND_%s\n#define AN_MUL AN_KIND_%s\n#define AN_EXACT %d\n#define AN_VEC %d\n#define AN_D "
        "%d\n"
        "#define AN_DC %d\n#define AN_CAUSAL %d\n#define AN_DROPOUT %d\n#define AN_THREADS %d\n#define AN_COLS %d\n",
        kind_name(c->store), kind_name(c->mul), c->exact, c->vec, c->D, c->dc, c->causal, c->dropout,
        backward ? c->backward_threads : c->forward_threads, c->cols);
    const size_t used = strlen(out);
    if (c->bias) snprintf(out + used, room - used, "#define AN_BIAS 1\n");
    if (c->group > 1) snprintf(out + strlen(out), room - strlen(out), "#define AN_GROUP %d\n", c->group);
    if (c->sliding) snprintf(out + strlen(out), room - strlen(out), "#define AN_SLIDING 1\n");
}

typedef struct gemm_config {
    int store, store_c, mul, vec, bm, bn, bk, subgroups_m, subgroups_n, a_along_k, b_along_k;
    int direct; /* AN_DIRECT */
} gemm_config;

static inline void gemm_defines(char *out, size_t room, const gemm_config *c)
{
    snprintf(
        out, room,
        "#define AN_STORE AN_KIND_%s\n#define AN_STORE_C AN_KIND_%s\n#define AN_MUL AN_KIND_%s\n#define AN_EXACT "
        "1\n#define AN_VEC %d\n"
        "#define AN_BM %d\n#define AN_BN %d\n#define AN_BK %d\n#define AN_SUBGROUPS_M %d\n#define AN_SUBGROUPS_N %d\n"
        "#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n#define AN_THREADS %d\n#define AN_DIRECT %d\n",
        kind_name(c->store), kind_name(c->store_c), kind_name(c->mul), c->vec, c->bm, c->bn, c->bk, c->subgroups_m,
        c->subgroups_n, c->a_along_k, c->b_along_k, 32 * c->subgroups_m * c->subgroups_n, c->direct);
}

#endif
