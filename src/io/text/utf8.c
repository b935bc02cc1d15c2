/* utf8.c: replacing bytes that are not UTF-8 by U+FFFD. See utf8.h. */
#include "io/text/utf8.h"

/* Bytes of the longest start of a character at s, at least 1: the bytes that one U+FFFD replaces (the Unicode Standard
 * 15.0, section 3.9, "U+FFFD Substitution of Maximal Subparts"), as in Python's errors="replace". */
static size_t broken_bytes(const unsigned char *s, size_t n)
{
    if (s[0] < 0xC2 || s[0] > 0xF4 || n < 2) return 1;
    const unsigned char low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    const size_t len = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[1] < low || s[1] > high) return 1;
    size_t i = 2;
    while (i < n && i < len && (s[i] & 0xC0) == 0x80) i++;
    return i;
}

size_t an_utf8_repair(const char *text, size_t n, an_text *out)
{
    size_t replaced = 0, plain = 0;
    for (size_t at = 0; at < n;) {
        uint32_t c;
        int len = an_utf8_next(text + at, n - at, &c);
        if (len > 0) {
            at += (size_t)len;
            continue;
        }
        an_text_putn(out, text + plain, at - plain);
        an_text_puts(out, "\xEF\xBF\xBD");
        at += broken_bytes((const unsigned char *)text + at, n - at);
        plain = at;
        replaced++;
    }
    an_text_putn(out, text + plain, n - plain);
    return replaced;
}
