/* loss_scaler.c: loss scaling for float16, whose smallest positive number is 6e-8. Gradients are computed of loss * scale
 * and divided by the scale again in float32.
 *
 * Owns:     the rule by which the scale changes (that of PyTorch's torch.amp.GradScaler, with its defaults), its states,
 *           and what else counts only the updates that were applied: Adam's bias corrections, the first update of SGD.
 * Does not: decide whether an update is good; an update is good when its gradient norm is finite (grad_accumulate.c).
 *
 * The states live on the device and change in the update itself, so nothing waits for them, and all micro-batches of an
 * update see one scale. They are named "optimizer.*" and are saved in a checkpoint like the moments.
 */
#include "optim/loss_scaler.h"

#define FIRST_SCALE 65536.0
#define GROWTH      2.0
#define BACKOFF     0.5
enum { GROWTH_INTERVAL = 2000 };

static an_tensor *scalar_state(const char *at, an_ctx *cx, const char *name, an_dtype dtype, double first)
{
    return an_state_at(at, cx, name, dtype, AN_SCALAR, AN_FILL(first));
}

an_tensor *an_loss_scale_at(const char *at, an_ctx *cx)
{
    return cx ? scalar_state(at, cx, "optimizer.scale", AN_F32, FIRST_SCALE) : NULL;
}

an_tensor *an_skipped_updates_at(const char *at, an_ctx *cx)
{
    return cx ? scalar_state(at, cx, "optimizer.skipped_updates", AN_I32, 0) : NULL;
}

an_tensor *an_scale_loss_at(const char *at, an_tensor *loss)
{
    if (!loss || loss->poison) return loss;
    an_tensor *scale = an_loss_scale_at(at, loss->g->owner);
    return an_mul_at(at, loss, loss->dtype == AN_F64 ? an_cast_at(at, scale, AN_F64) : scale);
}

an_tensor *an_loss_scale_inverse(const char *at, an_ctx *cx)
{
    return an_recip_at(at, an_loss_scale_at(at, cx));
}

void an_loss_scale_update(const char *at, an_ctx *cx, an_tensor *ok, an_tensor *only_if)
{
    an_tensor *scale = an_loss_scale_at(at, cx), *good = scalar_state(at, cx, "optimizer.good_updates", AN_I32, 0),
              *skipped = an_skipped_updates_at(at, cx);
    an_tensor *zero = an_const_at(at, cx, AN_I32, 0), *one = an_const_at(at, cx, AN_I32, 1),
              *interval = an_const_at(at, cx, AN_I32, GROWTH_INTERVAL);
    an_tensor *counted = an_add_at(at, good, one), *full = an_eq_at(at, counted, interval);
    an_tensor *larger = an_mul_num_at(at, scale, GROWTH), *grows = an_and_at(at, full, an_isfinite_at(at, larger));
    /* One call a statement: C does not say which of two arguments is made first, and a graph has an order. */
    an_tensor *smaller = an_mul_num_at(at, scale, BACKOFF);
    an_tensor *scale1 = an_where_at(at, ok, an_where_at(at, grows, larger, scale), smaller);
    an_tensor *good1 = an_where_at(at, ok, an_where_at(at, full, zero, counted), zero);
    an_tensor *skipped1 = an_where_at(at, ok, skipped, an_add_at(at, skipped, one));
    an_assign_at(at, scale, only_if ? an_where_at(at, only_if, scale1, scale) : scale1);
    an_assign_at(at, good, only_if ? an_where_at(at, only_if, good1, good) : good1);
    an_assign_at(at, skipped, only_if ? an_where_at(at, only_if, skipped1, skipped) : skipped1);
}

/* 1 - beta^t, the sum of the weights with which a moment has averaged gradients so far, as the recurrence
 * q' = q beta + (1 - beta), which is accurate in float32 where 1 - beta^t would cancel. */
an_tensor *an_loss_scale_bias_correction(const char *at, an_ctx *cx, int which, double beta, an_tensor *ok)
{
    /* "mass", for that sum, is the key in checkpoints of every version: it stays */
    an_tensor *q = scalar_state(at, cx, which == 1 ? "optimizer.mass1" : "optimizer.mass2", AN_F32, 0);
    an_tensor *q1 = an_add_num_at(at, an_mul_num_at(at, q, beta), 1 - beta);
    an_assign_at(at, q, an_where_at(at, ok, q1, q));
    return q1;
}

an_tensor *an_loss_scale_is_first(const char *at, an_ctx *cx, an_tensor *ok)
{
    an_tensor *applied = scalar_state(at, cx, "optimizer.applied", AN_BOOL, 0);
    an_assign_at(at, applied, an_or_at(at, applied, ok));
    return an_not_at(at, applied);
}
