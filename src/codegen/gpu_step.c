/* gpu_step.c: grids and thread blocks of templates; see gpu_step.h. Each template's text says at its head over
 * which grid it is launched; here those grids are computed, and the arguments filled in. */
#include "codegen/gpu_step.h"

#include "base/rng.h"
#include "codegen/gpu_library_calls.h"
#include "codegen/render.h"

#include <string.h>

/* ---------------------------------------------------------------------------------------------- loop kernels, GEMM */

/* One launch; its grid follows from the kernel's form (render_gpu.c). An input in an output's memory is no argument where the
 * language forbids two names for one address: the kernel reads the output. */
static const char *loop_step(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_gpu_step *out)
{
    const an_loop_launch of = an_render_gpu_launch(p->kernel[s->kernel].u.loop, gpu);
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, NULL, of.blocks, 1, 1, of.threads, &l);
    if (!why) l->shared_bytes = (uint32_t)of.shared_bytes;
    const an_aliases aliases = an_step_aliases(p, s, gpu);
    for (int i = 0; !why && i < s->n_args; i++)
        if (aliases.output[i] < 0) an_gpu_bind_arg(l, i, s, i);
    return why;
}

/* Division by a constant as a multiplication: for 0 <= n < 2^31, n / d = (n * magic) >> (32 + shift), where magic =
 * ceil(2^(31 + s) / d) with the least s such that 2^s >= d, and shift = s - 1. d = 1 has magic 0. (Granlund and Montgomery,
 * Division by Invariant Integers using Multiplication, 1994.) */
static struct an_divisor divisor(int32_t d)
{
    struct an_divisor by = {0, 0};
    while (((int64_t)1 << by.shift) < d) by.shift++;
    if (d > 1) by.magic = (an_u32)an_ceil_div((int64_t)1 << (31 + by.shift), d);
    if (d > 1) by.shift--;
    return by;
}

static struct an_window_args window_args(const an_window_spec *v)
{
    struct an_window_args w = {.taps = v->taps[1],
                               .channels = v->channels,
                               .pixel = v->pixel,
                               .by_taps = divisor(v->taps[1]),
                               .by_channels = divisor(v->channels)};
    for (int d = 0; d < 2; d++) {
        w.out[d] = v->out[d], w.in[d] = v->in[d], w.step[d] = v->step[d];
        w.tap[d] = v->tap[d], w.start[d] = v->start[d], w.apart[d] = v->apart[d];
        w.by_out[d] = divisor(v->out[d]);
    }
    return w;
}

/* Extents and strides are run-time arguments, so that GEMMs of other shapes share a compiled text. */
static struct an_gemm_args gemm_args(const an_gemm_spec *s)
{
    struct an_gemm_args g = {.a_m = s->a_m,
                             .a_k = s->a_k,
                             .b_k = s->b_k,
                             .b_n = s->b_n,
                             .c_m = s->c_m,
                             .m = s->m,
                             .n = s->n,
                             .k = s->k,
                             .k_per_split = AN_MAX(1, (int)an_ceil_div(s->k, AN_MAX(1, s->splits)))};
    if (s->window.of) g.w = window_args(&s->window);
    memcpy(g.a_b, s->a_b, sizeof g.a_b);
    memcpy(g.b_b, s->b_b, sizeof g.b_b);
    memcpy(g.c_b, s->c_b, sizeof g.c_b);
    memcpy(g.nb, s->nb, sizeof g.nb);
    return g;
}

static int64_t batches(const an_gemm_spec *s)
{
    return (int64_t)s->nb[0] * s->nb[1] * s->nb[2];
}
/* Ranges that the sum over k is split into; an empty sum still has one, which is 0. */
static int64_t split_count(const an_gemm_spec *s)
{
    return s->splits > 1 && s->k > 0 ? an_ceil_div(s->k, an_ceil_div(s->k, s->splits)) : 1;
}

/* A block of bm x bn of C a thread block. With split k each split writes its sums to scratch, and a second launch adds them
 * in the order of the splits and runs the epilogue:
 *
 *     grid  n / bn  x  m / bm  x  batches * splits        then  n / threads  x  m  x  batches
 *
 * A convolution's blocks are counted along one axis: m is batch * height * width there, more than a grid's second axis takes. */
static const char *gemm_step(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const an_tiles *t,
                             an_gpu_step *out)
{
    const an_aliases aliases = an_step_aliases(p, s, gpu); /* of the epilogue's arguments, which follow A, B and C */
    const an_gemm_spec *g = &p->kernel[s->kernel].u.gemm;
    const int64_t splits = t->rows ? 1 : split_count(g);
    out->params.gemm = gemm_args(g);
    out->params_bytes = sizeof out->params.gemm;
    const int64_t across = an_ceil_div(g->n, t->bn), down = an_ceil_div(g->m, t->bm);
    const bool flat = g->window.of == AN_WINDOW_A;
    for (int join = 0; join < (splits > 1 ? 2 : 1); join++) {
        an_gpu_launch *l;
        const char *why = join ? an_gpu_launch_add(out, "gemm_reduce_splits", an_ceil_div(g->n, t->threads), g->m,
                                                   batches(g), t->threads, &l)
                               : an_gpu_launch_add(out, "gemm", flat ? across * down : across, flat ? 1 : down,
                                                   batches(g) * splits, t->threads, &l);
        if (why) return why;
        if (!join) an_gpu_bind_arg(l, 0, s, 0), an_gpu_bind_arg(l, 1, s, 1);
        an_gpu_bind_arg(l, 2, s, 2);
        an_gpu_bind(l, splits > 1 ? AN_BIND_SCRATCH : AN_BIND_ANY, 3, 0, 0);
        an_gpu_bind(l, AN_BIND_PARAMS, 4, 0, 0);
        for (int i = 3; s->epilogue >= 0 && i < s->n_args; i++)
            if (aliases.output[i - 3] < 0) an_gpu_bind_arg(l, 2 + i, s, i);
    }
    return NULL;
}

static struct an_attn_args attn_args(const an_attn_spec *s, bool has_n_keys)
{
    struct an_attn_args a = {.B = s->B,
                             .H = s->H,
                             .T = s->T,
                             .S = s->S,
                             .scale = s->scale,
                             .keep_scale = an_rng_keep_scale_16(s->dropout),
                             .keep_at_least = an_rng_least_16(s->dropout),
                             .stream = s->stream,
                             .has_n_keys = has_n_keys,
                             .window = s->window};
    an_i64 *const to[] = {a.q, a.k, a.v, a.o, a.do_, a.dq, a.dk, a.dv};
    const int64_t *const from[] = {s->q, s->k, s->v, s->o, s->do_, s->dq, s->dk, s->dv};
    for (size_t i = 0; i < AN_COUNT(to); i++) memcpy(to[i], from[i], 3 * sizeof *to[i]);
    for (int i = 0; i < 4; i++) a.mask[i] = s->mask[i];
    return a;
}

/* A launch of attention over blocks of t->bm queries, or keys. */
static const char *attn_launch(an_gpu_step *out, const char *entry, const an_attn_spec *a, const an_tiles *t, bool keys,
                               an_gpu_launch **l)
{
    return an_gpu_launch_add(out, entry, an_ceil_div(keys ? a->S : a->T, t->bm), keys ? a->H / an_attn_group(a) : a->H,
                             a->B, t->threads, l);
}
/* The same for the passes of attn_hopper.inc and attn_hopper_backward.inc: persistent thread blocks, as many as the GPU
 * holds at a time, share all row blocks, or heads. */
static const char *hopper_launch(an_gpu_step *out, const char *entry, const an_attn_spec *a, const an_gpu *gpu,
                                 int pass, an_gpu_launch **l)
{
    const int chunks = AN_HOPPER_CHUNKS(a->D);
    const int64_t heads = (int64_t)a->H * a->B,
                  rows = an_ceil_div(AN_HOPPER_KEYS(pass) ? a->S : a->T, AN_HOPPER_ROWS(pass, chunks));
    const int64_t units = pass == AN_WHOLE_PASS   ? heads
                          : pass == AN_SHORT_PASS ? an_ceil_div(heads, 2)
                                                  : heads * rows / (AN_HOPPER_KEYS(pass) ? an_attn_group(a) : 1);
    const int64_t most = pass == AN_WHOLE_PASS ? AN_MIN(gpu->multiprocessors, AN_HOPPER_GRID) : gpu->multiprocessors;
    const char *why = an_gpu_launch_add(out, entry, AN_MIN(units, most), 1, 1, AN_HOPPER_THREADS(pass, chunks), l);
    if (!why) (*l)->shared_bytes = AN_HOPPER_SHARED(pass, chunks);
    return why;
}

/* Where the packed tensors begin in a step's scratch, in bytes. */
static int64_t packed_at(const an_attn_spec *a, bool grad)
{
    const int64_t heads = (int64_t)a->H * a->B;
    return grad ? 4 * an_round_up(AN_HOPPER_WORDS(an_module_attn_pass(a, true), heads, a->T, AN_HOPPER_CHUNKS(a->D)), 4)
                : 0;
}
/* Byte of the scratch where tensor 0 to 3 (q, k, v, do) is packed, 4: where they end. */
static int64_t packed_tensor(const an_attn_spec *a, bool grad, int tensor)
{
    return packed_at(a, grad) + 2 * (int64_t)AN_HOPPER_PACKED_AT(*a, a->D, tensor, an_attn_group(a));
}
/* attn_pack: q, k, v and, backward, do, which are these arguments of the step. */
static const char *pack_launch(an_gpu_step *out, const an_plan_step *s, const an_attn_spec *a, const an_tiles *t,
                               const int arg[4], bool grad)
{
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, "attn_pack", an_ceil_div(AN_MAX(a->T, a->S), 64) * a->B, a->H,
                                        grad ? 4 : 3, t->threads, &l);
    if (why) return why;
    for (int i = 0; i < 3 + grad; i++) an_gpu_bind_arg(l, i, s, arg[i]);
    if (!grad) an_gpu_bind(l, AN_BIND_ANY, 3, 0, 0);
    an_gpu_bind(l, AN_BIND_SCRATCH, 4, 0, packed_at(a, grad));
    an_gpu_bind(l, AN_BIND_PARAMS, 5, 0, 0);
    return NULL;
}

/* Where attn_mask's bits begin in the scratch, behind packed tensors, in bytes. */
static int64_t mask_at(const an_attn_spec *a, bool grad)
{
    const int64_t packed = an_module_attn_packed(a, grad) ? packed_tensor(a, grad, grad ? 4 : 3) : packed_at(a, grad);
    return an_round_up(packed, 16);
}
static int64_t mask_bytes(const an_attn_spec *a, bool grad)
{
    const int64_t heads = (int64_t)a->B * a->H;
    return AN_MASK_BYTES(an_module_attn_pass(a, grad), heads, a->T, a->S);
}
static const char *mask_launch(an_gpu_step *out, const an_plan_step *s, const an_attn_spec *a, const an_tiles *t,
                               int rng, bool grad)
{
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, "attn_mask", AN_MASK_SIDE(a->T) * (int64_t)a->B, a->H,
                                        an_ceil_div(AN_MASK_SIDE(a->S), AN_MASK_TILES), t->threads, &l);
    if (why) return why;
    an_gpu_bind_arg(l, 0, s, rng);
    an_gpu_bind(l, AN_BIND_SCRATCH, 1, 0, mask_at(a, grad));
    an_gpu_bind(l, AN_BIND_PARAMS, 2, 0, 0);
    return NULL;
}

/* The same for attn_short.inc: a thread block a head. `arg`: arguments of the step; those from `tables` on are the angles. */
static const char *short_launch(an_gpu_step *out, const char *entry, const an_plan_step *s, const an_attn_spec *a,
                                const an_tiles *t, const int *arg, int n, int tables)
{
    an_gpu_launch *l;
    const char *why = an_gpu_launch_add(out, entry, (int64_t)a->H * a->B, 1, 1, t->threads, &l);
    if (why) return why;
    l->shared_bytes = (uint32_t)AN_SHORT_SHARED(tables == AN_ATTN_GRAD_TABLES, t->cols);
    for (int i = 0; i < n; i++) an_gpu_bind_arg(l, i, s, arg[i]);
    an_gpu_bind(l, AN_BIND_PARAMS, n, 0, 0);
    for (int i = 0; t->body == AN_BODY_ROTATED && i < 2; i++) an_gpu_bind_arg(l, n + 1 + i, s, tables + i);
    return NULL;
}

static const char *attn_step(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const an_tiles *t,
                             an_gpu_step *out)
{
    enum { RNG = 3, N_KEYS = 6 };
    static const int order[] = {0, 1, 2, 3, N_KEYS, 4, 5}; /* q k v rng n_keys o lse */
    static const int in_short[] = {0, 1, 2, 4, 5};
    const an_attn_spec *a = &p->kernel[s->kernel].u.attn;
    const bool packed = t->body == AN_BODY_HOPPER && t->vec < 8;
    an_gpu_launch *l;
    out->params.attn = attn_args(a, s->n_args > N_KEYS && s->arg[N_KEYS].slot >= 0);
    out->params_bytes = sizeof out->params.attn;
    if (t->body == AN_BODY_SHORT || t->body == AN_BODY_ROTATED)
        return short_launch(out, "attn_forward", s, a, t, in_short, (int)AN_COUNT(in_short), AN_ATTN_TABLES);
    const char *why = packed ? pack_launch(out, s, a, t, order, false) : NULL;
    if (!why && t->mask) why = mask_launch(out, s, a, t, RNG, false);
    if (!why)
        why = t->body == AN_BODY_HOPPER ? hopper_launch(out, "attn_forward", a, gpu, t->bk, &l)
                                        : attn_launch(out, "attn_forward", a, t, false, &l);
    if (why) return why;
    if (t->body == AN_BODY_TF32_HOPPER) l->shared_bytes = AN_TF32_HOPPER_SHARED(false, t->d);
    for (int i = 0; i < (int)AN_COUNT(order); i++)
        if (packed && i < 3)
            an_gpu_bind(l, AN_BIND_SCRATCH, i, 0, packed_tensor(a, false, i));
        else if (t->mask && i == RNG)
            an_gpu_bind(l, AN_BIND_SCRATCH, i, 0, mask_at(a, false));
        else
            an_gpu_bind_arg(l, i, s, order[i]);
    an_gpu_bind(l, AN_BIND_PARAMS, (int)AN_COUNT(order), 0, 0);
    if (a->masked) an_gpu_bind_arg(l, (int)AN_COUNT(order) + 1, s, AN_ATTN_MASK);
    return NULL;
}

/* attn_dqkv in tf32: a thread block takes a head. */
static const char *whole_launch(an_gpu_step *out, const char *entry, const an_attn_spec *a, const an_tiles *t,
                                an_gpu_launch **l)
{
    const bool hopper = t->body == AN_BODY_TF32_HOPPER;
    const char *why =
        an_gpu_launch_add(out, entry, 1, a->H, a->B, hopper ? AN_TF32_HOPPER_BACK_THREADS : t->threads, l);
    if (!why) (*l)->shared_bytes = hopper ? AN_TF32_HOPPER_SHARED(true, t->d) : AN_TF32_WHOLE_SHARED(t->d, t->cols);
    return why;
}

/* Three launches: delta = the sums of o * do along a head (one number a query), dq over blocks of queries, dk and dv over blocks
 * of keys. Most of the kernels of sm_90a for heads of up to 128, and in tf32 that for many heads, make dq, dk and dv in one. */
static const char *attn_grad_step(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, const an_tiles *t,
                                  an_gpu_step *out)
{
    enum { Q, K, V, O, LSE, DO, RNG, DQ, DK, DV, DELTA }; /* arguments of the step; DELTA is its scratch */
    static const int delta[] = {O, DO, DELTA}, dq[] = {Q, K, V, DO, LSE, DELTA, RNG, DQ},
                     dkv[] = {Q, K, V, DO, LSE, DELTA, RNG, DK, DV},
                     dqkv[] = {Q, K, V, DO, LSE, DELTA, RNG, DQ, DK, DV}, in_short[] = {Q, K, V, DO, LSE, DQ, DK, DV};
    const an_attn_spec *a = &p->kernel[s->kernel].u.attn;
    const struct {
        const char *entry;
        const int *arg;
        size_t n;
        int pass; /* of attn_hopper_backward.inc */
    } of[] = {{"attn_delta", delta, AN_COUNT(delta), 0},
              {"attn_dq", dq, AN_COUNT(dq), AN_DQ_PASS},
              {"attn_dkv", dkv, AN_COUNT(dkv), AN_DKV_PASS},
              {"attn_dqkv", dqkv, AN_COUNT(dqkv), t->bk}};
    static const int to_pack[] = {Q, K, V, DO};
    const bool hopper = t->body == AN_BODY_HOPPER,
               whole = (t->body == AN_BODY_TF32 || t->body == AN_BODY_TF32_HOPPER) && t->bk,
               one = whole || (hopper && AN_HOPPER_FIVE(t->bk)), packed = hopper && t->vec < 8;
    out->params.attn = attn_args(a, false);
    out->params_bytes = sizeof out->params.attn;
    if (t->body == AN_BODY_SHORT || t->body == AN_BODY_ROTATED)
        return short_launch(out, "attn_backward", s, a, t, in_short, (int)AN_COUNT(in_short), AN_ATTN_GRAD_TABLES);
    const char *before = packed ? pack_launch(out, s, a, t, to_pack, true) : NULL;
    if (!before && t->mask) before = mask_launch(out, s, a, t, RNG, true);
    if (before) return before;
    for (size_t i = 0; i < AN_COUNT(of); i++) {
        an_gpu_launch *l;
        if (i && one != (i == 3)) continue;
        const char *why =
            i == 0   ? an_gpu_launch_add(out, of[i].entry, an_ceil_div(a->T, t->bn), a->H, a->B, t->threads, &l)
            : hopper ? hopper_launch(out, of[i].entry, a, gpu, of[i].pass, &l)
            : whole  ? whole_launch(out, of[i].entry, a, t, &l)
                     : attn_launch(out, of[i].entry, a, t, i == 2, &l);
        if (why) return why;
        for (int k = 0; k < (int)of[i].n; k++) {
            const int arg = of[i].arg[k], tensor = arg == DO ? 3 : arg;
            if (arg == DELTA)
                an_gpu_bind(l, AN_BIND_SCRATCH, k, 0, 0);
            else if (t->mask && arg == RNG)
                an_gpu_bind(l, AN_BIND_SCRATCH, k, 0, mask_at(a, true));
            else if (packed && i && (arg <= V || arg == DO))
                an_gpu_bind(l, AN_BIND_SCRATCH, k, 0, packed_tensor(a, true, tensor));
            else
                an_gpu_bind_arg(l, k, s, arg);
        }
        an_gpu_bind(l, AN_BIND_PARAMS, (int)of[i].n, 0, 0);
        if (i && a->masked) an_gpu_bind_arg(l, (int)of[i].n + 1, s, AN_ATTN_GRAD_MASK);
    }
    return NULL;
}

/* ---------------------------------------------------------------------------------------------- the step */

const char *an_gpu_step_make(const an_plan *p, const an_plan_step *s, const an_gpu *gpu, an_gpu_step *out)
{
    an_tiles t;
    const char *why = an_module_tiles(p, s, gpu, &t);
    *out = (an_gpu_step){0};
    if (why) return why;
    switch (t.module) {
    case AN_MODULE_LOOP: return loop_step(p, s, gpu, out);
    case AN_MODULE_GEMM: return gemm_step(p, s, gpu, &t, out);
    case AN_MODULE_ATTN: return attn_step(p, s, gpu, &t, out);
    case AN_MODULE_ATTN_GRAD: return attn_grad_step(p, s, gpu, &t, out);
    default: return an_gpu_call_step(p, s, &t, out);
    }
}

/* What the launches above bind as scratch: partial sums of splits, delta, packed tensors, dropout's bits, or a library call's arrays. */
size_t an_gpu_scratch(const an_kernel *k, const an_gpu *gpu)
{
    switch (k->kind) {
    case AN_KERNEL_GEMM: {
        const an_gemm_spec *g = &k->u.gemm;
        return split_count(g) > 1 ? sizeof(float) * (size_t)(batches(g) * split_count(g) * g->m * g->n) : 0;
    }
    case AN_KERNEL_ATTN:
    case AN_KERNEL_ATTN_GRAD: {
        const an_attn_spec *a = &k->u.attn;
        const bool grad = k->kind == AN_KERNEL_ATTN_GRAD;
        if (k->rotated) return 0;
        if (gpu && an_module_attn_hopper(a, gpu))
            return (size_t)(mask_at(a, grad) + (an_module_attn_mask(a, grad) ? mask_bytes(a, grad) : 0));
        return grad ? sizeof(float) * (size_t)a->B * (size_t)a->H * (size_t)a->T : 0; /* delta */
    }
    case AN_KERNEL_SCATTER:
    case AN_KERNEL_CALL: return an_gpu_call_scratch(k, gpu);
    default: return 0;
    }
}
