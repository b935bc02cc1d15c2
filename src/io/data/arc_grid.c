/* arc_grid.c: grids as tokens and back, and their transformations. See arc_grid.h. */
#include "io/data/arc_grid.h"
#include "base/map.h"
#include <stdio.h>
#include <string.h>

const an_arc_image an_arc_itself = {.turn = 0, .colour = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};

/* ---- images */

static void turn(int how, const an_arc_grid *g, an_arc_grid *out)
{
    const int R = g->rows, C = g->cols;
    const bool exchanges = how == 1 || how == 3 || how >= 6; /* rows and columns */
    out->rows = (uint8_t)(exchanges ? C : R);
    out->cols = (uint8_t)(exchanges ? R : C);
    for (int i = 0; i < out->rows; i++)
        for (int j = 0; j < out->cols; j++) {
            int r = i, c = j;
            switch (how) {
            case 1: r = j, c = C - 1 - i; break;
            case 2: r = R - 1 - i, c = C - 1 - j; break;
            case 3: r = R - 1 - j, c = i; break;
            case 4: c = C - 1 - j; break;
            case 5: r = R - 1 - i; break;
            case 6: r = j, c = i; break;
            case 7: r = R - 1 - j, c = C - 1 - i; break;
            default: break;
            }
            out->cell[i * out->cols + j] = g->cell[r * C + c];
        }
}

static void recolour(const uint8_t colour[AN_ARC_COLOURS], an_arc_grid *g)
{
    for (int i = 0; i < g->rows * g->cols; i++) g->cell[i] = colour[g->cell[i]];
}

void an_arc_apply(const an_arc_image *image, const an_arc_grid *g, an_arc_grid *out)
{
    turn(image->turn, g, out);
    recolour(image->colour, out);
}

void an_arc_undo(const an_arc_image *image, const an_arc_grid *g, an_arc_grid *out)
{
    static const uint8_t inverse[AN_ARC_TURNS] = {0, 3, 2, 1, 4, 5, 6, 7};
    uint8_t back[AN_ARC_COLOURS];
    for (int c = 0; c < AN_ARC_COLOURS; c++) back[image->colour[c]] = (uint8_t)c;
    turn(inverse[image->turn], g, out);
    recolour(back, out);
}

/* ---- names */

void an_arc_image_name(const an_arc_image *image, char out[AN_ARC_IMAGE_NAME_BYTES])
{
    int n = snprintf(out, AN_ARC_IMAGE_NAME_BYTES, "|||t%d|||", image->turn);
    for (int c = 0; c < AN_ARC_COLOURS; c++) out[n++] = (char)('0' + image->colour[c]);
    out[n] = 0;
}

bool an_arc_name_read(const char *name, size_t *n, an_arc_image *out)
{
    const char *at = strstr(name, "|||");
    *out = an_arc_itself;
    *n = at ? (size_t)(at - name) : strlen(name);
    if (!at) return true;
    unsigned seen = 0;
    if (strlen(at) != strlen("|||t0|||0123456789") || at[3] != 't' || at[4] < '0' || at[4] > '7' ||
        strncmp(at + 5, "|||", 3) != 0)
        return false;
    out->turn = (uint8_t)(at[4] - '0');
    for (int c = 0; c < AN_ARC_COLOURS; c++) {
        const int digit = at[8 + c] - '0';
        if (digit < 0 || digit > 9) return false;
        seen |= 1u << digit;
        out->colour[c] = (uint8_t)digit;
    }
    return seen == (1u << AN_ARC_COLOURS) - 1;
}

/* ---- tokens */

void an_arc_tokens(const an_arc_grid *g, int row, int col, int32_t out[AN_ARC_CELLS])
{
    const int below = row + g->rows, right = col + g->cols;
    memset(out, 0, AN_ARC_CELLS * sizeof *out);
    for (int i = 0; i < g->rows; i++) {
        for (int j = 0; j < g->cols; j++) out[(row + i) * AN_ARC_SIDE + col + j] = g->cell[i * g->cols + j] + 2;
        if (right < AN_ARC_SIDE) out[(row + i) * AN_ARC_SIDE + right] = 1;
    }
    for (int j = col; j < right && below < AN_ARC_SIDE; j++) out[below * AN_ARC_SIDE + j] = 1;
}

void an_arc_crop(const int32_t tokens[AN_ARC_CELLS], an_arc_grid *out)
{
    int width = AN_ARC_SIDE, best = 0;
    out->rows = out->cols = 0;
    for (int r = 0; r < AN_ARC_SIDE; r++) {
        for (int c = 0; c < width; c++) {
            const int32_t t = tokens[r * AN_ARC_SIDE + c];
            if (t < 2 || t >= AN_ARC_VOCABULARY) width = c;
        }
        if ((r + 1) * width > best) {
            best = (r + 1) * width;
            out->rows = (uint8_t)(r + 1);
            out->cols = (uint8_t)width;
        }
    }
    for (int i = 0; i < out->rows; i++)
        for (int j = 0; j < out->cols; j++) out->cell[i * out->cols + j] = (uint8_t)(tokens[i * AN_ARC_SIDE + j] - 2);
}

/* ---- comparing, hashing, writing */

bool an_arc_equal(const an_arc_grid *a, const an_arc_grid *b)
{
    return a->rows == b->rows && a->cols == b->cols && memcmp(a->cell, b->cell, (size_t)(a->rows * a->cols)) == 0;
}

uint64_t an_arc_hash(const an_arc_grid *g, uint64_t seed)
{
    return an_hash(g->cell, (size_t)(g->rows * g->cols), an_hash_u64((uint64_t)(g->rows << 8 | g->cols), seed));
}

void an_arc_put_json(const an_arc_grid *g, an_text *out)
{
    an_text_puts(out, "[");
    for (int i = 0; i < g->rows; i++) {
        an_text_puts(out, i ? ", [" : "[");
        for (int j = 0; j < g->cols; j++) an_text_printf(out, "%s%d", j ? ", " : "", g->cell[i * g->cols + j]);
        an_text_puts(out, "]");
    }
    an_text_puts(out, "]");
}
