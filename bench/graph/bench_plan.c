/* bench_plan.c: how the time of planning grows with the length of the graph.
 *
 *     make bench B=graph/bench_plan     or     build/bench/graph/bench_plan [longest]
 *
 * Programs of n operations, forward and backward, planned for the CPU without running:
 *     chain     elementwise: y = sin(y) * c + y ...: few long kernels, which are split
 *     layers    y = y @ w: many steps, values and kernels of one text
 *     shapes    matmuls of always different widths: every index expression and text is new
 * Prints nodes, launches, milliseconds of processor time to build and to plan, microseconds of planning per node, and the
 * process's peak memory. Equal microseconds in all lines mean linear growth. */
#define _POSIX_C_SOURCE 200809L
#include <anneal.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static an_tensor *chain(an_ctx *cx, an_tensor *y, int n)
{
    (void)cx;
    for (int i = 0; i < n / 4; i++) y = an_add(an_mul_num(an_sin(y), 0.5 + 1e-6 * i), y);
    return y;
}

static an_tensor *layers(an_ctx *cx, an_tensor *y, int n)
{
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(64, 64), AN_NORMAL(1));
    for (int i = 0; i < n / 4; i++) y = an_relu(an_matmul(y, w));
    return y;
}

static an_tensor *shapes(an_ctx *cx, an_tensor *y, int n)
{
    for (int i = 0, k = 64; i < n / 8; i++) {
        char name[32];
        const int m = 32 + (i * 7) % 61;
        snprintf(name, sizeof name, "w%d", i % 200);
        an_tensor *w = i < 200 ? an_param(cx, name, AN_F32, AN_SHAPE(128, 128), AN_NORMAL(1)) : y;
        if (i >= 200)
            w = an_expand(an_sum(y, AN_ALL), AN_SHAPE(k, m));
        else
            w = an_slice(an_slice(w, 0, 0, k), 1, 0, m);
        y = an_tanh(an_matmul(y, w));
        k = m;
    }
    return y;
}

static void measure(const char *name, an_tensor *(*program)(an_ctx *, an_tensor *, int), int n)
{
    an_ctx *cx = an_open(&(an_options){.device = "null:cpu", .cc = "none", .threads = 1});
    const double start = now_ms();
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(64, 64), AN_NORMAL(1)), *loss = an_sum(program(cx, x, n), AN_ALL);
    an_backward(loss);
    const double built = now_ms();
    if (an_plan(loss, an_grad(x)) != AN_OK) printf("%s\n", an_error(cx));
    const double planned = now_ms();
    an_bill bill;
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    an_report(cx, &bill);
    printf("%-8s %6d %9d %10.1f %10.1f %10.2f %8ld\n", name, n, (int)bill.launches, built - start, planned - built,
           1e3 * (planned - built) / n, u.ru_maxrss / 1024);
    fflush(stdout);
    an_close(cx);
}

int main(int argc, char **argv)
{
    const int longest = argc > 1 ? atoi(argv[1]) : 20000;
    printf("program     ops  launches   build ms    plan ms  us a node   max MiB\n");
    for (int n = 1250; n <= longest; n *= 2) measure("chain", chain, n);
    for (int n = 1250; n <= longest; n *= 2) measure("layers", layers, n);
    for (int n = 1250; n <= longest; n *= 2) measure("shapes", shapes, n);
    return 0;
}
