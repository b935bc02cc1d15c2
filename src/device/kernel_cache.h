/* kernel_cache.h: the folder of compiled kernels, shared by all devices.
 *
 * Owns:      its path, the check that it is safe, its size limit, the removal of what killed programs left in it.
 * Does not:  know the files' contents, or what their keys cover (compile.c in device/cpu, nvrtc.c in device/cuda): an
 *            entry's name is 16 hexadecimal digits and .so, .ref or .cubin.
 * Invariant: compiled kernels are code. They are loaded only from a directory (not a link) that belongs to this user and is
 *            closed to others (0700), and from files of this user that others cannot write.
 */
#ifndef AN_DEVICE_KERNEL_CACHE_H
#define AN_DEVICE_KERNEL_CACHE_H

#include "base/base.h"

/* The folder `wish`, $ANNEAL_CACHE, or the user's cache folder, created if necessary. If none can be used, `dir` is empty
 * and `why` is a sentence that begins with `who`. */
void an_cache_find(const char *who, const char *wish, char *dir, size_t dir_bytes, char *why, size_t why_bytes);
bool an_cache_ours(const char *path); /* a regular file of this user that others cannot write; marks it as used */

/* Removes the least recently used entries when all together are larger than `limit` bytes, and leftovers of killed
 * programs; returns the bytes freed. Called after something was compiled. */
uint64_t an_cache_trim(const char *dir, uint64_t limit, int64_t *files);
uint64_t an_cache_limit(void); /* $ANNEAL_CACHE_MIB, or 1 GiB */

#endif
