/* kernel_cache.h: the folder of compiled kernels, shared by all devices.
 *
 * Owns:      where it is, whether it is safe, how large it may be, and what a killed program left in it.
 * Does not:  know what is in a file; an entry's name is 16 hexadecimal digits and .so, .ref or .cubin.
 * Invariant: code is loaded from it only when it is a real directory, ours, and closed to others (0700), and from files
 * that are ours and that others cannot write: compiled kernels are programs.
 */
#ifndef AN_DEVICE_KERNEL_CACHE_H
#define AN_DEVICE_KERNEL_CACHE_H

#include "base/base.h"

/* `wish`, $ANNEAL_CACHE, or the user's cache folder, made when it is not there. Where none can be used `dir` is empty
 * and `why` a sentence that begins with `who`. */
void an_cache_find(const char *who, const char *wish, char *dir, size_t dir_bytes, char *why, size_t why_bytes);
bool an_cache_ours(const char *path); /* a regular file that no other user can have written; notes that it is used */

/* Removes the least recently used entries when all together are larger than `limit` bytes, and leftovers of killed
 * programs; returns the bytes freed. Called after something was compiled. */
uint64_t an_cache_trim(const char *dir, uint64_t limit, int64_t *files);
uint64_t an_cache_limit(void); /* $ANNEAL_CACHE_MIB, or 1 GiB */

#endif
