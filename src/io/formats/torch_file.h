/* torch_file.h: tensors of a file of weights in any known format: safetensors, or what torch.save makes (ckpt.pt,
 * pytorch_model.bin).
 *
 * Owns:      telling the formats apart by content, and PyTorch's tensors as those of a safetensors file.
 * Does not:  know models: names are the file's own (models/gpt/gpt_weights.h gives GPT's canonical ones).
 *
 * Of a torch.save file a tensor's name is its place: "model.transformer.wte.weight" is root["model"]["transformer.wte
 * .weight"], "optimizer.state.0.exp_avg" the same way; what is no tensor is the metadata "torch.values" as JSON, None
 * as null. Tensors that share memory (a tied head) share it here. */
#ifndef AN_IO_FORMATS_TORCH_FILE_H
#define AN_IO_FORMATS_TORCH_FILE_H

#include "base/arena.h" /* what converts tensors keeps them in an arena that an_st_view's owner has */
#include "io/formats/safetensors.h"

#define AN_WEIGHTS_VALUES "torch.values"

an_status an_weights_open(an_err *err, const char *path, an_st **out); /* an_st_close */
/* The same of a torch.save file in memory that outlives the reader. */
an_status an_weights_open_torch(an_err *err, const char *name, const void *data, size_t bytes, an_st **out);

#endif
