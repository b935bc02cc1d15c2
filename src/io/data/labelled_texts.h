/* labelled_texts.h: data sets of labelled texts, from a CSV file or built in.
 *
 * Owns:      texts, names of classes, which texts are for validation.
 * Does not:  encode texts, or know models.
 *
 * A source is "issues", 300 texts on what a change to a program still needs, or a CSV file (io/formats/csv.h) of
 *     text,label            a first record that names the columns text and label, in any order; others are ignored
 *     text,label,group      the same with a third column, `group`
 * or of two columns without names, text first. All texts of a group (without the column: equal texts) are on the same side
 * of every split, whatever their classes. Groups are numbered within the class of their first text, in the order of the
 * file; those whose number leaves the remainder `fold` when divided by `folds` are for validation. Classes are in the order of their names' bytes. */
#ifndef AN_IO_DATA_LABELLED_TEXTS_H
#define AN_IO_DATA_LABELLED_TEXTS_H

#include "io/data/arrays.h"
#include "io/data/class_names.h"

typedef struct an_labelled_texts an_labelled_texts;

typedef struct an_labelled_texts_options {
    const char *source;
    int64_t folds, fold;
    bool whole;                  /* every text is for validation */
    const an_class_names *known; /* of the weights, or NULL. `whole`: another label is AN_E_DATA. Else they are used
                                  * where every label is among them, and those of the file where not */
} an_labelled_texts_options;

an_status an_labelled_texts_open(an_err *err, const an_labelled_texts_options *o, an_labelled_texts **out);
void an_labelled_texts_close(an_labelled_texts *t);

const an_class_names *an_labelled_texts_classes(const an_labelled_texts *t);
int64_t an_labelled_texts_count(const an_labelled_texts *t, int split);
/* Text i of a split and its class; the text is valid until the set is closed. */
const char *an_labelled_text(const an_labelled_texts *t, int split, int64_t i, size_t *n, int32_t *label);
size_t an_labelled_texts_bytes(const an_labelled_texts *t);

#endif
