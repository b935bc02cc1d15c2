/* test_gpu_call_bounds.c: library calls on a GPU whose counts do not fit 32 bits are refused with a reason; the largest that
 * are taken have scratch and launches without an overflow. */
#include "lib/test.h"

#include "codegen/gpu_library_calls.h"

#include <stdio.h>
#include <string.h>

static an_kernel call_of(an_op op, an_dtype dtype, int rank, const int32_t *shape)
{
    an_kernel k = {.kind = AN_KERNEL_CALL};
    k.u.call = (an_library_call_spec){.op = op, .n_src = 1, .n_out = 1, .dtype = (uint8_t)dtype};
    k.u.call.src[0].rank = k.u.call.out[0].rank = (int8_t)rank;
    for (int i = 0; i < rank; i++) k.u.call.src[0].shape[i] = k.u.call.out[0].shape[i] = shape[i];
    k.u.call.src[0].dtype = k.u.call.out[0].dtype = (uint8_t)dtype;
    return k;
}

static an_gpu gpu;

static void expect(an_op op, int rank, const int32_t *shape, const char *want)
{
    const an_kernel k = call_of(op, AN_F32, rank, shape);
    an_tiles t;
    const char *why = an_gpu_call_tiles(&k, &gpu, &t);
    if (!why != !want || (want && !strstr(why, want)))
        fail_msg("%s of [%d,%d]: %s", an_ops[op].name, shape[0], shape[1], why ? why : "taken");
}

static int open(void **state)
{
    (void)state;
    gpu.dialect = an_dialect_find("cuda");
    return gpu.dialect ? 0 : -1;
}

static void rows_that_32_bits_do_not_count_are_refused(void **state)
{
    (void)state;
    expect(AN_OP_SORT, 2, (int32_t[]){4, 1 << 29}, NULL);
    expect(AN_OP_SORT, 2, (int32_t[]){1, (1 << 29) + 1}, "sorts rows of more than 2^29 elements");
    expect(AN_OP_TOPK, 2, (int32_t[]){1, 1 << 30}, "sorts rows of more than 2^29 elements");
    expect(AN_OP_CUMSUM, 3, (int32_t[]){INT32_MAX - 256, 1, 1}, NULL);
    expect(AN_OP_CUMSUM, 3, (int32_t[]){1 << 16, 1 << 16, 1}, "more than 2147483391 rows");
    expect(AN_OP_DRAW, 2, (int32_t[]){INT32_MAX, 1}, "more than 2147483391 rows");
    expect(AN_OP_CHOLESKY, 2, (int32_t[]){50000, 50000}, "matrices of more than 2^31 elements");
    expect(AN_OP_CHOLESKY, 4, (int32_t[]){1 << 16, 1 << 16, 1, 1}, "more than 2147483391 rows or matrices");
}

static void images_that_32_bits_do_not_count_are_refused(void **state)
{
    (void)state;
    const int32_t shapes[][4] = {
        {2, 1 << 10, 1 << 10, 64}, {1, 1 << 15, 1 << 15, 4}, {1, INT32_MAX, INT32_MAX, INT32_MAX}};
    for (int i = 0; i < 3; i++) {
        an_kernel k = call_of(AN_OP_POOL_MAX_GRAD, AN_F32, 4, shapes[i]);
        an_tiles t;
        k.u.call.n_src = 2;
        k.u.call.src[1] = k.u.call.src[0];
        const char *why = an_gpu_call_tiles(&k, &gpu, &t);
        if (i == 0)
            assert_null(why);
        else
            assert_non_null(why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_32_bits_do_not_count_are_refused),
        cmocka_unit_test(images_that_32_bits_do_not_count_are_refused),
    };
    return cmocka_run_group_tests(tests, open, NULL);
}
