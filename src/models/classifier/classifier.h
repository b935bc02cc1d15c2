/* classifier.h: the row of the text classifier: the mean of a text's embeddings, and one linear layer. */
#ifndef AN_MODELS_CLASSIFIER_CLASSIFIER_H
#define AN_MODELS_CLASSIFIER_CLASSIFIER_H

#include "models/model.h"

extern const an_model an_classifier_model;

#endif
