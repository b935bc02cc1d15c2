/* yaml_check.h: checks an untrusted YAML text before libyaml reads it whole: libyaml takes quadratic time for some texts.
 *
 * Owns:      the bounds: directives (each %TAG is compared with all before it), nested brackets (each token is compared
 *            with all open ones), aliases (a small file may expand to a large document).
 * Does not:  look at what the keys and values mean. */
#ifndef AN_IO_FORMATS_YAML_CHECK_H
#define AN_IO_FORMATS_YAML_CHECK_H

#include "base/base.h"

typedef struct an_yaml_bounds {
    int depth;    /* the most lists and mappings inside of one another */
    int64_t most; /* the most keys, values and items together; 0: any number */
    bool
        anchors; /* allowed, and ignored; else an error, since libyaml compares each with all before it. Aliases never are */
    bool documents; /* more than one document is allowed */
} an_yaml_bounds;

/* The number of the first line that is a directive (begins with %), 0: none. */
size_t an_yaml_directive(const char *text, size_t n);

/* Beyond the bounds: AN_E_DATA with "where:line". Takes time in proportion to n, and memory in proportion to the depth. */
an_status an_yaml_check(an_err *err, const char *where, const char *text, size_t n, const an_yaml_bounds *b);

#endif
