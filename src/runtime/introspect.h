/* introspect.h: names of kernel kinds, as an_launch and an_kernel_check show them. */
#ifndef AN_RUNTIME_INTROSPECT_H
#define AN_RUNTIME_INTROSPECT_H

#include "runtime/context.h"

const char *an_kernel_kind_text(an_kernel_kind kind);

#endif
