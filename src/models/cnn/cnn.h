/* cnn.h: the row of a small convolutional network: two convolutions, two linear layers. */
#ifndef AN_MODELS_CNN_CNN_H
#define AN_MODELS_CNN_CNN_H

#include "models/model.h"

extern const an_model an_cnn_model;

#endif
