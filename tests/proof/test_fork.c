/* test_fork.c: a process that forks while a context is open. The child has the context's memory and none of its threads:
 * it may go on computing, or close it, and the parent does not notice. */
#include <anneal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/test.h"

enum { N = 256 };

/* One step: rows times a parameter, large enough to be divided among threads; an update; the sum it began with. */
static double step(an_ctx *cx)
{
    static float x[N * N];
    for (int i = 0; i < N * N; i++) x[i] = (float)(i % 7) - 3;
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(N, N), AN_NORMAL(0.02));
    an_tensor *y = an_tanh(an_matmul(an_input(cx, AN_F32, AN_SHAPE(N, N), x), w)); /* [N,N] */
    an_tensor *loss = an_mean(an_square(y), AN_ALL);
    an_backward(loss);
    an_sgd(cx, 0.1);
    if (an_eval(loss) != AN_OK) return -1;
    const double value = an_item(loss);
    an_reset(cx);
    return value;
}

static void ends_well(pid_t child)
{
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child's status is %d", status);
}

static void a_forked_child_computes_and_closes_and_the_parent_goes_on(void **state)
{
    (void)state;
    an_ctx *const cx = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 4, .seed = 3});
    an_ctx *const apart = an_open(&(an_options){.device = "cpu", .cc = "none", .threads = 1, .seed = 3});
    double want[4];
    for (int i = 0; i < 4; i++) want[i] = step(apart);
    an_close(apart);

    for (int i = 0; i < 3; i++) {
        for (int computes = 0; computes < 2; computes++) {
            const pid_t child = fork();
            if (child == 0) {
                alarm(60); /* a child that hangs ends with a signal */
                const bool same = !computes || step(cx) == want[i];
                an_close(cx);
                _exit(same ? 0 : 1);
            }
            ends_well(child);
        }
        assert_true(step(cx) == want[i]);
    }
    assert_true(step(cx) == want[3]);
    an_close(cx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_computes_and_closes_and_the_parent_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
