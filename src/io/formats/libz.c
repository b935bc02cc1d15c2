/* libz.c: loads zlib. See libz.h. */
#include "io/formats/libz.h"
#include "platform/dynamic_library.h"

an_status an_libz_load(an_err *err, const char *where, const char *otherwise, an_libz *out)
{
    static const char *const names[] = {"libz.so.1", "libz.1.dylib", "libz.so", NULL};
    static const an_dl_symbol symbols[] = {{"gzdopen", offsetof(an_libz, gz_open)},
                                           {"gzread", offsetof(an_libz, gz_read)},
                                           {"gzerror", offsetof(an_libz, gz_error)},
                                           {"gzclose", offsetof(an_libz, gz_close)},
                                           {"inflateInit2_", offsetof(an_libz, inflate_init)},
                                           {"inflate", offsetof(an_libz, inflate)},
                                           {"inflateEnd", offsetof(an_libz, inflate_end)}};
    static const an_dl_library library = {names, "the library that decompresses it", "zlib1g", symbols,
                                          AN_COUNT(symbols)};
    return an_dl_load(err, where, &library, otherwise, out, NULL);
}
