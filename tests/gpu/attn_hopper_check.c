/* attn_hopper_check.c: attn_hopper.inc on an sm_90 GPU: against loops in double precision, against itself on other grids
 * bit for bit, and timed beside attn_bf16.inc. tests/gpu/run.sh builds and runs it.
 *
 * FLOP are those of the two products forward and five backward; a causal mask halves them. */
#include "cuda_host.h"
#include "shim/attn_case.h"

enum { D = 64, FORWARD = 0, DELTA, DQ, DKV, DQKV, PASSES, ROUNDS = 7, RUNS = 5 };

typedef struct body {
    int hopper;         /* attn_hopper.inc behind attn_bf16.inc, or that alone */
    void *pass[PASSES]; /* of attn_hopper.inc neither DQ nor DKV; of attn_bf16.inc no DQKV */
} body;
typedef struct buffers {
    cuda_pointer x[CASE_TENSORS], lse, delta, rng, n_keys; /* delta: the backward pass's scratch */
} buffers;

static char *text_of(const body *b, int causal, int dropout, int forward)
{
    char defines[1024];
    snprintf(defines, sizeof defines,
             "#define AN_STORE AN_KIND_BF16\n#define AN_MUL AN_KIND_BF16\n#define AN_EXACT 0\n#define AN_VEC 8\n"
             "#define AN_D 64\n#define AN_CAUSAL %d\n#define AN_DROPOUT %d\n#define AN_COLS 64\n#define AN_FORWARD %d\n"
             "#define AN_HOPPER %d\n#define AN_THREADS %d\n",
             causal, dropout, forward, b->hopper, 128);
    char *text = kernel_text("cuda", "attn_bf16", defines);
    size_t at = strlen(text);
    if (b->hopper) kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper.inc");
    if (b->hopper && !forward) kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper_backward.inc");
    return text;
}

static int has(const body *b, int pass)
{
    return pass < DQ || b->hopper == (pass == DQKV);
}

static void build(body *b, int causal, int dropout)
{
    static const char *const names[PASSES] = {"attn_forward", "attn_delta", "attn_dq", "attn_dkv", "attn_dqkv"};
    for (int backward = 0; backward < 2; backward++) {
        char *text = text_of(b, causal, dropout, !backward);
        void *module = cuda_module(text, backward ? "backward" : "forward", 1, b->hopper);
        for (int p = backward; p < (backward ? PASSES : 1); p++)
            if (has(b, p)) b->pass[p] = cuda_kernel(module, names[p]);
        free(text);
    }
}

static unsigned blocks(int n, int block)
{
    return (unsigned)((n + block - 1) / block);
}

/* As the library launches it (gpu_launch.c), on a GPU of so many multiprocessors. */
static void run(const body *k, const attn_case *c, buffers *b, int pass, unsigned multiprocessors)
{
    struct an_attn_args a = c->args;
    cuda_pointer *x = b->x;
    void *args[PASSES][11] = {
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &b->rng, &b->n_keys, &x[CASE_O], &b->lse, &a},
        {&x[CASE_O], &x[CASE_DO], &b->delta, &a},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &b->rng, &x[CASE_DQ], &a},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &b->rng, &x[CASE_DK], &x[CASE_DV], &a},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &b->rng, &x[CASE_DQ], &x[CASE_DK],
         &x[CASE_DV], &a}};
    const unsigned H = (unsigned)c->H, B = (unsigned)c->B;
    const int back = pass == DQKV;
    if (k->hopper && pass != DELTA) {
        const unsigned n = blocks(back ? c->S : c->T, AN_HOPPER_ROWS(back)), all = H * B * (back ? 1 : n);
        if (back && multiprocessors > AN_HOPPER_GRID) multiprocessors = AN_HOPPER_GRID;
        cuda_run_shared(k->pass[pass], all < multiprocessors ? all : multiprocessors, AN_HOPPER_THREADS(back),
                        (unsigned)AN_HOPPER_SHARED(back), args[pass]);
    } else {
        static const int height[PASSES] = {128, 16, 64, 64, 0};
        const int rows = pass == DKV ? c->S : c->T;
        cuda_run(k->pass[pass], blocks(rows, height[pass]), H, B, 128, args[pass]);
    }
}

/* ---------------------------------------------------------------------------------------------- right? */

static buffers upload(const attn_case *c)
{
    buffers b;
    for (int t = 0; t < CASE_TENSORS; t++) {
        size_t n = case_elements(c, t);
        uint16_t *host = malloc(n * sizeof *host);
        if (!host) cuda_die("out of memory");
        case_pack(host, c->x[t], n, KIND_BF16);
        b.x[t] = cuda_new(n * sizeof *host, t < CASE_O || t == CASE_DO ? host : NULL);
        free(host);
    }
    const size_t heads = (size_t)c->B * (size_t)c->H;
    b.lse = cuda_new(heads * (size_t)c->T * sizeof(float), NULL);
    b.delta = cuda_new((size_t)AN_HOPPER_WORDS(heads, c->T) * sizeof(float), NULL);
    b.rng = cuda_new(sizeof c->rng, c->rng), b.n_keys = cuda_new(sizeof c->n_keys, &c->n_keys);
    return b;
}
static void release(buffers *b)
{
    for (int t = 0; t < CASE_TENSORS; t++) cuda.release(b->x[t]);
    cuda.release(b->lse), cuda.release(b->delta), cuda.release(b->rng), cuda.release(b->n_keys);
}

/* Runs everything as if on so many multiprocessors; the results go to out. */
static void run_all(const body *k, const attn_case *c, buffers *b, unsigned multiprocessors,
                    uint16_t *out[CASE_TENSORS])
{
    static const int results[] = {CASE_O, CASE_DQ, CASE_DK, CASE_DV};
    for (int i = 0; i < 4; i++)
        cuda_check(cuda.set8(b->x[results[i]], 0xff, 2 * case_elements(c, results[i])), "poisoning");
    for (int pass = 0; pass < (c->n_keys < 0 ? PASSES : 1); pass++)
        if (has(k, pass)) run(k, c, b, pass, multiprocessors);
    cuda_check(cuda.synchronize(), "running");
    for (int i = 0; i < (c->n_keys < 0 ? 4 : 1); i++) {
        size_t n = case_elements(c, results[i]) * sizeof **out;
        if (!(out[results[i]] = malloc(n))) cuda_die("out of memory");
        cuda_check(cuda.to_host(out[results[i]], b->x[results[i]], n), "reading back");
    }
}

static int check(const body *k, attn_case c)
{
    static const char *const names[] = {"q", "k", "v", "o", "do", "dq", "dk", "dv"};
    static const unsigned grids[] = {1u << 20, 5, 1}; /* the last: a group has whole heads */
    enum { GRIDS = sizeof grids / sizeof *grids };
    int wrong = 0;
    uint16_t *got[GRIDS][CASE_TENSORS] = {0};
    c.D = D, c.store = KIND_BF16;
    case_new(&c, 11), case_solve(&c);
    buffers b = upload(&c);
    for (int g = 0; g < GRIDS; g++) run_all(k, &c, &b, grids[g], got[g]);
    printf("T=%d S=%d%s p=%g keys=%d first=%u:", c.T, c.S, c.causal ? " causal" : "", (double)c.p, c.n_keys, c.rng[1]);
    for (int t = CASE_O; t < CASE_TENSORS; t++) {
        if (!got[0][t]) continue;
        double e = case_error(&c, t, got[0][t]);
        int same = 1;
        for (int g = 1; g < GRIDS; g++) same &= !memcmp(got[0][t], got[g][t], 2 * case_elements(&c, t));
        printf(" %s %.1e%s", names[t], e, same ? "" : " OTHER BITS");
        wrong |= !(e <= 1e-2) || !same;
        for (int g = 0; g < GRIDS; g++) free(got[g][t]);
    }
    printf("%s\n", wrong ? "  WRONG" : "");
    release(&b), case_free(&c);
    return wrong;
}

static int check_all(body *k, int causal, int dropout)
{
    float p = dropout ? 0.2f : 0.0f;
    build(k, causal, dropout);
    int wrong = check(k, (attn_case){.B = 2, .H = 3, .T = 197, .S = 197, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 64, .S = 64, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 3, .H = 2, .T = 512, .S = 512, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 67, .S = 331, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 290, .S = 33, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 3, .S = 300, .causal = causal, .n_keys = 171, .p = p});
    return wrong;
}

/* ---------------------------------------------------------------------------------------------- fast? */

/* As in a model: q, k, v and their gradients side by side in rows of 3 H D, o and do in rows of H D; random numbers,
 * the same for each sample. */
static buffers upload_model(attn_case *c)
{
    struct an_attn_args *a = &c->args;
    an_i64 *strides[CASE_TENSORS] = {a->q, a->k, a->v, a->o, a->do_, a->dq, a->dk, a->dv};
    size_t width = (size_t)c->H * D, sample = (size_t)c->T * width * 3, B = (size_t)c->B;
    uint64_t state = 1;
    uint16_t *host = malloc(sample * sizeof *host);
    buffers b;
    if (!host) cuda_die("out of memory");
    for (int t = 0; t < CASE_TENSORS; t++) {
        int wide = t != CASE_O && t != CASE_DO, part = t == CASE_K || t == CASE_DK   ? 1
                                                       : t == CASE_V || t == CASE_DV ? 2
                                                                                     : 0;
        if (!part) {
            b.x[t] = cuda_new(B * sample * sizeof *host, NULL);
            for (size_t i = 0; i < sample; i++)
                host[i] = (uint16_t)case_bits((float)(2 * case_uniform(&state)), KIND_BF16);
            for (size_t s = 0; s < B; s++)
                cuda_check(cuda.to_device(b.x[t] + s * sample * sizeof *host, host, sample * sizeof *host), "filling");
        } else {
            b.x[t] = b.x[t < CASE_O ? CASE_Q : CASE_DQ] + (cuda_pointer)part * width * sizeof *host;
        }
        strides[t][2] = (an_i64)(wide ? 3 * width : width), strides[t][1] = D, strides[t][0] = c->T * strides[t][2];
    }
    free(host);
    const size_t heads = B * (size_t)c->H;
    b.lse = cuda_new(heads * (size_t)c->T * sizeof(float), NULL);
    b.delta = cuda_new((size_t)AN_HOPPER_WORDS(heads, c->T) * sizeof(float), NULL);
    b.rng = cuda_new(sizeof c->rng, c->rng), b.n_keys = cuda_new(sizeof c->n_keys, &c->n_keys);
    return b;
}

static void time_model(body *k, int n, attn_case c)
{
    int multiprocessors = 0;
    const double flop = 4.0 * c.B * c.H * (double)c.T * c.T * D * 0.5;
    cuda_check(cuda.attribute(&multiprocessors, 16, 0), "cuDeviceGetAttribute");
    c.S = c.T, c.causal = 1, c.n_keys = -1;
    c.args = (struct an_attn_args){.B = c.B, .H = c.H, .T = c.T, .S = c.T, .scale = 0.125f, .stream = 77};
    c.args.keep_scale = 1.0f / (1.0f - c.p), c.args.keep_at_least = attn_keep_at_least(c.p);
    buffers b = upload_model(&c);
    printf("B=%d H=%d T=%d D=%d causal p=%g:        forward  backward   us; TFLOP/s forward, backward\n", c.B, c.H, c.T,
           D, (double)c.p);
    for (int i = 0; i < n; i++) {
        float best[2] = {0}; /* forward, all of backward */
        build(&k[i], 1, c.p > 0);
        for (int round = 0; round < ROUNDS; round++)
            for (int back = 0; back < 2; back++) {
                cuda_clock(0);
                for (int r = 0; r < RUNS; r++)
                    for (int pass = back; pass < (back ? PASSES : 1); pass++)
                        if (has(&k[i], pass)) run(&k[i], &c, &b, pass, (unsigned)multiprocessors);
                float ms = cuda_clock(1) / RUNS;
                if (round == 1 || (round && ms < best[back])) best[back] = ms;
            }
        printf("  %-38s %9.1f %9.1f; %4.0f %4.0f\n", k[i].hopper ? "attn_hopper.inc" : "attn_bf16.inc",
               (double)best[0] * 1e3, (double)best[1] * 1e3, flop / (double)best[0] / 1e9,
               2.5 * flop / (double)best[1] / 1e9);
    }
    cuda.release(b.x[CASE_Q]), cuda.release(b.x[CASE_O]), cuda.release(b.x[CASE_DO]), cuda.release(b.x[CASE_DQ]);
    cuda.release(b.lse), cuda.release(b.delta), cuda.release(b.rng), cuda.release(b.n_keys);
}

int main(void)
{
    body k[] = {{.hopper = 0}, {.hopper = 1}};
    int wrong = 0;
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs is seen */
    cuda_begin();
    if (cuda.arch != 90) {
        printf("attn_hopper.inc is for sm_90a alone: NOT run on sm_%d\n", cuda.arch);
        return 0;
    }
    for (int causal = 0; causal < 2; causal++)
        for (int dropout = 0; dropout < 2; dropout++) wrong += check_all(&k[1], causal, dropout);
    printf("%s\n", wrong ? "WRONG" : "all right");
    time_model(k, 2, (attn_case){.B = 32, .H = 12, .T = 1024});
    time_model(k, 2, (attn_case){.B = 8, .H = 12, .T = 1024});
    time_model(k, 2, (attn_case){.B = 64, .H = 6, .T = 256, .p = 0.2f});
    return wrong != 0;
}
