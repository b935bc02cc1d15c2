/* adamw.c: AdamW, Adam and Adam-atan2 over whole blocks, with clipping by the global norm.
 *
 *     m' = beta1 m + (1 - beta1) g              v' = beta2 v + (1 - beta2) g^2
 *     p' = p (1 - lr decay) - lr/(1 - beta1^t) * m' / (sqrt(v') * 1/sqrt(1 - beta2^t) + eps)
 *
 * Adam (Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015) adds decay p to g in place of shrinking
 * p. Adam-atan2 (Everett et al., "Scaling Exponents Across Parameterizations and Optimizers", 2024) replaces the
 * quotient by an angle, which is bounded and needs no eps:
 *
 *     p' = p (1 - lr decay) - lr/(1 - beta1^t) * atan2(m', sqrt(v') * 1/sqrt(1 - beta2^t))
 *
 * Moments may be kept in bfloat16. Its 8 bits do not hold what an update adds, at beta2 = 0.999 a thousandth, so that rounding to the
 * nearest would leave v as it is for ever: they are rounded up or down at random, in the mean without an error (as Zamirai et al.,
 * "Revisiting BFloat16 training", 2020, round weights). What is drawn is a function of (seed, step, element).
 *
 * An update whose gradient norm is not finite changes nothing. Numbers that differ from step to step (learning rate, bias
 * corrections) are scalars of the step, so that every step has the same plan. To add an optimizer: train/optimizer.h.
 */
#include "optim/grad_accumulate.h"
#include "optim/loss_scaler.h"
#include "runtime/param_blocks.h"

#include <float.h>
#include <math.h>

typedef struct pair { /* high + low, to about 100 bits */
    double high, low;
} pair;

static pair times(pair a, pair b)
{
    const double p = a.high * b.high, rest = fma(a.high, b.high, -p) + (a.high * b.low + a.low * b.high);
    const double high = p + rest;
    return (pair){high, rest - (high - p)};
}

/* x^n by squaring: operations in a fixed order give the same bits on every machine; pow of the C library may not. In doubles
 * alone an error would double with each square, and 1 - beta^n of a beta near 1 has few digits to lose. */
static double power(double x, int64_t n)
{
    pair y = {1, 0}, square = {x, 0};
    for (; n > 0 && y.high != 0; n >>= 1, square = times(square, square))
        if (n & 1) y = times(y, square);
    return y.high;
}

typedef enum an_adam_kind { ADAM, ADAMW, ADAM_ATAN2 } an_adam_kind;

/* Numbers of this step, in the dtype of a block's arithmetic. */
typedef struct step_numbers {
    an_tensor *rate, *keep, *root; /* lr / (1 - beta1^t), 1 - lr decay, 1 / sqrt(1 - beta2^t) */
} step_numbers;

typedef struct adam {
    an_ctx *cx;
    const char *at;
    an_adam_kind kind;
    an_adamw_options o;
    an_tensor *norm, *ok; /* f32 (f64 where a parameter is) and bool scalars */
    an_tensor *factor;    /* NULL: gradients are not clipped */
    step_numbers of[2];   /* f32, f64 */
} adam;

/* A moment as it is stored: rounded at random where that is narrower than it was computed. x: this rank's part of block b. */
static an_tensor *stored_moment(adam *a, int b, an_tensor *x)
{
    const an_dtype moments = a->cx->block[b].moments;
    if (moments == AN_BF16 && a->o.moments == AN_BF16) x = an_round_bf16_at(a->at, x, an_own_random(a->cx, a->at, b));
    return an_cast_at(a->at, x, moments);
}

static void update_block(adam *a, int b, an_tensor *g)
{
    an_ctx *cx = a->cx;
    const char *at = a->at;
    const an_adamw_options *o = &a->o;
    const an_dtype stored = cx->block[b].dtype, dtype = an_update_dtype(stored);
    const step_numbers *n = &a->of[dtype == AN_F64];
    const bool decays = cx->block[b].decay && o->weight_decay != 0;
    an_tensor *p0 = an_own_params(cx, at, b), *m0 = an_block_tensor(cx, b, AN_ROLE_M, "first moments"),
              *v0 = an_block_tensor(cx, b, AN_ROLE_V, "second moments");
    an_tensor *p = an_cast_at(at, p0, dtype), *m = an_cast_at(at, m0, dtype), *v = an_cast_at(at, v0, dtype);
    g = an_cast_at(at, g, dtype);
    if (a->factor) g = an_mul_at(at, g, an_cast_at(at, a->factor, dtype));
    if (a->kind == ADAM && decays) g = an_add_at(at, g, an_mul_num_at(at, p, o->weight_decay));
    /* One call a statement: C does not say which of two arguments is made first, and a graph has an order. */
    an_tensor *g1 = an_mul_num_at(at, g, 1 - o->beta1), *m1 = an_add_at(at, an_mul_num_at(at, m, o->beta1), g1);
    an_tensor *g2 = an_mul_at(at, an_mul_num_at(at, g, 1 - o->beta2), g);
    an_tensor *v1 = an_add_at(at, an_mul_num_at(at, v, o->beta2), g2);
    an_tensor *spread = an_mul_at(at, an_sqrt_at(at, v1), n->root);
    if (a->kind != ADAM_ATAN2) spread = an_add_num_at(at, spread, o->eps);
    if (a->kind != ADAM && decays) p = an_mul_at(at, p, n->keep);
    an_tensor *step = a->kind == ADAM_ATAN2 ? an_atan2_at(at, m1, spread) : an_div_at(at, m1, spread);
    an_tensor *p1 = an_sub_at(at, p, an_mul_at(at, n->rate, step));
    an_assign_at(at, m0, an_where_at(at, a->ok, stored_moment(a, b, m1), m0));
    an_assign_at(at, v0, an_where_at(at, a->ok, stored_moment(a, b, v1), v0));
    an_assign_own_params(cx, at, b, an_where_at(at, a->ok, an_stored_params(cx, at, b, p1), p0));
}

/* With loss scaling, only the device knows how many updates were applied. */
static void make_numbers(adam *a, int64_t t)
{
    an_ctx *cx = a->cx;
    const char *at = a->at;
    const an_adamw_options *o = &a->o;
    an_tensor *correction[2] = {NULL, NULL}; /* 1 - beta1^t, 1 - beta2^t where t is the device's */
    if (o->scaled) correction[0] = an_loss_scale_bias_correction(at, cx, 1, o->beta1, a->ok);
    for (an_dtype d = AN_F32;; d = AN_F64) {
        step_numbers *n = &a->of[d == AN_F64];
        an_tensor *sum = correction[0] ? an_cast_at(at, correction[0], d) : NULL;
        n->rate = sum ? an_div_at(at, an_update_scalar(at, cx, d, o->lr), sum)
                      : an_update_scalar(at, cx, d, o->lr / (1 - power(o->beta1, t)));
        n->keep = an_update_scalar(at, cx, d, 1 - o->lr * o->weight_decay);
        if (o->scaled && !correction[1]) correction[1] = an_loss_scale_bias_correction(at, cx, 2, o->beta2, a->ok);
        n->root = correction[1] ? an_rsqrt_at(at, an_cast_at(at, correction[1], d))
                                : an_update_scalar(at, cx, d, 1 / sqrt(1 - power(o->beta2, t)));
        if (d == AN_F64 || an_dtype_of(a->norm) == AN_F32) break;
    }
}

/* Sets the dtype of the moments of float32 parameters; false, and the error is recorded, where it cannot be had. */
static bool set_moments(an_ctx *cx, const char *at, const char *who, an_dtype moments)
{
    if (moments != AN_F32 && moments != AN_BF16) {
        an_poison(&cx->graph, AN_E_DTYPE, at, "%s: moments are kept in float32 or bfloat16, not in %s", who,
                  (unsigned)moments < AN_N_DTYPES ? an_dtype_name(moments) : "a dtype that there is not");
        return false;
    }
    if (an_layout_params(cx) != AN_OK) return false;
    for (int b = 0; b < cx->n_blocks; b++) {
        const bool float32 = cx->block[b].dtype == AN_F32 || an_is_narrow_block(cx, b);
        if (!float32 || cx->block[b].frozen || an_block_set_moments(cx, b, moments)) continue;
        an_poison(
            &cx->graph, AN_E_USAGE, at,
            "%s: moments are asked for in %s, and are kept in %s since the first update: every update of a context "
            "keeps them in one dtype",
            who, an_dtype_name(moments), an_dtype_name(cx->block[b].moments));
        return false;
    }
    return true;
}

static an_tensor *update(const char *at, const char *who, an_adam_kind kind, an_ctx *cx, an_adamw_options o)
{
    an_tensor *grad[AN_MAX_BLOCKS], *norm;
    if (!cx) return NULL;
    if (o.beta1 == 0 && o.beta2 == 0 && o.eps == 0) {
        o.beta1 = 0.9;
        o.beta2 = 0.999;
        o.eps = 1e-8;
    }
    const an_option numbers[] = {{"lr", o.lr, -DBL_MAX, INFINITY},
                                 {"beta1", o.beta1, 0, 1},
                                 {"beta2", o.beta2, 0, 1},
                                 {"eps", o.eps, 0, INFINITY},
                                 {"weight_decay", o.weight_decay, -DBL_MAX, INFINITY},
                                 {"clip", o.clip == (double)INFINITY ? 0 : o.clip, 0, INFINITY}};
    if (!an_options_fit(cx, at, who, sizeof numbers / sizeof *numbers, numbers)) return cx->graph.poison;
    if (!set_moments(cx, at, who, o.moments)) return cx->graph.poison;
    if (!an_begin_update(cx, at, who, o.scaled, grad, &norm)) return cx->graph.poison;
    cx->updates_by_step = o.t > 0 ? (uint64_t)o.t : cx->updates + 1;
    adam a = {.cx = cx, .at = at, .kind = kind, .o = o, .norm = norm, .ok = an_isfinite_at(at, norm)};
    if (o.scaled) an_loss_scale_update(at, cx, a.ok, o.only_if);
    if (o.only_if) a.ok = an_and_at(at, a.ok, o.only_if);
    if (o.clip > 0) a.factor = an_clip_factor(at, cx, norm, o.clip);
    make_numbers(&a, (int64_t)cx->updates_by_step);
    for (int b = 0; b < cx->n_blocks; b++)
        if (grad[b]) update_block(&a, b, grad[b]);
    an_scope_pop(cx);
    return an_cast_at(at, norm, AN_F32);
}

an_tensor *an_adam_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    return update(at, "an_adam", ADAM, cx, o);
}

an_tensor *an_adamw_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    return update(at, "an_adamw", ADAMW, cx, o);
}

an_tensor *an_adam_atan2_at(const char *at, an_ctx *cx, an_adamw_options o)
{
    return update(at, "an_adam_atan2", ADAM_ATAN2, cx, o);
}
