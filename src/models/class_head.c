/* class_head.c: prediction and losses (cross entropy) from logits. See class_head.h. */
#include "models/class_head.h"

an_tensor *an_class_predict(void *model, an_tensor *in)
{
    const an_class_model *m = model;
    an_scope_push(m->cx, m->scope);
    an_tensor *p = an_softmax_at(AN_AT, m->forward(model, in, false), 1); /* [B,classes] */
    an_scope_pop(m->cx);
    return p;
}

bool an_class_predicts(const void *settings)
{
    (void)settings;
    return true;
}

an_losses an_class_losses(an_tensor *each, an_tensor *right)
{
    an_losses l = {.loss = an_mean_at(AN_AT, each, AN_ALL, false)};
    l.sum[0] = an_sum_at(AN_AT, each, AN_ALL, false);
    l.sum[1] = an_sum_at(AN_AT, an_cast_at(AN_AT, right, AN_F32), AN_ALL, false);
    return l;
}
