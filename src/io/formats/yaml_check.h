/* yaml_check.h: what is looked at before YAML from elsewhere is read, since libyaml takes time quadratic in some of it.
 *
 * Owns:      the bounds: directives (each %TAG is compared with all before it), brackets inside of brackets (each token is
 *            compared with all open ones), aliases (a small file is a large document).
 * Does not:  know what the file is about. */
#ifndef AN_IO_YAML_CHECK_H
#define AN_IO_YAML_CHECK_H

#include "base/base.h"

typedef struct an_yaml_bounds {
    int depth;      /* of lists and mappings inside of each other */
    int64_t most;   /* keys, values and items; 0: any number */
    bool anchors;   /* are passed over (libyaml's documents compare each with all before it); aliases are never taken */
    bool documents; /* more than one is taken */
} an_yaml_bounds;

/* The number of the first line that is a directive (begins with %), 0: none. */
size_t an_yaml_directive(const char *text, size_t n);

/* AN_E_DATA with line. Time in proportion to n, and no more memory than `depth` asks for. */
an_status an_yaml_check(an_err *err, const char *where, const char *text, size_t n, const an_yaml_bounds *b);

#endif
