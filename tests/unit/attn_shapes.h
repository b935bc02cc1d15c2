/* attn_shapes.h: the shapes of attention that test_attn.c runs the kernels with. */
#ifndef AN_TEST_ATTN_SHAPES_H
#define AN_TEST_ATTN_SHAPES_H

#include "base/base.h"

typedef struct shape {
    int B, H, T, S, D;
    bool causal, bf16, bf16_mul;
    float dropout;
    int n_keys;       /* -1: absent */
    uint32_t sample0; /* global index of sample 0 */
    bool apart;       /* separate buffers with odd strides instead of one [B,T,3C] */
    int mask;         /* axes (b, h, i, j) that it has, bit 3 to 0; the others are strides of 0. 0: none */
    int window;       /* with causal; 0: none */
    int group;        /* heads of q for each of k and v; 0 is 1 */
} shape;

static const shape SHAPES[] = {
    {.B = 2, .H = 3, .T = 64, .S = 64, .D = 32, .causal = true, .n_keys = -1},
    {.B = 1, .H = 2, .T = 256, .S = 256, .D = 64, .causal = true, .n_keys = -1},
    {.B = 1, .H = 2, .T = 256, .S = 256, .D = 64, .causal = true, .n_keys = -1, .dropout = 0.2f},
    {.B = 1, .H = 1, .T = 330, .S = 330, .D = 16, .causal = true, .n_keys = -1, .dropout = 0.5f},
    {.B = 1, .H = 2, .T = 1, .S = 1, .D = 8, .causal = true, .n_keys = -1},
    {.B = 2, .H = 2, .T = 1, .S = 300, .D = 64, .causal = true, .n_keys = -1},
    {.B = 2, .H = 2, .T = 1, .S = 300, .D = 64, .causal = true, .n_keys = 77},
    {.B = 1, .H = 2, .T = 5, .S = 300, .D = 24, .causal = true, .n_keys = 131},
    {.B = 1, .H = 2, .T = 9, .S = 70, .D = 24, .causal = false, .n_keys = 65},
    {.B = 2, .H = 1, .T = 37, .S = 101, .D = 40, .causal = true, .n_keys = -1, .apart = true},
    {.B = 2, .H = 1, .T = 101, .S = 37, .D = 40, .causal = true, .n_keys = -1, .apart = true},
    {.B = 1, .H = 2, .T = 70, .S = 129, .D = 24, .causal = false, .n_keys = -1, .dropout = 0.1f, .apart = true},
    {.B = 1, .H = 1, .T = 67, .S = 67, .D = 128, .causal = true, .n_keys = -1, .dropout = 0.3f},
    {.B = 1, .H = 1, .T = 65, .S = 65, .D = 256, .causal = true, .n_keys = -1},
    {.B = 1, .H = 1, .T = 66, .S = 90, .D = 1, .causal = false, .n_keys = -1},
    {.B = 1,
     .H = 2,
     .T = 97,
     .S = 97,
     .D = 16,
     .causal = false,
     .n_keys = -1}, /* the last 33 queries: 6, .., 6, 3 rows */
    {.B = 1, .H = 1, .T = 197, .S = 197, .D = 64, .causal = false, .n_keys = -1}, /* the last 5: 4 and 1 */
    {.B = 1, .H = 2, .T = 33, .S = 33, .D = 7, .causal = true, .n_keys = -1, .apart = true},
    {.B = 1, .H = 1, .T = 3, .S = 100, .D = 8, .n_keys = -1, .dropout = 0.5f, .sample0 = 57266230u},
    {.B = 2, .H = 2, .T = 64, .S = 64, .D = 32, .causal = true, .n_keys = -1, .bf16 = true},
    {.B = 1, .H = 2, .T = 130, .S = 130, .D = 64, .causal = true, .n_keys = -1, .bf16_mul = true},
    {.B = 1,
     .H = 2,
     .T = 130,
     .S = 130,
     .D = 64,
     .causal = true,
     .n_keys = -1,
     .bf16 = true,
     .bf16_mul = true,
     .dropout = 0.2f},
    {.B = 1,
     .H = 1,
     .T = 41,
     .S = 99,
     .D = 23,
     .causal = true,
     .n_keys = -1,
     .bf16 = true,
     .bf16_mul = true,
     .apart = true},
    {.B = 1, .H = 1, .T = 1, .S = 150, .D = 64, .causal = true, .n_keys = 149, .bf16 = true, .bf16_mul = true},
    /* Tile registers: chunks of 32 queries and 32 columns of a head, whole and not; several chunks of queries; f32 in storage. */
    {.B = 1, .H = 2, .T = 33, .S = 33, .D = 16, .causal = true, .n_keys = -1, .bf16 = true, .bf16_mul = true},
    {.B = 1, .H = 1, .T = 81, .S = 147, .D = 128, .n_keys = -1, .bf16 = true, .bf16_mul = true, .dropout = 0.4f},
    {.B = 1, .H = 1, .T = 147, .S = 81, .D = 80, .causal = true, .n_keys = -1, .bf16_mul = true, .apart = true},
    {.B = 1, .H = 1, .T = 290, .S = 290, .D = 33, .causal = true, .n_keys = -1, .bf16 = true, .bf16_mul = true},
};
/* The same with masks and windows, whose bits are no part of the pinned ones. */
#define OF(b, h, t, s, d) .B = b, .H = h, .T = t, .S = s, .D = d, .n_keys = -1
static const shape MASKED[] = {
    {OF(2, 2, 200, 200, 32), .causal = true, .window = 2},
    {OF(1, 2, 330, 330, 64), .causal = true, .window = 70},
    {OF(1, 2, 330, 330, 16), .causal = true, .window = 128, .dropout = 0.3f},
    {OF(1, 1, 97, 300, 24), .causal = true, .window = 64, .apart = true},
    {OF(1, 1, 300, 97, 7), .causal = true, .window = 30, .apart = true},
    {.B = 1, .H = 2, .T = 5, .S = 300, .D = 24, .causal = true, .n_keys = 131, .window = 33},
    {OF(1, 2, 140, 140, 40), .causal = true, .window = 17, .bf16 = true, .bf16_mul = true},
    {OF(2, 2, 150, 190, 33), .causal = true, .window = 65, .mask = 15, .bf16_mul = true},
    {OF(2, 2, 150, 190, 32), .causal = true, .window = 65, .mask = 11, .dropout = 0.1f},
    {OF(2, 3, 64, 64, 32), .mask = 9},
    {OF(2, 2, 131, 131, 64), .mask = 3},
    {OF(1, 2, 97, 97, 64), .causal = true, .mask = 15},
    {OF(2, 2, 70, 145, 24), .causal = true, .mask = 7, .dropout = 0.2f, .apart = true},
    {OF(1, 1, 300, 41, 7), .mask = 2},
    {OF(2, 1, 1, 1, 1), .mask = 15},
    {OF(1, 1, 65, 66, 256), .mask = 1},
    {.B = 1, .H = 2, .T = 5, .S = 300, .D = 24, .causal = true, .n_keys = 131, .mask = 11},
    {OF(2, 2, 67, 67, 32), .mask = 9, .bf16 = true},
    {OF(1, 2, 97, 130, 40), .mask = 7, .bf16 = true, .bf16_mul = true, .dropout = 0.2f},
    {OF(1, 2, 130, 97, 33), .causal = true, .mask = 3, .bf16_mul = true, .apart = true},
    {OF(2, 8, 70, 70, 32), .causal = true, .group = 4},
    {OF(1, 6, 300, 300, 16), .causal = true, .group = 3, .dropout = 0.2f},
    {OF(2, 4, 33, 65, 24), .group = 4, .apart = true, .mask = 15},
    {OF(1, 6, 97, 97, 40), .causal = true, .group = 2, .window = 30, .mask = 11, .dropout = 0.3f},
    {OF(1, 8, 130, 90, 33), .causal = true, .group = 8, .bf16_mul = true, .apart = true},
    {OF(2, 6, 67, 67, 32), .group = 3, .bf16 = true, .bf16_mul = true, .dropout = 0.1f},
    {OF(1, 5, 20, 4, 8), .causal = true, .group = 5}, /* queries without keys */
    {.B = 2, .H = 32, .T = 1, .S = 300, .D = 64, .causal = true, .n_keys = 77, .group = 32},
    {.B = 1, .H = 40, .T = 9, .S = 150, .D = 24, .causal = true, .n_keys = 131, .group = 20, .bf16_mul = true},
};
enum { PLAIN_SHAPES = AN_COUNT(SHAPES), ALL_SHAPES = PLAIN_SHAPES + AN_COUNT(MASKED) };

static const shape *shape_at(size_t at)
{
    return at < PLAIN_SHAPES ? &SHAPES[at] : &MASKED[at - PLAIN_SHAPES];
}

#endif
