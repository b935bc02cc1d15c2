/* aten.h: looks up the operations of an imported graph ("aten.add.Tensor") in the table aten.def.
 *
 * Owns:      the row of each node, its arguments in the order of the row's schema with defaults filled in, and the error
 *            that names all operations without a row.
 * Does not:  build tensors: the rule that a row names does (rule_*.c). */
#ifndef AN_IMPORT_ATEN_H
#define AN_IMPORT_ATEN_H

#include "import/pt2_graph.h"

enum { AN_ATEN_MAX_ARGS = 24 };

struct an_build;
typedef an_status an_aten_rule(struct an_build *b, const an_pt2_node *n);

typedef enum an_aten_kind {
    AN_PURE,   /* a function of its arguments */
    AN_VIEW,   /* the result shares memory with the first argument: a write to one changes the other */
    AN_RANDOM, /* draws random numbers: never computed at import */
    AN_STATE   /* may change a buffer */
} an_aten_kind;

typedef struct an_aten {
    const char *name; /* "aten.add.Tensor" */
    an_aten_rule *rule;
    an_aten_kind kind;
    const char *schema; /* arguments in order, "self other alpha=1"; one without a default is required */
    const char *meaning;
} an_aten;

extern const an_aten an_aten_rows[];
extern const size_t an_aten_n_rows;

/* The row of a target, NULL where there is none. relu_ finds the row of relu and sets *in_place. */
const an_aten *an_aten_find(const char *target, bool *in_place);

/* The argument that a node's result is written into and is from then on; -1: none. Of aten.relu_ the first, of aten.div.out `out`. */
int an_aten_written(const an_pt2_node *n);

/* Sets the rule and the arguments of each node. AN_E_UNSUPPORTED names every operation without a row, with the module and
 * the line of code that it comes from. */
an_status an_aten_resolve(an_err *err, an_pt2_graph *g);
/* As lines of text: each operation, how often it occurs, and what it becomes or that it is missing. */
void an_aten_list(const an_pt2_graph *g, an_text *out);

#endif
