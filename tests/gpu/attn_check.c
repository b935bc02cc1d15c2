/* attn_check.c: the portable attention bodies on an NVIDIA GPU: against loops in double precision, in exact mode
 * against the CPU template bit for bit, then timed. tests/gpu/run.sh builds and runs it.
 *
 * FLOP are those of the two products forward and five backward; a causal mask halves them. */
#include "cuda_host.h"
#include "kernels/cpu_kernels.h"
#include "shim/attn_case.h"
#include "shim/configs.h"

#include <time.h>

void an_portable_attn_forward(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                              an_pool *p);
void an_portable_attn_backward(const an_attn_spec *s, void *const *args, const float *const *tables, void *scratch,
                               an_pool *p);
size_t an_portable_attn_scratch(const an_attn_spec *s, bool backward, int threads);

typedef struct kernels {
    void *forward, *delta, *dq, *dkv;
    attn_config config;
} kernels;

typedef struct buffers {
    cuda_pointer x[CASE_TENSORS], lse, delta, rng, n_keys;
} buffers;

static kernels build(const attn_config *c)
{
    char defines[1024];
    kernels k = {.config = *c};
    attn_defines(defines, sizeof defines, c, 0);
    char *text = kernel_text("cuda", "attn_forward", defines);
    k.forward = cuda_kernel(cuda_module(text, "attn_forward", !c->exact, 0), "attn_forward");
    free(text);
    attn_defines(defines, sizeof defines, c, 1);
    text = kernel_text("cuda", "attn_backward", defines);
    void *module = cuda_module(text, "attn_backward", !c->exact, 0);
    k.delta = cuda_kernel(module, "attn_delta"), k.dq = cuda_kernel(module, "attn_dq"),
    k.dkv = cuda_kernel(module, "attn_dkv");
    free(text);
    return k;
}

static size_t tensor_bytes(const attn_case *c, int t)
{
    return case_elements(c, t) * case_item(c->store);
}

static buffers upload(const attn_case *c)
{
    buffers b;
    for (int t = 0; t < CASE_TENSORS; t++) {
        int given = t < CASE_O || t == CASE_DO;
        void *host = given ? malloc(tensor_bytes(c, t)) : NULL;
        if (given && !host) cuda_die("out of memory");
        if (given) case_pack(host, c->x[t], case_elements(c, t), c->store);
        b.x[t] = cuda_new(tensor_bytes(c, t), host);
        free(host);
    }
    size_t rows = (size_t)c->B * (size_t)c->H * (size_t)c->T * sizeof(float);
    b.lse = cuda_new(rows, NULL), b.delta = cuda_new(rows, NULL);
    b.rng = cuda_new(sizeof c->rng, c->rng), b.n_keys = cuda_new(sizeof c->n_keys, &c->n_keys);
    return b;
}

static void release(buffers *b)
{
    for (int t = 0; t < CASE_TENSORS; t++) cuda.release(b->x[t]);
    cuda.release(b->lse), cuda.release(b->delta), cuda.release(b->rng), cuda.release(b->n_keys);
}

static unsigned blocks(int n, int block)
{
    return (unsigned)((n + block - 1) / block);
}

static void forward(const kernels *k, attn_case *c, buffers *b)
{
    int threads = k->config.forward_threads;
    void *args[] = {&b->x[CASE_Q], &b->x[CASE_K], &b->x[CASE_V], &b->rng, &b->n_keys, &b->x[CASE_O], &b->lse, &c->args};
    cuda_run(k->forward, blocks(c->T, threads / 2), (unsigned)c->H, (unsigned)c->B, (unsigned)threads, args);
}

static void backward(const kernels *k, attn_case *c, buffers *b)
{
    int threads = k->config.backward_threads;
    unsigned H = (unsigned)c->H, B = (unsigned)c->B, n = (unsigned)threads;
    void *delta[] = {&b->x[CASE_O], &b->x[CASE_DO], &b->delta, &c->args};
    void *dq[] = {&b->x[CASE_Q], &b->x[CASE_K], &b->x[CASE_V],  &b->x[CASE_DO], &b->lse,
                  &b->delta,     &b->rng,       &b->x[CASE_DQ], &c->args};
    void *dkv[] = {&b->x[CASE_Q], &b->x[CASE_K], &b->x[CASE_V],  &b->x[CASE_DO], &b->lse,
                   &b->delta,     &b->rng,       &b->x[CASE_DK], &b->x[CASE_DV], &c->args};
    cuda_run(k->delta, blocks(c->T, threads / 16), H, B, n, delta);
    cuda_run(k->dq, blocks(c->T, threads / 2), H, B, n, dq);
    cuda_run(k->dkv, blocks(c->S, threads / 2), (unsigned)case_heads(c, CASE_DK), B, n, dkv);
}

/* The answer of the CPU's exact template, in memory that looks like the device's. */
static void run_cpu(const attn_case *c, void *x[CASE_TENSORS], float *lse)
{
    const struct an_attn_args *a = &c->args;
    an_attn_spec s = {.B = c->B,
                      .H = c->H,
                      .T = c->T,
                      .S = c->S,
                      .D = c->D,
                      .group = c->group,
                      .scale = a->scale,
                      .causal = (uint8_t)c->causal,
                      .dtype = AN_F32,
                      .mul_dtype = AN_F32,
                      .dropout = c->p,
                      .stream = a->stream};
    memcpy(s.q, a->q, sizeof s.q), memcpy(s.k, a->k, sizeof s.k), memcpy(s.v, a->v, sizeof s.v),
        memcpy(s.o, a->o, sizeof s.o);
    memcpy(s.do_, a->do_, sizeof s.do_), memcpy(s.dq, a->dq, sizeof s.dq), memcpy(s.dk, a->dk, sizeof s.dk),
        memcpy(s.dv, a->dv, sizeof s.dv);
    size_t bytes = an_portable_attn_scratch(&s, false, 1) + an_portable_attn_scratch(&s, true, 1);
    void *scratch = aligned_alloc(64, (bytes + 63) / 64 * 64), *rng = (void *)(uintptr_t)c->rng;
    if (!scratch) cuda_die("out of memory");
    an_portable_attn_forward(&s, (void *const[]){x[CASE_Q], x[CASE_K], x[CASE_V], rng, x[CASE_O], lse, NULL}, NULL,
                             scratch, NULL);
    an_portable_attn_backward(&s,
                              (void *const[]){x[CASE_Q], x[CASE_K], x[CASE_V], x[CASE_O], lse, x[CASE_DO], rng,
                                              x[CASE_DQ], x[CASE_DK], x[CASE_DV]},
                              NULL, scratch, NULL);
    free(scratch);
}

/* Elements whose bits differ from the CPU's, over o, dq, dk and dv. */
static size_t different_bits(attn_case *c, void *gpu[CASE_TENSORS])
{
    void *x[CASE_TENSORS];
    size_t different = 0;
    float *lse = malloc((size_t)c->B * (size_t)c->H * (size_t)c->T * sizeof(float));
    for (int t = 0; t < CASE_TENSORS; t++) {
        if (!(x[t] = calloc(case_elements(c, t), sizeof(float))) || !lse) cuda_die("out of memory");
        case_pack(x[t], c->x[t], case_elements(c, t), KIND_F32);
    }
    run_cpu(c, x, lse);
    for (int t = CASE_O; t < CASE_TENSORS; t++)
        for (size_t i = 0; i < case_elements(c, t); i++)
            different += memcmp((float *)x[t] + i, (float *)gpu[t] + i, sizeof(float)) != 0;
    for (int t = 0; t < CASE_TENSORS; t++) free(x[t]);
    free(lse);
    return different;
}

/* Runs one case; 1 when it is wrong. */
static int check(const attn_config *config, attn_case c)
{
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    const double tolerance = config->mul == KIND_BF16 || config->store == KIND_BF16 ? 2e-2
                             : config->exact                                        ? 3e-6
                                                                                    : 3e-3;
    int wrong = 0;
    kernels k = build(config);
    c.D = config->D, c.causal = config->causal, c.store = config->store, c.group = config->group;
    if (c.group > 1) c.H *= c.group;
    case_new(&c, 11);
    case_solve(&c);
    buffers b = upload(&c);
    forward(&k, &c, &b);
    if (c.n_keys < 0) backward(&k, &c, &b);
    cuda_check(cuda.synchronize(), "running");
    printf("%s*%s%s D=%d T=%d S=%d%s p=%g keys=%d:", kind_name(config->store), kind_name(config->mul),
           config->exact ? " exact" : "", c.D, c.T, c.S, c.causal ? " causal" : "", (double)c.p, c.n_keys);
    void *x[CASE_TENSORS] = {0};
    for (int t = CASE_O; t <= (c.n_keys < 0 ? CASE_DV : CASE_O); t++) {
        if (!(x[t] = malloc(tensor_bytes(&c, t)))) cuda_die("out of memory");
        cuda_check(cuda.to_host(x[t], b.x[t], tensor_bytes(&c, t)), "reading back");
        if (t == CASE_DO) continue;
        double e = case_error(&c, t, x[t]);
        printf(" %s %.1e", names[t], e);
        wrong |= !(e <= tolerance);
    }
    if (config->exact && c.n_keys < 0) {
        size_t different = different_bits(&c, x);
        printf(" bits that differ from the CPU's: %zu", different);
        wrong |= different != 0;
    }
    printf("%s\n", wrong ? "  WRONG" : "");
    for (int t = 0; t < CASE_TENSORS; t++) free(x[t]);
    release(&b);
    case_free(&c);
    return wrong;
}

static void time_case(const attn_config *config, int B, int H, int T)
{
    attn_case c = {.B = B,
                   .H = H,
                   .T = T,
                   .S = T,
                   .D = config->D,
                   .causal = config->causal,
                   .group = config->group,
                   .n_keys = -1,
                   .p = config->dropout ? 0.1f : 0.0f,
                   .store = config->store};
    kernels k = build(config);
    case_new(&c, 3);
    buffers b = upload(&c);
    const double flop = 4.0 * B * H * (double)T * T * c.D * (c.causal ? 0.5 : 1.0);
    float best[2] = {1e9f, 1e9f};
    for (int round = 0; round < 6; round++) { /* the first one warms up */
        for (int which = 0; which < 2; which++) {
            cuda_clock(0);
            for (int i = 0; i < 5; i++) which ? backward(&k, &c, &b) : forward(&k, &c, &b);
            float ms = cuda_clock(1) / 5;
            if (round && ms < best[which]) best[which] = ms;
        }
    }
    printf("%s*%s%s B=%d H=%d T=%d D=%d%s%s, %d and %d threads: forward %.3f ms (%.0f TFLOP/s), backward %.3f ms (%.0f "
           "TFLOP/s)\n",
           kind_name(config->store), kind_name(config->mul), config->exact ? " exact" : "", B, H, T, c.D,
           c.causal ? " causal" : "", config->dropout ? " dropout" : "", config->forward_threads,
           config->backward_threads, (double)best[0], flop / (double)best[0] / 1e9, (double)best[1],
           2.5 * flop / (double)best[1] / 1e9);
    release(&b);
    case_free(&c);
}

int main(void)
{
    int wrong = 0;
    cuda_begin();
    for (size_t i = 0; i < COUNT_OF(cuda_attention); i++) {
        const attn_config *c = &cuda_attention[i];
        if (c->store == KIND_F16) continue; /* the host side here has no f16 */
        wrong += check(c, (attn_case){.B = 2, .H = 3, .T = 197, .S = 197, .n_keys = -1, .p = c->dropout ? 0.2f : 0.0f});
        wrong += check(c, (attn_case){.B = 1, .H = 2, .T = 67, .S = 131, .n_keys = -1, .p = c->dropout ? 0.2f : 0.0f});
        wrong += check(c, (attn_case){.B = 1, .H = 2, .T = 90, .S = 33, .n_keys = -1});
        wrong += check(c, (attn_case){.B = 1, .H = 2, .T = 3, .S = 300, .n_keys = 171});
    }
    printf("%s\n", wrong ? "WRONG" : "all right");
    for (size_t i = 0; i < COUNT_OF(cuda_attention); i++)
        if (cuda_attention[i].D % 32 == 0 && cuda_attention[i].store != KIND_F16)
            time_case(&cuda_attention[i], 4, 12, 2048);
    /* Other tiles for the most common case. */
    attn_config c = cuda_attention[0];
    for (int threads = 64; threads <= 256; threads *= 2) {
        c.forward_threads = threads < 256 ? threads : 128, c.backward_threads = threads < 256 ? threads : 64,
        c.cols = threads < 256 ? 32 : 64;
        time_case(&c, 4, 12, 2048);
    }
    return wrong != 0;
}
