/* kernel_cache.h: the folder of compiled kernels, shared by all devices.
 *
 * Owns:      where it is, whether it is safe, and how a file gets into it.
 * Does not:  know what is in a file or how it is named.
 * Invariant: code is loaded from it only when it is a real directory, ours, and closed to others (0700), and from files
 * that are ours and that others cannot write: compiled kernels are programs.
 */
#ifndef AN_DEVICE_KERNEL_CACHE_H
#define AN_DEVICE_KERNEL_CACHE_H

#include "base/base.h"

/* `wish`, $ANNEAL_CACHE, or the user's cache folder, made when it is not there. Where none can be used `dir` is empty
 * and `why` a sentence that begins with `who`. */
void an_cache_find(const char *who, const char *wish, char *dir, size_t dir_bytes, char *why, size_t why_bytes);
bool an_cache_ours(const char *path); /* a regular file that nobody else can have written */

#endif
