/* test_epilogues.c: GEMMs that the CUDA backend runs with a fused epilogue, and plain ones of odd extents that it runs itself
 * (device/cuda/gemm_hopper.c): which they are, on which GPU, and that they are launched correctly. No GPU is needed: fake_cuda.c is the driver. Their results are checked
 * by tests/gpu/gemm_hopper_check.c and test_gpu.c. */
#define _GNU_SOURCE /* setenv */
#include <anneal.h> /* first: it brings the spellings for users */

#include "cuda/fake.h"

#include <anneal_nn.h>
#include <anneal_tools.h>
#include "runtime/context.h"
#include "device/cuda/cuda_internal.h"
#include "codegen/cuda_modules.h"
#include "shim/nvrtc.h"

static nvrtc compiler; /* the real one, which takes the texts of gates; library NULL: there is none */

static int start(void **state)
{
    char why[512];
    (void)state;
    fake_build();
    if (nvrtc_open(&compiler, why, sizeof why)) {
        print_message("texts of gates are NOT compiled here: %s\n", why);
        compiler.library = NULL;
    }
    return 0;
}

typedef struct found {
    int gemms, fused, stored; /* stored: tensors that fused epilogues store */
    int plain, parts;         /* parts: of k, over all plain GEMMs */
    int biased;               /* plain ones that add a bias */
    int64_t scratch_bytes;    /* of the last fused step */
} found;

/* On a GPU of this generation, with products in this dtype. */
static an_ctx *open_on(int arch, an_dtype matmul)
{
    char generation[8];
    fake_reset();
    snprintf(generation, sizeof generation, "%d", arch);
    setenv("FAKE_CUDA_ARCH", generation, 1);
    an_ctx *cx = an_open(&(an_options){.device = "cuda", .seed = 1, .cache_dir = test_path("cache"), .verify = true});
    assert_non_null(cx);
    an_set_policy(cx, (an_policy){.matmul = matmul});
    return cx;
}

typedef enum biases { NO_BIAS, BIASES, BIASES_BF16 } biases;

/* One step of x [M,C], up to [M,W], GELU, down to [M,C]: run on a GPU of this generation. */
static found step_with(int arch, int32_t M, int32_t C, int32_t W, an_dtype matmul, int32_t from, biases with)
{
    found f = {0};
    an_ctx *cx = open_on(arch, matmul);
    an_tensor *all = an_param(cx, "x", AN_BF16, AN_SHAPE(M, C + 8), AN_ZEROS);
    an_tensor *up = an_param(cx, "up", AN_F32, AN_SHAPE(W, C), AN_ZEROS),
              *down = an_param(cx, "down", AN_F32, AN_SHAPE(C, W), AN_ZEROS);
    const an_dtype kept = with == BIASES_BF16 ? AN_BF16 : AN_F32;
    an_tensor *first = with ? an_param(cx, "first", kept, AN_SHAPE(W), AN_ZEROS) : NULL,
              *last = with ? an_param(cx, "last", kept, AN_SHAPE(C), AN_ZEROS) : NULL;
    an_tensor *x = an_slice(all, 1, from, from + C);
    an_tensor *y = an_linear(an_gelu(an_linear(x, up, first)), down, last);
    an_backward(an_sum(an_square(an_cast(y, AN_F32)), AN_ALL));
    if (an_eval(an_grad(up), an_grad(down)) != AN_OK) fail_msg("%s", an_error(cx));
    const struct an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        const int32_t epilogue = p->step[s].epilogue;
        an_gemm_plan gemm;
        if (k->kind != AN_KERNEL_GEMM) continue;
        f.gemms++;
        if (!an_cuda_gemm_plan(cx->device, &k->u.gemm, epilogue >= 0 ? p->kernel[epilogue].u.loop : NULL, &gemm))
            continue;
        f.plain += gemm.plain;
        f.biased += gemm.bias >= 0;
        f.parts += gemm.plain ? gemm.splits : 0;
        if (gemm.plain) {
            assert_int_equal(gemm.lda % 8, 0); /* what the copy engine reads, whatever the extents are */
            assert_int_equal(gemm.ldb % 8, 0);
            assert_true(an_cuda_plain_scratch(&k->u.gemm, &gemm) <= AN_CUDA_WORKSPACE);
        }
        if (!gemm.fused) continue;
        f.fused++;
        f.scratch_bytes = p->step[s].scratch_bytes;
        for (int a = 0; a < p->kernel[epilogue].u.loop->n_args; a++)
            f.stored += p->kernel[epilogue].u.loop->arg[a].written;
    }
    an_close(cx);
    fake_clean();
    return f;
}

static found step_of(int arch, int32_t M, int32_t C, int32_t W, an_dtype matmul, int32_t from)
{
    return step_with(arch, M, C, W, matmul, from, NO_BIAS);
}

static void on_hopper_gelu_is_the_epilogue_of_the_step_up_and_of_no_gradient(void **state)
{
    (void)state;
    const found f = step_of(90, 8192, 384, 1536, AN_BF16, 0);
    assert_int_equal(f.gemms, 6); /* up, down, and two gradients of each */
    assert_int_equal(f.fused, 1);
    assert_int_equal(f.stored, 2);                /* what GELU reads, and GELU: nothing that only gradients need */
    assert_in_range(f.scratch_bytes, 0, 4 << 20); /* the weight in bf16; the GEMM's result is not stored */
}

/* Also where a product is not wider than its sum is long. Residual sums and norms stay outside. */
static void on_hopper_a_bias_is_added_where_the_sums_are(void **state)
{
    (void)state;
    const found f = step_with(90, 8192, 768, 3072, AN_BF16, 0, BIASES);
    assert_int_equal(f.gemms, 6);
    assert_int_equal(f.fused, 2);
    assert_int_equal(f.stored, 3);                /* what GELU reads, GELU, and the second sum, all in bf16 */
    assert_in_range(f.scratch_bytes, 0, 5 << 20); /* the weight in bf16; no sums in f32 */
    assert_int_equal(step_with(90, 8192, 768, 3072, AN_BF16, 0, BIASES_BF16).fused, 2);
    assert_int_equal(step_with(90, 8192, 768, 768, AN_BF16, 0, BIASES).fused, 2);
    assert_int_equal(step_with(90, 8192, 384, 1600, AN_BF16, 0, BIASES).fused, 1); /* the second has too long a sum */
    assert_int_equal(step_with(90, 9216, 768, 768, AN_BF16, 0, BIASES).fused, 0);  /* a third round, nearly empty */
    assert_int_equal(step_with(90, 8200, 768, 768, AN_BF16, 0, BIASES).fused, 0);  /* rows that are no blocks of 64 */
    assert_int_equal(step_with(80, 8192, 768, 3072, AN_BF16, 0, BIASES).fused, 0);
    assert_int_equal(step_with(90, 8192, 768, 3072, AN_F32, 0, BIASES).fused, 0);
    assert_int_equal(step_with(90, 8192, 768, 3072, AN_F16, 0, BIASES).fused, 0);
}

/* What becomes of the sums in f32 of x w^T, [rows,768]: rounded to bf16; with a number a column, or a row, added before; or shown
 * in f32 beside. */
typedef enum end { ROUNDED, OF_COLUMNS, OF_ROWS, SHOWN } end;

/* Whether that is the end of the product: of sm_90a's kernel, or for few rows, those of a token, of gemm_rows.inc. */
static bool ends_its_product(end of, int32_t rows)
{
    bool fused = false;
    an_ctx *cx = open_on(90, AN_BF16);
    an_tensor *x = an_param(cx, "x", AN_BF16, AN_SHAPE(rows, 768), AN_ZEROS),
              *w = an_param(cx, "w", AN_BF16, AN_SHAPE(768, 768), AN_ZEROS),
              *b = an_param(cx, "b", AN_F32, of == OF_ROWS ? AN_SHAPE(rows, 1) : AN_SHAPE(1, 768), AN_ZEROS);
    an_tensor *sum = an_matmul_as(x, an_transpose(w, 0, 1), AN_F32);
    if (of != ROUNDED) sum = an_add(sum, b);
    an_tensor *y = an_cast(sum, AN_BF16);
    if ((of == SHOWN ? an_eval(y, sum) : an_eval(y)) != AN_OK) fail_msg("%s", an_error(cx));
    const struct an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        const int32_t epilogue = p->step[s].epilogue;
        an_gemm_plan gemm;
        if (k->kind != AN_KERNEL_GEMM || epilogue < 0) continue;
        const bool ours = an_cuda_gemm_plan(cx->device, &k->u.gemm, p->kernel[epilogue].u.loop, &gemm);
        fused = rows > AN_FEW_ROWS ? ours && gemm.fused : !ours;
    }
    an_close(cx);
    fake_clean();
    return fused;
}

static void on_hopper_sums_are_rounded_once_behind_their_bias(void **state)
{
    (void)state;
    for (int32_t rows = 1; rows <= 8192; rows += 8191) {
        assert_true(ends_its_product(ROUNDED, rows));
        assert_true(ends_its_product(OF_COLUMNS, rows));
    }
    assert_false(ends_its_product(OF_ROWS, 8192));
    assert_false(ends_its_product(SHOWN, 8192));
}

static void elsewhere_and_where_it_does_not_pay_they_are_the_librarys(void **state)
{
    (void)state;
    assert_int_equal(step_of(80, 8192, 384, 1536, AN_BF16, 0).fused, 0);
    assert_int_equal(step_of(100, 8192, 384, 1536, AN_BF16, 0).fused, 0);
    assert_int_equal(step_of(90, 8192, 384, 1536, AN_F32, 0).fused, 0);
    assert_int_equal(step_of(90, 8192, 384, 384, AN_BF16, 0).fused, 0);  /* not wider than its sum is long */
    assert_int_equal(step_of(90, 512, 384, 1536, AN_BF16, 0).fused, 0);  /* few tiles */
    assert_int_equal(step_of(90, 8200, 384, 1536, AN_BF16, 0).fused, 0); /* rows that are no blocks of 64 */
}

/* The copy engine wants 16 bytes: what begins elsewhere goes through gemm.inc. */
static void an_operand_that_begins_between_16_bytes_is_read_another_way(void **state)
{
    (void)state;
    const found f = step_of(90, 8192, 384, 1536, AN_BF16, 1); /* a map of it would be misuse, and is seen */
    assert_int_equal(f.fused, 1);
}

/* An extent along a row that is no multiple of 8 makes a GEMM ours; rows may be any number. */
static void on_hopper_products_of_odd_extents_are_ours(void **state)
{
    (void)state;
    const found odd = step_of(90, 2051, 385, 1537, AN_BF16, 0), four = step_of(90, 2051, 388, 1540, AN_BF16, 0);
    assert_int_equal(odd.plain, 4);    /* all but those that read x, whose rows the caller has laid 393 apart */
    assert_in_range(odd.parts, 5, 64); /* the sums of gradients over 2,051 rows are split */
    assert_int_equal(four.plain, 4);
    assert_int_equal(step_of(90, 2051, 384, 1536, AN_BF16, 0).plain, 0);
    assert_int_equal(step_of(90, 2051, 384, 1537, AN_BF16, 0).plain, 6);
    assert_int_equal(step_of(80, 2051, 385, 1537, AN_BF16, 0).plain, 0);
    assert_int_equal(step_of(90, 2051, 385, 1537, AN_F32, 0).plain, 0);
    assert_int_equal(step_of(90, 2051, 33, 31, AN_BF16, 0).plain, 0); /* tiles would be nearly empty */
}

/* So do their biases: nothing is stored in f32 for them. */
static void on_hopper_products_of_odd_extents_add_their_bias(void **state)
{
    (void)state;
    assert_int_equal(step_with(90, 2051, 384, 1537, AN_BF16, 0, BIASES).biased, 2);
    assert_int_equal(step_with(90, 2051, 384, 1537, AN_BF16, 0, BIASES_BF16).biased, 2);
    assert_int_equal(step_with(90, 2051, 384, 1537, AN_BF16, 1, BIASES).biased, 2); /* x as gemm.inc reads it */
    assert_int_equal(step_with(90, 2051, 384, 1536, AN_BF16, 0, BIASES).biased, 0);
    assert_int_equal(step_with(80, 2051, 384, 1537, AN_BF16, 0, BIASES).biased, 0);
}

/* x begins 2 bytes behind a multiple of 16: its product is the library's, in the same layout. */
static void an_odd_operand_that_begins_between_16_bytes_is_the_librarys(void **state)
{
    (void)state;
    assert_int_equal(step_of(90, 2051, 384, 1537, AN_BF16, 1).plain, 6); /* a map of x would be misuse, and is seen */
}

/* The number of parts follows from the shape alone, fills the GPU, and has whole parts only. */
static void the_parts_of_a_long_sum_fill_the_gpu(void **state)
{
    (void)state;
    const struct {
        int32_t m, n, k, parts;
    } of[] = {{16343, 2079, 693, 1},
              {693, 693, 16343, 5},
              {65, 693, 16343, 16},
              {1790, 585, 50257, 7},
              {50257, 585, 1790, 1}};
    for (size_t i = 0; i < AN_COUNT(of); i++) {
        const an_gemm_spec s = {.m = of[i].m, .n = of[i].n, .k = of[i].k};
        assert_int_equal(an_cuda_plain_splits(&s), of[i].parts);
    }
}

typedef struct pairs {
    int n, kept, again; /* again: whose product is computed again for the gradient at its end */
} pairs;
typedef enum gradient { NO_GRADIENT, FROM_KEPT, AGAIN } gradient; /* of the weights; AGAIN: with recompute=on */

/* The most bytes that a kernel of ptxas's log stores to local memory for want of registers; -1: the log tells none. */
static long most_spilled(const char *log)
{
    long most = -1, bytes;
    for (const char *p = log; (p = strstr(p, "bytes stack frame, ")); p++)
        if (sscanf(p, "bytes stack frame, %ld bytes spill stores", &bytes) == 1) most = AN_MAX(most, bytes);
    return most;
}

/* The gate is computed while the sums of both halves are in registers: ptxas of NVRTC 13.0 and 13.5 keeps up to 48 bytes of a thread in
 * local memory, in kernels whose steps were timed on an H200 as well. More would be sums. */
enum { PAIR_SPILL = 64 };

static void compile_pair(const an_plan *p, const an_plan_step *loop, const an_gemm_pair *pair)
{
    an_text text = {0};
    char *log = NULL;
    an_render_pair_module(p, loop, pair->arg, pair->keep, pair->gemm.narrow, pair->gemm.a_along_k, pair->gemm.b_along_k,
                          true, &text);
    assert_false(text.failed);
    char *cubin = nvrtc_cubin_for(&compiler, text.data, "a gated product", "sm_90a", 0, &log);
    if (!cubin || !log || strstr(log, "warning")) fail_msg("a gate: %s", log ? log : "no log");
    if (most_spilled(log) < 0 || most_spilled(log) > PAIR_SPILL)
        fail_msg("a gate spills %ld bytes: %s", most_spilled(log), log);
    free(cubin), free(log), an_text_free(&text);
}

/* silu(gate) up of [gate; up] = w x, [2I,N], and with `gradient` the gradient of w: pairs of a GEMM and the step behind it.
 * `stored`: x is stored as [K,N], a mixer's, or as [N,K], an MLP's; `kept`: the dtype of w. */
typedef enum stored { COLUMNS, ROWS } stored;
typedef enum gate { SILU, SIGMOID, RELU } gate;
static pairs pairs_with(int arch, int32_t I, int32_t N, int32_t K, stored rows, gradient how, gate by, an_dtype kept)
{
    char generation[8];
    pairs f = {0};
    fake_reset();
    snprintf(generation, sizeof generation, "%d", arch);
    setenv("FAKE_CUDA_ARCH", generation, 1);
    an_ctx *cx = an_open(&(an_options){.device = "cuda",
                                       .seed = 1,
                                       .cache_dir = test_path("cache"),
                                       .verify = true,
                                       .recompute = how == AGAIN ? "on" : "off"});
    assert_non_null(cx);
    an_tensor *w = an_param(cx, "w", kept, AN_SHAPE(K, 2 * I), AN_ZEROS),
              *x = an_param(cx, "x", AN_BF16, rows ? AN_SHAPE(N, K) : AN_SHAPE(K, N), AN_ZEROS),
              *down = an_param(cx, "down", AN_BF16, AN_SHAPE(64, I), AN_ZEROS);
    assert_false(an_gates_rows(x, 256, 33024, 97));
    an_set_policy(cx, (an_policy){.matmul = AN_BF16});
    assert_int_equal(an_gates_rows(x, 256, 33024, 97), arch == 90);
    assert_false(an_gates_rows(x, 256, 33024, 1025));
    an_tensor *weights = an_transpose(an_cast(w, AN_BF16), 0, 1),
              *both = an_matmul(weights, rows ? an_transpose(x, 0, 1) : x), /* [2I,N] */
                  *g = an_slice(both, 0, 0, I);
    g = by == SILU ? an_silu(g) : by == RELU ? an_relu(g) : an_sigmoid(g);
    an_tensor *h = an_mul(g, an_slice(both, 0, I, 2 * I)), *y = an_matmul(down, h);
    an_tensor *loss = an_mean(an_square(an_cast(y, AN_F32)), AN_ALL), *result = y;
    if (how != NO_GRADIENT) an_backward(loss), result = an_grad(w);
    if (an_eval(result) != AN_OK) fail_msg("%s", an_error(cx));
    const struct an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        an_gemm_pair pair;
        if (!an_cuda_is_pair(cx->device, p, s, &pair)) continue;
        f.n++;
        f.kept += pair.keep;
        f.again += p->step[s].recompute;
        if (compiler.library) compile_pair(p, &p->step[s + 1], &pair);
    }
    an_close(cx);
    fake_clean();
    return f;
}

static pairs pairs_of(int arch, int32_t I, int32_t N, int32_t K, stored rows, gradient how)
{
    return pairs_with(arch, I, N, K, rows, how, SILU, AN_BF16);
}

static void on_hopper_a_gate_over_halves_of_a_product_is_its_end(void **state)
{
    (void)state;
    const pairs forward = pairs_of(90, 128, 33024, 97, COLUMNS, NO_GRADIENT),
                both = pairs_of(90, 128, 33024, 97, COLUMNS, FROM_KEPT);
    assert_int_equal(forward.n, 1);
    assert_int_equal(forward.kept, 0); /* gate and up are not stored */
    assert_int_equal(both.n, 1);
    assert_int_equal(both.kept, 1); /* the gradient reads them */
    assert_int_equal(pairs_of(90, 128, 33024, 512, ROWS, NO_GRADIENT).n, 1);
    assert_int_equal(pairs_of(80, 128, 33024, 97, COLUMNS, NO_GRADIENT).n, 0);
    assert_int_equal(pairs_of(90, 96, 33024, 97, COLUMNS, NO_GRADIENT).n, 0); /* halves that are no blocks of 64 rows */
    assert_int_equal(pairs_of(90, 128, 33028, 97, COLUMNS, NO_GRADIENT).n, 0); /* columns that are none */
    assert_int_equal(pairs_of(90, 128, 1024, 97, COLUMNS, NO_GRADIENT).n, 0);  /* few tiles */
}

/* an_swiglu of [B,rows/B,192] in bf16, an MLP of 256: how many of its products are pairs with their gate. */
static int swiglu_pairs(int arch, int32_t rows, an_dtype matmul)
{
    int n = 0;
    an_ctx *cx = open_on(arch, matmul);
    an_tensor *x = an_param(cx, "x", AN_BF16, AN_SHAPE(2, rows / 2, 192), AN_ZEROS),
              *gate_up = an_param(cx, "gate_up", AN_BF16, AN_SHAPE(512, 192), AN_ZEROS),
              *down = an_param(cx, "down", AN_BF16, AN_SHAPE(64, 256), AN_ZEROS);
    an_tensor *y = an_swiglu(x, gate_up, down);
    assert_int_equal(an_shape_of(y).dim[1], rows / 2);
    assert_int_equal(an_shape_of(y).dim[2], 64);
    assert_int_equal(an_dtype_of(y), AN_BF16);
    if (an_eval(y) != AN_OK) fail_msg("%s", an_error(cx));
    for (int s = 0; s < cx->last->plan->n_steps; s++) {
        an_gemm_pair pair;
        n += an_cuda_is_pair(cx->device, cx->last->plan, s, &pair);
    }
    an_close(cx);
    fake_clean();
    return n;
}

static void on_hopper_any_models_swiglu_is_gated_at_the_end_of_its_product(void **state)
{
    (void)state;
    assert_int_equal(swiglu_pairs(90, 32768, AN_BF16), 1);
    assert_int_equal(swiglu_pairs(80, 32768, AN_BF16), 0);
    assert_int_equal(swiglu_pairs(90, 32768, AN_F32), 0);
    assert_int_equal(swiglu_pairs(90, 8192, AN_BF16), 0); /* few tiles */
}

/* With recomputation neither pass stores gate and up: the gradient is the end of a second product. */
static void on_hopper_a_gates_gradient_is_the_end_of_its_product(void **state)
{
    (void)state;
    const pairs again = pairs_of(90, 128, 33024, 97, COLUMNS, AGAIN);
    assert_int_equal(again.n, 2);
    assert_int_equal(again.kept, 0);
    assert_int_equal(again.again, 1);
    assert_int_equal(pairs_of(90, 128, 33024, 97, COLUMNS, FROM_KEPT).again, 0);
    assert_int_equal(pairs_of(80, 128, 33024, 97, COLUMNS, AGAIN).n, 0);
    assert_int_equal(pairs_of(90, 128, 16384, 97, COLUMNS, AGAIN).again, 0); /* few tiles */
}

/* Gates that are computed in bf16 are no pass of their own, either; weights in float32 are cast once, in memory. */
static void on_hopper_gates_in_bf16_and_of_cast_weights_are_the_ends_of_their_products(void **state)
{
    (void)state;
    for (gate by = SIGMOID; by <= RELU; by++)
        for (gradient how = NO_GRADIENT; how <= AGAIN; how++) {
            const pairs p = pairs_with(90, 128, 33024, 97, COLUMNS, how, by, AN_BF16);
            assert_int_equal(p.n, how == AGAIN ? 2 : 1);
            assert_int_equal(p.again, how == AGAIN);
        }
    assert_int_equal(pairs_with(90, 128, 33024, 97, COLUMNS, NO_GRADIENT, SILU, AN_F32).n, 1);
    assert_int_equal(pairs_with(90, 128, 33024, 97, COLUMNS, AGAIN, SILU, AN_F32).again, 1);
    assert_int_equal(pairs_with(90, 128, 33028, 97, COLUMNS, AGAIN, SILU, AN_BF16).again, 0);
}

/* r + w x, [M,N] in bf16 over K, read by a sum down its columns: how many of its products add to r as they store their result. */
typedef enum term {
    LEAF,
    BIAS,
    TURNED,
    COMPUTED
} term; /* r: [M,N]; [1,N] of each row; [N,M] transposed; an exponential of one */
static int sums_of(int arch, int32_t M, int32_t N, int32_t K, an_dtype dtype, term of)
{
    char generation[8];
    int added = 0, ends = 0;
    fake_reset();
    snprintf(generation, sizeof generation, "%d", arch);
    setenv("FAKE_CUDA_ARCH", generation, 1);
    an_ctx *cx = an_open(&(an_options){.device = "cuda", .seed = 1, .cache_dir = test_path("cache"), .verify = true});
    assert_non_null(cx);
    an_tensor *w = an_param(cx, "w", dtype, AN_SHAPE(M, K), AN_ZEROS),
              *x = an_param(cx, "x", dtype, AN_SHAPE(K, N), AN_ZEROS),
              *r = an_param(cx, "r", dtype,
                            of == BIAS     ? AN_SHAPE(1, N)
                            : of == TURNED ? AN_SHAPE(N, M)
                                           : AN_SHAPE(M, N),
                            AN_ZEROS);
    if (of == BIAS) r = an_expand(r, AN_SHAPE(M, N));
    if (of == TURNED) r = an_transpose(r, 0, 1);
    if (of == COMPUTED) r = an_exp(r);
    if (an_eval(an_rms_norm_axis(an_add(r, an_matmul(w, x)), 0, 1e-5)) != AN_OK) fail_msg("%s", an_error(cx));
    const struct an_plan *p = cx->last->plan;
    for (int s = 0; s < p->n_steps; s++) {
        const an_kernel *k = &p->kernel[p->step[s].kernel];
        const int32_t epilogue = p->step[s].epilogue;
        an_gemm_plan gemm;
        if (k->kind != AN_KERNEL_GEMM || epilogue < 0) continue;
        ends++;
        if (!an_cuda_gemm_plan(cx->device, &k->u.gemm, p->kernel[epilogue].u.loop, &gemm)) continue;
        assert_true(gemm.addend < 0 || gemm.out == dtype);
        added += gemm.addend >= 0;
    }
    an_close(cx);
    fake_clean();
    assert_int_equal(ends, added); /* none that the library does not add, as a pass of its own */
    return added;
}

static void a_residual_sum_is_added_where_the_product_is_stored(void **state)
{
    (void)state;
    assert_int_equal(sums_of(90, 97, 8192, 512, AN_BF16, LEAF), 1);
    assert_int_equal(sums_of(80, 97, 8192, 512, AN_BF16, LEAF), 1);
    assert_int_equal(sums_of(90, 97, 8191, 512, AN_BF16, LEAF), 0); /* by our own kernel, which adds in f32 alone */
    assert_int_equal(sums_of(90, 97, 8192, 511, AN_BF16, LEAF), 0);
    assert_int_equal(sums_of(90, 97, 8192, 512, AN_F32, LEAF), 0);
    assert_int_equal(sums_of(90, 97, 8192, 512, AN_BF16, BIAS), 0);
    assert_int_equal(sums_of(90, 97, 8192, 512, AN_BF16, TURNED), 0);
    assert_int_equal(sums_of(90, 97, 8192, 512, AN_BF16, COMPUTED), 0); /* computed where it is read */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_residual_sum_is_added_where_the_product_is_stored),
        cmocka_unit_test(on_hopper_gelu_is_the_epilogue_of_the_step_up_and_of_no_gradient),
        cmocka_unit_test(on_hopper_a_bias_is_added_where_the_sums_are),
        cmocka_unit_test(on_hopper_sums_are_rounded_once_behind_their_bias),
        cmocka_unit_test(elsewhere_and_where_it_does_not_pay_they_are_the_librarys),
        cmocka_unit_test(an_operand_that_begins_between_16_bytes_is_read_another_way),
        cmocka_unit_test(on_hopper_products_of_odd_extents_are_ours),
        cmocka_unit_test(on_hopper_products_of_odd_extents_add_their_bias),
        cmocka_unit_test(an_odd_operand_that_begins_between_16_bytes_is_the_librarys),
        cmocka_unit_test(the_parts_of_a_long_sum_fill_the_gpu),
        cmocka_unit_test(on_hopper_a_gate_over_halves_of_a_product_is_its_end),
        cmocka_unit_test(on_hopper_a_gates_gradient_is_the_end_of_its_product),
        cmocka_unit_test(on_hopper_gates_in_bf16_and_of_cast_weights_are_the_ends_of_their_products),
        cmocka_unit_test(on_hopper_any_models_swiglu_is_gated_at_the_end_of_its_product),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
