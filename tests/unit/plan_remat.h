/* plan_remat.h: a layer and its gradients, whose activation may be recomputed: for tests of the passes about that.
 *
 *     h = x w0   a = h tanh(h)   y = a w1   loss = sum(y y)      dW1 reads a again; the gradient of a reads h */
#ifndef AN_PLAN_REMAT_H
#define AN_PLAN_REMAT_H

#include "plan_case.h"

typedef struct layer {
    an_tensor *h, *a, *y, *loss, *dw1, *dw0;
} layer;

static inline layer plan_layer(plan_case *p, bool recompute)
{
    an_tensor *x = plan_param(p, 16, 8), *w0 = plan_param(p, 8, 8), *w1 = plan_param(p, 8, 8);
    layer l = {.h = MATMUL(x, w0)};
    l.a = MUL(l.h, an_tanh_at(AT, l.h)); /* its gradient reads h, so h is stored */
    l.y = MATMUL(l.a, w1);
    l.loss = SUM(MUL(l.y, l.y), AN_ALL);
    l.loss = an_reshape_at(AT, l.loss, (an_shape){.rank = 0});
    if (an_graph_backward(p->c.g, l.loss) != AN_OK) fail_msg("%s", p->c.cx.err.text);
    l.dw1 = an_graph_grad(p->c.g, w1);
    l.dw0 = an_graph_grad(p->c.g, w0);
    p->rq.recompute = recompute ? AN_RECOMPUTE_ON : AN_RECOMPUTE_OFF;
    p->rq.loss = l.loss->id;
    plan_root(p, l.loss);
    plan_root(p, l.dw1);
    plan_root(p, l.dw0);
    return l;
}

#endif
