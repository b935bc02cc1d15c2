/* image_set.c: opening idx files and folders, drawing shapes, and reading an image. See image_set.h. */
#define _DEFAULT_SOURCE
#include "io/data/image_set.h"
#include "base/map.h"
#include "base/rng.h"
#include "io/data/image_files.h"
#include "io/formats/idx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, SHAPES = 2000, SHAPE_SIDE = 28, SHAPE_CLASSES = 4 };

struct an_image_set {
    an_class_names classes;
    an_idx images[AN_N_SPLITS], labels[AN_N_SPLITS]; /* of idx files and of built-in images */
    an_image_list list[AN_N_SPLITS];                 /* of image files */
    uint8_t *built_in;
    int64_t count[AN_N_SPLITS];
    int height, width, channels; /* height 0: images differ */
    bool files;
    size_t root_bytes; /* of each path: the source's folder */
};

void an_image_free(an_image *x)
{
    free(x->memory);
    *x = (an_image){0};
}

/* ---- built-in shapes: a disc, a ring, a square or a cross of random place, size and grey on noise */

static bool is_inside(int shape, double x, double y, double r)
{
    const double d = x * x + y * y, ax = x < 0 ? -x : x, ay = y < 0 ? -y : y;
    switch (shape) {
    case 0: return d <= r * r;
    case 1: return d <= r * r && d >= 0.36 * r * r;
    case 2: return ax <= 0.8 * r && ay <= 0.8 * r;
    default: return (ax <= 0.3 * r && ay <= r) || (ay <= 0.3 * r && ax <= r);
    }
}

static void draw_shape(int64_t i, uint8_t *out)
{
    const uint32_t key = an_rng_key(1, (uint64_t)i), stream = an_rng_stream(an_hash("shapes", 6, 0), 0);
    const int shape = (int)(i % SHAPE_CLASSES);
    const double r = 4 + 5 * (double)an_rng_uniform(key, stream, 0);
    const double cx = 10 + 8 * (double)an_rng_uniform(key, stream, 1),
                 cy = 10 + 8 * (double)an_rng_uniform(key, stream, 2);
    const double grey = 110 + 110 * (double)an_rng_uniform(key, stream, 3);
    for (int k = 0; k < SHAPE_SIDE * SHAPE_SIDE; k++) {
        const double noise = 80 * (double)an_rng_uniform(key, stream, 4 + (uint64_t)k);
        const double x = k % SHAPE_SIDE - cx, y = k / SHAPE_SIDE - cy;
        const double value = is_inside(shape, x, y, r) ? grey + noise - 40 : noise;
        out[k] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

static an_status make_shapes(an_err *err, bool whole, an_image_set *s)
{
    static const char *const names[SHAPE_CLASSES] = {"disc", "ring", "square", "cross"};
    const size_t pixels = SHAPE_SIDE * SHAPE_SIDE;
    s->built_in = malloc(SHAPES * (pixels + 1));
    if (!s->built_in) return an_fail_nomem(err, "shapes", SHAPES * (pixels + 1));
    uint8_t *labels = s->built_in + SHAPES * pixels;
    for (int64_t i = 0; i < SHAPES; i++) {
        draw_shape(i, s->built_in + (size_t)i * pixels);
        labels[i] = (uint8_t)(i % SHAPE_CLASSES);
    }
    for (int i = 0; i < SHAPE_CLASSES; i++)
        AN_TRY(an_class_names_add(err, "shapes", &s->classes, names[i], strlen(names[i])));
    const int64_t val = whole ? SHAPES : SHAPES / 10;
    s->count[AN_TRAIN] = SHAPES - val;
    s->count[AN_VAL] = val;
    for (int split = 0; split < AN_N_SPLITS; split++) {
        const size_t from = split == AN_VAL ? (size_t)(SHAPES - val) : 0;
        s->images[split] =
            (an_idx){.rank = 3, .dim = {s->count[split], SHAPE_SIDE, SHAPE_SIDE}, .data = s->built_in + from * pixels};
        s->labels[split] = (an_idx){.rank = 1, .dim = {s->count[split]}, .data = labels + from};
    }
    s->height = s->width = SHAPE_SIDE;
    s->channels = 1;
    return AN_OK;
}

/* ---- idx files */

static const char *const idx_name[AN_N_SPLITS][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                                     {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};

static bool has_idx(const char *folder, int split)
{
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, idx_name[split][0]);
    return n < (int)sizeof path && an_idx_is_there(path);
}

static an_status open_split(an_err *err, const char *folder, int split, an_image_set *s)
{
    char path[PATH_BYTES];
    an_idx *x = &s->images[split], *y = &s->labels[split];
    snprintf(path, sizeof path, "%s/%s", folder, idx_name[split][1]);
    AN_TRY(an_idx_open(err, path, y));
    if (y->rank != 1) return an_fail(err, AN_E_DATA, "%s: labels have one axis, these have %d", path, y->rank);
    snprintf(path, sizeof path, "%s/%s", folder, idx_name[split][0]);
    AN_TRY(an_idx_open(err, path, x));
    if (x->rank < 3 || x->bytes == 0 || x->dim[1] > 8192 || x->dim[2] > 8192 ||
        (x->rank == 4 && x->dim[3] != 1 && x->dim[3] != 3))
        return an_fail(err, AN_E_DATA, "%s: images are [N,height,width] or [N,height,width,3], up to 8192 a side",
                       path);
    if (x->dim[0] != y->dim[0])
        return an_fail(err, AN_E_DATA, "%s: %lld images, but %lld labels beside them", path, (long long)x->dim[0],
                       (long long)y->dim[0]);
    const int channels = x->rank == 4 ? (int)x->dim[3] : 1;
    if (s->height && (s->height != x->dim[1] || s->width != x->dim[2] || s->channels != channels))
        return an_fail(err, AN_E_DATA, "%s: its images are unlike those to train on", path);
    s->height = (int)x->dim[1];
    s->width = (int)x->dim[2];
    s->channels = channels;
    s->count[split] = x->dim[0];
    return AN_OK;
}

/* The largest label, -1: there is none. Each of a test image is one that training has, too. */
static an_status check_labels(an_err *err, const char *folder, const an_image_set *s, int *most)
{
    uint8_t seen[256] = {0};
    char path[PATH_BYTES];
    int64_t row = 0;
    *most = -1;
    for (int split = 0; split < AN_N_SPLITS; split++) {
        snprintf(path, sizeof path, "%.900s/%s", folder, idx_name[split][1]);
        for (int64_t i = 0; i < s->count[split]; i++) {
            const uint8_t label = s->labels[split].data[i];
            if (split == AN_VAL && s->count[AN_TRAIN] > 0 && !seen[label])
                return an_fail(err, AN_E_DATA,
                               "%s: the label of row %lld is %d, of which there is no image to train on", path,
                               (long long)i, label);
            seen[label] = 1;
            if (label > *most) *most = label, row = i;
        }
        if (split == AN_TRAIN && *most >= 0) AN_TRY(an_class_numbers_check(err, path, seen, *most, row));
    }
    return AN_OK;
}

/* Classes that are numbers; those of Fashion-MNIST have names, told by the folder's. */
static an_status name_classes(an_err *err, const char *folder, const an_class_names *known, bool whole, an_image_set *s)
{
    static const char *const fashion[] = {"T-shirt", "trouser", "pullover", "dress", "coat",
                                          "sandal",  "shirt",   "sneaker",  "bag",   "boot"};
    int most;
    char number[16];
    AN_TRY(check_labels(err, folder, s, &most));
    if (known && known->n > most) return an_class_names_copy(err, known, &s->classes);
    if (known && whole)
        return an_fail(err, AN_E_DATA, "data=%s: a label is %d, the weights know %d classes", folder, most, known->n);
    const bool is_fashion = strstr(folder, "fashion") != NULL && most == 9;
    for (int i = 0; i <= most; i++) {
        snprintf(number, sizeof number, "%d", i);
        const char *name = is_fashion ? fashion[i] : number;
        AN_TRY(an_class_names_add(err, folder, &s->classes, name, strlen(name)));
    }
    return AN_OK;
}

static an_status open_idx(an_err *err, const char *folder, const an_image_set_options *o, an_image_set *s)
{
    if (!o->whole) AN_TRY(open_split(err, folder, AN_TRAIN, s));
    AN_TRY(open_split(err, folder, AN_VAL, s));
    return name_classes(err, folder, o->known, o->whole, s);
}

/* ---- opening */

/* Where "fashion-mnist" is. */
static an_status find_fashion(an_err *err, const char **out)
{
    static const char *const places[] = {"data/fashion-mnist", "/usr/share/datasets/fashion-mnist"};
    for (size_t i = 0; i < AN_COUNT(places); i++)
        if (has_idx(places[i], AN_TRAIN)) return *out = places[i], AN_OK;
    return an_fail(err, AN_E_IO,
                   "data=fashion-mnist: it is neither in %s nor in %s; anneal prepare fashion-mnist puts it there, of "
                   "Debian's package dataset-fashion-mnist or by a download",
                   places[0], places[1]);
}

static an_status open_files(an_err *err, const char *folder, const an_image_set_options *o, an_image_set *s)
{
    AN_TRY(an_image_lists_open(err, folder, o, &s->classes, s->list));
    for (int split = 0; split < AN_N_SPLITS; split++) s->count[split] = s->list[split].n;
    s->channels = o->channels ? o->channels : 3;
    s->files = true;
    s->root_bytes = strlen(folder);
    return AN_OK;
}

static an_status open_source(an_err *err, const an_image_set_options *o, an_image_set *s)
{
    const char *folder = o->source;
    if (strcmp(folder, "shapes") == 0) return make_shapes(err, o->whole, s);
    if (strcmp(folder, "fashion-mnist") == 0) AN_TRY(find_fashion(err, &folder));
    if (strlen(folder) > PATH_BYTES - 64)
        return an_fail(err, AN_E_USAGE, "data=%.100s...: the path is too long", folder);
    if (has_idx(folder, AN_VAL) || has_idx(folder, AN_TRAIN)) return open_idx(err, folder, o, s);
    return open_files(err, folder, o, s);
}

an_status an_image_set_open(an_err *err, const an_image_set_options *o, an_image_set **out)
{
    *out = NULL;
    an_image_set *s = calloc(1, sizeof *s);
    if (!s) return an_fail_nomem(err, o->source, sizeof *s);
    an_status status = open_source(err, o, s);
    if (status == AN_OK)
        *out = s;
    else
        an_image_set_close(s);
    return status;
}

void an_image_set_close(an_image_set *s)
{
    if (!s) return;
    for (int split = 0; split < AN_N_SPLITS; split++) {
        if (!s->built_in) {
            an_idx_close(&s->images[split]);
            an_idx_close(&s->labels[split]);
        }
        an_image_list_free(&s->list[split]);
    }
    an_class_names_free(&s->classes);
    free(s->built_in);
    free(s);
}

/* ---- reading */

const an_class_names *an_image_set_classes(const an_image_set *s)
{
    return &s->classes;
}
int64_t an_image_set_count(const an_image_set *s, int split)
{
    return s->count[split];
}
int an_image_set_channels(const an_image_set *s)
{
    return s->channels;
}
bool an_image_set_built_in(const an_image_set *s)
{
    return s->built_in != NULL;
}

bool an_image_set_size(const an_image_set *s, int *height, int *width)
{
    *height = s->height;
    *width = s->width;
    return s->height > 0;
}

size_t an_image_set_bytes(const an_image_set *s)
{
    size_t bytes = s->built_in ? (size_t)SHAPES * (SHAPE_SIDE * SHAPE_SIDE + 1) : 0;
    for (int split = 0; split < AN_N_SPLITS; split++)
        bytes += s->images[split].held_bytes + s->labels[split].held_bytes + s->list[split].bytes;
    return bytes;
}

int32_t an_image_set_label(const an_image_set *s, int split, int64_t i)
{
    return s->files ? s->list[split].label[i] : s->labels[split].data[i];
}

const char *an_image_set_path(const an_image_set *s, int split, int64_t i)
{
    return s->files ? s->list[split].path[i] : NULL;
}

static size_t image_bytes(const an_image_set *s)
{
    return (size_t)s->height * (size_t)s->width * (size_t)s->channels;
}

an_status an_image_set_read(an_err *err, const an_image_set *s, int split, int64_t i, an_image *out)
{
    if (s->files) return an_image_list_read(err, &s->list[split], i, s->channels, out);
    *out = (an_image){s->images[split].data + (size_t)i * image_bytes(s), s->height, s->width, s->channels, NULL};
    return AN_OK;
}

/* ---- the hash */

enum { HASH_PIECE = 1 << 16 };
static const int64_t HASHED_WHOLE = (int64_t)4 << 30; /* bytes of files in a split */

static bool hash_file(an_hasher *h, const char *path, bool whole, uint8_t piece[HASH_PIECE])
{
    FILE *file = fopen(path, "rb");
    bool ok = file != NULL;
    for (size_t n = HASH_PIECE; ok && n == HASH_PIECE;) {
        n = fread(piece, 1, HASH_PIECE, file);
        ok = !ferror(file) && an_hasher_add(h, piece, n);
        if (!whole) break;
    }
    if (file) fclose(file);
    return ok;
}

/* Names below the source's folder, sizes and contents. */
static bool hash_files(const an_image_set *s, const an_image_list *l, an_hasher *h)
{
    struct stat info;
    int64_t total = 0;
    bool ok = true;
    for (int32_t i = 0; ok && i < l->n; i++) {
        ok = stat(l->path[i], &info) == 0;
        total += ok ? (int64_t)info.st_size : 0;
    }
    uint8_t *piece = malloc(HASH_PIECE);
    for (int32_t i = 0; ok && piece && i < l->n; i++) {
        const char *name = l->path[i] + s->root_bytes;
        ok = stat(l->path[i], &info) == 0;
        const int64_t size = ok ? (int64_t)info.st_size : 0;
        ok = ok && an_hasher_add(h, name, strlen(name) + 1) && an_hasher_add(h, &size, sizeof size) &&
             an_hasher_add(h, &l->label[i], sizeof l->label[i]) &&
             hash_file(h, l->path[i], total <= HASHED_WHOLE, piece);
    }
    ok = ok && piece;
    free(piece);
    return ok;
}

void an_image_set_hash(const an_image_set *s, int split, char out[AN_HASH_TEXT_BYTES])
{
    an_hasher h = an_hasher_begin();
    bool ok = true;
    if (s->files) ok = hash_files(s, &s->list[split], &h);
    for (int64_t i = 0; ok && !s->files && i < s->count[split]; i++) {
        const int32_t label = an_image_set_label(s, split, i);
        ok = an_hasher_add(&h, s->images[split].data + (size_t)i * image_bytes(s), image_bytes(s)) &&
             an_hasher_add(&h, &label, sizeof label);
    }
    an_hasher_end_text(&h, ok, out);
}
