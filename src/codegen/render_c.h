/* render_c.h: the parts of the C renderer that kernels of rows (render_c.c) and of columns (render_c_columns.c) share.
 *
 * Owns:     nothing; texts are appended to the caller's.
 * Does not: know which loops stand around an instruction. */
#ifndef AN_CODEGEN_RENDER_C_H
#define AN_CODEGEN_RENDER_C_H

#include "codegen/render.h"
#include "codegen/transposed.h"

/* The C type of arithmetic, by dtype. */
extern const char *const an_c_computed[AN_N_DTYPES];

/* The condition that a padded load is inside; a load with its guard; instruction i as a line; an index; a constant; the text `e` rounded to `dtype`. */
void an_c_guard(const an_loop_kernel *p, int32_t g, an_text *out);
void an_c_load(const an_loop_kernel *p, const an_ins *in, an_text *out);
void an_c_instruction(const an_loop_kernel *p, int i, const char *indent, an_text *out);
void an_c_index(const an_loop_kernel *p, an_ix ix, an_text *out);
void an_c_constant(const an_ins *in, an_text *out);
void an_c_rounded(int dtype, const char *e, an_text *out);

/* What a reduction starts from; a step of an argmax whose place is the text `place`. */
const char *an_c_first_value(const an_ins *in);
void an_c_argmax_update(const an_loop_kernel *p, int i, const char *place, const char *indent, an_text *out);

/* The blocks b5[neighbours][columns] of all staged loads: `place` says which element i and l are; `full`: the block is whole, and begins
 * where one of 8 does. */
void an_c_fill_blocks(const an_loop_kernel *p, const an_stage *s, const char *full, const char *place,
                      const char *columns_in, int columns, an_text *out);

/* The body of the loop over rows of an AN_COL kernel, with tables before it. */
void an_c_columns(const an_loop_kernel *p, an_text *out);

#endif
