/* rotated_case.h: attention of which q and k have rotary positions, as TRM's graph builds it, and its gradient. */
#ifndef AN_ROTATED_CASE_H
#define AN_ROTATED_CASE_H

#include <anneal.h>
#include <math.h>

enum { ROTATED_B = 34, ROTATED_H = 8, ROTATED_T = 97, ROTATED_D = 64, ROTATED_IN = 64, N_ROTATED = 3 };

/* ROTATED, or what only looks like it. */
typedef enum rotated_how {
    ROTATED,
    SEEN,     /* what is rotated is wanted itself */
    ONE_SIGN, /* both halves of a head by one sine */
    SCALED,   /* and doubled */
    V_APART,  /* rotated, and v is rows of another product, which lie on 16 bytes; no gradient is wanted */
    V_UNEVEN  /* the same with rows that do not */
} rotated_how;

typedef struct rotated_shape {
    int64_t B, H, T, D; /* T D up to ROTATED_TABLE */
    an_dtype dtype;
    bool causal;
    double dropout;
} rotated_shape;

enum { ROTATED_TABLE = 16384 };

/* o (SEEN: q and k), and the gradients of x and w, where q, k and v are x w^T (where v is apart, o and the rest of v's rows). n: their elements, not where v is apart. */
static inline void rotated_graph(an_ctx *cx, rotated_how how, const rotated_shape *s, an_tensor *want[N_ROTATED],
                                 int64_t n[N_ROTATED])
{
    const int64_t B = s->B, H = s->H, T = s->T, D = s->D, HALF = D / 2;
    const an_dtype dtype = s->dtype;
    static float cosines[ROTATED_TABLE / 2], sines[ROTATED_TABLE];
    const int64_t parts = how >= V_APART ? 2 : 3;
    an_tensor *x = an_param(cx, "x", AN_F32, AN_SHAPE(B * T, ROTATED_IN), AN_NORMAL(1)),
              *w = an_param(cx, "w", AN_F32, AN_SHAPE(parts * H * D, ROTATED_IN), AN_NORMAL(0.125)),
              *z = an_param(cx, "z", AN_F32, AN_SHAPE(B, H, T, D), AN_NORMAL(1));
    for (int64_t t = 0; t < T; t++)
        for (int64_t j = 0; j < HALF; j++) {
            const double angle = (double)t * pow(10000, -(double)j / (double)HALF);
            cosines[t * HALF + j] = (float)cos(angle);
            sines[t * D + j] = (float)-sin(angle);
            sines[t * D + HALF + j] = (float)sin(angle);
        }
    an_tensor *co = an_reshape(an_constant(cx, AN_F32, AN_SHAPE(T, 1, HALF), cosines), AN_SHAPE(T, 1, 1, 1, HALF)),
              *si = an_reshape(an_constant(cx, AN_F32, AN_SHAPE(T, 2, HALF), sines), AN_SHAPE(T, 1, 1, 2, HALF));
    if (how == ONE_SIGN) si = an_slice(si, 3, 0, 1);
    an_tensor *qkv = an_reshape(an_linear(an_cast(x, dtype), an_cast(w, dtype), NULL), AN_SHAPE(B, T, parts, H, D));
    an_tensor *halves = an_cast(an_reshape(an_slice(qkv, 2, 0, 2), AN_SHAPE(B, T, 2, H, 2, HALF)), AN_F32);
    an_tensor *turned = an_add(an_mul(halves, co), an_mul(an_flip(halves, AN_AXIS(4)), si));
    if (how == SCALED) turned = an_mul_num(turned, 2);
    an_tensor *qk = an_cast(an_reshape(turned, AN_SHAPE(B, T, 2, H, D)), dtype), *part[3], *rest = NULL;
    for (int i = 0; i < 3; i++) {
        an_tensor *one = i == 2 ? an_slice(qkv, 2, parts - 1, parts) : an_slice(qk, 2, i, i + 1);
        if (i == 2 && how >= V_APART) {
            const int64_t columns = H * D + (how == V_APART ? 8 : 4);
            an_tensor *u = an_param(cx, "u", AN_F32, AN_SHAPE(columns, ROTATED_IN), AN_NORMAL(0.125)),
                      *all = an_reshape(an_linear(an_cast(x, dtype), an_cast(u, dtype), NULL), AN_SHAPE(B, T, columns));
            one = an_slice(all, 2, 0, H * D);
            rest = an_cast(an_slice(all, 2, H * D, columns), AN_F32);
        }
        part[i] = an_permute(an_reshape(one, AN_SHAPE(B, T, H, D)), AN_SHAPE(0, 2, 1, 3));
    }
    an_tensor *o = an_attention(part[0], part[1], part[2], 0, s->causal, s->dropout);
    if (rest) {
        want[0] = an_cast(o, AN_F32), want[1] = want[2] = rest;
        return;
    }
    an_backward(an_sum(an_mul(an_cast(o, AN_F32), z), AN_ALL));
    want[0] = how == SEEN ? qk : an_cast(o, AN_F32), want[1] = an_grad(x), want[2] = an_grad(w);
    n[0] = (1 + (how == SEEN)) * B * H * T * D, n[1] = B * T * ROTATED_IN, n[2] = 3 * H * D * ROTATED_IN;
}

static inline void rotated_case(an_ctx *cx, rotated_how how, an_tensor *want[N_ROTATED], int64_t n[N_ROTATED])
{
    rotated_graph(cx, how, &(rotated_shape){ROTATED_B, ROTATED_H, ROTATED_T, ROTATED_D, AN_BF16, false, 0}, want, n);
}

#endif
