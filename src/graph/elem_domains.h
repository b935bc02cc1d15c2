/* elem_domains.h: for evaluations of ops.def on the host: which of its expressions are compiled for floats, and which for
 * integers. FLOAT_<domain>(x) is x where a row of that domain is defined for floats, INT_<domain>(x) likewise. */
#ifndef AN_GRAPH_ELEM_DOMAINS_H
#define AN_GRAPH_ELEM_DOMAINS_H

#define FLOAT_AN_DOM_FLOAT(x)  x
#define FLOAT_AN_DOM_NUMBER(x) x
#define FLOAT_AN_DOM_ANY(x)    x
#define FLOAT_AN_DOM_INT(x)    NAN
#define FLOAT_AN_DOM_BITS(x)   NAN
#define FLOAT_AN_DOM_BOOL(x)   NAN
#define INT_AN_DOM_FLOAT(x)    0
#define INT_AN_DOM_NUMBER(x)   x
#define INT_AN_DOM_ANY(x)      x
#define INT_AN_DOM_INT(x)      x
#define INT_AN_DOM_BITS(x)     x
#define INT_AN_DOM_BOOL(x)     x

#endif
