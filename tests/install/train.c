/* train.c: the smallest program a user writes, compiled against an installed anneal. It learns a separable problem and
 * exits with 0 when the loss fell below 0.1. */
#include <anneal.h>
#include <stdio.h>

int main(void)
{
    static float points[64][8];
    static int32_t labels[64];
    for (int i = 0; i < 64; i++) points[i][labels[i] = i % 4] = 1.0f + (float)i / 64;

    an_ctx *cx = an_open(&(an_options){.device = "cpu", .seed = 1});
    an_tensor *w = an_param(cx, "w", AN_F32, AN_SHAPE(8, 4), AN_NORMAL(0.02));
    double last = 0;
    for (int step = 0; step < 100; step++) {
        an_tensor *x = an_input(cx, AN_F32, AN_SHAPE(64, 8), points); /* [64,8] */
        an_tensor *y = an_input(cx, AN_I32, AN_SHAPE(64), labels);    /* [64] */
        an_tensor *loss = an_mean(an_cross_entropy(an_matmul(x, w), y), AN_ALL);
        an_backward(loss);
        an_sgd(cx, 1.0);
        an_eval(loss);
        last = an_item(loss);
        an_reset(cx);
    }
    if (an_error(cx)) fprintf(stderr, "%s\n", an_error(cx));
    int failed = an_error(cx) || !(last < 0.1);
    an_close(cx);
    printf("loss %g\n", last);
    return failed;
}
