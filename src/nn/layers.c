/* layers.c: layers that are more than one operation, made of public functions.
 *
 * Owns: the form in which they are written, where one form runs faster than another of the same mathematics.
 */
#include <anneal_nn.h>

/* Two products over halves of one weight, not one product whose result is cut in half: the second product's epilogue
 * then has its own part u and reads g, and the backward pass has both gradients in the epilogue of the product that
 * gives d(silu(g) u). Cut in half, g and u are columns of different tiles, and the gate becomes a pass of its own,
 * forward and backward. */
an_tensor *an_swiglu_at(const char *at, an_tensor *x, an_tensor *gate_up, an_tensor *down)
{
    const int64_t both = gate_up ? an_shape_of(gate_up).dim[0] : 0, inner = both / 2;
    an_tensor *g = an_linear_at(at, x, an_slice_at(at, gate_up, 0, 0, inner, 1), NULL), /* [...,I] */
        *u = an_linear_at(at, x, an_slice_at(at, gate_up, 0, inner, 2 * inner, 1), NULL);
    return an_linear_at(at, an_mul_at(at, an_silu_at(at, g), u), down, NULL);
}
