/* rule_quotient.c: quotients that are rounded to whole numbers, and remainders, of floats and integers.
 *
 * Does not:  divide otherwise: rule_math.c. */
#include "import/rules.h"
#include <math.h>
#include <string.h>

an_tensor *an_truncated(an_build *b, an_tensor *x)
{
    an_tensor *zero = an_num(x, b->cx, 0), *up = an_neg_at(AN_AT, an_floor_at(AN_AT, an_neg_at(AN_AT, x)));
    an_tensor *down = an_floor_at(AN_AT, x);
    return an_where_at(AN_AT, an_lt_at(AN_AT, x, zero), up, down);
}

/* x / y rounded down, as PyTorch and Python have it: the exact remainder's complement over y, which is a whole number but for roundings.
 * (1.0 // 0.1 is 9, though the quotient of the two rounds to 10.) By 0 it is the quotient, and none of an infinite x. No gradient. Floats of 16 bits are
 * widened: their quotient may round to the next whole number. */
static an_tensor *floor_quotient(an_build *b, an_tensor *x, an_tensor *y)
{
    an_tensor *over = an_widen(an_detach_at(AN_AT, x)), *by = an_widen(an_detach_at(AN_AT, y));
    an_tensor *zero = an_num(by, b->cx, 0);
    an_tensor *q = an_div_at(AN_AT, over, by), *rest = an_fmod_at(AN_AT, over, by);
    an_tensor *d = an_div_at(AN_AT, an_sub_at(AN_AT, over, rest), by), *below = an_lt_at(AN_AT, by, zero);
    an_tensor *apart = an_xor_at(AN_AT, an_lt_at(AN_AT, rest, zero), below);
    apart = an_and_at(AN_AT, apart, an_ne_at(AN_AT, rest, zero));
    d = an_where_at(AN_AT, apart, an_add_num_at(AN_AT, d, -1), d);
    an_tensor *whole = an_floor_at(AN_AT, d), *half = an_num(d, b->cx, 0.5);
    an_tensor *up = an_lt_at(AN_AT, half, an_sub_at(AN_AT, d, whole));
    whole = an_where_at(AN_AT, up, an_add_num_at(AN_AT, whole, 1), whole);
    an_tensor *signed_zero = an_mul_at(AN_AT, q, zero), *none = an_num(zero, b->cx, -0.0);
    signed_zero = an_where_at(AN_AT, an_lt_at(AN_AT, q, zero), none, signed_zero); /* of -1e-300 / 1e300 */
    whole = an_where_at(AN_AT, an_eq_at(AN_AT, d, zero), signed_zero, whole);
    return an_where_at(AN_AT, an_eq_at(AN_AT, by, zero), q, whole);
}

/* Toward zero: one more than rounded down, where that is below 0 and not whole. */
static an_tensor *whole_quotient(an_build *b, an_tensor *x, an_tensor *y, bool floors)
{
    an_tensor *q = an_idiv_at(AN_AT, x, y);
    if (floors) return q;
    an_tensor *zero = an_num(x, b->cx, 0), *below = an_lt_at(AN_AT, y, zero);
    an_tensor *apart = an_xor_at(AN_AT, an_lt_at(AN_AT, x, zero), below), *rest = an_imod_at(AN_AT, x, y);
    apart = an_and_at(AN_AT, apart, an_ne_at(AN_AT, rest, zero));
    return an_where_at(AN_AT, apart, an_add_num_at(AN_AT, q, 1), q);
}

static an_status divide(an_build *b, const an_pt2_node *n, const char *mode)
{
    const bool floors = strcmp(mode, "floor") == 0;
    an_built_value x, y;
    an_dtype out;
    const bool last = an_operands(b, n, &x, &y);
    an_to_factors(b, n, &x.t, &y.t, &out);
    an_tensor *q;
    if (!an_is_float(x.t))
        q = whole_quotient(b, x.t, y.t, floors);
    else if (floors)
        q = floor_quotient(b, x.t, y.t);
    else /* that of two tensors is rounded first */
        q = an_truncated(b, an_div_at(AN_AT, x.t, y.t));
    an_out_last(b, n, 0, an_as(q, out), last);
    return AN_OK;
}

an_status an_rule_div_mode(an_build *b, const an_pt2_node *n)
{
    if (an_in_none(n, 2)) return an_rule_div(b, n);
    if (!n->arg[2].text) return an_build_refuse(b, AN_E_IO, "the rounding mode is no text; the file is damaged");
    return divide(b, n, n->arg[2].text);
}

an_status an_rule_floor_divide(an_build *b, const an_pt2_node *n)
{
    return divide(b, n, "floor");
}

/* r with y's slope -floor(x / y): fmod's rounds the quotient, which may come to the next whole number. */
static an_tensor *floored_slope(an_build *b, an_tensor *x, an_tensor *y, an_tensor *apart, an_tensor *r)
{
    an_tensor *over = an_widen(an_detach_at(AN_AT, x)), *by = an_widen(an_detach_at(AN_AT, y));
    an_tensor *has = an_truncated(b, an_div_at(AN_AT, over, by)), *less = an_add_num_at(AN_AT, has, -1);
    an_tensor *want = floor_quotient(b, x, y), *more = an_where_at(AN_AT, apart, less, has);
    more = an_sub_at(AN_AT, more, want);
    an_tensor *finite = an_isfinite_at(AN_AT, by), *off = an_isfinite_at(AN_AT, more);
    off = an_and_at(AN_AT, finite, off);
    an_tensor *differs = an_ne_at(AN_AT, more, an_num(more, b->cx, 0));
    off = an_and_at(AN_AT, off, differs);
    an_tensor *own = an_where_at(AN_AT, off, y, an_num(y, b->cx, 0));
    an_tensor *nothing = an_sub_at(AN_AT, own, an_detach_at(AN_AT, own));
    an_tensor *slope = an_where_at(AN_AT, off, more, an_num(more, b->cx, 0));
    an_tensor *part = an_mul_at(AN_AT, nothing, an_as(slope, an_dtype_of(y)));
    return an_where_at(AN_AT, off, an_add_at(AN_AT, r, part), r);
}

/* What fmod leaves, and one y more where that has not y's sign: the remainder of a quotient that is rounded down. Of an infinite x, whose
 * quotient is no number either, the slope is none. `varies`: y may have a gradient. */
static an_tensor *floored_remainder(an_build *b, an_tensor *x, an_tensor *y, bool varies)
{
    an_tensor *zero = an_num(y, b->cx, 0), *r = an_fmod_at(AN_AT, x, y), *below = an_lt_at(AN_AT, y, zero);
    an_tensor *apart = an_xor_at(AN_AT, an_lt_at(AN_AT, r, zero), below);
    apart = an_and_at(AN_AT, apart, an_ne_at(AN_AT, r, zero));
    an_tensor *none = an_ne_at(AN_AT, r, r);
    none = an_and_at(AN_AT, none, an_ne_at(AN_AT, y, zero));
    apart = an_and_at(AN_AT, apart, an_eq_at(AN_AT, r, r));
    r = an_where_at(AN_AT, apart, an_add_at(AN_AT, r, y), r);
    an_tensor *nan = an_mul_num_at(AN_AT, an_where_at(AN_AT, none, y, zero), NAN);
    if (varies) r = floored_slope(b, x, y, apart, r);
    return an_where_at(AN_AT, none, an_add_at(AN_AT, x, nan), r);
}

static an_status modulo(an_build *b, const an_pt2_node *n, bool floors)
{
    an_built_value x, y;
    const bool last = an_operands(b, n, &x, &y);
    an_to_result(b, n, &x.t, &y.t);
    an_tensor *r;
    if (an_is_float(x.t))
        r = floors ? floored_remainder(b, x.t, y.t, an_in_is_tensor(n, 1)) : an_fmod_at(AN_AT, x.t, y.t);
    else if (floors)
        r = an_imod_at(AN_AT, x.t, y.t);
    else
        r = an_sub_at(AN_AT, x.t, an_mul_at(AN_AT, y.t, whole_quotient(b, x.t, y.t, false)));
    an_out_last(b, n, 0, r, last);
    return AN_OK;
}

an_status an_rule_remainder(an_build *b, const an_pt2_node *n)
{
    return modulo(b, n, true);
}
an_status an_rule_fmod(an_build *b, const an_pt2_node *n)
{
    return modulo(b, n, false);
}
