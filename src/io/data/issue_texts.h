/* issue_texts.h: 300 texts on what a change to a program still needs, written for this project: documentation, tests, or a
 * review. Twenty templates a class, each with five subjects; the group of a text is its template. */
#ifndef AN_IO_DATA_ISSUE_TEXTS_H
#define AN_IO_DATA_ISSUE_TEXTS_H

#include "base/text.h"

/* Appends them as CSV: text,label,group. */
void an_issue_texts_csv(an_text *out);

#endif
