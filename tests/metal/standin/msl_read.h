/* msl_read.h: what msl.c and msl_read.c share: growing texts, and the reading of MSL. */
#ifndef STANDIN_MSL_READ_H
#define STANDIN_MSL_READ_H

#include "metal.h"

typedef struct text {
    char *data;
    size_t n, room;
} text;

/* sprintf into memory of its own. */
char *say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void put(text *t, const char *p, size_t n);
void puts_text(text *t, const char *p);

/* Fills t's prepared text, kernels and function constants from preprocessed text; NULL, or what is wrong. */
const char *msl_prepare(msl_text *t, const char *source);
/* Whether `word` occurs in [from, end). */
bool msl_has_word(const char *from, const char *end, const char *word);

#endif
