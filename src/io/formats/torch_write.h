/* torch_write.h: writes the file that PyTorch's torch.save makes of a dict of tensors, which torch.load reads: a zip
 * archive of stored members (zip.h) with a pickle of protocol 2 and a member for each storage.
 *
 * Owns:      the bytes: the pickle's are those of PyTorch for the same dict (an OrderedDict of tensors in the CPU's
 *            memory).
 * Does not:  know names, or write anything but tensors.
 * Invariants: the file under its name is always complete, the old one or the new one; storages begin at multiples of 64
 *            bytes; equal input gives equal bytes. Tensors with the same `data` share a storage, as tied weights do. */
#ifndef AN_IO_FORMATS_TORCH_WRITE_H
#define AN_IO_FORMATS_TORCH_WRITE_H

#include "base/text.h"
#include "io/formats/safetensors.h"

/* Of each tensor: name (UTF-8), dtype, rank, shape, data, bytes. The archive's folder is named after the file, as
 * torch.save does. */
an_status an_torch_write(an_err *err, const char *path, const an_st_tensor *tensors, size_t n);
/* The pickle alone; AN_E_NOMEM where out->failed. */
an_status an_torch_pickle(an_err *err, const an_st_tensor *tensors, size_t n, an_text *out);

#endif
