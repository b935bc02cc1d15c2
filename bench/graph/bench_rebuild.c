/* bench_rebuild.c: the cost of building the graph of a training step again in every step: emission, folding, merging, key
 * and backward pass.
 *
 *     make bench B=graph/bench_rebuild     or     build/bench/graph/bench_rebuild [rounds]
 *
 * A GPT-2 of 12 layers (B 8, T 256, C 384, H 6, V 50304), forward and backward, in bf16 policy, without a device.
 * Prints the nodes, the fastest and the median microseconds a rebuild, and nanoseconds a node. The first rebuild, which
 * allocates, is not counted.
 */
#define _POSIX_C_SOURCE 200809L
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct an_ctx {
    an_graph g;
    an_err err;
};

enum { LAYERS = 12, B = 8, TOKENS = 256, C = 384, H = 6, V = 50304, D = C / H, HIDDEN = 4 * C };

typedef struct layer {
    an_tensor *ln1, *ln1b, *qkv, *qkvb, *proj, *projb, *ln2, *ln2b, *up, *upb, *down, *downb;
} layer;
typedef struct model {
    an_tensor *wte, *wpe, *lnf, *lnfb;
    layer l[LAYERS];
    int n;
} model;

static an_tensor *weight(an_graph *g, model *m, int rows, int cols)
{
    int32_t shape[2] = {rows, cols};
    return an_persistent(g, AN_LEAF_PARAM, m->n++, AN_F32, cols ? 2 : 1, shape);
}

static void make_model(an_graph *g, model *m)
{
    m->wte = weight(g, m, V, C);
    m->wpe = weight(g, m, TOKENS, C);
    m->lnf = weight(g, m, C, 0);
    m->lnfb = weight(g, m, C, 0);
    for (layer *l = m->l; l < m->l + LAYERS; l++) {
        l->ln1 = weight(g, m, C, 0), l->ln1b = weight(g, m, C, 0);
        l->qkv = weight(g, m, 3 * C, C), l->qkvb = weight(g, m, 3 * C, 0);
        l->proj = weight(g, m, C, C), l->projb = weight(g, m, C, 0);
        l->ln2 = weight(g, m, C, 0), l->ln2b = weight(g, m, C, 0);
        l->up = weight(g, m, HIDDEN, C), l->upb = weight(g, m, HIDDEN, 0);
        l->down = weight(g, m, C, HIDDEN), l->downb = weight(g, m, C, 0);
    }
}

static an_tensor *input(an_graph *g, int index, int rows, int cols)
{
    int32_t shape[2] = {rows, cols};
    int64_t attr[2] = {AN_LEAF_INPUT, index};
    an_emit_args e = {.op = AN_OP_LEAF, .dtype = AN_I32, .rank = 2, .shape = shape, .n_attr = 2, .attr = attr};
    return an_emit(g, &e);
}

/* [B,T,3C] to three [B,H,T,D]. */
static an_tensor *head(an_tensor *qkv, int i)
{
    an_tensor *part = an_slice_at("bench", qkv, 2, i * C, (i + 1) * C, 1);
    return an_transpose_at("bench", an_reshape_at("bench", part, AN_SHAPE(B, TOKENS, H, D)), 1, 2);
}

static an_tensor *block(const layer *l, an_tensor *x)
{
    an_tensor *a = an_layer_norm_at("bench", x, l->ln1, l->ln1b, 1e-5);
    an_tensor *qkv = an_linear_at("bench", a, l->qkv, l->qkvb);
    an_tensor *o = an_attention_at("bench", head(qkv, 0), head(qkv, 1), head(qkv, 2), 0, true, 0, NULL);
    o = an_reshape_at("bench", an_transpose_at("bench", o, 1, 2), AN_SHAPE(B, TOKENS, C));
    x = an_add_at("bench", x, an_cast_at("bench", an_linear_at("bench", o, l->proj, l->projb), AN_F32));
    a = an_layer_norm_at("bench", x, l->ln2, l->ln2b, 1e-5);
    a = an_gelu_at("bench", an_linear_at("bench", a, l->up, l->upb));
    return an_add_at("bench", x, an_cast_at("bench", an_linear_at("bench", a, l->down, l->downb), AN_F32));
}

static void build_step(an_graph *g, const model *m)
{
    char name[16];
    an_graph_scope_push(g, "gpt");
    an_tensor *ids = input(g, 0, B, TOKENS), *labels = input(g, 1, B, TOKENS);
    an_tensor *x = an_add_at("bench", an_gather_at("bench", m->wte, ids), m->wpe);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "h.%d", i);
        an_graph_scope_push(g, name);
        x = block(&m->l[i], x);
        an_graph_scope_pop(g);
    }
    x = an_layer_norm_at("bench", x, m->lnf, m->lnfb, 1e-5);
    an_tensor *loss = an_mean_at("bench", an_linear_cross_entropy_at("bench", x, m->wte, labels), AN_ALL, false);
    an_graph_scope_pop(g);
    an_graph_backward(g, loss);
}

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 400;
    double *us = rounds > 0 ? malloc((size_t)rounds * sizeof *us) : NULL;
    an_ctx cx = {0};
    model m = {0};
    if (us == NULL || an_graph_open(&cx.err, &cx, &cx.g) != AN_OK) return 2;
    cx.g.matmul_dtype = AN_BF16;
    make_model(&cx.g, &m);
    uint64_t key = 0;
    for (int i = -2; i < rounds; i++) {
        double start = now_us();
        an_graph_reset(&cx.g);
        build_step(&cx.g, &m);
        if (i >= 0) us[i] = now_us() - start;
        if (i >= 0 && cx.g.key != key) fprintf(stderr, "the key changed\n");
        key = cx.g.key;
    }
    if (cx.err.code != AN_OK) {
        fprintf(stderr, "%s\n", cx.err.text);
        return 1;
    }
    qsort(us, (size_t)rounds, sizeof *us, by_value);
    printf("%d nodes  fastest %.1f us  median %.1f us  %.0f ns a node (fastest)  %.2f MiB a step\n", cx.g.n, us[0],
           us[rounds / 2], us[0] * 1000 / cx.g.n, (double)cx.g.arena.used_bytes / (1 << 20));
    an_graph_close(&cx.g);
    free(us);
    return 0;
}
