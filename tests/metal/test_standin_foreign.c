/* test_standin_foreign.c: kernels in the style that others write Metal in (tests/metal/samples, texts of our own) compile, run
 * under the race detector and give the numbers of plain loops: templates under host names, function constants, traits, letters
 * of vectors, bfloat, atomics, matrices by lane. */
#include "standin/fixture.h"

#include <math.h>
#include <stdio.h>

static char *read_sample(const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "tests/metal/samples/%s", name);
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s cannot be read: tests run in the repository's root", path);
    static char text[1 << 16];
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

typedef struct constant {
    uint64_t type, index;
    double value; /* as its type */
} constant;
enum { FLOAT = 3, INT = 29, BOOL_TYPE = 53 };

/* A library of a sample in MSL 3.1, safe mathematics. */
static object sample_library(const fixture *f, const char *name)
{
    object error = NULL, options = SEND0(object, class_of_name("MTLCompileOptions"), "new");
    SEND(void, (uint64_t), options, "setLanguageVersion:", 0x30001);
    SEND(void, (signed char), options, "setFastMathEnabled:", 0);
    object library = SEND(object, (object, object, object *), f->device,
                          "newLibraryWithSource:options:error:", text_of(read_sample(name)), options, &error);
    if (!library) fail_msg("%s: %s", name, letters_of(SEND0(object, error, "localizedDescription")));
    release(options);
    return library;
}

static object constants_of(const constant *c, int n)
{
    object values = SEND0(object, class_of_name("MTLFunctionConstantValues"), "new");
    for (int i = 0; i < n; i++) {
        union {
            float f;
            int32_t i;
            uint8_t b;
        } v;
        if (c[i].type == FLOAT)
            v.f = (float)c[i].value;
        else if (c[i].type == INT)
            v.i = (int32_t)c[i].value;
        else
            v.b = c[i].value != 0;
        SEND(void, (const void *, uint64_t, uint64_t), values, "setConstantValue:type:atIndex:", &v, c[i].type,
             c[i].index);
    }
    return values;
}

static object pipeline_of(const fixture *f, object library, const char *kernel, const constant *c, int n)
{
    object error = NULL, values = constants_of(c, n);
    object function = SEND(object, (object, object, object *), library,
                           "newFunctionWithName:constantValues:error:", text_of(kernel), values, &error);
    if (!function) fail_msg("%s: %s", kernel, letters_of(SEND0(object, error, "localizedDescription")));
    object p =
        SEND(object, (object, object *), f->device, "newComputePipelineStateWithFunction:error:", function, &error);
    if (!p) fail_msg("%s: %s", kernel, letters_of(SEND0(object, error, "localizedDescription")));
    release(function), release(values);
    return p;
}

static object buffer_with(const fixture *f, const void *bytes, size_t n)
{
    object b = new_buffer(f->device, n);
    memcpy(SEND0(void *, b, "contents"), bytes, n);
    return b;
}

/* Runs p on buffers 0 ..., of which NULL is none, then bytes at `at`. */
static void run(const fixture *f, object p, object *buffer, int n, const void *bytes, size_t size, int at, size3 groups,
                uint64_t threads)
{
    object cb = SEND0(object, f->queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p);
    for (int i = 0; i < n; i++)
        if (buffer[i]) set_buffer(e, buffer[i], 0, (uint64_t)i);
    if (bytes) set_bytes(e, bytes, size, (uint64_t)at);
    SEND(void, (size3, size3), e, "dispatchThreadgroups:threadsPerThreadgroup:", groups, ((size3){threads, 1, 1}));
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    assert_int_equal(status_of(cb), 4);
}

/* ---- 16-bit formats, by definition */

static float of_half(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const float x = e == 0 ? ldexpf((float)m, -24) : e == 31 ? (m ? NAN : INFINITY) : ldexpf((float)(1024 + m), e - 25);
    return h & 0x8000 ? -x : x;
}
static float of_bfloat(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}
/* The nearest, ties to even, by looking at all that are finite and at most 8 times as large as needed: slow, and plain. */
static uint16_t nearest(float x, float (*of)(uint16_t), uint16_t infinity)
{
    uint16_t low = 0, high = (uint16_t)(infinity - 1);
    const float a = fabsf(x);
    while (high - low > 1) {
        const uint16_t mid = (uint16_t)((low + high) / 2);
        if (of(mid) <= a)
            low = mid;
        else
            high = mid;
    }
    const double below = (double)a - (double)of(low), above = (double)of(high) - (double)a;
    const uint16_t r = below < above || (below == above && low % 2 == 0) ? low : high;
    return (uint16_t)(r | (signbit(x) ? 0x8000 : 0));
}
static uint16_t to_half(float x)
{
    return nearest(x, of_half, 0x7c00);
}
static uint16_t to_bfloat(float x)
{
    return nearest(x, of_bfloat, 0x7f80);
}

/* ---- GEMM */

typedef struct shape {
    int32_t M, N, K, lda, ldb, ldd;
    int64_t batch_a, batch_b, batch_d;
} shape;

static void put_number(void *to, size_t i, float x, const char *type)
{
    if (!strcmp(type, "float32"))
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = !strcmp(type, "float16") ? to_half(x) : to_bfloat(x);
}
static float get_number(const void *from, size_t i, const char *type)
{
    if (!strcmp(type, "float32")) return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return !strcmp(type, "float16") ? of_half(bits) : of_bfloat(bits);
}

static void gemm_case(const fixture *f, object library, const char *type, bool transposed, int M, int N, int K,
                      bool has_c)
{
    enum { BATCH = 2 };
    const size_t size = !strcmp(type, "float32") ? 4 : 2;
    const int bm = transposed ? 64 : 32;
    const shape s = {M, N, K, K, transposed ? K : N, N, (int64_t)M * K, (int64_t)N * K, (int64_t)M * N};
    char name[64];
    snprintf(name, sizeof name, "gemm_%s_%s_%dx32", transposed ? "nt" : "nn", type, bm);
    const constant c[] = {
        {BOOL_TYPE, 100, M % bm == 0}, {BOOL_TYPE, 101, N % 32 == 0}, {BOOL_TYPE, 110, has_c}, {BOOL_TYPE, 111, true}};
    object p = pipeline_of(f, library, name, c, 4), b[6] = {NULL};
    const size_t n[4] = {(size_t)(BATCH * M * K), (size_t)(BATCH * N * K), (size_t)(BATCH * M * N),
                         (size_t)(BATCH * M * N)};
    for (int i = 0; i < 4; i++)
        if (i != 2 || has_c) b[i] = new_buffer(f->device, n[i] * size);
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; b[i] && k < n[i]; k++)
            put_number(SEND0(void *, b[i], "contents"), k, (float)((int)((k * 37 + (size_t)i * 11) % 17) - 8) / 8,
                       type);
    b[5] = buffer_with(f, (float[]){0.5f, 2}, 8);
    run(f, p, b, 6, &s, sizeof s, 4, (size3){(uint64_t)(N + 31) / 32, (uint64_t)(M + bm - 1) / (uint64_t)bm, BATCH},
        128);
    const void *A = SEND0(void *, b[0], "contents"), *B = SEND0(void *, b[1], "contents"),
               *D = SEND0(void *, b[3], "contents");
    for (int z = 0; z < BATCH; z++)
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++) {
                float sum = 0; /* products of eighths: exact in any order */
                for (int k = 0; k < K; k++)
                    sum += get_number(A, (size_t)((z * M + i) * K + k), type) *
                           get_number(B, (size_t)(z * N * K + (transposed ? j * K + k : k * N + j)), type);
                const size_t at = (size_t)((z * M + i) * N + j);
                if (transposed) sum *= 0.5f; /* its epilogue scales */
                if (transposed && has_c) sum += 2 * get_number(SEND0(void *, b[2], "contents"), at, type);
                float want[1];
                put_number(want, 0, sum, type);
                if (get_number(D, at, type) != get_number(want, 0, type))
                    fail_msg("%s of %d x %d x %d: D[%d,%d,%d] is %g, want %g", name, M, N, K, z, i, j,
                             (double)get_number(D, at, type), (double)get_number(want, 0, type));
            }
    for (int i = 0; i < 6; i++)
        if (b[i]) release(b[i]);
    release(p);
}

static void a_blocked_gemm_of_templates_is_plain_loops(void **state)
{
    (void)state;
    static const char *const types[] = {"float32", "float16", "bfloat16"};
    fixture f = begin("");
    object library = sample_library(&f, "gemm.metal");
    for (int t = 0; t < 3; t++) {
        gemm_case(&f, library, types[t], false, 32, 64, 48, false);
        gemm_case(&f, library, types[t], true, 33, 35, 19, true);
        gemm_case(&f, library, types[t], t % 2 != 0, 7, 40, 5, false);
    }
    release(library);
    end(&f);
}

/* ---- reductions */

static void a_softmax_over_simd_groups_is_plain_loops(void **state)
{
    (void)state;
    fixture f = begin("");
    object library = sample_library(&f, "reduce.metal");
    for (int half = 0; half < 2; half++)
        for (int32_t n = 5; n <= 251; n += 82) {
            enum { ROWS = 3 };
            const uint64_t threads = (uint64_t)(n + 127) / 128 * 32;
            object p = pipeline_of(&f, library, half ? "softmax_float16" : "softmax_float32", NULL, 0);
            object b[2] = {new_buffer(f.device, (uint64_t)(ROWS * n * 4)),
                           new_buffer(f.device, (uint64_t)(ROWS * n * 4))};
            const char *type = half ? "float16" : "float32";
            void *x = SEND0(void *, b[0], "contents"), *y = SEND0(void *, b[1], "contents");
            for (int i = 0; i < ROWS * n; i++) put_number(x, (size_t)i, (float)(i * 29 % 31) / 4 - 3, type);
            run(&f, p, b, 2, &n, 4, 2, (size3){ROWS, 1, 1}, threads);
            for (int r = 0; r < ROWS; r++) {
                double most = -1e9, sum = 0;
                for (int i = 0; i < n; i++) most = fmax(most, (double)get_number(x, (size_t)(r * n + i), type));
                for (int i = 0; i < n; i++) sum += exp((double)get_number(x, (size_t)(r * n + i), type) - most);
                for (int i = 0; i < n; i++) {
                    const double want = exp((double)get_number(x, (size_t)(r * n + i), type) - most) / sum;
                    if (fabs((double)get_number(y, (size_t)(r * n + i), type) - want) >
                        (half ? 6e-4 : 1e-6) * fmax(want, 0.01))
                        fail_msg("%s of %d: y[%d] is %g, want %g", type, n, i,
                                 (double)get_number(y, (size_t)(r * n + i), type), want);
                }
            }
            release(b[0]), release(b[1]), release(p);
        }
    object squares[2] = {pipeline_of(&f, library, "squares_int", NULL, 0),
                         pipeline_of(&f, library, "squares_half", NULL, 0)};
    for (int half = 0; half < 2; half++) {
        object b[2] = {new_buffer(f.device, 400), new_buffer(f.device, 4)};
        uint32_t n = 100, want = 0;
        for (uint32_t i = 0; i < n; i++) {
            ((int32_t *)SEND0(void *, b[0], "contents"))[i] = (int32_t)i - 50;
            if (half) ((uint16_t *)SEND0(void *, b[0], "contents"))[i] = to_half((float)i - 50);
            want += (i - 50) * (i - 50);
        }
        *SEND0(uint32_t *, b[1], "contents") = 3;
        run(&f, squares[half], b, 2, &n, 4, 2, (size3){2, 1, 1}, 64);
        assert_int_equal(*SEND0(uint32_t *, b[1], "contents"), want + 3);
        release(b[0]), release(b[1]), release(squares[half]);
    }
    release(library);
    end(&f);
}

static void a_matrix_of_quantized_blocks_is_plain_loops(void **state)
{
    (void)state;
    enum { ROWS = 7, COLS = 96, BLOCKS = COLS / 32, ROW_BYTES = BLOCKS * 18 };
    uint8_t matrix[ROWS * ROW_BYTES];
    float y[COLS], want[ROWS];
    for (int i = 0; i < COLS; i++) y[i] = (float)(i % 13 - 6) / 4;
    for (int i = 0; i < ROWS * BLOCKS; i++) {
        const uint16_t scale = to_half((float)(1 + i % 5) / 8);
        memcpy(matrix + 18 * i, &scale, 2);
        for (int k = 0; k < 16; k++) matrix[18 * i + 2 + k] = (uint8_t)(i * 31 + k * 73);
    }
    for (int r = 0; r < ROWS; r++) {
        want[r] = 0;
        for (int c = 0; c < COLS; c++) {
            const uint8_t *block = matrix + r * ROW_BYTES + c / 32 * 18, q = block[2 + c % 16];
            uint16_t scale;
            memcpy(&scale, block, 2);
            want[r] += of_half(scale) * (float)((c % 32 < 16 ? q & 15 : q >> 4) - 8) * y[c]; /* exact */
        }
    }
    fixture f = begin("");
    object library = sample_library(&f, "quantized.metal"), p = pipeline_of(&f, library, "matvec_q4", NULL, 0);
    const struct {
        int32_t ne00, ne01;
        uint64_t nb01;
    } args = {COLS, ROWS, ROW_BYTES};
    object b[4] = {NULL, buffer_with(&f, matrix, sizeof matrix), buffer_with(&f, y, sizeof y),
                   new_buffer(f.device, 4 * ROWS)};
    run(&f, p, b, 4, &args, sizeof args, 0, (size3){2, 1, 1}, 64);
    for (int r = 0; r < ROWS; r++)
        if (floats(b[3])[r] != want[r]) fail_msg("row %d is %g, want %g", r, (double)floats(b[3])[r], (double)want[r]);
    for (int i = 1; i < 4; i++) release(b[i]);
    release(p), release(library);
    end(&f);
}

/* ---- the language */

static object two_buffers(const fixture *f, object library, const char *kernel, object *b, size_t bytes)
{
    b[1] = new_buffer(f->device, bytes);
    object p = pipeline_of(f, library, kernel, NULL, 0);
    run(f, p, b, 2, NULL, 0, 0, (size3){1, 1, 1}, 32);
    release(p);
    return b[1];
}

static void the_languages_words_mean_what_they_say(void **state)
{
    (void)state;
    fixture f = begin("");
    object library = sample_library(&f, "language.metal"), b[2];

    object p = pipeline_of(&f, library, "in_a_namespace", NULL, 0);
    run(&f, p, &f.b, 1, NULL, 0, 0, (size3){1, 1, 1}, 32);
    for (int i = 0; i < 32; i++) assert_true(floats(f.b)[i] == (float)(8 * i + (1 << i % 4)));
    release(p);

    uint32_t in[32];
    for (uint32_t i = 0; i < 32; i++) in[i] = i * 3;
    b[0] = buffer_with(&f, in, sizeof in);
    const float *out = floats(two_buffers(&f, library, "vectors", b, 4 * 4 * 32));
    for (int i = 0; i < 32; i++) {
        const int x = 6 * i, y = 2 * i + 1, z = 1 + 2, some = x > 4 || y > 4 || z > 4, every = x > 4 && y > 4 && z > 4;
        assert_true(out[4 * i] == (float)(x + y + z + 3));
        assert_true(out[4 * i + 1] == (float)(2 * (3 * i + i + 1) + 100 * some + y));
        assert_true(out[4 * i + 2] == (float)((every ? 2 : 1) + 1 + (3 * i > 2 ? 3 * i : 2) +
                                              (i < 1   ? 1
                                               : i > 5 ? 5
                                                       : i)));
        assert_true(out[4 * i + 3] ==
                    (float)(i + __builtin_popcount(in[i]) + __builtin_clz(in[i] | 1) + 2 + (int)(in[i] / 2)));
    }
    release(b[0]), release(b[1]);

    uint16_t h[32];
    for (int i = 0; i < 32; i++) h[i] = to_half((float)(i - 9) * 0.3f);
    b[0] = buffer_with(&f, h, sizeof h);
    out = floats(two_buffers(&f, library, "halves", b, 4 * 32));
    for (int i = 0; i < 32; i++) {
        const float x = of_half(h[i]), sum = of_half(to_half(of_half(to_half(x * 1.5f)) + 0.25f));
        const float y = x > 0 ? x : 0;
        assert_true(of_half(SEND0(uint16_t *, b[0], "contents")[i]) == sum);
        assert_true(out[i] == of_half(to_half(y * y)) + 65504.0f);
    }
    release(b[0]), release(b[1]);

    for (int i = 0; i < 32; i++) h[i] = to_bfloat((float)(i - 9) * 0.7f);
    b[0] = buffer_with(&f, h, sizeof h);
    out = floats(two_buffers(&f, library, "bfloats", b, 8 * 32));
    for (int i = 0; i < 32; i++) {
        const float x = of_bfloat(h[i]), y = of_bfloat(to_bfloat(1.0f / 3.0f));
        assert_true(of_bfloat(SEND0(uint16_t *, b[0], "contents")[i]) == of_bfloat(to_bfloat(x * 3 + 0.1f)));
        assert_true(out[2 * i] == of_bfloat(to_bfloat(of_bfloat(to_bfloat(x * x)) + y)));
        assert_true(out[2 * i + 1] == of_bfloat(to_bfloat(of_bfloat(to_bfloat(y * y)) + y)) + 2 * x);
    }
    release(b[0]), release(b[1]);
    release(library);
    end(&f);
}

static void threads_of_a_group_talk_as_the_language_says(void **state)
{
    (void)state;
    fixture f = begin("");
    object library = sample_library(&f, "language.metal"), p = pipeline_of(&f, library, "groups", NULL, 0);
    object cb = SEND0(object, f.queue, "commandBuffer"), e = compute(cb);
    set_pipeline(e, p), set_buffer(e, f.b, 0, 0);
    SEND(void, (uint64_t, uint64_t), e, "setThreadgroupMemoryLength:atIndex:", 16, 0);
    dispatch(e, 1, 64);
    SEND0(void, e, "endEncoding");
    commit(cb), wait_for(cb);
    const uint32_t *out = SEND0(uint32_t *, f.b, "contents");
    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t lane = i % 32, quad = i / 4 * 4, down = lane == 31 ? i : i + 1, up = lane < 2 ? i : i - 2;
        assert_int_equal(out[i], 5 + 64 * 63 / 2 + 7 * down + 11 * up + 13 * (lane * (lane + 1) / 2) + 17 * 11 +
                                     19 * (4 * quad + 6) + 23 * (i / 32 * 32 + 3) + 29 + 32);
    }
    release(p), release(library);
    end(&f);
}

static void function_constants_specialize_a_kernel(void **state)
{
    (void)state;
    fixture f = begin("");
    object library = sample_library(&f, "language.metal"), error = NULL;
    const constant both[] = {{INT, 0, 3}, {FLOAT, 1, 0.5}}, one[] = {{FLOAT, 1, 2}};
    for (int k = 0; k < 2; k++) {
        object p =
            k ? pipeline_of(&f, library, "specialized", one, 1) : pipeline_of(&f, library, "specialized", both, 2);
        object b[2] = {f.b, f.a};
        run(&f, p, b, 2, NULL, 0, 0, (size3){1, 1, 1}, 32);
        for (int i = 0; i < 32; i++) assert_true(floats(f.b)[i] == (k ? (float)(i + 7) * 2 : (float)(i + 3) * 0.5f));
        release(p);
    }
    /* zero: the argument that depends on it does not exist, and need not be set */
    const constant none[] = {{FLOAT, 1, 0}};
    object p = pipeline_of(&f, library, "specialized", none, 1), only[1] = {f.b};
    run(&f, p, only, 1, NULL, 0, 0, (size3){1, 1, 1}, 32);
    assert_true(floats(f.b)[9] == 0.0f);
    release(p);
    /* one that is asked for without a value, and a name that is none, are refused with words */
    object values = constants_of(both, 1);
    static const char *const names[] = {"specialized", "nothing"}, *const words[] = {"factor", "nothing"};
    for (int k = 0; k < 2; k++) {
        assert_null(SEND(object, (object, object, object *), library,
                         "newFunctionWithName:constantValues:error:", text_of(names[k]), values, &error));
        assert_non_null(strstr(letters_of(SEND0(object, error, "localizedDescription")), words[k]));
    }
    object function = SEND(object, (object), library, "newFunctionWithName:", text_of("specialized"));
    assert_null(
        SEND(object, (object, object *), f.device, "newComputePipelineStateWithFunction:error:", function, &error));
    assert_non_null(strstr(letters_of(SEND0(object, error, "localizedDescription")), "factor"));
    release(function), release(values), release(library);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_blocked_gemm_of_templates_is_plain_loops),
        cmocka_unit_test(a_softmax_over_simd_groups_is_plain_loops),
        cmocka_unit_test(a_matrix_of_quantized_blocks_is_plain_loops),
        cmocka_unit_test(the_languages_words_mean_what_they_say),
        cmocka_unit_test(threads_of_a_group_talk_as_the_language_says),
        cmocka_unit_test(function_constants_specialize_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
