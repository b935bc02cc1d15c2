/* imported_weights.h: weights of an imported model for PyTorch: a safetensors file that load_state_dict takes, or the
 * archive again (a path that ends in .pt2), which torch.export.load reads. */
#ifndef AN_MODELS_IMPORTED_IMPORTED_WEIGHTS_H
#define AN_MODELS_IMPORTED_IMPORTED_WEIGHTS_H

#include "io/formats/safetensors.h"

/* All names of state_dict, tied ones too, buffers in their dtypes. `layout` is "state_dict". */
an_status an_imported_write_weights(an_err *err, const an_st *st, const char *layout, const char *path);

#endif
