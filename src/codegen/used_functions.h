/* used_functions.h: a module's text without the functions that nothing in it uses. A loop kernel is a few lines behind a thousand of the
 * dialect's functions, of which it calls a few: the compiler's front end takes half the time, and the machine code is the same. */
#ifndef AN_CODEGEN_USED_FUNCTIONS_H
#define AN_CODEGEN_USED_FUNCTIONS_H

#include "base/text.h"

/* Dead function elimination: appends `text` without the functions that cannot be reached from what stands outside of functions. A function
 * begins with AN_FN at the start of a line, perhaps behind "template <...>", and ends at a line "}" or, if it is written on one line, there.
 * Each mention of its name outside of comments and literals counts as a use. Names that the preprocessor pastes together (##) are not seen.
 * False: no memory. */
bool an_used_functions(const char *text, an_text *out);

#endif
