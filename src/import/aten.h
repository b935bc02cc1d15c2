/* aten.h: what an operation of PyTorch becomes: the table aten.def, and a node's arguments in its order.
 *
 * Owns:      finding the row of a node, its arguments by name with defaults filled in, the sentence that names all
 *            operations for which there is no row.
 * Does not:  build anything (the rules, rule_*.c, do). */
#ifndef AN_IMPORT_ATEN_H
#define AN_IMPORT_ATEN_H

#include "import/graph.h"

enum { AN_ATEN_MAX_ARGS = 24 };

struct an_build;
typedef an_status an_aten_rule(struct an_build *b, const an_pt2_node *n);

typedef enum an_aten_kind {
    AN_PURE,   /* a function of its arguments */
    AN_VIEW,   /* a result shares memory with its first argument: what is written to one is seen in the other */
    AN_RANDOM, /* draws numbers: never folded */
    AN_STATE   /* may change a buffer */
} an_aten_kind;

typedef struct an_aten {
    const char *name; /* "aten.add.Tensor" */
    an_aten_rule *rule;
    an_aten_kind kind;
    const char *schema; /* arguments in order: "self other alpha=1"; without a default they must be there */
    const char *meaning;
} an_aten;

extern const an_aten an_aten_rows[];
extern const size_t an_aten_n_rows;

/* The row of a target; relu_ is relu with *in_place. NULL: there is none. */
const an_aten *an_aten_find(const char *target, bool *in_place);

/* Gives each node its rule and arguments. AN_E_UNSUPPORTED names every operation that has none, with its module and
 * place. */
an_status an_aten_resolve(an_err *err, an_pt2_graph *g);
/* The same as lines of text: operations, how often, what each becomes or that it is missing. */
void an_aten_list(const an_pt2_graph *g, an_text *out);

#endif
