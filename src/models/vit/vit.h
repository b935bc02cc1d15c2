/* vit.h: the row of the vision transformer. */
#ifndef AN_MODELS_VIT_VIT_H
#define AN_MODELS_VIT_VIT_H

#include "models/model.h"

extern const an_model an_vit_model;

#endif
