/* test_gpu_scatter.c: the launches of a scatter on a GPU, and that what they bind lies in the scratch that is asked for. */
#include "lib/test.h"

#include "codegen/gpu_library_calls.h"
#include "codegen/gpu_step.h"

#include <string.h>

/* The number of launches for n rows of c, into a table of `rows`; the last one is scatter_rows. */
static int launches(int64_t n, int64_t rows, int64_t c, bool fast)
{
    const an_gpu gpu = {.dialect = &an_dialects[AN_DIALECT_CUDA], .fast = fast, .multiprocessors = 132};
    an_kernel k = {.kind = AN_KERNEL_SCATTER};
    k.u.scatter =
        (an_scatter_spec){.n = n, .rows = rows, .c = c, .src_stride = c, .out_stride = c, .src_dtype = AN_F32};
    an_arg arg[3];
    for (int i = 0; i < 3; i++) arg[i] = (an_arg){.slot = AN_SLOT_ARENA, .value = -1};
    an_plan_step step = {.kernel = 0, .arg = arg, .n_args = 3, .epilogue = -1};
    const an_plan p = {.kernel = &k, .n_kernels = 1, .step = &step, .n_steps = 1};
    an_gpu_step g;
    const char *why = an_gpu_step_make(&p, &step, &gpu, &g);
    if (why) fail_msg("%s", why);
    const int64_t scratch = (int64_t)an_gpu_scratch(&k, &gpu);
    for (int l = 0; l < g.n_launches; l++)
        for (int b = 0; b < g.launch[l].n_binds; b++)
            if (g.launch[l].bind[b].kind == AN_BIND_SCRATCH) assert_true(g.launch[l].bind[b].offset < scratch);
    assert_string_equal(g.launch[g.n_launches - 1].entry, "scatter_rows");
    assert_int_equal(g.launch[g.n_launches - 1].blocks[0], rows);
    return g.n_launches;
}

static void a_table_of_few_rows_takes_two_launches(void **state)
{
    (void)state;
    assert_int_equal(launches(16384, 65, 384, true), 2);
    assert_int_equal(launches(1024 * 128, 12, 512, true), 2);
    assert_int_equal(launches(1024 * 128 + 1, 12, 512, true), 5); /* more parts than scatter_rows looks at */
    assert_int_equal(launches(16384, 257, 384, true), 5);         /* too many rows */
    assert_int_equal(launches(16384, 256, 1024, true), 5);        /* too much memory for all partial sums */
    assert_int_equal(launches(512, 65, 384, true), 5);            /* too few ids to be worth while */
    assert_int_equal(launches(16384, 65, 384, false), 4);         /* exact: ids in ascending order, no parts */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_table_of_few_rows_takes_two_launches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
