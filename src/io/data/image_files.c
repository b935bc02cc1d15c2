/* image_files.c: see image_files.h. The interfaces of the three libraries are declared here, so that no header of theirs is
 * needed to build: TurboJPEG's version 2, libpng's simplified interface of 1.6, libwebp's simple decoding. A library stays
 * loaded once it was: its handle is not kept, so that there is no state that threads share. */
#define _DEFAULT_SOURCE
#include "io/data/image_files.h"
#include "io/data/loader.h"
#include "platform/dynamic_library.h"
#include "platform/platform.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char needed[] = "the library that reads such images";

static an_status make_room(an_err *err, const char *name, int64_t width, int64_t height, int channels, an_image *out)
{
    if (width < 1 || height < 1 || width > AN_IMAGE_MOST_PIXELS || height > AN_IMAGE_MOST_PIXELS ||
        width * height > AN_IMAGE_MOST_PIXELS)
        return an_fail(err, AN_E_DATA, "%s: %lld x %lld pixels; at most %d are read", name, (long long)width,
                       (long long)height, AN_IMAGE_MOST_PIXELS);
    const size_t bytes = (size_t)width * (size_t)height * (size_t)channels;
    out->memory = calloc(bytes, 1);
    if (!out->memory) return an_fail_nomem(err, name, bytes);
    out->data = out->memory;
    out->width = (int)width;
    out->height = (int)height;
    out->channels = channels;
    return AN_OK;
}

/* A library's message, which may have line ends, in one line. */
static an_status damaged(an_err *err, const char *name, const char *kind, const char *why)
{
    char text[128];
    snprintf(text, sizeof text, "%s", why ? why : "");
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32) *c = ' ';
    return an_fail(err, AN_E_DATA, "%s: the %s image is damaged or cut short%s%s", name, kind, *text ? ": " : "", text);
}

/* Red, green, blue and what follows them, `from` bytes a pixel, become `channels`: what follows is dropped, grey is the luma
 * of BT.601 as Pillow rounds it. In place. */
static void keep_channels(an_image *x, int from, int channels)
{
    uint8_t *to = x->memory;
    const size_t pixels = (size_t)x->width * (size_t)x->height;
    for (size_t i = 0; channels == 3 && from != 3 && i < pixels; i++)
        for (size_t k = 0; k < 3; k++) to[3 * i + k] = to[(size_t)from * i + k];
    for (size_t i = 0; channels == 1 && from != 1 && i < pixels; i++) {
        const uint8_t *rgb = to + (size_t)from * i;
        to[i] = (uint8_t)((19595U * rgb[0] + 38470U * rgb[1] + 7471U * rgb[2] + 32768U) >> 16);
    }
    x->channels = channels;
}

/* ---- JPEG */

typedef struct turbojpeg {
    void *(*init)(void);
    int (*header)(void *, const unsigned char *, unsigned long, int *, int *, int *, int *);
    int (*decompress)(void *, const unsigned char *, unsigned long, unsigned char *, int, int, int, int, int);
    char *(*error)(void *);
    int (*destroy)(void *);
} turbojpeg;

/* Ink as Adobe writes it, 255 being none of it, becomes light. */
static void cmyk_to_rgb(an_image *x)
{
    uint8_t *p = x->memory;
    for (size_t i = 0; i < (size_t)x->width * (size_t)x->height; i++, p += 4)
        for (int k = 0; k < 3; k++) {
            const unsigned product = (255U - p[k]) * p[3] + 128U;
            p[k] = (uint8_t)(p[3] - ((product + (product >> 8)) >> 8));
        }
}

static an_status decode_jpeg(an_err *err, const char *name, const void *data, size_t n, int channels, an_image *out)
{
    enum {
        RGB = 0,
        GREY = 6,
        CMYK_PIXELS = 11,
        CMYK = 3 /* and YCCK = 4, of what a file has */,
        ACCURATE_DCT = 4096,
        LIMIT_SCANS = 32768
    };
    static const char *const libraries[] = {"libturbojpeg.so.0",
                                            "libturbojpeg.0.dylib",
                                            "/opt/homebrew/lib/libturbojpeg.dylib",
                                            "/usr/local/lib/libturbojpeg.dylib",
                                            "libturbojpeg.so",
                                            NULL};
    turbojpeg t;
    static const an_dl_symbol symbols[] = {{"tjInitDecompress", offsetof(turbojpeg, init)},
                                           {"tjDecompressHeader3", offsetof(turbojpeg, header)},
                                           {"tjDecompress2", offsetof(turbojpeg, decompress)},
                                           {"tjGetErrorStr2", offsetof(turbojpeg, error)},
                                           {"tjDestroy", offsetof(turbojpeg, destroy)}};
    static const an_dl_library library = {libraries, needed, "libturbojpeg0", symbols, AN_COUNT(symbols)};
    int width = 0, height = 0, sampling, space = 0;
    AN_TRY(an_dl_load(err, name, &library, NULL, &t, NULL));
    void *handle = t.init();
    if (!handle) return an_fail_nomem(err, name, n);
    an_status status = AN_OK;
    if (t.header(handle, data, (unsigned long)n, &width, &height, &sampling, &space) != 0)
        status = damaged(err, name, "JPEG", t.error(handle));
    const bool ink = space >= CMYK;
    const int held = ink ? 4 : channels;
    if (status == AN_OK) status = make_room(err, name, width, height, held, out);
    if (status == AN_OK && t.decompress(handle, data, (unsigned long)n, out->memory, width, width * held, height,
                                        ink             ? CMYK_PIXELS
                                        : channels == 1 ? GREY
                                                        : RGB,
                                        ACCURATE_DCT | LIMIT_SCANS) != 0)
        status = damaged(err, name, "JPEG", t.error(handle));
    t.destroy(handle);
    if (status != AN_OK || !ink) return status;
    cmyk_to_rgb(out);
    keep_channels(out, 4, channels);
    return AN_OK;
}

/* ---- PNG */

typedef struct png_simple { /* png_image of libpng 1.6 */
    void *opaque;
    uint32_t version, width, height, format, flags, colours, warning_or_error;
    char message[64];
} png_simple;

typedef struct png {
    int (*begin)(png_simple *, const void *, size_t);
    int (*finish)(png_simple *, const void *background, void *to, int32_t stride, void *map);
    void (*release)(png_simple *);
} png;

/* The file without the chunks that make libpng convert its numbers to another gamma: what other loaders of training images
 * hand out are the numbers in the file. NULL: there is no memory. */
static uint8_t *without_colour_space(const uint8_t *b, size_t n, size_t *bytes)
{
    static const char *const dropped[] = {"gAMA", "cHRM", "iCCP", "sRGB"};
    uint8_t *copy = malloc(n);
    size_t from = 8, to = 8;
    if (!copy) return NULL;
    memcpy(copy, b, 8);
    while (n - from >= 12 && memcmp(b + from + 4, "IDAT", 4) != 0) {
        const size_t length =
            ((size_t)b[from] << 24 | (size_t)b[from + 1] << 16 | (size_t)b[from + 2] << 8 | b[from + 3]) + 12;
        bool keep = true;
        if (length > n - from) break;
        for (size_t i = 0; i < AN_COUNT(dropped); i++) keep &= memcmp(b + from + 4, dropped[i], 4) != 0;
        if (keep) memcpy(copy + to, b + from, length);
        to += keep ? length : 0;
        from += length;
    }
    memcpy(copy + to, b + from, n - from);
    *bytes = to + n - from;
    return copy;
}

static an_status read_png(an_err *err, const char *name, const png *p, png_simple *image, int channels, an_image *out)
{
    enum { ALPHA = 1, COLOUR = 2, RGB = 2, RGBA = 3, ERROR_BIT = 2, SIXTEEN_BITS_ARE_SRGB = 4 };
    const bool colour = image->format & COLOUR, alpha = image->format & ALPHA;
    const int held = alpha ? 4 : colour || channels == 3 ? 3 : 1;
    image->flags = SIXTEEN_BITS_ARE_SRGB;
    image->format = held == 4 ? RGBA : held == 3 ? RGB : 0;
    AN_TRY(make_room(err, name, image->width, image->height, held, out));
    if (!p->finish(image, NULL, out->memory, 0, NULL) || image->warning_or_error & ERROR_BIT)
        return damaged(err, name, "PNG", image->message);
    keep_channels(out, held, channels);
    return AN_OK;
}

static an_status decode_png(an_err *err, const char *name, const void *data, size_t n, int channels, an_image *out)
{
    static const char *const libraries[] = {"libpng16.so.16",
                                            "libpng16.16.dylib",
                                            "/opt/homebrew/lib/libpng16.dylib",
                                            "/usr/local/lib/libpng16.dylib",
                                            "libpng16.so",
                                            NULL};
    png p;
    png_simple image = {.version = 1};
    static const an_dl_symbol symbols[] = {{"png_image_begin_read_from_memory", offsetof(png, begin)},
                                           {"png_image_finish_read", offsetof(png, finish)},
                                           {"png_image_free", offsetof(png, release)}};
    static const an_dl_library library = {libraries, needed, "libpng16-16", symbols, AN_COUNT(symbols)};
    size_t bytes;
    AN_TRY(an_dl_load(err, name, &library, NULL, &p, NULL));
    uint8_t *copy = without_colour_space(data, n, &bytes);
    if (!copy) return an_fail_nomem(err, name, n);
    an_status status = AN_OK;
    if (!p.begin(&image, copy, bytes)) status = damaged(err, name, "PNG", image.message);
    if (status == AN_OK) status = read_png(err, name, &p, &image, channels, out);
    p.release(&image);
    free(copy);
    return status;
}

/* ---- WebP */

typedef struct webp {
    int (*info)(const uint8_t *, size_t, int *, int *);
    uint8_t *(*decode)(const uint8_t *, size_t, uint8_t *, size_t, int);
} webp;

/* A still image, or the first of an animation and where on its canvas it lies. */
typedef struct webp_frame {
    const uint8_t *data; /* NULL: it is damaged */
    size_t bytes;
    int left, top, width, height; /* of the canvas; 0: as the image */
} webp_frame;

static int of_three(const uint8_t *b)
{
    return b[0] | b[1] << 8 | b[2] << 16;
}

static webp_frame first_frame(const uint8_t *b, size_t n)
{
    enum { EXTENDED_HEADER = 30, ANIMATED = 2, CHUNK = 8, FRAME_HEADER = 16 };
    const bool extended = n >= EXTENDED_HEADER && memcmp(b + 12, "VP8X", 4) == 0;
    if (!extended || !(b[20] & ANIMATED)) return (webp_frame){.data = b, .bytes = n};
    for (size_t at = EXTENDED_HEADER; n - at >= CHUNK + FRAME_HEADER;) {
        const size_t size = (size_t)of_three(b + at + 4) | (size_t)b[at + 7] << 24;
        if (size > n - at - CHUNK) break;
        if (memcmp(b + at, "ANMF", 4) == 0 && size > FRAME_HEADER)
            return (webp_frame){b + at + CHUNK + FRAME_HEADER,    size - FRAME_HEADER,  2 * of_three(b + at + CHUNK),
                                2 * of_three(b + at + CHUNK + 3), of_three(b + 24) + 1, of_three(b + 27) + 1};
        at += CHUNK + AN_MIN(size + (size & 1), n - at - CHUNK);
    }
    return (webp_frame){0};
}

static an_status decode_webp(an_err *err, const char *name, const void *data, size_t n, int channels, an_image *out)
{
    static const char *const libraries[] = {"libwebp.so.7",
                                            "libwebp.7.dylib",
                                            "/opt/homebrew/lib/libwebp.dylib",
                                            "/usr/local/lib/libwebp.dylib",
                                            "libwebp.so",
                                            NULL};
    webp w;
    int width = 0, height = 0;
    static const an_dl_symbol symbols[] = {{"WebPGetInfo", offsetof(webp, info)},
                                           {"WebPDecodeRGBInto", offsetof(webp, decode)}};
    static const an_dl_library library = {libraries, needed, "libwebp7", symbols, AN_COUNT(symbols)};
    AN_TRY(an_dl_load(err, name, &library, NULL, &w, NULL));
    webp_frame f = first_frame(data, n);
    if (!f.data || !w.info(f.data, f.bytes, &width, &height)) return damaged(err, name, "WebP", NULL);
    if (f.width == 0) {
        f.width = width;
        f.height = height;
    }
    if (width > f.width - f.left || height > f.height - f.top)
        return damaged(err, name, "WebP", "a frame beside its canvas");
    AN_TRY(make_room(err, name, f.width, f.height, 3, out)); /* black where the frame is not */
    const size_t row = 3 * (size_t)f.width, before = row * (size_t)f.top + 3 * (size_t)f.left;
    if (!w.decode(f.data, f.bytes, (uint8_t *)out->memory + before, row * (size_t)f.height - before, (int)row))
        return damaged(err, name, "WebP", NULL);
    keep_channels(out, 3, channels);
    return AN_OK;
}

/* ---- files */

an_status an_image_decode(an_err *err, const char *name, const void *data, size_t n, int channels, an_image *out)
{
    const uint8_t *b = data;
    *out = (an_image){0};
    an_status status;
    if (n >= 3 && b[0] == 0xFF && b[1] == 0xD8 && b[2] == 0xFF)
        status = decode_jpeg(err, name, data, n, channels, out);
    else if (n >= 8 && memcmp(b, "\x89PNG\r\n\x1a\n", 8) == 0)
        status = decode_png(err, name, data, n, channels, out);
    else if (n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0)
        status = decode_webp(err, name, data, n, channels, out);
    else if (n == 0)
        status = an_fail(err, AN_E_DATA, "%s: the file is empty", name);
    else
        status = an_fail(err, AN_E_DATA, "%s: neither a JPEG nor a PNG nor a WebP image, by its first bytes", name);
    if (status != AN_OK) an_image_free(out);
    return status;
}

an_status an_image_file_read(an_err *err, const char *path, int channels, an_image *out)
{
    char *data;
    size_t n;
    *out = (an_image){0};
    an_loader_reading(path);
    const an_loader_stage before = an_loader_enter(AN_LOADER_READ);
    an_status status = an_file_read(err, path, AN_IMAGE_FILE_BYTES, &data, &n);
    an_loader_enter(AN_LOADER_DECODE);
    if (status == AN_OK) {
        an_loader_copied(n);
        status = an_image_decode(err, path, data, n, channels, out);
        an_loader_copied((size_t)out->height * (size_t)out->width * (size_t)out->channels);
        free(data);
    }
    an_loader_enter(before);
    an_loader_reading(NULL);
    return status;
}

/* AN_E_DATA where file i is not, or not as, it was. */
static an_status check_stamp(an_err *err, const an_image_list *l, int64_t i)
{
    struct stat info;
    const an_image_stamp *was = &l->stamp[i];
    if (stat(l->path[i], &info) != 0)
        return an_fail(err, AN_E_DATA,
                       "%s: the file is gone since the data were opened; put it back, and the last checkpoint goes on",
                       l->path[i]);
    if ((int64_t)info.st_size == was->bytes && (int64_t)info.st_mtime == was->written) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s: the file changed since the data were opened (%lld bytes then, %lld now); put the old one back, "
                   "and the last checkpoint goes on, or train anew",
                   l->path[i], (long long)was->bytes, (long long)info.st_size);
}

an_status an_image_list_read(an_err *err, const an_image_list *l, int64_t i, int channels, an_image *out)
{
    an_err damage = {0};
    an_status status = an_image_file_read(&damage, l->path[i], channels, out);
    /* Behind the reading: a file that changes in between counts as changed. */
    an_status changed = check_stamp(err, l, i);
    if (changed == AN_OK && status != AN_OK) return an_fail(err, status, "%s", damage.text);
    if (changed != AN_OK) an_image_free(out);
    return changed;
}

bool an_image_file_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png", ".webp"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < AN_COUNT(endings); i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

/* ---- folders */

void an_image_list_free(an_image_list *l)
{
    for (int32_t i = 0; i < l->n; i++) free(l->path[i]);
    free(l->path);
    free(l->label);
    free(l->stamp);
    *l = (an_image_list){0};
}

typedef struct names {
    char **name;
    int32_t n, cap;
} names;

static void free_names(names *l)
{
    for (int32_t i = 0; i < l->n; i++) free(l->name[i]);
    free(l->name);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folders in a folder, or its image files, sorted; hidden ones and files with other endings are skipped. */
static an_status list_folder(an_err *err, const char *folder, bool folders, names *out)
{
    char path[2048];
    struct stat info;
    DIR *d = opendir(folder);
    if (!d) return an_fail(err, AN_E_IO, "%s: no such folder, or it cannot be read", folder);
    an_status status = AN_OK;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || (!folders && !an_image_file_name(e->d_name))) continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path || stat(path, &info) != 0)
            continue;
        if (folders ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode)) continue;
        if (out->n >= AN_IMAGE_FILES_MOST) {
            status = an_fail(err, AN_E_DATA, "%s: more than %d files; divide the folder", folder, AN_IMAGE_FILES_MOST);
            break;
        }
        char *copy = strdup(e->d_name);
        if (!copy || !an_grow((void **)&out->name, out->n, &out->cap, sizeof *out->name)) {
            free(copy);
            status = an_fail_nomem(err, folder, (size_t)out->n * sizeof *out->name);
        } else {
            out->name[out->n++] = copy;
        }
    }
    closedir(d);
    if (out->n > 1) qsort(out->name, (size_t)out->n, sizeof *out->name, by_bytes);
    return status;
}

static an_status add_file(an_err *err, const char *folder, const char *name, int32_t label, an_image_list *l)
{
    const size_t n = strlen(folder) + strlen(name) + 2;
    struct stat info;
    char *path = malloc(n);
    if (!path || !an_grow((void **)&l->path, l->n, &l->cap, sizeof *l->path) ||
        !an_grow((void **)&l->label, l->n, &l->label_cap, sizeof *l->label) ||
        !an_grow((void **)&l->stamp, l->n, &l->stamp_cap, sizeof *l->stamp)) {
        free(path);
        return an_fail_nomem(err, folder, n);
    }
    snprintf(path, n, "%s/%s", folder, name);
    if (stat(path, &info) != 0) { /* it was there a moment ago */
        an_status gone = an_fail(err, AN_E_DATA, "%s: the file went away while its folder was listed", path);
        free(path);
        return gone;
    }
    l->path[l->n] = path;
    l->stamp[l->n] = (an_image_stamp){(int64_t)info.st_size, (int64_t)info.st_mtime};
    l->label[l->n++] = label;
    l->bytes += n + sizeof *l->path + sizeof *l->label + sizeof *l->stamp;
    return AN_OK;
}

enum { TENTHS = -1 };   /* of the splits: each tenth file is for validation */
enum { NO_CLASS = -1 }; /* of the labels */

/* Files of root/class_name; of root itself where that is "". */
static an_status add_class(an_err *err, const char *root, const char *class_name, int split, int32_t label,
                           an_image_list *lists)
{
    char folder[2048];
    names files = {0};
    if (snprintf(folder, sizeof folder, "%s%s%s", root, *class_name ? "/" : "", class_name) >= (int)sizeof folder)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path is too long", root);
    an_status status = list_folder(err, folder, false, &files);
    for (int32_t i = 0; status == AN_OK && i < files.n; i++) {
        const int to = split != TENTHS ? split : i % 10 == 9 ? AN_VAL : AN_TRAIN;
        status = add_file(err, folder, files.name[i], label, &lists[to]);
    }
    free_names(&files);
    return status;
}

static an_status add_name(an_err *err, const char *root, const char *name, an_class_names *classes)
{
    char folder[2048 + 256];
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    for (char *c = folder; *c; c++)
        if ((unsigned char)*c < 32) *c = '?';
    return an_class_names_add(err, folder, classes, name, strlen(name));
}

static an_status add_root(an_err *err, const char *root, int split, const an_class_names *known, bool whole,
                          an_class_names *classes, an_image_list *lists)
{
    names folders = {0};
    char list[256];
    an_status status = list_folder(err, root, true, &folders);
    for (int32_t i = 0; status == AN_OK && i < folders.n; i++) {
        const char *name = folders.name[i];
        if (whole && known && an_class_names_find(known, name, strlen(name)) < 0)
            status = an_fail(err, AN_E_DATA, "%s/%s: the folder is no class that the weights know: %s", root, name,
                             an_class_names_list(known, list, sizeof list));
        if (status == AN_OK) status = add_name(err, root, name, classes);
        if (status == AN_OK)
            status = add_class(err, root, name, split, an_class_names_find(classes, name, strlen(name)), lists);
    }
    free_names(&folders);
    return status;
}

/* Labels by the weights' classes, where all that were found are among them. */
static an_status start_with(an_err *err, const char *folder, const an_class_names *known, bool whole,
                            an_class_names *classes)
{
    names found = {0};
    if (!known) return AN_OK;
    an_status status = list_folder(err, folder, true, &found);
    bool all = true;
    for (int32_t i = 0; status == AN_OK && i < found.n; i++)
        all &= an_class_names_find(known, found.name[i], strlen(found.name[i])) >= 0;
    free_names(&found);
    return status == AN_OK && (all || whole) ? an_class_names_copy(err, known, classes) : status;
}

static bool is_folder(const char *folder, const char *name, char path[2048])
{
    struct stat info;
    return snprintf(path, 2048, "%s/%s", folder, name) < 2048 && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* A class without a file could not be learnt: its folder came with an archive (__MACOSX), or is a link to somewhere else.
 * `apart`: `folder` is train, and val may have the class as well. */
static an_status check_classes(an_err *err, const char *folder, bool apart, const an_class_names *known,
                               const an_class_names *c, const an_image_list *l)
{
    bool *seen = calloc((size_t)c->n + 1, sizeof *seen);
    if (!seen) return an_fail_nomem(err, folder, (size_t)c->n);
    for (int32_t i = 0; i < l->n; i++) seen[l->label[i]] = true;
    int32_t i = 0;
    while (i < c->n && (seen[i] || (known && an_class_names_find(known, c->name[i], strlen(c->name[i])) >= 0))) i++;
    free(seen);
    if (i == c->n) return AN_OK;
    return an_fail(err, AN_E_DATA,
                   "%s/%s: no .jpg, .png or .webp file is in the folder, so there is nothing to learn this "
                   "class of; put images there, or remove the %s",
                   folder, c->name[i], apart ? "class from train and val" : "folder");
}

an_status an_image_lists_open(an_err *err, const char *folder, const an_image_set_options *o, an_class_names *classes,
                              an_image_list out[AN_N_SPLITS])
{
    char train[2048], val[2048];
    const bool whole = o->whole;
    const an_class_names *known = o->known;
    const bool apart = is_folder(folder, "train", train) && is_folder(folder, "val", val);
    AN_TRY(start_with(err, apart ? train : folder, known, whole, classes));
    if (apart && !whole) AN_TRY(add_root(err, train, AN_TRAIN, known, false, classes, out));
    if (o->unlabelled) AN_TRY(add_class(err, folder, "", AN_VAL, NO_CLASS, out));
    if (o->unlabelled && apart) AN_TRY(add_class(err, val, "", AN_VAL, NO_CLASS, out));
    const int32_t trained = classes->n;
    AN_TRY(add_root(err, apart ? val : folder, apart || whole ? AN_VAL : TENTHS, known, whole, classes, out));
    if (apart && !whole && classes->n != trained)
        return an_fail(err, AN_E_DATA, "%s: class %.100s has no folder in %s", val, classes->name[trained], train);
    if (out[AN_TRAIN].n + out[AN_VAL].n > 0)
        return whole ? AN_OK : check_classes(err, apart ? train : folder, apart, known, classes, &out[AN_TRAIN]);
    if (!apart && is_folder(folder, "train", train))
        return an_fail(err, AN_E_DATA, "data=%s: it has a folder train, but none named val with images to validate on",
                       folder);
    return an_fail(
        err, AN_E_DATA,
        "data=%s: neither idx files (train-images-idx3-ubyte, ...) nor folders with .jpg, .png or .webp files; "
        "shapes is built in",
        folder);
}
