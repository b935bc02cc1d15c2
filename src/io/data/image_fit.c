/* image_fit.c: resizing and augmentation. See image_fit.h. Columns first, then rows; each sample is a sum with weights of 1/16384 that add up to
 * exactly 16384. */
#include "io/data/image_fit.h"
#include "base/map.h"
#include "base/rng.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ONE = 1 << 14 };
#define UNIT ((int64_t)1 << 16)

/* Samples along one axis: sample i is the sum of weight[i * taps + k] * source[first[i] + k] over k < count[i]; pixels that do not count are
 * not among them. Samples run[0] to run[1] - 1 are neighbouring pixels as they are: all, where an image keeps its size. */
typedef struct samples {
    int taps;
    int64_t *first;
    int *count;
    int32_t *weight;
    int run[2];
} samples;

static void free_samples(samples *s)
{
    free(s->first);
    free(s->count);
    free(s->weight);
}

/* How much the pixel counts whose centre is there: nothing outside of the part, whose edges would darken otherwise. */
static int64_t share(int64_t centre, int64_t middle, int64_t reach, int64_t at, int64_t length)
{
    const int64_t away = centre > middle ? centre - middle : middle - centre;
    return away < reach && centre >= at && centre < at + length ? reach - away : 0;
}

/* Leaves out what has no weight, and what is outside of the image's `extent` pixels: black adds nothing. */
static void trim(samples *s, int i, int64_t extent)
{
    int32_t *w = s->weight + (size_t)i * (size_t)s->taps;
    int from = 0, to = s->taps;
    while (from < to && (w[from] == 0 || s->first[i] + from < 0)) from++;
    while (to > from && (w[to - 1] == 0 || s->first[i] + to > extent)) to--;
    s->count[i] = to - from;
    s->first[i] += from;
    memmove(w, w + from, (size_t)(to - from) * sizeof *w);
}

/* The triangle around the middle of sample i of `n` over [at, at + length). */
static void weigh(samples *s, int i, int64_t at, int64_t length, int n)
{
    const int64_t step = AN_MAX(length / n, 1), reach = AN_MAX(step, UNIT);
    const int64_t middle = at + (2 * (int64_t)i + 1) * length / (2 * (int64_t)n); /* in 1/65536, of pixel edges */
    int64_t begin = middle - reach, total = 0, sum = 0;
    begin = begin >= 0 ? begin / UNIT : -((-begin + UNIT - 1) / UNIT);
    s->first[i] = begin;
    int32_t *w = s->weight + (size_t)i * (size_t)s->taps;
    int best = (int)((middle >= 0 ? middle / UNIT : -((-middle + UNIT - 1) / UNIT)) - begin); /* the pixel it is in */
    for (int k = 0; k < s->taps; k++) total += share((begin + k) * UNIT + UNIT / 2, middle, reach, at, length);
    for (int k = 0; k < s->taps && total > 0; k++) {
        w[k] = (int32_t)(share((begin + k) * UNIT + UNIT / 2, middle, reach, at, length) * ONE / total);
        sum += w[k];
        if (w[k] > w[best]) best = k;
    }
    w[best] += (int32_t)(ONE - sum);
}

static bool is_pixel(const samples *s, int i)
{
    return s->count[i] == 1 && s->weight[(size_t)i * (size_t)s->taps] == ONE;
}

static void find_run(samples *s, int n)
{
    int from = 0;
    while (from < n && !is_pixel(s, from)) from++;
    int to = from;
    while (to < n && is_pixel(s, to) && s->first[to] == s->first[from] + (to - from)) to++;
    s->run[0] = from;
    s->run[1] = to;
}

static bool make_samples(samples *s, int64_t at, int64_t length, int n, int64_t extent)
{
    const int64_t step = AN_MAX(length / n, 1), reach = AN_MAX(step, UNIT);
    s->taps = (int)(2 * reach / UNIT) + 3;
    s->first = calloc((size_t)n, sizeof *s->first);
    s->count = calloc((size_t)n, sizeof *s->count);
    s->weight = calloc((size_t)n * (size_t)s->taps, sizeof *s->weight);
    if (!s->first || !s->count || !s->weight) return false;
    for (int i = 0; i < n; i++) {
        weigh(s, i, at, length, n);
        trim(s, i, extent);
    }
    find_run(s, n);
    return true;
}

an_image_part an_image_middle(const an_image *x, int height, int width)
{
    an_image_part p = {.height = x->height * UNIT, .width = x->width * UNIT, .brightness = 256, .contrast = 256};
    if ((int64_t)x->width * height > (int64_t)x->height * width)
        p.width = p.height * width / height;
    else
        p.height = p.width * height / width;
    p.left = (x->width * UNIT - p.width) / 2;
    p.top = (x->height * UNIT - p.height) / 2;
    return p;
}

/* One sample of C channels. Two pixels are the usual case: an image that is not made smaller. */
static inline void fit_sample(const uint8_t *x, int C, const int32_t *w, int count, uint8_t *out)
{
    for (int c = 0; c < C && count == 2; c++)
        out[c] = (uint8_t)((ONE / 2 + (uint32_t)w[0] * x[c] + (uint32_t)w[1] * x[C + c]) / ONE);
    for (int c = 0; c < C && count != 2; c++) {
        uint32_t sum = ONE / 2;
        for (int k = 0; k < count; k++) sum += (uint32_t)w[k] * x[k * C + c];
        out[c] = (uint8_t)(sum / ONE);
    }
}

/* Pixels as they are, from right to left where it is flipped. */
static void copy_run(const uint8_t *x, int C, int pixels, bool flip, uint8_t *out)
{
    if (!flip) {
        memcpy(out, x, (size_t)pixels * (size_t)C);
        return;
    }
    for (int i = 0; i < pixels; i++)
        for (int c = 0; c < C; c++)
            out[(size_t)(pixels - 1 - i) * (size_t)C + (size_t)c] = x[(size_t)i * (size_t)C + (size_t)c];
}

/* A row of the image as `n` samples of C channels, from right to left where it is flipped. */
static void fit_row(const uint8_t *from, int C, const samples *s, int n, bool flip, uint8_t *line)
{
    for (int i = 0; i < n; i++) {
        const int pixels = i == s->run[0] ? s->run[1] - i : 0;
        uint8_t *out = line + (size_t)(flip ? n - AN_MAX(pixels, 1) - i : i) * (size_t)C;
        const uint8_t *x = from + s->first[i] * C;
        const int32_t *w = s->weight + (size_t)i * (size_t)s->taps;
        if (pixels > 0) {
            copy_run(x, C, pixels, flip, out);
            i += pixels - 1;
        } else if (C == 3) { /* a constant, for the compiler */
            fit_sample(x, 3, w, s->count[i], out);
        } else {
            fit_sample(x, C, w, s->count[i], out);
        }
    }
}

/* A row of the result from the rows of the source that it needs, of which `band` has those from row `first`. */
static void fit_columns(const uint8_t *band, int64_t first, const samples *s, int i, size_t row_bytes, uint8_t *out)
{
    const int32_t *w = s->weight + (size_t)i * (size_t)s->taps;
    const uint8_t *x = band + (size_t)(s->first[i] - first) * row_bytes, *y = x + row_bytes;
    if (is_pixel(s, i)) {
        memcpy(out, x, row_bytes);
        return;
    }
    if (s->count[i] == 2) {
        const uint32_t v = (uint32_t)w[0], u = (uint32_t)w[1];
        for (size_t b = 0; b < row_bytes; b++) out[b] = (uint8_t)((ONE / 2 + v * x[b] + u * y[b]) / ONE);
        return;
    }
    for (size_t b = 0; b < row_bytes; b++) {
        uint32_t sum = ONE / 2;
        for (int k = 0; k < s->count[i]; k++) sum += (uint32_t)w[k] * x[(size_t)k * row_bytes + b];
        out[b] = (uint8_t)(sum / ONE);
    }
}

static void change_brightness(uint8_t *x, size_t n, const an_image_part *p)
{
    if (p->brightness == 256 && p->contrast == 256) return;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    const int mean = n ? (int)(sum / n) : 0;
    for (size_t i = 0; i < n; i++) {
        const int value = (mean + (x[i] - mean) * p->contrast / 256) * p->brightness / 256;
        x[i] = (uint8_t)AN_MAX(0, AN_MIN(255, value));
    }
}

/* The rows of the source that samples are made of: [first, last); none where the part is outside of the image. */
static int64_t rows_of(const samples *s, int n, int64_t *first)
{
    int64_t last = 0;
    *first = INT64_MAX;
    for (int i = 0; i < n; i++)
        if (s->count[i] > 0) {
            *first = AN_MIN(*first, s->first[i]);
            last = AN_MAX(last, s->first[i] + s->count[i]);
        }
    return last;
}

/* Whether the result is the image as it is. */
static bool is_whole(const an_image *x, const an_image_part *p, int height, int width)
{
    return x->height == height && x->width == width && p->top == 0 && p->left == 0 && p->height == height * UNIT &&
           p->width == width * UNIT && !p->flip && p->brightness == 256 && p->contrast == 256;
}

an_status an_image_fit(an_err *err, const an_image *x, const an_image_part *p, int height, int width, uint8_t *out)
{
    samples rows = {0}, columns = {0};
    uint8_t *band = NULL;
    an_status status = AN_OK;
    if (is_whole(x, p, height, width)) {
        memcpy(out, x->data, (size_t)height * (size_t)width * (size_t)x->channels);
        return AN_OK;
    }
    const size_t row_bytes = (size_t)width * (size_t)x->channels, line = (size_t)x->width * (size_t)x->channels;
    if (!make_samples(&columns, p->left, p->width, width, x->width) ||
        !make_samples(&rows, p->top, p->height, height, x->height)) {
        status = an_fail_nomem(err, "an image", row_bytes);
    } else {
        int64_t first;
        const int64_t last = rows_of(&rows, height, &first);
        band = malloc((size_t)AN_MAX(last - first, 1) * row_bytes);
        if (!band) status = an_fail_nomem(err, "an image", row_bytes);
        for (int64_t r = first; band && r < last; r++)
            fit_row(x->data + (size_t)r * line, x->channels, &columns, width, p->flip,
                    band + (size_t)(r - first) * row_bytes);
        for (int i = 0; band && i < height; i++)
            fit_columns(band, rows.count[i] > 0 ? first : rows.first[i], &rows, i, row_bytes,
                        out + (size_t)i * row_bytes);
    }
    if (status == AN_OK) change_brightness(out, (size_t)height * row_bytes, p);
    free(band);
    free_samples(&rows);
    free_samples(&columns);
    return status;
}

/* ---- random changes */

/* Uniform in [0, 65536), the n-th number of an image. */
static int64_t draw(const uint32_t *random, uint64_t n)
{
    return an_rng_u32(random[0], random[1], n) >> 16;
}

/* 256 times a factor in [1 - share, 1 + share]. */
static int factor(const uint32_t *random, uint64_t n, double share)
{
    const int64_t most = (int64_t)(share * 256);
    return 256 + (int)((draw(random, n) * (2 * most + 1) >> 16) - most);
}

void an_image_change(const an_image_changes *s, const an_image_draw *d, int height, int width, an_image_part *p)
{
    const uint32_t random[] = {an_rng_key(d->seed, d->step),
                               an_rng_stream(an_hash("changes", 7, d->sample), (uint32_t)d->split)};
    if (s->zoom > 0) { /* a side is between sqrt(1 - zoom) and 1 of what it was */
        const int64_t least = (int64_t)(65536 * sqrt(1 - s->zoom));
        const int64_t side = least + ((65536 - least) * draw(random, 0) >> 16);
        const int64_t rows = p->height * side >> 16, columns = p->width * side >> 16;
        p->top += (p->height - rows) * draw(random, 1) >> 16;
        p->left += (p->width - columns) * draw(random, 2) >> 16;
        p->height = rows;
        p->width = columns;
    }
    if (s->crop > 0) {
        p->top += ((draw(random, 3) * (2 * s->crop + 1) >> 16) - s->crop) * (p->height / height);
        p->left += ((draw(random, 4) * (2 * s->crop + 1) >> 16) - s->crop) * (p->width / width);
    }
    p->flip = s->flip && draw(random, 5) & 1;
    if (s->jitter > 0) {
        p->brightness = factor(random, 6, s->jitter);
        p->contrast = factor(random, 7, s->jitter);
    }
}
