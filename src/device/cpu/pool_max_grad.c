/* pool_max_grad.c: the gradient of max pooling on the CPU: dx[p] = sum of dy[o] over the windows o whose first maximum is p.
 *
 * Owns:       the choice between vectors (kernels/cpu/pool_grad.c: f32, windows of few cells) and a channel at a time, in double.
 * Does not:   allocate: scratch is part of the plan.
 * Invariants: the same bits either way: a sum is taken in double, in the order of the windows, and rounded once. A NaN is a maximum. */
#include "device/cpu/library_calls.h"

#include <string.h>

enum { CHANNELS = AN_POOL_CHANNELS };

/* One sample and a block of channels: dy [N,H',W',C], x to dx [N,H,W,C]; scratch: x and dx [H,W,CHANNELS]. */
static void by_channel(const an_call_job *j, int64_t u, void *scratch)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t *a = j->s->attr; /* kh, kw, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w */
    const int64_t H = x->shape[1], W = x->shape[2], C = x->shape[3], OH = dy->shape[1], OW = dy->shape[2];
    const int64_t blocks = an_ceil_div(C, CHANNELS), b = u / blocks, from = u % blocks * CHANNELS;
    const int64_t m = AN_MIN(CHANNELS, C - from);
    double *xv = scratch, *dx = xv + H * W * CHANNELS;
    memset(dx, 0, (size_t)(H * W * CHANNELS) * sizeof *dx);
    for (int64_t i = 0; i < H * W; i++)
        an_call_load(xv + i * CHANNELS, j->arg[1], x->dtype, (b * H * W + i) * C + from, m);
    for (int64_t o = 0; o < OH * OW; o++) {
        double g[CHANNELS];
        int64_t best[CHANNELS];
        an_call_load(g, j->arg[0], dy->dtype, (b * OH * OW + o) * C + from, m);
        for (int64_t c = 0; c < m; c++) best[c] = -1;
        for (int64_t cell = 0; cell < a[0] * a[1]; cell++) {
            const int64_t h = o / OW * a[2] - a[4] + cell / a[1] * a[6], w = o % OW * a[3] - a[5] + cell % a[1] * a[7];
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            for (int64_t c = 0; c < m; c++) {
                const double v = xv[(h * W + w) * CHANNELS + c], top = best[c] < 0 ? v : xv[best[c]];
                if (best[c] < 0 || v > top || (v != v && top == top)) best[c] = (h * W + w) * CHANNELS + c;
            }
        }
        for (int64_t c = 0; c < m; c++)
            if (best[c] >= 0) dx[best[c]] += g[c];
    }
    for (int64_t i = 0; i < H * W; i++)
        an_call_store(j->arg[2], x->dtype, (b * H * W + i) * C + from, dx + i * CHANNELS, m);
}

static void by_vectors(const an_call_job *j, int64_t u, void *scratch)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const an_pool_grad s = {.dy = j->arg[0],
                            .x = j->arg[1],
                            .dx = j->arg[2],
                            .H = x->shape[1],
                            .W = x->shape[2],
                            .C = x->shape[3],
                            .out_h = dy->shape[1],
                            .out_w = dy->shape[2],
                            .attr = j->s->attr};
    j->kernels->pool_max_grad(&s, u, scratch);
}

void an_call_pool_max_grad(an_call_job *j)
{
    const an_call_tensor *dy = &j->s->src[0], *x = &j->s->src[1];
    const int64_t *a = j->s->attr;
    const bool vectors = x->dtype == AN_F32 && dy->dtype == AN_F32 && a[0] * a[1] <= AN_POOL_CELLS;
    const bool share = an_pool_windows_overlap(a);
    j->units = x->shape[0] * an_ceil_div(x->shape[3], CHANNELS);
    j->weight = (int64_t)x->shape[1] * x->shape[2] * CHANNELS;
    const int64_t W = x->shape[2],
                  maxima = (int64_t)dy->shape[1] * dy->shape[2] * CHANNELS + W + 2 * W * a[1]; /* int32 */
    j->scratch_bytes = vectors ? share * (size_t)maxima * sizeof(int32_t) : 2 * (size_t)j->weight * sizeof(double);
    j->unit = vectors ? by_vectors : by_channel;
}
