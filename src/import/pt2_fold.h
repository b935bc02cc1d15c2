/* pt2_fold.h: constant folding: values that an imported graph computes from numbers alone are computed once, on the host.
 *
 * Language models compute masks and positions from arange in up to a third of their nodes. Such a value is computed in a
 * context of its own, by the same rules, and is emitted as a single number, an iota or an input. A mask of attention is
 * recognised as causal, as causal with a window, as all true, or as none of them.
 *
 * Owns:      which values are constant, and their elements on the host.
 * Does not:  fold parameters, or values that are written in place. */
#ifndef AN_IMPORT_PT2_FOLD_H
#define AN_IMPORT_PT2_FOLD_H

#include "import/pt2_build.h"

/* What a step is given for it: one number, `slope` times the position along `axis` behind the first element, or the elements. */
typedef enum an_known_form { AN_KNOWN_NUMBER, AN_KNOWN_RAMP, AN_KNOWN_ELEMENTS } an_known_form;
typedef enum an_mask { AN_MASK_ALL, AN_MASK_CAUSAL, AN_MASK_WINDOW, AN_MASK_OTHER } an_mask;

typedef struct an_known_value {
    void *data; /* NULL: not computed yet */
    an_shape shape;
    an_dtype dtype;
    int64_t n;
    an_known_form form;
    int axis;
    double slope;
    an_mask mask; /* where `is_looked_at`; each step asks, and a mask can have millions of elements */
    bool is_looked_at;
    int64_t window; /* of AN_MASK_WINDOW: how many keys a query sees, its own the last */
} an_known_value;

typedef struct an_folder {
    const an_pt2_graph *g;
    bool *constant;        /* of each value */
    an_known_value *value; /* of each value */
    an_ctx *cx;            /* in which they are computed; opened for the first of them */
    int64_t key;           /* the number of samples that they were computed for */
} an_folder;

an_status an_fold_open(an_err *err, const an_pt2_graph *g, an_folder **out);
void an_fold_close(an_folder *f); /* NULL is fine */
/* Called before a step of so many samples; values computed for another number are dropped. */
void an_fold_begin(an_folder *f, int64_t samples);

bool an_fold_skips(const an_build *b, int32_t node); /* all its results are constants */
void an_fold_emit(an_build *b, int32_t value);       /* sets a constant value's tensor; a failure is in b->err */

/* The elements of a value; NULL where it is not constant, or there is no memory. */
const an_known_value *an_fold_value(an_build *b, int32_t value);
double an_fold_number(const an_known_value *v, int64_t i);

/* Recognises a mask [...,T,S] of attention: bool (true: attended to) or float (0: attended to; -inf or the most negative
 * number: not). *window: 0 where it is none. */
an_mask an_fold_mask(an_build *b, int32_t value, int64_t T, int64_t S, int64_t *window);

/* Whether value `id`, a result of node n and a view of a tensor of shape `p`, is a range of one axis of it (select, slice,
 * split, ...), and which. */
bool an_view_region(const an_build *b, const an_pt2_node *n, int32_t id, an_shape p, int *axis, int64_t *start,
                    int64_t *step);

/* The elements `t` of a view, the result of node n, in the order and shape of its parent. NULL: the view has not each of the parent's elements
 * once, or has them in an order that is not known. */
an_tensor *an_view_undone(const an_build *b, const an_pt2_node *n, an_tensor *t, const an_tensor *parent);

#endif
