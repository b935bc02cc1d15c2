/* array_file.h: several named arrays in one file: .npz, .safetensors, or columns of a .csv.
 *
 * Owns:      finding an array by its name and handing it out as NumPy's would be.
 * Does not:  know splits or models.
 *
 * .npz          NAME.npy in a zip archive, stored (used in the mapped file) or deflated (unpacked when it is asked for)
 * .safetensors  tensors of dtypes that .npy files have
 * .csv          a first record of names; a column is [rows], columns joined by '+' are [rows,columns]; "*" is every column
 *               but those that `except` names. Whole numbers in all cells make an array of whole numbers.
 *
 * Files are untrusted. Memory is allocated for unpacked members and for the numbers of a CSV only; the rest is mapped. */
#ifndef AN_IO_DATA_ARRAY_FILE_H
#define AN_IO_DATA_ARRAY_FILE_H

#include "io/formats/npy.h"

typedef struct an_array_file an_array_file;

bool an_array_file_name(const char *path);          /* ends as such a file does */
bool an_array_file_columns(const an_array_file *f); /* it is a .csv */
an_status an_array_file_open(an_err *err, const char *path, an_array_file **out);
void an_array_file_close(an_array_file *f); /* NULL is fine */
/* *found: whether it is there; *out lives until the file is closed. Sentences name file and array. */
an_status an_array_file_find(an_err *err, an_array_file *f, const char *name, const char *except, an_npy *out,
                             bool *found);

#endif
