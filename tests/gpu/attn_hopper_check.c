/* attn_hopper_check.c: attn_hopper.inc on an sm_90 GPU: against loops in double precision, against itself on other grids
 * bit for bit, and timed beside attn_bf16.inc (heads of more than 128: the portable bodies). tests/gpu/run.sh builds and runs it.
 *
 *     attn_hopper_check [D...]          checks heads of D columns alone; without arguments checks and times all
 *     attn_hopper_check time [D...]     times alone
 *     attn_hopper_check masks [D...]    masks and windows alone; without D some heads, and times
 *     attn_hopper_check masks time      their times alone
 *     attn_hopper_check lanes D...      every lane arrives at the mbarriers, as compute-sanitizer's racecheck needs it
 *
 * FLOP are those of the two products forward and five backward; a causal mask halves them. */
#include "cuda_host.h"
#include "shim/attn_case.h"

enum { FORWARD = 0, DELTA, DQ, DKV, DQKV, PASSES, ROUNDS = 7, RUNS = 5 };

typedef struct body {
    int hopper;       /* attn_hopper.inc behind attn_bf16.inc, or that alone; not even that: portable */
    int back;         /* of attn_hopper_backward.inc: AN_WHOLE_PASS, AN_SHARED_PASS, AN_DKV_PASS (with AN_DQ_PASS) */
    int fore;         /* of attn_hopper.inc: AN_FORWARD_PASS, AN_SHORT_PASS */
    int D, vec, mask; /* mask: dropout's bits are stored first */
    int bias, window; /* AN_BIAS; with a causal mask */
    int group;        /* AN_GROUP; 0 is 1 */
    void *pass[PASSES], *store[2],
        *pack[2]; /* forward, backward: attn_mask; attn_pack, for rows that are not aligned */
} body;
typedef struct buffers {
    cuda_pointer x[CASE_TENSORS], lse, delta, rng, n_keys, packed, mask, bias; /* delta: the backward pass's scratch */
} buffers;

static int warp_arrives = 1; /* AN_WARP_ARRIVES */

/* As gpu_module.c configures them for bf16 heads of more than 128. */
enum { PORTABLE_THREADS = 32, PORTABLE_COLUMNS = 64, PORTABLE_ROWS = PORTABLE_THREADS / 2 };
static int is_portable(const body *b)
{
    return !b->hopper && b->D > 128;
}

static char *text_of(const body *b, int causal, int dropout, int forward)
{
    char defines[1024];
    if (is_portable(b)) {
        const attn_config c = {.store = KIND_BF16,
                               .mul = KIND_BF16,
                               .vec = b->vec,
                               .D = b->D,
                               .dc = (b->D + 15) / 16 * 16 % PORTABLE_COLUMNS ? 16 : PORTABLE_COLUMNS,
                               .causal = causal,
                               .dropout = dropout,
                               .forward_threads = PORTABLE_THREADS,
                               .backward_threads = PORTABLE_THREADS,
                               .cols = 32};
        attn_defines(defines, sizeof defines, &c, !forward);
        return kernel_text("cuda", forward ? "attn_forward" : "attn_backward", defines);
    }
    snprintf(defines, sizeof defines,
             "#define AN_STORE AN_KIND_BF16\n#define AN_MUL AN_KIND_BF16\n#define AN_EXACT 0\n#define AN_VEC %d\n"
             "#define AN_D %d\n#define AN_CAUSAL %d\n#define AN_DROPOUT %d\n#define AN_COLS %d\n#define AN_FORWARD %d\n"
             "#define AN_HOPPER %d\n#define AN_HOPPER_PASS %d\n#define AN_MASK %d\n#define AN_THREADS %d\n#define "
             "AN_WARP_ARRIVES %d\n",
             b->vec, b->D, causal, dropout, b->hopper || b->D <= 64 ? 64 : 32, forward, b->hopper,
             forward ? b->fore : b->back, b->mask && dropout, 128, warp_arrives);
    size_t used = strlen(defines);
    if (b->window) used += (size_t)snprintf(defines + used, sizeof defines - used, "#define AN_SLIDING 1\n");
    if (b->bias) used += (size_t)snprintf(defines + used, sizeof defines - used, "#define AN_BIAS %d\n", b->bias);
    if (b->group) snprintf(defines + used, sizeof defines - used, "#define AN_GROUP %d\n", b->group);
    char *text = kernel_text("cuda", "attn_bf16", defines);
    size_t at = strlen(text);
    if (b->hopper) kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper.inc");
    if (b->hopper && !forward) kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper_backward.inc");
    return text;
}

static int has(const body *b, int pass)
{
    return pass < DQ || (b->hopper && b->back != AN_DKV_PASS) == (pass == DQKV);
}

static void build(body *b, int causal, int dropout)
{
    static const char *const names[PASSES] = {"attn_forward", "attn_delta", "attn_dq", "attn_dkv", "attn_dqkv"};
    for (int backward = 0; backward < 2; backward++) {
        char *text = text_of(b, causal, dropout, !backward);
        void *module = cuda_module(text, backward ? "backward" : "forward", 1, b->hopper);
        for (int p = backward; p < (backward ? PASSES : 1); p++)
            if (has(b, p)) b->pass[p] = cuda_kernel(module, names[p]);
        if (b->mask && dropout) b->store[backward] = cuda_kernel(module, "attn_mask");
        if (b->hopper && b->vec < 8) b->pack[backward] = cuda_kernel(module, "attn_pack");
        free(text);
    }
}

/* Whether every row of [.., H, D] begins on 16 bytes, as AN_VEC. */
static int vec_of(int D)
{
    return D % 8 == 0 ? 8 : 1;
}

static unsigned blocks(int n, int block)
{
    return (unsigned)((n + block - 1) / block);
}

/* As the library launches it (gpu_launch.c), on a GPU of so many multiprocessors. */
static void run(const body *k, const attn_case *c, buffers *b, int pass, unsigned multiprocessors)
{
    struct an_attn_args a = c->args;
    cuda_pointer x[CASE_TENSORS];
    for (int i = 0; i < CASE_TENSORS; i++) x[i] = b->x[i];
    if (k->hopper && k->vec < 8 && pass != DELTA)
        for (int i = 0; i < 4; i++)
            x[i < 3 ? i : CASE_DO] =
                b->packed + 2 * (cuda_pointer)AN_HOPPER_PACKED_AT(a, c->D, i, k->group ? k->group : 1);
    cuda_pointer rng = k->store[0] ? b->mask : b->rng;
    void *args[PASSES][11] = {
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &rng, &b->n_keys, &x[CASE_O], &b->lse, &a, &b->bias},
        {&x[CASE_O], &x[CASE_DO], &b->delta, &a},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &rng, &x[CASE_DQ], &a, &b->bias},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &rng, &x[CASE_DK], &x[CASE_DV], &a,
         &b->bias},
        {&x[CASE_Q], &x[CASE_K], &x[CASE_V], &x[CASE_DO], &b->lse, &b->delta, &rng, &x[CASE_DQ], &x[CASE_DK],
         &x[CASE_DV], &a}};
    const unsigned H = (unsigned)c->H, B = (unsigned)c->B;
    const int chunks = AN_HOPPER_CHUNKS(c->D), of[PASSES] = {k->fore, 0, AN_DQ_PASS, AN_DKV_PASS, k->back};
    if (k->hopper && pass != DELTA) {
        const int kind = of[pass], whole = kind == AN_WHOLE_PASS;
        const unsigned n = blocks(AN_HOPPER_KEYS(kind) ? c->S : c->T, AN_HOPPER_ROWS(kind, chunks));
        const unsigned heads = AN_HOPPER_KEYS(kind) && k->group ? H / (unsigned)k->group * B : H * B;
        const unsigned all = kind == AN_SHORT_PASS ? (heads + 1) / 2 : heads * (whole ? 1 : n);
        if (whole && multiprocessors > AN_HOPPER_GRID) multiprocessors = AN_HOPPER_GRID;
        cuda_run_shared(k->pass[pass], all < multiprocessors ? all : multiprocessors,
                        (unsigned)AN_HOPPER_THREADS(kind, chunks), (unsigned)AN_HOPPER_SHARED(kind, chunks),
                        args[pass]);
    } else {
        static const int height[2][PASSES] = {{128, 16, 64, 64, 0},
                                              {PORTABLE_ROWS, PORTABLE_ROWS / 8, PORTABLE_ROWS, PORTABLE_ROWS, 0}};
        const int rows = pass == DKV ? c->S : c->T, portable = is_portable(k);
        cuda_run(k->pass[pass], blocks(rows, height[portable][pass]), H, B, portable ? PORTABLE_THREADS : 128,
                 args[pass]);
    }
}

/* Before the forward pass, or all of backward: q, k, v and do in aligned rows. */
static void pack(const body *k, const attn_case *c, buffers *b, int backward)
{
    struct an_attn_args a = c->args;
    void *args[] = {&b->x[CASE_Q], &b->x[CASE_K], &b->x[CASE_V], &b->x[CASE_DO], &b->packed, &a};
    if (!k->hopper || k->vec == 8) return;
    cuda_run(k->pack[backward], blocks(c->T > c->S ? c->T : c->S, 64) * (unsigned)c->B, (unsigned)c->H,
             backward ? 4 : 3, 128, args);
}

/* Before the forward pass, or all of backward, where there is dropout: its bits. */
static void store_mask(const body *k, const attn_case *c, buffers *b, int backward)
{
    struct an_attn_args a = c->args;
    void *args[] = {&b->rng, &b->mask, &a};
    if (!k->store[backward]) return;
    cuda_run(k->store[backward], blocks(c->T, 64) * (unsigned)c->B, (unsigned)c->H,
             blocks(blocks(c->S, 64), AN_MASK_TILES), 128, args);
}

/* ---------------------------------------------------------------------------------------------- right? */

/* What any of the passes needs. */
static an_i64 scratch_words(size_t heads, int T, int D)
{
    const an_i64 whole = AN_HOPPER_WORDS(AN_WHOLE_PASS, (an_i64)heads, T, 1),
                 shared = AN_HOPPER_WORDS(AN_SHARED_PASS, (an_i64)heads, T, AN_HOPPER_CHUNKS(D));
    return whole > shared ? whole : shared;
}

/* Of the passes of wide heads: the others need less. */
static cuda_pointer mask_new(const attn_case *c)
{
    return cuda_new((size_t)AN_MASK_BYTES(AN_DKV_PASS, (an_i64)c->B * c->H, c->T, c->S), NULL);
}

/* The mask, over its strides. */
static cuda_pointer bias_new(const attn_case *c)
{
    const an_i64 *at = c->args.mask;
    const size_t bytes = (size_t)c->B * (size_t)at[0] * sizeof(float);
    if (!c->mask) return 0;
    float *host = calloc(1, bytes);
    if (!host) cuda_die("out of memory");
    for (int b = 0; b < c->B; b++)
        for (int i = 0; i < c->T; i++)
            for (int j = 0; j < c->S; j++)
                host[b * at[0] + i * at[2] + j * at[3]] =
                    c->mask[((size_t)b * (size_t)c->T + (size_t)i) * (size_t)c->S + (size_t)j];
    const cuda_pointer p = cuda_new(bytes, host);
    free(host);
    return p;
}
/* After case_new: strides as AN_BIAS wants them; 3: of each sample the second row is all queries'. */
static void case_masks(attn_case *c, int bias)
{
    const an_i64 pitch = bias == 1 ? 2 * c->S : bias == 2 ? (c->S + 1) / 2 * 2 : 0;
    const size_t S = (size_t)c->S, T = (size_t)c->T;
    if (!bias) return;
    for (size_t i = 0; bias == 3 && i < (size_t)c->B * T; i++)
        if (i % T != 1) memcpy(c->mask + i * S, c->mask + (i / T * T + 1) * S, S * sizeof *c->mask);
    c->args.mask[0] = pitch ? c->T * pitch : c->S, c->args.mask[2] = pitch, c->args.mask[3] = bias == 1 ? 2 : 1;
}

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
    b.lse = cuda_new(2 * heads * (size_t)c->T * sizeof(float), NULL); /* with a mask two numbers a query */
    b.delta = cuda_new((size_t)scratch_words(heads, c->T, c->D) * sizeof(float), NULL);
    b.rng = cuda_new(sizeof c->rng, c->rng), b.n_keys = cuda_new(sizeof c->n_keys, &c->n_keys);
    b.packed = cuda_new(2 * (size_t)AN_HOPPER_PACKED_AT(c->args, c->D, 4, 1), NULL);
    b.mask = mask_new(c);
    b.bias = bias_new(c);
    return b;
}
static void release(buffers *b)
{
    for (int t = 0; t < CASE_TENSORS; t++) cuda.release(b->x[t]);
    cuda.release(b->lse), cuda.release(b->delta), cuda.release(b->rng), cuda.release(b->n_keys),
        cuda.release(b->packed), cuda.release(b->mask);
    if (b->bias) cuda.release(b->bias);
}

/* Runs everything as if on so many multiprocessors; the results go to out. */
static void run_all(const body *k, const attn_case *c, buffers *b, unsigned multiprocessors,
                    uint16_t *out[CASE_TENSORS])
{
    static const int results[] = {CASE_O, CASE_DQ, CASE_DK, CASE_DV};
    for (int i = 0; i < 4; i++)
        cuda_check(cuda.set8(b->x[results[i]], 0xff, 2 * case_elements(c, results[i])), "poisoning");
    for (int pass = 0; pass < (c->n_keys < 0 ? PASSES : 1); pass++) {
        if (pass <= DELTA) pack(k, c, b, pass), store_mask(k, c, b, pass);
        if (has(k, pass)) run(k, c, b, pass, multiprocessors);
    }
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
    c.D = k->D, c.store = KIND_BF16, c.masked = k->bias > 0, c.window = k->window, c.group = k->group;
    case_new(&c, 11), case_masks(&c, k->bias), case_solve(&c);
    buffers b = upload(&c);
    for (int g = 0; g < GRIDS; g++) run_all(k, &c, &b, grids[g], got[g]);
    printf("D=%d back=%d mask=%d H=%d T=%d S=%d%s p=%g keys=%d bias=%d window=%d group=%d:", c.D, k->back,
           k->store[0] != NULL, c.H, c.T, c.S, c.causal ? " causal" : "", (double)c.p, c.n_keys, k->bias, k->window,
           k->group);
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

/* some: fewer shapes, for heads whose code differs in how rows are copied alone. */
static int check_all(int D, int back, int causal, int dropout, int mask, int some)
{
    float p = dropout ? 0.2f : 0.0f;
    body body = {.hopper = 1, .back = back, .D = D, .vec = vec_of(D), .mask = mask}, *k = &body;
    build(k, causal, dropout);
    int wrong = check(k, (attn_case){.B = 2, .H = 3, .T = 197, .S = 197, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 67, .S = 331, .causal = causal, .n_keys = -1, .p = p});
    if (some) return wrong;
    const int most = D > 128 ? 700 : 1500; /* the answer takes the host a second */
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 64, .S = 64, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 3, .H = 2, .T = 512, .S = 512, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 1, .T = most, .S = most, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 290, .S = 33, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 3, .S = 300, .causal = causal, .n_keys = 171, .p = p});
    return wrong;
}

/* AN_SHORT_PASS: two heads at a time, of an even number and of an odd one. */
static int check_short(int D, int causal, int dropout, int mask)
{
    float p = dropout ? 0.2f : 0.0f;
    body body = {.hopper = 1, .fore = AN_SHORT_PASS, .back = AN_WHOLE_PASS, .D = D, .vec = vec_of(D), .mask = mask},
         *k = &body;
    build(k, causal, dropout);
    int wrong = check(k, (attn_case){.B = 3, .H = 3, .T = 97, .S = 97, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 5, .H = 8, .T = 128, .S = 128, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 1, .T = 64, .S = 64, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 7, .H = 1, .T = 67, .S = 331, .causal = causal, .n_keys = -1, .p = p});
    wrong += check(k, (attn_case){.B = 1, .H = 2, .T = 3, .S = 300, .causal = causal, .n_keys = 171, .p = p});
    return wrong;
}

/* A mask, a window, grouped heads: forward two heads at a time too, where there is no window. */
static int check_masks(int D, int bias, int window, int group, int dropout, int mask)
{
    const int causal = window > 0 || bias == 2, H = group ? 2 * group : 2;
    int wrong = 0;
    for (int fore = 0; fore < (window || D > 64 ? 1 : 2); fore++) {
        float p = dropout ? 0.2f : 0.0f;
        body body = {.hopper = 1,
                     .fore = fore ? AN_SHORT_PASS : AN_FORWARD_PASS,
                     .back = AN_DKV_PASS,
                     .D = D,
                     .vec = vec_of(D),
                     .mask = mask,
                     .bias = bias,
                     .window = window,
                     .group = group},
             *k = &body;
        build(k, causal, dropout);
        if (fore) {
            wrong += check(
                k, (attn_case){.B = 3, .H = group ? H : 3, .T = 97, .S = 97, .causal = causal, .n_keys = -1, .p = p});
            wrong += check(
                k,
                (attn_case){.B = 7, .H = group ? group : 1, .T = 67, .S = 331, .causal = causal, .n_keys = -1, .p = p});
            continue;
        }
        wrong += check(
            k, (attn_case){.B = 2, .H = group ? H : 3, .T = 197, .S = 197, .causal = causal, .n_keys = -1, .p = p});
        wrong += check(k, (attn_case){.B = 1, .H = H, .T = 67, .S = 331, .causal = causal, .n_keys = -1, .p = p});
        wrong += check(k, (attn_case){.B = 1, .H = H, .T = 700, .S = 700, .causal = causal, .n_keys = -1, .p = p});
        wrong += check(k, (attn_case){.B = 1, .H = H, .T = 290, .S = 130, .causal = causal, .n_keys = -1, .p = p});
        wrong += check(k, (attn_case){.B = 1, .H = H, .T = 3, .S = 300, .causal = causal, .n_keys = 171, .p = p});
    }
    return wrong;
}
static int check_all_masks(int D)
{
    static const int windows[] = {2, 64, 100, 500};
    int wrong = 0;
    for (int bias = 1; bias <= 3 && D <= 64 * AN_HOPPER_MOST_BIASED; bias++)
        for (int way = 0; way < 3; way++)
            if (bias > 1 || way == 0) wrong += check_masks(D, bias, 0, 0, way > 0, way > 1);
    for (int i = 0; i < 4; i++)
        for (int way = 0; way < 3; way++)
            if (i == 2 || way == 0) wrong += check_masks(D, 0, windows[i], 0, way > 0, way > 1);
    for (int way = 0; way < 3; way++) wrong += check_masks(D, 0, 0, 3, way > 0, way > 1);
    wrong += check_masks(D, 0, 70, 2, 0, 0);
    return wrong +
           (D <= 64 * AN_HOPPER_MOST_BIASED ? check_masks(D, 2, 80, 0, 0, 0) + check_masks(D, 2, 0, 4, 0, 0) : 0);
}

/* Whether heads of D columns have such a backward pass. */
static int is_pass_of(int D, int pass)
{
    return pass == AN_WHOLE_PASS ? D <= 64 : pass == AN_SHARED_PASS ? D <= 128 : D > 64;
}

static int check_head(int D)
{
    const int some = D % 64 != 0, passes[] = {AN_WHOLE_PASS, AN_SHARED_PASS, AN_DKV_PASS};
    int wrong = 0;
    for (int i = 0; i < 3; i++)
        for (int variant = 0; variant < 4; variant++)
            if (is_pass_of(D, passes[i]) && (!some || variant == 0 || variant == 3))
                wrong += check_all(D, passes[i], variant & 1, variant >> 1, 0, some) +
                         (variant > 1 ? check_all(D, passes[i], variant & 1, 1, 1, some) : 0);
    for (int variant = 0; variant < 6 && D <= 64; variant++)
        wrong += check_short(D, variant & 1, variant > 1, variant > 3);
    return wrong;
}

/* ---------------------------------------------------------------------------------------------- fast? */

/* As in a model: q, k, v and their gradients side by side in rows of 3 H D, o and do in rows of H D; random numbers,
 * the same for each sample. */
static buffers upload_model(attn_case *c)
{
    struct an_attn_args *a = &c->args;
    an_i64 *strides[CASE_TENSORS] = {a->q, a->k, a->v, a->o, a->do_, a->dq, a->dk, a->dv};
    size_t width = (size_t)c->H * (size_t)c->D, sample = (size_t)c->T * width * 3, B = (size_t)c->B;
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
        strides[t][2] = (an_i64)(wide ? 3 * width : width), strides[t][1] = c->D, strides[t][0] = c->T * strides[t][2];
    }
    free(host);
    const size_t heads = B * (size_t)c->H;
    b.lse = cuda_new(2 * heads * (size_t)c->T * sizeof(float), NULL); /* with a mask two numbers a query */
    b.delta = cuda_new((size_t)scratch_words(heads, c->T, c->D) * sizeof(float), NULL);
    b.rng = cuda_new(sizeof c->rng, c->rng), b.n_keys = cuda_new(sizeof c->n_keys, &c->n_keys);
    b.packed = cuda_new(2 * (size_t)AN_HOPPER_PACKED_AT(c->args, c->D, 4, 1), NULL);
    b.mask = mask_new(c);
    b.bias = c->masked ? cuda_new((size_t)c->B * (size_t)c->T * (size_t)c->T * sizeof(float), NULL) : 0;
    if (c->masked) { /* zeros: what a mask holds takes no time */
        cuda_check(cuda.set8(b.bias, 0, B * (size_t)c->T * (size_t)c->T * sizeof(float)), "filling");
        a->mask[0] = (an_i64)c->T * c->T, a->mask[1] = 0, a->mask[2] = c->masked == 3 ? 0 : c->T, a->mask[3] = 1;
    }
    return b;
}

static void time_model(attn_case c)
{
    int multiprocessors = 0;
    const double seen = c.window ? fmin(c.window, c.T / 2.0) : c.masked ? c.T : c.T / 2.0; /* keys of a query, about */
    const double flop = 4.0 * c.B * c.H * (double)c.T * seen * c.D;
    cuda_check(cuda.attribute(&multiprocessors, 16, 0), "cuDeviceGetAttribute");
    c.S = c.T, c.causal = !c.masked, c.n_keys = -1;
    c.args = (struct an_attn_args){
        .B = c.B, .H = c.H, .T = c.T, .S = c.T, .scale = 0.125f, .stream = 77, .window = c.window};
    c.args.keep_scale = an_rng_keep_scale_16(c.p), c.args.keep_at_least = an_rng_least_16(c.p);
    buffers b = upload_model(&c);
    printf("B=%d H=%d T=%d D=%d %s window=%d p=%g:                forward  backward   us; TFLOP/s forward, backward\n",
           c.B, c.H, c.T, c.D, c.masked ? "masked" : "causal", c.window, (double)c.p);
    for (int way = -1; way <= 2 * AN_DKV_PASS + 1; way++) {
        const int back = way < 0 ? -1 : way / 2, mask = way > 0 && way % 2;
        float best[2] = {0}; /* forward, all of backward */
        body k = {.hopper = back >= 0,
                  .back = back,
                  .D = c.D,
                  .vec = vec_of(c.D),
                  .mask = mask,
                  .bias = c.masked,
                  .window = c.window};
        if (mask && c.p <= 0) continue;
        if (c.masked || c.window      ? back != AN_DKV_PASS
            : back < 0                ? c.D % 16 != 0 && c.D <= 128
            : back == AN_FORWARD_PASS ? 1
                                      : !is_pass_of(c.D, back))
            continue;
        build(&k, c.causal, c.p > 0);
        for (int round = 0; round < ROUNDS; round++)
            for (int backward = 0; backward < 2; backward++) {
                cuda_clock(0);
                for (int r = 0; r < RUNS; r++) {
                    pack(&k, &c, &b, backward), store_mask(&k, &c, &b, backward);
                    for (int pass = backward; pass < (backward ? PASSES : 1); pass++)
                        if (has(&k, pass)) run(&k, &c, &b, pass, (unsigned)multiprocessors);
                }
                float ms = cuda_clock(1) / RUNS;
                if (round == 1 || (round && ms < best[backward])) best[backward] = ms;
            }
        printf("  %-38s%-14s %9.1f %9.1f; %4.0f %4.0f\n",
               back < 0                 ? is_portable(&k) ? "portable" : "attn_bf16.inc"
               : back == AN_WHOLE_PASS  ? "attn_hopper.inc, whole heads"
               : back == AN_SHARED_PASS ? "attn_hopper.inc, shared heads"
                                        : "attn_hopper.inc, two passes",
               mask ? ", bits stored" : "", (double)best[0] * 1e3, (double)best[1] * 1e3, flop / (double)best[0] / 1e9,
               2.5 * flop / (double)best[1] / 1e9);
    }
    cuda.release(b.x[CASE_Q]), cuda.release(b.x[CASE_O]), cuda.release(b.x[CASE_DO]), cuda.release(b.x[CASE_DQ]);
    cuda.release(b.lse), cuda.release(b.delta), cuda.release(b.rng), cuda.release(b.n_keys), cuda.release(b.packed),
        cuda.release(b.mask);
    if (b.bias) cuda.release(b.bias);
}

int main(int argc, char **argv)
{
    static const int heads[] = {64, 128, 8,  16,  20,  24,  33,  40,  65,  66,  68,
                                72, 80,  96, 127, 256, 192, 130, 136, 160, 200, 201};
    static const attn_case models[] = {{.B = 32, .H = 12, .T = 1024, .D = 64},
                                       {.B = 8, .H = 12, .T = 1024, .D = 64},
                                       {.B = 2, .H = 12, .T = 1024, .D = 64},
                                       {.B = 64, .H = 6, .T = 256, .D = 64, .p = 0.2f},
                                       {.B = 8, .H = 12, .T = 4096, .D = 64},
                                       {.B = 2, .H = 12, .T = 16384, .D = 64},
                                       {.B = 16, .H = 6, .T = 2048, .D = 128},
                                       {.B = 16, .H = 3, .T = 2048, .D = 256},
                                       {.B = 16, .H = 4, .T = 2048, .D = 192},
                                       {.B = 4, .H = 8, .T = 512, .D = 256, .p = 0.2f},
                                       {.B = 1, .H = 3, .T = 16384, .D = 256},
                                       {.B = 32, .H = 3, .T = 1021, .D = 201},
                                       {.B = 4, .H = 16, .T = 512, .D = 128, .p = 0.2f},
                                       {.B = 1, .H = 6, .T = 16384, .D = 128},
                                       {.B = 2, .H = 15, .T = 15183, .D = 128},
                                       {.B = 2, .H = 12, .T = 2747, .D = 128},
                                       {.B = 1, .H = 19, .T = 16384, .D = 100},
                                       {.B = 25, .H = 13, .T = 643, .D = 100},
                                       {.B = 3, .H = 9, .T = 4711, .D = 80},
                                       {.B = 32, .H = 6, .T = 1021, .D = 65},
                                       {.B = 5, .H = 14, .T = 2876, .D = 48, .p = 0.2f},
                                       {.B = 1, .H = 9, .T = 14316, .D = 65, .p = 0.1f},
                                       {.B = 330, .H = 33, .T = 99, .D = 40, .p = 0.1f},
                                       {.B = 2, .H = 13, .T = 4096, .D = 40, .p = 0.2f},
                                       {.B = 32, .H = 8, .T = 1024, .D = 96},
                                       {.B = 32, .H = 12, .T = 1024, .D = 32}};
    static const attn_case masks[] = {
        {.B = 32, .H = 12, .T = 512, .D = 64, .masked = 3},   {.B = 32, .H = 12, .T = 512, .D = 64, .masked = 2},
        {.B = 8, .H = 12, .T = 2048, .D = 64, .masked = 2},   {.B = 8, .H = 6, .T = 2048, .D = 128, .masked = 2},
        {.B = 8, .H = 12, .T = 4096, .D = 64, .window = 256}, {.B = 2, .H = 12, .T = 16384, .D = 64, .window = 1024},
        {.B = 4, .H = 8, .T = 8192, .D = 128, .window = 1024}};
    static const int masked_heads[] = {64, 128, 40, 192, 100, 256};
    int wrong = 0, only_masks = 0, times = argc == 1, n_timed = 0, *timed = calloc((size_t)argc, sizeof *timed);
    if (!timed) cuda_die("out of memory");
    setvbuf(stdout, NULL, _IOLBF, 0); /* what hangs is seen */
    cuda_begin();
    if (cuda.arch != 90) {
        printf("attn_hopper.inc is for sm_90a alone: NOT run on sm_%d\n", cuda.arch);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "time"))
            times = 1;
        else if (!strcmp(argv[i], "lanes"))
            warp_arrives = 32;
        else if (!strcmp(argv[i], "masks"))
            only_masks = 1;
        else if (only_masks)
            only_masks++, wrong += check_all_masks(atoi(argv[i]));
        else if (times)
            timed[n_timed++] = atoi(argv[i]);
        else
            wrong += check_head(atoi(argv[i]));
    for (size_t i = 0; argc == 1 && i < sizeof heads / sizeof *heads; i++) wrong += check_head(heads[i]);
    for (size_t i = 0; (argc == 1 || (only_masks == 1 && !times)) && i < sizeof masked_heads / sizeof *masked_heads;
         i++)
        wrong += check_all_masks(masked_heads[i]);
    printf("%s\n", wrong ? "WRONG" : "all right");
    for (size_t i = 0; times && !only_masks && i < sizeof models / sizeof *models; i++) {
        int wanted = !n_timed;
        for (int n = 0; n < n_timed; n++) wanted |= timed[n] == models[i].D;
        if (wanted) time_model(models[i]);
    }
    for (size_t i = 0; (argc == 1 || only_masks == 1) && i < sizeof masks / sizeof *masks; i++) time_model(masks[i]);
    free(timed);
    return wrong != 0;
}
