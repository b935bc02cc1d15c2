/* trm.c: the network of trm.h as graph nodes.
 *
 *     tokens, puzzle row -> embed -> x
 *     z_H, z_L, x -> cycles of apply(layers) -> z_H -> head, q_head
 *
 * A layer is post-norm: h <- rms(h + mix(h)); h <- rms(h + swiglu(h)), where mix is attention, or a SwiGLU over positions
 * whose norm is over positions too. */
#include "models/trm/trm.h"
#include <anneal_nn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The wider of the axes that a SwiGLU runs over. */
#define WIDEST(c, L) ((c)->mlp_t && (L) > (c)->width ? (L) : (c)->width)

typedef struct swiglu {
    an_tensor *gate_up, *down; /* [2I,n], [n,I] */
} swiglu;

typedef struct layer {
    an_tensor *qkv, *o; /* [3Hd,D], [D,Hd]; NULL: mlp_t instead */
    swiglu mlp_t, mlp;
} layer;

struct an_trm {
    an_ctx *cx;
    an_trm_config c;
    an_tensor *embed, *embed_pos, *head;  /* [V,D], [L,D] or NULL, [V,D] */
    an_tensor *q_weight, *q_bias;         /* [2,D], [2] */
    an_tensor *H_init, *L_init, *puzzles; /* states: [D], [D], [puzzles,puzzle_width] or NULL */
    an_tensor *cosines, *sines;           /* constants of rotary positions, [L,1,d/2], [L,2,d/2]; NULL: none */
    layer layers[];
};

typedef enum mode { WHOLE, PREFILL, DECODE } mode;

typedef struct pass {
    an_trm *m;
    mode mode;
    an_tensor *position, *n_keys; /* i32 scalars, DECODE only */
    int64_t application;          /* of a layer, so far */
} pass;

/* ---- sizes */

int64_t an_trm_inner(double expansion, int64_t width)
{
    const int64_t n = (int64_t)nearbyint(expansion * (double)width * 2 / 3);
    return (n + 255) / 256 * 256;
}

static int64_t head_size(const an_trm_config *c)
{
    return c->width / c->heads;
}

int64_t an_trm_prefix(const an_trm_config *c)
{
    if (c->puzzle_width == 0) return 0;
    return c->puzzle_length > 0 ? c->puzzle_length : (c->puzzle_width + c->width - 1) / c->width;
}

int64_t an_trm_length(const an_trm_config *c)
{
    return an_trm_prefix(c) + c->seq;
}

static const char *fault_of_sizes(const an_trm_config *c)
{
    if (c->vocab < 2) return "the vocabulary needs two tokens";
    if (c->seq < 1) return "seq_len must be at least 1";
    if (c->width < 1 || c->width > 65536) return "hidden_size must be between 1 and 65536";
    if (c->heads < 1 || c->heads > c->width) return "num_heads must be between 1 and hidden_size";
    if (c->layers < 1 || c->layers > 256) return "L_layers must be between 1 and 256";
    if (c->H_cycles < 1 || c->L_cycles < 1 || c->H_cycles > 256 || c->L_cycles > 256)
        return "H_cycles and L_cycles must be between 1 and 256";
    if (c->steps < 1) return "halt_max_steps must be at least 1";
    if (!(c->expansion > 0 && c->expansion <= 64)) return "expansion must be above 0 and at most 64";
    if (c->puzzle_width < 0 || c->puzzle_length < 0 || c->puzzle_length > 65536)
        return "puzzle_emb_ndim and puzzle_emb_len must not be negative";
    if (c->puzzle_width > 0 && c->puzzles < 1) return "a puzzle embedding needs at least one puzzle identifier";
    return NULL;
}

const char *an_trm_fault(const an_trm_config *c)
{
    const char *fault = fault_of_sizes(c);
    if (fault) return fault;
    const int64_t L = an_trm_length(c), inner = 2 * an_trm_inner(c->expansion, WIDEST(c, L));
    if (inner < 2) return "arch.expansion leaves the MLPs no width";
    if (c->puzzle_width > an_trm_prefix(c) * c->width)
        return "puzzle_emb_ndim is more than puzzle_emb_len positions of hidden_size hold";
    if (c->mlp_t && c->causal)
        return "mlp_t mixes all positions, later ones too: a causal model would be trained on its own answers; "
               "use mlp_t=false";
    if (!c->mlp_t && c->positions == AN_TRM_ROPE && head_size(c) % 2)
        return "rotary positions need an even head size (hidden_size / num_heads, rounded down)";
    if (L > 1 << 20 || inner > INT32_MAX / WIDEST(c, L) || c->vocab > INT32_MAX / c->width ||
        (c->puzzle_width > 0 && c->puzzles > INT32_MAX / c->puzzle_width))
        return "a table of the model has more than 2^31 elements";
    return NULL;
}

/* ---- parameters */

static an_dtype wide_dtype(const an_trm *m)
{
    return m->c.dtype == AN_F64 ? AN_F64 : AN_F32;
}

static an_init truncated(double std)
{
    return AN_TRUNC_NORMAL(std);
}

static an_tensor *parameter(an_trm *m, const char *name, an_shape shape, an_init init)
{
    an_tensor *p = an_param(m->cx, name, m->c.dtype, shape, init);
    an_param_decay(p, true);
    return p;
}

static an_tensor *linear(an_trm *m, int64_t i, const char *what, int64_t out, int64_t in)
{
    char name[96];
    snprintf(name, sizeof name, "L_level.layers.%d.%s.weight", (int)i, what);
    return parameter(m, name, AN_SHAPE(out, in), truncated(1 / sqrt((double)in)));
}

static swiglu swiglu_open(an_trm *m, int64_t i, const char *what, int64_t width)
{
    char name[64];
    const int64_t inner = an_trm_inner(m->c.expansion, width);
    swiglu s;
    snprintf(name, sizeof name, "%s.gate_up_proj", what);
    s.gate_up = linear(m, i, name, 2 * inner, width);
    snprintf(name, sizeof name, "%s.down_proj", what);
    s.down = linear(m, i, name, width, inner);
    return s;
}

static layer layer_open(an_trm *m, int64_t i)
{
    const int64_t D = m->c.width, Hd = m->c.heads * head_size(&m->c);
    layer l = {0};
    if (m->c.mlp_t) {
        l.mlp_t = swiglu_open(m, i, "mlp_t", an_trm_length(&m->c));
    } else {
        l.qkv = linear(m, i, "self_attn.qkv_proj", 3 * Hd, D);
        l.o = linear(m, i, "self_attn.o_proj", D, Hd);
    }
    l.mlp = swiglu_open(m, i, "mlp", D);
    return l;
}

/* A table of an_constant, of `n` angles at each position: cosines, or sines with both signs. The angle of pair j at
 * position t is t * theta^(-2j/d) (Su et al., "RoFormer", 2021). NULL: no memory. */
static an_tensor *rotation(an_trm *m, bool sine)
{
    const int64_t L = an_trm_length(&m->c), half = head_size(&m->c) / 2, n = sine ? 2 : 1;
    const bool wide = wide_dtype(m) == AN_F64;
    const double step = -log(m->c.rope_theta) / (double)half;
    double *d = malloc((size_t)(L * n * half) * sizeof *d);
    float *f = (float *)d;
    if (!d) return NULL;
    for (int64_t i = 0; i < L * n * half; i++) {
        const double angle = (double)(i / half / n) * exp((double)(i % half) * step);
        const double value = sine ? sin(angle) * (i / half % 2 ? 1 : -1) : cos(angle);
        if (wide)
            d[i] = value;
        else
            f[i] = (float)value;
    }
    an_tensor *table = an_constant(m->cx, wide_dtype(m), AN_SHAPE(L, n, half), d);
    free(d);
    return table;
}

static bool open_rotations(an_trm *m)
{
    if (m->c.mlp_t || m->c.positions != AN_TRM_ROPE) return true;
    m->cosines = rotation(m, false);
    m->sines = rotation(m, true);
    return m->cosines && m->sines;
}

static void open_all(an_trm *m)
{
    const an_trm_config *c = &m->c;
    const int64_t D = c->width;
    const double std = 1 / sqrt((double)D);
    m->embed = parameter(m, "embed_tokens.embedding_weight", AN_SHAPE(c->vocab, D), truncated(std));
    m->head = c->tie_head ? m->embed : parameter(m, "lm_head.weight", AN_SHAPE(c->vocab, D), truncated(std));
    if (c->positions == AN_TRM_LEARNED)
        m->embed_pos = parameter(m, "embed_pos.embedding_weight", AN_SHAPE(an_trm_length(c), D), truncated(std));
    if (!c->causal) {
        m->q_weight = parameter(m, "q_head.weight", AN_SHAPE(2, D), AN_ZEROS);
        m->q_bias = parameter(m, "q_head.bias", AN_SHAPE(2), AN_FILL(-5));
    }
    for (int64_t i = 0; i < c->layers; i++) m->layers[i] = layer_open(m, i);
    m->H_init = an_state(m->cx, "H_init", c->dtype, AN_SHAPE(D), truncated(1));
    m->L_init = an_state(m->cx, "L_init", c->dtype, AN_SHAPE(D), truncated(1));
    if (c->puzzle_width > 0)
        m->puzzles = an_state(m->cx, "puzzle_emb.weights", c->dtype, AN_SHAPE(c->puzzles, c->puzzle_width), AN_ZEROS);
}

an_trm *an_trm_open(an_ctx *cx, const an_trm_config *c)
{
    if (an_trm_fault(c)) return NULL;
    an_trm *m = calloc(1, sizeof *m + (size_t)c->layers * sizeof m->layers[0]);
    if (!m) return NULL;
    m->cx = cx;
    m->c = *c;
    if (!open_rotations(m)) {
        free(m);
        return NULL;
    }
    open_all(m);
    return m;
}

void an_trm_close(an_trm *m)
{
    free(m);
}

const an_trm_config *an_trm_config_of(const an_trm *m)
{
    return &m->c;
}

an_ctx *an_trm_context(const an_trm *m)
{
    return m->cx;
}

an_tensor *an_trm_puzzle_table(const an_trm *m)
{
    return m->puzzles;
}

an_tensor *an_trm_head(const an_trm *m)
{
    return m->head;
}

an_dtype an_trm_stream_dtype(const an_trm *m)
{
    return m->c.dtype == AN_F64 ? AN_F64 : an_get_policy(m->cx).matmul;
}

/* ---- layers */

/* x [L,B,D]: SwiGLU over the positions of each column. Weights are the left operands and positions the outermost axis, so
 * that a product is one GEMM of [2I,L] x [L,B D], and so is its weights' gradient, summed over the batch; no activation is
 * transposed. A library's fast GEMMs want whole 16 bytes along contiguous axes, which 97 positions are not: the 16-bit copy
 * of [2I,L] is stored as [L,2I], and its gradient with it. */
static an_tensor *mix_positions(const an_trm *m, const swiglu *s, an_tensor *x)
{
    const an_dtype stream = an_trm_stream_dtype(m);
    const an_shape shape = an_shape_of(x);
    an_tensor *gate_up = an_transpose(an_cast(an_transpose(s->gate_up, 0, 1), stream), 0, 1);
    an_tensor *all = an_reshape(an_cast(x, stream), AN_SHAPE(shape.dim[0], shape.dim[1] * shape.dim[2]));
    an_tensor *inside = an_swiglu_columns(gate_up, all); /* [I,B D] */
    return an_reshape(an_matmul(an_cast(s->down, stream), inside), shape);
}

/* rms(x + y) over the last axis, in x's dtype. */
static an_tensor *add_and_norm(const an_trm *m, an_tensor *x, an_tensor *y)
{
    return an_rms_norm(an_add(x, an_cast(y, an_dtype_of(x))), NULL, m->c.norm_eps);
}

/* Row n of the tables of rotary positions that `x` [B,T,...] needs, [T,1,1,n,d/2]: all T first ones, or that of
 * p->position. */
static an_tensor *table_rows(const pass *p, an_tensor *table, int64_t T)
{
    const an_shape s = an_shape_of(table); /* [L,n,d/2] */
    an_tensor *rows =
        p->mode == DECODE ? an_gather(table, an_reshape(p->position, AN_SHAPE(1))) : an_slice(table, 0, 0, T);
    return an_reshape(rows, AN_SHAPE(T, 1, 1, s.dim[1], s.dim[2]));
}

/* x [B,T,n,H,d]: each pair (j, j + d/2) rotated by its position's angle. Flipping the halves and a sign make the second
 * term a view. */
static an_tensor *rotate(const pass *p, an_tensor *x)
{
    const an_trm *m = p->m;
    const an_shape s = an_shape_of(x);
    const int64_t B = s.dim[0], T = s.dim[1], n = s.dim[2], H = s.dim[3], half = s.dim[4] / 2;
    an_tensor *halves = an_cast(an_reshape(x, AN_SHAPE(B, T, n, H, 2, half)), wide_dtype(m)); /* [B,T,n,H,2,d/2] */
    an_tensor *sines = table_rows(p, m->sines, T), *crossed = an_mul(an_flip(halves, AN_AXIS(4)), sines);
    an_tensor *rotated = an_add(an_mul(halves, table_rows(p, m->cosines, T)), crossed);
    return an_cast(an_reshape(rotated, s), an_dtype_of(x));
}

/* The keys or values (`which`) that attention reads, through the key-value cache of this layer. A prefill writes the cache
 * and attends to `fresh` itself; decoding attends to the whole cache, with its row replaced by `fresh`. */
static an_tensor *cached(const pass *p, const char *which, an_tensor *fresh)
{
    const an_trm *m = p->m;
    const an_shape s = an_shape_of(fresh);
    const int64_t S = m->c.seq, T = s.dim[2];
    char name[48];
    snprintf(name, sizeof name, "kv.%d.%s", (int)p->application, which);
    const an_shape shape = AN_SHAPE(1, s.dim[1], S, s.dim[3]);
    an_tensor *cache = an_state(m->cx, name, an_dtype_of(fresh), shape, AN_ZEROS);
    if (p->mode == PREFILL) {
        an_assign(cache, an_pad(fresh, 2, 0, S - T, 0));
        return fresh;
    }
    an_tensor *here = an_eq(an_iota(m->cx, AN_SHAPE(1, 1, S, 1), 2), p->position); /* bool [1,1,S,1] */
    an_tensor *rows = an_expand(fresh, shape), *value = an_where(an_expand(here, shape), rows, cache);
    an_assign(cache, value);
    return value;
}

static an_tensor *attention(const pass *p, const layer *l, an_tensor *x)
{
    const an_trm *m = p->m;
    const an_shape s = an_shape_of(x);
    const int64_t B = s.dim[0], T = s.dim[1], H = m->c.heads, d = head_size(&m->c);
    an_tensor *qkv = an_reshape(an_linear(x, l->qkv, NULL), AN_SHAPE(B, T, 3, H, d));
    an_tensor *qk = an_slice(qkv, 2, 0, 2), *v = an_slice(qkv, 2, 2, 3); /* [B,T,2,H,d], [B,T,1,H,d] */
    if (m->c.positions == AN_TRM_ROPE) qk = rotate(p, qk);
    an_tensor *part[3];
    for (int i = 0; i < 3; i++) {
        an_tensor *one = i == 2 ? v : an_slice(qk, 2, i, i + 1);
        part[i] = an_permute(an_reshape(one, AN_SHAPE(B, T, H, d)), AN_SHAPE(0, 2, 1, 3)); /* [B,H,T,d] */
    }
    if (p->mode != WHOLE) {
        part[1] = cached(p, "k", part[1]);
        part[2] = cached(p, "v", part[2]);
    }
    an_tensor *y = an_attention_at(AN_AT, part[0], part[1], part[2], 0.0, m->c.causal, 0.0, p->n_keys);
    return an_linear(an_reshape(an_permute(y, AN_SHAPE(0, 2, 1, 3)), AN_SHAPE(B, T, H * d)), l->o, NULL);
}

/* h [B,T,D], of a mixer [T,B,D]: the layers applied to h + inject. */
static an_tensor *apply(pass *p, an_tensor *h, an_tensor *inject)
{
    an_trm *m = p->m;
    char scope[32];
    h = an_add(h, inject);
    for (int64_t i = 0; i < m->c.layers; i++, p->application++) {
        const layer *l = &m->layers[i];
        snprintf(scope, sizeof scope, "layers.%d", (int)i);
        an_scope_push(m->cx, scope);
        if (m->c.mlp_t) {
            an_tensor *mixed = an_add(h, an_cast(mix_positions(m, &l->mlp_t, h), an_dtype_of(h)));
            h = an_rms_norm_axis(mixed, 0, m->c.norm_eps);
        } else {
            h = add_and_norm(m, h, attention(p, l, h));
        }
        h = add_and_norm(m, h, an_swiglu(h, l->mlp.gate_up, l->mlp.down));
        an_scope_pop(m->cx);
    }
    return h;
}

static an_trm_state cycle(pass *p, an_trm_state z, an_tensor *x)
{
    for (int64_t i = 0; i < p->m->c.L_cycles; i++) z.z_L = apply(p, z.z_L, an_add(z.z_H, x));
    z.z_H = apply(p, z.z_H, z.z_L);
    return z;
}

static an_trm_state call(pass *p, an_trm_state z, an_tensor *x)
{
    for (int64_t i = 0; i < p->m->c.H_cycles; i++) {
        z.z_H = an_detach(z.z_H);
        z.z_L = an_detach(z.z_L);
        z = cycle(p, z, x);
    }
    return z;
}

/* Between [B,L,D], which callers have, and [L,B,D], in which a mixer works. */
static an_tensor *positions_outermost(const an_trm *m, an_tensor *x)
{
    return m->c.mlp_t ? an_transpose(x, 0, 1) : x;
}

static an_trm_state positions_outermost_of(const an_trm *m, an_trm_state z)
{
    z.z_H = positions_outermost(m, z.z_H);
    z.z_L = positions_outermost(m, z.z_L);
    return z;
}

an_trm_state an_trm_call(an_trm *m, an_trm_state z, an_tensor *x)
{
    pass p = {.m = m, .mode = WHOLE};
    an_scope_push(m->cx, "trm");
    x = positions_outermost(m, x);
    z = positions_outermost_of(m, z);
    z = call(&p, z, x);
    z = positions_outermost_of(m, z); /* and back */
    an_scope_pop(m->cx);
    return z;
}

an_trm_state an_trm_initial(an_trm *m)
{
    const an_dtype stream = an_trm_stream_dtype(m);
    const an_shape one = AN_SHAPE(1, 1, m->c.width);
    return (an_trm_state){an_cast(an_reshape(m->H_init, one), stream), an_cast(an_reshape(m->L_init, one), stream)};
}

/* ---- embedding and heads */

/* rows [B,puzzle_width], padded with zeros to P positions: [B,P,D]. */
static an_tensor *prefix(const an_trm *m, an_tensor *rows, int64_t B)
{
    const int64_t P = an_trm_prefix(&m->c), D = m->c.width;
    if (!rows) return an_full(m->cx, m->c.dtype, AN_SHAPE(B, P, D), 0);
    const int64_t more = P * D - m->c.puzzle_width;
    an_tensor *wide = more > 0 ? an_pad(rows, 1, 0, more, 0) : rows;
    return an_reshape(wide, AN_SHAPE(B, P, D));
}

static an_tensor *embed(const pass *p, an_tensor *tokens, an_tensor *rows)
{
    an_trm *m = p->m;
    const an_shape s = an_shape_of(tokens);
    const int64_t P = an_trm_prefix(&m->c);
    an_tensor *x = an_gather(m->embed, tokens); /* [B,T,D] */
    if (P > 0) x = an_concat(((an_tensor *[]){prefix(m, rows, s.dim[0]), x}), 2, 1);
    if (m->embed_pos) {
        an_tensor *at = p->mode == DECODE ? an_gather(m->embed_pos, an_reshape(p->position, AN_SHAPE(1)))
                                          : an_slice(m->embed_pos, 0, 0, P + s.dim[1]);
        x = an_mul_num(an_add(x, at), sqrt(0.5));
    }
    const double scale = sqrt((double)m->c.width);
    x = an_mul_num(x, scale);
    return an_cast(x, an_trm_stream_dtype(m));
}

an_tensor *an_trm_embed(an_trm *m, an_tensor *tokens, an_tensor *rows)
{
    const pass p = {.m = m, .mode = WHOLE};
    an_scope_push(m->cx, "trm");
    an_tensor *x = embed(&p, tokens, rows);
    an_scope_pop(m->cx);
    return x;
}

an_tensor *an_trm_answer(an_trm *m, an_tensor *z_H)
{
    const int64_t P = an_trm_prefix(&m->c);
    return P > 0 ? an_slice(z_H, 1, P, an_shape_of(z_H).dim[1]) : z_H;
}

an_tensor *an_trm_logits(an_trm *m, an_tensor *z_H)
{
    return an_cast(an_linear(an_trm_answer(m, z_H), m->head, NULL), wide_dtype(m));
}

an_tensor *an_trm_q(an_trm *m, an_tensor *z_H)
{
    const int64_t B = an_shape_of(z_H).dim[0];
    an_tensor *first = an_reshape(an_slice(z_H, 1, 0, 1), AN_SHAPE(B, m->c.width)); /* [B,D] */
    return an_cast(an_linear(first, m->q_weight, m->q_bias), wide_dtype(m));
}

/* ---- decoding */

/* The answer for `tokens` [1,T] after all supervision steps, [1,T,D]. */
static an_tensor *answer_with_cache(pass *p, an_tensor *tokens)
{
    an_trm *m = p->m;
    const an_trm_state initial = an_trm_initial(m);
    const an_shape shape = AN_SHAPE(1, an_shape_of(tokens).dim[1], m->c.width);
    an_trm_state z = {an_expand(initial.z_H, shape), an_expand(initial.z_L, shape)};
    an_tensor *x = embed(p, tokens, NULL);
    for (int64_t i = 0; i < m->c.steps; i++) z = call(p, z, x);
    return z.z_H;
}

static an_tensor *last_logits(an_trm *m, an_tensor *row)
{
    an_tensor *logits = an_linear(an_reshape(row, AN_SHAPE(1, m->c.width)), m->head, NULL); /* [1,V] */
    return an_reshape(an_cast(logits, AN_F32), AN_SHAPE(m->c.vocab));
}

an_tensor *an_trm_prefill(an_trm *m, an_tensor *tokens, an_tensor *last)
{
    pass p = {.m = m, .mode = PREFILL};
    an_scope_push(m->cx, "trm");
    an_tensor *z = answer_with_cache(&p, tokens); /* [1,P,D] */
    an_tensor *rows = an_reshape(z, AN_SHAPE(an_shape_of(tokens).dim[1], m->c.width));
    an_tensor *logits = last_logits(m, an_gather(rows, an_reshape(last, AN_SHAPE(1))));
    an_scope_pop(m->cx);
    return logits;
}

an_tensor *an_trm_decode(an_trm *m, an_tensor *token, an_tensor *position, an_tensor *n_keys)
{
    pass p = {.m = m, .mode = DECODE, .position = position, .n_keys = n_keys};
    an_scope_push(m->cx, "trm");
    an_tensor *logits = last_logits(m, answer_with_cache(&p, token));
    an_scope_pop(m->cx);
    return logits;
}

/* ---- counts */

static int64_t swiglu_elements(const an_trm_config *c, int64_t width)
{
    return 3 * an_trm_inner(c->expansion, width) * width;
}

int64_t an_trm_parameters(const an_trm_config *c)
{
    const int64_t D = c->width, L = an_trm_length(c), Hd = c->heads * head_size(c);
    const int64_t mix = c->mlp_t ? swiglu_elements(c, L) : 4 * Hd * D;
    int64_t n = c->layers * (mix + swiglu_elements(c, D)) + (c->tie_head ? 1 : 2) * c->vocab * D;
    if (c->positions == AN_TRM_LEARNED) n += L * D;
    return n + (c->causal ? 0 : 2 * D + 2);
}

int64_t an_trm_largest(const an_trm_config *c)
{
    const int64_t L = an_trm_length(c), widest = WIDEST(c, L);
    const int64_t glu = 2 * an_trm_inner(c->expansion, widest) * widest;
    const int64_t table = c->puzzle_width * c->puzzles, tokens = c->vocab * c->width;
    const int64_t most = glu > table ? glu : table;
    return most > tokens ? most : tokens;
}

double an_trm_call_flops(const an_trm_config *c)
{
    const double D = (double)c->width, L = (double)an_trm_length(c), Hd = (double)(c->heads * head_size(c));
    const double mix = c->mlp_t ? (double)swiglu_elements(c, an_trm_length(c)) * D : 4 * Hd * D * L + 2 * L * L * Hd;
    const double a_layer = mix + (double)swiglu_elements(c, c->width) * L;
    const double applications = (double)(c->H_cycles * (c->L_cycles + 1) * c->layers);
    return 2 * (applications * a_layer + (double)c->vocab * D * (double)c->seq);
}
