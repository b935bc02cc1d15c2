/* grad.h: one node of the backward pass, and the rules that are functions. Private to src/graph. */
#ifndef AN_GRAPH_GRAD_H
#define AN_GRAPH_GRAD_H

#include "graph/compose.h"

typedef struct an_backward_node {
    an_graph *g;
    an_tensor *n;
    an_tensor *dy[3]; /* gradient of each output; NULL: none */
    bool as_built;    /* the pass follows sources_as_built: see an_folded */
    const bool *need; /* [n_src]: does source i lead to a leaf */
    an_tensor **dx;   /* [n_src] out: gradient of each source; NULL: none */
    int32_t *to;      /* [n_src] in: the sources; out: the nodes that receive dx, a source or a node beneath it */
} an_backward_node;

/* Rules of the classes in grad_call.c: windows, attention, rows and matrices. False: `op` is none of theirs. */
bool an_grad_call(an_backward_node *b);

#endif
