/* class_head.h: what models of classes share: sums of losses and hits, and probabilities from logits.
 *
 * Does not:  know what is between the input and the logits.
 */
#ifndef AN_MODELS_CLASS_HEAD_H
#define AN_MODELS_CLASS_HEAD_H

#include "models/model.h"

/* A model whose row has the hooks below begins with this. */
typedef struct an_class_model {
    an_ctx *cx;
    const char *scope;                                                      /* around its part of a graph */
    const void *settings;                                                   /* those that it was opened with */
    an_tensor *(*forward)(const void *model, an_tensor *in, bool training); /* logits f32 [B,classes] */
} an_class_model;

an_tensor *an_class_predict(void *model, an_tensor *in); /* probabilities f32 [B,classes] */
bool an_class_predicts(const void *settings);            /* true */

/* The mean and the sum of each sample's loss, f32 [B], and how many samples are right, bool [B]. */
an_losses an_class_losses(an_tensor *each, an_tensor *right);

#endif
