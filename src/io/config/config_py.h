/* config_py.h: nanoGPT's configuration files: Python programs that it executes, and that are read as data here.
 *
 * Owns:      a reader of `name = expression` lines, where an expression is made of numbers, strings, True, False, names
 *            of settings, + - * / // % ** and parentheses, and, because nanoGPT's own files have them, `import time`
 *            and `str(time.time())`.
 * Does not:  execute anything. Every other statement is refused with its line and the reason. */
#ifndef AN_IO_CONFIG_CONFIG_PY_H
#define AN_IO_CONFIG_CONFIG_PY_H

#include "io/config/config.h"

/* Assigns to `values` line by line; a name in an expression has the value that its setting has by then. */
an_status an_config_py(an_err *err, const an_config *c, void *values, const char *path);
/* The same for a text; `where` begins the sentences. */
an_status an_config_py_text(an_err *err, const an_config *c, void *values, const char *where, const char *text,
                            size_t n);

#endif
