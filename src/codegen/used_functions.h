/* used_functions.h: a module's text without the functions that nothing in it uses. A loop kernel is a few lines behind a thousand of the
 * dialect, of which it calls a few: a compiler's front end is done in half the time, and gives the same code.
 */
#ifndef AN_CODEGEN_USED_FUNCTIONS_H
#define AN_CODEGEN_USED_FUNCTIONS_H

#include "base/text.h"

/* Appends `text` without unused functions: those from a line that begins with AN_FN, or with "template <" in front of one, to a line that is
 * "}" or to the end of that line. Used is a name that stands outside of such a function, comments apart, or in a used
 * one. A name that the preprocessor pastes together is not seen. False: no memory. */
bool an_used_functions(const char *text, an_text *out);

#endif
