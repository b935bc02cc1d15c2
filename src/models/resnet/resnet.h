/* resnet.h: the row of a residual network for small images: three stages of basic blocks. */
#ifndef AN_MODELS_RESNET_RESNET_H
#define AN_MODELS_RESNET_RESNET_H

#include "models/model.h"

extern const an_model an_resnet_model;

#endif
