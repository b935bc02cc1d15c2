/* layers.c: layers that are more than one operation, made of public functions.
 *
 * Owns: the form in which they are written, where one form runs faster than another of the same mathematics.
 */
#include <anneal_nn.h>
#include <anneal_tools.h>

an_tensor *an_swiglu_columns_at(const char *at, an_tensor *gate_up, an_tensor *x)
{
    const int64_t both = gate_up ? an_shape_of(gate_up).dim[0] : 0, inner = both / 2;
    an_tensor *product = an_matmul_at(at, gate_up, x); /* [2I,n] */
    an_tensor *g = an_slice_at(at, product, 0, 0, inner, 1), *u = an_slice_at(at, product, 0, inner, both, 1);
    return an_mul_at(at, an_silu_at(at, g), u);
}

/* x as a matrix has so many rows: the product of all axes but the last. */
static int64_t rows_of(an_shape s)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < s.rank; i++) rows *= s.dim[i];
    return rows;
}

/* Whether a device that gates rows (an_gates_rows) takes less time for an_swiglu_columns than for two products of which
 * the second reads the first's gate: measured with many rows of x. */
static bool gates_columns(const an_tensor *x, const an_tensor *gate_up, const an_tensor *down)
{
    enum { LEAST = 16384, VECTOR = 8 };
    if (!x || !gate_up || !down) return false;
    const an_shape s = an_shape_of(x), gated = an_shape_of(gate_up), of = an_shape_of(down);
    if (s.rank < 1 || gated.rank != 2 || of.rank != 2) return false;
    if (an_dtype_of(x) != AN_F32 && an_dtype_of(x) != AN_BF16)
        return false; /* an_linear refuses what cannot be narrowed */
    const int64_t width = s.dim[s.rank - 1], inner = of.dim[1], rows = rows_of(s);
    return rows >= LEAST && width % VECTOR == 0 && an_gates_rows(x, 2 * inner, rows, width) &&
           gated.dim[0] == 2 * inner && gated.dim[1] == width;
}

static an_tensor *by_columns(const char *at, an_tensor *x, an_tensor *gate_up, an_tensor *down)
{
    an_shape s = an_shape_of(x);
    const an_shape of = an_shape_of(down); /* [C',I] */
    const int64_t rows = rows_of(s);
    an_tensor *all = an_reshape_at(at, an_cast_at(at, x, AN_BF16), AN_SHAPE(rows, s.dim[s.rank - 1]));
    an_tensor *columns = an_transpose_at(at, all, 0, 1), *weights = an_cast_at(at, gate_up, AN_BF16);
    an_tensor *inside = an_transpose_at(at, an_swiglu_columns_at(at, weights, columns), 0, 1); /* [rows,I] */
    an_tensor *back = an_transpose_at(at, an_cast_at(at, down, AN_BF16), 0, 1);                /* [I,C'] */
    s.dim[s.rank - 1] = of.dim[0];
    return an_reshape_at(at, an_matmul_at(at, inside, back), s);
}

/* Two products over halves of one weight, not one product whose result is cut in half: the second product's epilogue
 * then has its own part u and reads g, and the backward pass has both gradients in the epilogue of the product that
 * gives d(silu(g) u). Cut in half, g and u are columns of different tiles, and the gate becomes a pass of its own,
 * forward and backward: but as halves of its rows they are one tile where the device gates rows. */
an_tensor *an_swiglu_at(const char *at, an_tensor *x, an_tensor *gate_up, an_tensor *down)
{
    if (gates_columns(x, gate_up, down)) return by_columns(at, x, gate_up, down);
    const int64_t both = gate_up ? an_shape_of(gate_up).dim[0] : 0, inner = both / 2;
    an_tensor *g = an_linear_at(at, x, an_slice_at(at, gate_up, 0, 0, inner, 1), NULL), /* [...,I] */
        *u = an_linear_at(at, x, an_slice_at(at, gate_up, 0, inner, 2 * inner, 1), NULL);
    return an_linear_at(at, an_mul_at(at, an_silu_at(at, g), u), down, NULL);
}
