/* test_nvrtc.c: every configuration compiles for three generations of NVIDIA GPU, fits its shared memory, and says how
 * many registers it takes and spills. Without NVRTC the test is skipped by name, with the reason. */
#include "configs.h"
#include "lib/test.h"
#include "nvrtc.h"

static const int ARCHS[] = {80, 90, 100};
/* A configuration compiles in seconds, so that an ordinary run takes them in turn, one generation each; AN_SOAK=1 takes
 * all. */
static bool skips(size_t config, size_t arch)
{
    return !getenv("AN_SOAK") && config % COUNT_OF(ARCHS) != arch;
}
static nvrtc compiler;

static int open_compiler(void **state)
{
    (void)state;
    char why[512];
    compiler.library = NULL;
    if (nvrtc_open(&compiler, why, sizeof why)) {
        print_message("CUDA texts are NOT compiled here: %s\n", why);
        compiler.library = NULL;
    } else {
        int major = 0, minor = 0;
        compiler.version(&major, &minor);
        print_message("# NVRTC %d.%d\n", major, minor);
    }
    return 0;
}

/* One line a kernel out of ptxas's: name, registers, spilled bytes, shared memory. Returns the kernels seen. */
static int report(const char *log, const char *what, int arch, long *spilled)
{
    char name[64] = "?";
    int kernels = 0;
    long spill = 0;
    for (const char *line = log; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *end = strchr(line, '\n'), *p;
        char text[512];
        snprintf(text, sizeof text, "%.*s", end ? (int)(end - line) : 511, line);
        if ((p = strstr(text, "Compiling entry function '"))) sscanf(p, "Compiling entry function '%63[^']", name);
        if ((p = strstr(text, "bytes stack frame,"))) sscanf(p, "bytes stack frame, %ld", &spill);
        if (!(p = strstr(text, "Used "))) continue;
        int registers = 0, shared = 0;
        sscanf(p, "Used %d", &registers);
        const char *s = strstr(text, " bytes smem");
        while (s && s > text && s[-1] >= '0' && s[-1] <= '9') s--;
        if (s) shared = atoi(s);
        print_message("# sm_%-3d %-44s %-13s %3d registers, %4ld bytes spilled, %5d shared\n", arch, what, name,
                      registers, spill, shared);
        if (shared > 48 << 10) fail_msg("%s: %d bytes of shared memory", name, shared);
        *spilled += spill;
        kernels++;
    }
    return kernels;
}

static void compile(size_t config, const char *body, const char *defines, const char *what, int exact, int kernels)
{
    char *text = kernel_text("cuda", body, defines);
    for (size_t a = 0; a < COUNT_OF(ARCHS); a++) {
        if (skips(config, a)) continue;
        char *log = NULL, *cubin = nvrtc_cubin(&compiler, text, body, ARCHS[a], !exact, &log);
        long spilled = 0;
        if (!cubin) fail_msg("%s for sm_%d: %s", what, ARCHS[a], log ? log : "no log");
        if (log && strstr(log, "warning")) fail_msg("%s for sm_%d: %s", what, ARCHS[a], log);
        assert_int_equal(report(log, what, ARCHS[a], &spilled), kernels);
        free(cubin), free(log);
    }
    free(text);
}

static void attention_compiles_for_every_generation(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (size_t i = 0; i < COUNT_OF(cuda_attention); i++) {
        const attn_config *c = &cuda_attention[i];
        char defines[1024], what[128];
        snprintf(what, sizeof what, "%s*%s D=%d%s%s%s", kind_name(c->store), kind_name(c->mul), c->D,
                 c->causal ? " causal" : "", c->dropout ? " dropout" : "", c->exact ? " exact" : "");
        attn_defines(defines, sizeof defines, c, 0);
        compile(i, "attn_forward", defines, what, c->exact, 1);
        attn_defines(defines, sizeof defines, c, 1);
        compile(i, "attn_backward", defines, what, c->exact, 3);
    }
}

static void gemms_compile_for_every_generation(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (size_t i = 0; i < COUNT_OF(cuda_gemm); i++) {
        const gemm_config *c = &cuda_gemm[i];
        char defines[1024], what[128];
        snprintf(what, sizeof what, "%s*%s %dx%dx%d %c%c", kind_name(c->store), kind_name(c->mul), c->bm, c->bn, c->bk,
                 c->a_along_k ? 'n' : 't', c->b_along_k ? 't' : 'n');
        gemm_defines(defines, sizeof defines, c);
        compile(i, "gemm", defines, what, 1, 2);
    }
}

/* The passes of attn_hopper.inc, where a register too many costs the overlap that it is for (ptxas then says so), or more
 * than a few bytes of the stack; the warpgroup that adds dq, which waits anyway, and the one that copies may have some. */
static void attention_for_hopper_compiles_and_keeps_its_sums_in_registers(void **state)
{
    static const int of[][3] = {/* columns, AN_VEC, pass */
                                {64, 8, AN_FORWARD_PASS},  {64, 8, AN_WHOLE_PASS},    {64, 8, AN_SHARED_PASS},
                                {128, 8, AN_DKV_PASS},     {128, 8, AN_FORWARD_PASS}, {65, 1, AN_DKV_PASS},
                                {65, 1, AN_FORWARD_PASS},  {20, 1, AN_SHARED_PASS},   {256, 8, AN_DKV_PASS},
                                {256, 8, AN_FORWARD_PASS}, {130, 1, AN_DKV_PASS},     {64, 8, AN_SHORT_PASS},
                                {33, 1, AN_SHORT_PASS},    {8, 8, AN_SHARED_PASS},    {32, 8, AN_WHOLE_PASS},
                                {128, 8, AN_SHARED_PASS},  {65, 1, AN_SHARED_PASS}};
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (int variant = 0; variant < 4 * (int)COUNT_OF(of); variant++) {
        const int *pass = of[variant / 4], backward = !AN_HOPPER_FORWARD(pass[2]);
        const attn_config c = {.store = KIND_BF16,
                               .mul = KIND_BF16,
                               .vec = pass[1],
                               .D = pass[0],
                               .dc = 16,
                               .cols = 64,
                               .causal = variant & 1,
                               .dropout = variant >> 1 & 1,
                               .forward_threads = 128,
                               .backward_threads = 128};
        if (!getenv("AN_SOAK") && variant % 4 != (variant < 16 ? 3 : 1)) continue;
        char defines[1024], what[64], *log = NULL;
        attn_defines(defines, sizeof defines, &c, backward);
        size_t at = strlen(defines);
        snprintf(defines + at, sizeof defines - at,
                 "#define AN_HOPPER 1\n#define AN_FORWARD %d\n#define AN_HOPPER_PASS %d\n", !backward, pass[2]);
        char *text = kernel_text("cuda", "attn_bf16", defines);
        at = strlen(text);
        kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper.inc");
        if (backward) kernel_append(text, 1u << 18, &at, "src/kernels/gpu/attn_hopper_backward.inc");
        snprintf(what, sizeof what, "BF16 for Hopper, D %d, pass %d%s%s", c.D, pass[2], c.causal ? ", causal" : "",
                 c.dropout ? ", dropout" : "");
        char *cubin = nvrtc_cubin_for(&compiler, text, "attn_hopper", "sm_90a", 1, &log);
        long spilled = 0;
        if (!cubin || !log || strstr(log, "warning") || strstr(log, "Potential Performance Loss"))
            fail_msg("%s: %s", what, log ? log : "no log");
        assert_int_equal(report(log, what, 90, &spilled), (pass[1] < 8) + (!backward                ? 1
                                                                           : pass[2] == AN_DKV_PASS ? 3
                                                                                                    : 2));
        assert_in_range(spilled, 0, backward ? 128 : 16);
        free(cubin), free(log), free(text);
    }
}

/* gemm_hopper.inc with an epilogue that loads and stores: the 192 accumulators of a thread leave few registers for it; with a bias; and
 * pairs, which store their halves or not, in wider tiles or narrow ones, or read another tensor. */
static void gemms_with_an_epilogue_for_hopper_compile_and_keep_their_sums_in_registers(void **state)
{
    static const char
        end[] = "struct an_epilogue_in {\n    an_u16 w[8];\n};\n"
                "AN_FN void an_end(an_u16 (&x)[8], const an_u16 (&w)[8], an_u16 *y)\n{\n"
                "    AN_UNROLL for (int k = 0; k < 8; k++)\n"
                "        x[k] = an_bf16_bits(an_bf16_to_f32(x[k]) * an_one_plus_erf_16bit(an_bf16_to_f32(w[k])));\n"
                "    an_wide_store(y, x);\n}\n"
                "#define AN_EPILOGUE_ARGS , const an_u16 *x0, an_u16 *y0\n"
                "#define AN_EPILOGUE_NAMES , x0, y0\n"
                "#define AN_EPILOGUE_LOAD(in, row, col) an_wide_load((in).w, x0 + (row) * g.n + (col))\n"
                "#define AN_EPILOGUE_PREFETCH(row, col) an_prefetch(x0 + (row) * g.n + (col))\n"
                "#define AN_EPILOGUE_APPLY(row, col, x, in) an_end(x, (in).w, y0 + (row) * g.n + (col))\n"
                "AN_FN an_u32 an_gate(an_u32 x, an_u32 y)\n{\n"
                "    float low = an_bf16_of(&x, 0) * an_sigmoid_16bit(an_bf16_of(&y, 0)), high = an_bf16_of(&x, 1) * "
                "an_bf16_of(&y, 1);\n"
                "    return an_bf16_bits(low) | an_bf16_bits(high) << 16;\n}\n"
                "#define AN_EPILOGUE_PAIR(x, y) an_gate(x, y)\n"
                "#define AN_EPILOGUE_STORE(row, col, v) an_wide_store((an_u32 *)(y0 + (row) * g.n + (col)), v)\n"
                "#define AN_EPILOGUE_STORE_X AN_EPILOGUE_STORE\n"
                "#define AN_EPILOGUE_STORE_Y AN_EPILOGUE_STORE\n",
        reads[] = /* a pair that reads another tensor and stores three */
        "AN_FN void an_gradient(const an_u32 (&x)[4], const an_u32 (&y)[4], const an_u32 (&w)[4], an_u32 *to, int "
        "more)\n{\n"
        "    an_u32 a[4], b[4], c[4];\n"
        "    AN_UNROLL for (int j = 0; j < 4; j++)\n    {\n"
        "        float low = an_bf16_of(&x[j], 0), high = an_bf16_of(&x[j], 1);\n"
        "        float s = an_sigmoid_16bit(low), t = an_sigmoid_16bit(high);\n"
        "        a[j] = an_bf16_product(an_bf16_pair(low * s, high * t), y[j]);\n"
        "        b[j] = an_bf16_product(an_bf16_pair(low * s, high * t), w[j]), c[j] = an_bf16_pair(low * s * (1 - s), "
        "high * t * (1 - t));\n"
        "    }\n"
        "    an_wide_store(to, a), an_wide_store(to + more, b), an_wide_store(to + 2 * more, c);\n}\n"
        "#define AN_EPILOGUE_ARGS , const an_u16 *x0, an_u16 *y0\n"
        "#define AN_EPILOGUE_NAMES , x0, y0\n"
        "#define AN_EPILOGUE_READS 1\n"
        "#define AN_EPILOGUE_BESIDE(row, col) (x0 + (row) * g.n + (col))\n"
        "#define AN_EPILOGUE_APPLY(row, col, x, y, z) an_gradient(x, y, z, (an_u32 *)(y0 + (row) * g.n + (col)), "
        "g.m * g.n)\n";
    static const char *const files[] = {"src/kernels/dialect/cuda.h", "src/base/exact.h",
                                        "src/kernels/dialect/loops_gpu.h", "src/kernels/dialect/hopper.h",
                                        "src/kernels/gpu/gemm_hopper_args.h"};
    const size_t capacity = 1u << 18;
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    static const struct form {
        bool pair, a_along_k, b_along_k, bias, reads, keeps, narrow;
    } forms[] = {{.a_along_k = true},
                 {.a_along_k = true, .b_along_k = true},
                 {.a_along_k = true, .bias = true},
                 {.a_along_k = true, .b_along_k = true, .bias = true},
                 {.pair = true, .keeps = true},
                 {.pair = true, .a_along_k = true, .b_along_k = true, .keeps = true},
                 {.pair = true},
                 {.pair = true, .a_along_k = true, .b_along_k = true},
                 {.pair = true, .narrow = true},
                 {.pair = true, .a_along_k = true, .b_along_k = true, .narrow = true},
                 {.pair = true, .reads = true},
                 {.pair = true, .a_along_k = true, .b_along_k = true, .reads = true}};
    for (size_t form = 0; form < COUNT_OF(forms); form++) {
        const struct form *f = &forms[form];
        char *text = malloc(capacity), *log = NULL, what[96];
        long spilled = 0;
        assert_non_null(text);
        size_t at = (size_t)snprintf(text, capacity,
                                     "%s#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n#define AN_ALIGNED 1\n"
                                     "#define AN_PAIR %d\n#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n",
                                     f->narrow ? "#define AN_NARROW\n" : "", f->pair, f->a_along_k, f->b_along_k);
        for (size_t i = 0; i < COUNT_OF(files); i++) kernel_append(text, capacity, &at, files[i]);
        at += (size_t)snprintf(text + at, capacity - at, "%s#define AN_EPILOGUE_KEEPS %d\n%s", f->reads ? reads : end,
                               f->keeps, f->bias ? "#define AN_EPILOGUE_BIAS(col) an_bf16_to_f32(x0[col])\n" : "");
        kernel_append(text, capacity, &at, "src/kernels/gpu/gemm_hopper.inc");
        snprintf(what, sizeof what, "a%s%s GEMM for Hopper%s, A along %c, B along %c", f->narrow ? " narrow" : "",
                 f->pair ? " pair's" : "",
                 f->reads   ? " that reads"
                 : f->keeps ? " that keeps its halves"
                 : f->bias  ? " with a bias"
                            : "",
                 f->a_along_k ? 'k' : 'm', f->b_along_k ? 'k' : 'n');
        char *cubin = nvrtc_cubin_for(&compiler, text, "gemm_hopper", "sm_90a", 0, &log);
        if (!cubin || !log || strstr(log, "warning") || strstr(log, "Potential Performance Loss"))
            fail_msg("%s: %s", what, log ? log : "no log");
        assert_int_equal(report(log, what, 90, &spilled), 1);
        assert_in_range(spilled, 0, 32);
        free(cubin), free(log), free(text);
    }
}

/* The same with the ends of gemm_hopper_plain.inc: each storage dtype, in parts and not, with operands along k or not. */
static void plain_gemms_for_hopper_compile_and_keep_their_sums_in_registers(void **state)
{
    static const char *const files[] = {"src/kernels/dialect/cuda.h",         "src/base/exact.h",
                                        "src/kernels/dialect/loops_gpu.h",    "src/kernels/dialect/hopper.h",
                                        "src/kernels/gpu/gemm_hopper_args.h", "src/kernels/gpu/gemm_hopper_plain.inc",
                                        "src/kernels/gpu/gemm_hopper.inc"};
    const size_t capacity = 1u << 18;
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    for (int form = 0; form < 20; form++) { /* the last four: with a bias */
        static const char *const biases[] = {"#define AN_BIAS float\n", "#define AN_BIAS an_u16\n"};
        const bool bias = form >= 16;
        const int f32 = !bias && form & 1, split = form >> 1 & 1, a_along_k = bias || (form >> 2 & 1),
                  b_along_k = bias || form >> 3;
        char *text = malloc(capacity), *log = NULL, what[96];
        long spilled = 0;
        assert_non_null(text);
        size_t at = (size_t)snprintf(text, capacity,
                                     "%s#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n#define AN_ALIGNED 0\n"
                                     "#define AN_PAIR 0\n#define AN_A_ALONG_K %d\n#define AN_B_ALONG_K %d\n"
                                     "#define AN_C_F32 %d\n#define AN_SPLIT %d\n",
                                     bias ? biases[form & 1] : "", a_along_k, b_along_k, f32, split);
        for (size_t i = 0; i < COUNT_OF(files); i++) kernel_append(text, capacity, &at, files[i]);
        snprintf(what, sizeof what, "a plain GEMM for Hopper, %s%s%s, A along %c, B along %c", f32 ? "f32" : "bf16",
                 split ? " in parts" : "", bias ? ", with a bias" : "", a_along_k ? 'k' : 'm', b_along_k ? 'k' : 'n');
        char *cubin = nvrtc_cubin_for(&compiler, text, "gemm_hopper", "sm_90a", 0, &log);
        if (!cubin || !log || strstr(log, "warning") || strstr(log, "Potential Performance Loss"))
            fail_msg("%s: %s", what, log ? log : "no log");
        assert_int_equal(report(log, what, 90, &spilled), 1 + split);
        assert_int_equal(spilled, 0);
        free(cubin), free(log), free(text);
    }
}

/* gemm_tf32.inc: sums in registers, as above. */
static void gradients_of_weights_for_hopper_compile_and_keep_their_sums_in_registers(void **state)
{
    (void)state;
    if (!compiler.library) test_skip(NVRTC_ABSENT);
    static const char *const parts[] = {"src/kernels/dialect/cuda.h", "src/base/exact.h",
                                        "src/kernels/dialect/hopper.h", "src/kernels/gpu/gemm_tf32_args.h",
                                        "src/kernels/gpu/gemm_tf32.inc"};
    const size_t capacity = 1u << 18;
    char *text = malloc(capacity), *log = NULL;
    assert_non_null(text);
    size_t at = (size_t)snprintf(text, capacity, "#define AN_MUL AN_KIND_F32\n#define AN_EXACT 0\n");
    for (size_t i = 0; i < COUNT_OF(parts); i++) kernel_append(text, capacity, &at, parts[i]);
    char *cubin = nvrtc_cubin_for(&compiler, text, "gemm_tf32", "sm_90a", 0, &log);
    long spilled = 0;
    if (!cubin || !log || strstr(log, "warning") || strstr(log, "Potential Performance Loss"))
        fail_msg("gemm_tf32: %s", log ? log : "no log");
    assert_int_equal(report(log, "gemm_tf32", 90, &spilled), 2);
    assert_int_equal(spilled, 0);
    free(cubin), free(log), free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_compiles_for_every_generation),
        cmocka_unit_test(attention_for_hopper_compiles_and_keeps_its_sums_in_registers),
        cmocka_unit_test(plain_gemms_for_hopper_compile_and_keep_their_sums_in_registers),
        cmocka_unit_test(gradients_of_weights_for_hopper_compile_and_keep_their_sums_in_registers),
        cmocka_unit_test(gemms_compile_for_every_generation),
        cmocka_unit_test(gemms_with_an_epilogue_for_hopper_compile_and_keep_their_sums_in_registers),
    };
    return cmocka_run_group_tests(tests, open_compiler, NULL);
}
