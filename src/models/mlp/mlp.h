/* mlp.h: the row of the multilayer perceptron, the smallest model there is: linear layers with an activation between. */
#ifndef AN_MODELS_MLP_MLP_H
#define AN_MODELS_MLP_MLP_H

#include "models/model.h"

extern const an_model an_mlp_model;

#endif
