/* schedules.c: the learning rate of an update (linear warm-up, then decay along half a cosine), and the two mathematical functions
 * that host code needs. Asked by an_step_lr (train/step.c).
 *
 * Owns:       an_lr_at, an_cospi, an_exp_host. From update lr_decay_iters on the rate is min_lr: a larger max_iters alone does
 *             not move that end.
 * Does not:   call libm: its last bits differ between systems, and a run resumed on another machine must continue with
 *             the same bits.
 * Invariants: only + - * / and comparisons of doubles, compiled without contraction (FMA): the same bits on every IEEE
 *             machine.
 */
#include <anneal_nn.h>
#include <string.h>

/* Kernel polynomials on [-pi/4, pi/4]: coefficients of FreeBSD's msun (k_sin.c, k_cos.c; Sun Microsystems, 1993), error
 * below 2^-57. */
static double sin_small(double x)
{
    double z = x * x;
    double p = -1.66666666666666324348e-01 +
               z * (8.33333333332248946124e-03 +
                    z * (-1.98412698298579493134e-04 +
                         z * (2.75573137070700676789e-06 +
                              z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))));
    return x + x * z * p;
}

static double cos_small(double x)
{
    double z = x * x;
    double p = 4.16666666666666019037e-02 +
               z * (-1.38888888888741095749e-03 +
                    z * (2.48015872894767294178e-05 +
                         z * (-2.75573143513906633035e-07 +
                              z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))));
    double half = 0.5 * z, w = 1.0 - half;
    return w + (((1.0 - w) - half) + z * z * p); /* 1 - z/2 is exact in w and its remainder */
}

double an_cospi(double r)
{
    const double pi = 3.14159265358979311600;
    if (r < 0) r = -r;
    if (r > 0.75) return -cos_small(pi * (1.0 - r)); /* 1 - r and 0.5 - r are exact here (Sterbenz) */
    if (r > 0.25) return sin_small(pi * (0.5 - r));
    return cos_small(pi * r);
}

double an_exp_host(double x)
{
    if (x != x) return x;
    if (x < -708.0) return 0.0;
    if (x > 709.0) x = 709.0;
    /* x = k ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that k times the first is exact. */
    const double ln2_hi = 6.93147180369123816490e-01, ln2_lo = 1.90821492927058770002e-10,
                 log2_e = 1.44269504088896338700;
    int64_t k = (int64_t)(x * log2_e + (x < 0 ? -0.5 : 0.5));
    double r = (x - (double)k * ln2_hi) - (double)k * ln2_lo;
    /* exp(r) - 1 - r by its Taylor series to r^13: the next term is below 2^-57. */
    double p = 1.0 / 6227020800.0;
    static const double term[] = {1.0 / 479001600.0,
                                  1.0 / 39916800.0,
                                  1.0 / 3628800.0,
                                  1.0 / 362880.0,
                                  1.0 / 40320.0,
                                  1.0 / 5040.0,
                                  1.0 / 720.0,
                                  1.0 / 120.0,
                                  1.0 / 24.0,
                                  1.0 / 6.0,
                                  0.5};
    for (size_t i = 0; i < sizeof term / sizeof term[0]; i++) p = term[i] + r * p;
    double y = 1.0 + (r + r * r * p);
    uint64_t bits = (uint64_t)(k + 1023) << 52; /* 2^k */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}

double an_lr_at(const an_lr_schedule *s, int64_t it)
{
    if (s->constant) return s->lr;
    if (it < s->warmup) return s->lr * (double)(it + 1) / (double)(s->warmup + 1);
    if (it > s->decay || s->decay <= s->warmup) return s->min_lr;
    double r = (double)(it - s->warmup) / (double)(s->decay - s->warmup);
    return s->min_lr + 0.5 * (1.0 + an_cospi(r)) * (s->lr - s->min_lr);
}
