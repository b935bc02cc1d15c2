/* utf8.h: one code point of UTF-8 at a time, strictly (RFC 3629: no overlong forms, no surrogates, nothing above
 * U+10FFFF). */
#ifndef AN_IO_TEXT_UTF8_H
#define AN_IO_TEXT_UTF8_H

#include "base/text.h"
#include <stddef.h>
#include <stdint.h>

/* Bytes of the first code point of the n > 0 bytes at s, or 0 when they start with none. */
static inline int an_utf8_next(const char *text, size_t n, uint32_t *out)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80) return *out = s[0], 1;
    int len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < (size_t)len) return 0;
    uint32_t c = s[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (s[i] & 0x3Fu);
    }
    if ((len == 3 && c < 0x800) || (len == 4 && (c < 0x10000 || c > 0x10FFFF)) || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    return *out = c, len;
}

/* Writes code point c (valid) to out; returns its bytes. */
static inline int an_utf8_put(uint32_t c, char out[4])
{
    if (c < 0x80) return out[0] = (char)c, 1;
    int len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> len & 0xFF) | c);
    return len;
}

/* Appends the text with each piece that is no UTF-8 as U+FFFD, as Python's errors="replace" does; returns how many. */
size_t an_utf8_repair(const char *text, size_t n, an_text *out);

#endif
