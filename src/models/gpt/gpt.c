/* gpt.c: the layers of GPT-2 as graph nodes (attention and its KV cache, MLP, tied head), in the order in which a token passes through them (see gpt.h).
 *
 *     tokens -> wte + wpe -> [x += attn(ln_1(x)); x += mlp(ln_2(x))] * layers -> ln_f -> wte^T -> logits
 *
 * Invariants: parameters are f32 and named as in nanoGPT's state_dict; lm_head.weight is transformer.wte.weight (tied
 * weights) and stored once. The residual stream is f32 [B,T,C]; under a mixed-precision policy a linear layer's result
 * is cast back before it is added to the stream.
 */
#include "models/gpt/gpt.h"
#include <stdio.h>
#include <stdlib.h>
#include <math.h>

typedef struct norm {
    an_tensor *gain, *bias; /* [C]; bias may be NULL */
} norm;

typedef struct linear {
    an_tensor *weight, *bias; /* [out,in], [out]; bias may be NULL */
} linear;

typedef struct block {
    norm ln_1, ln_2;
    linear c_attn, attn_proj; /* [3C,C], [C,C] */
    linear c_fc, mlp_proj;    /* [4C,C], [C,4C] */
} block;

struct an_gpt {
    an_ctx *cx;
    an_gpt_config c;
    an_tensor *wte, *wpe; /* [V,C], [S,C] */
    norm ln_f;
    block h[]; /* [layers] */
};

/* How this pass treats dropout and the cache. */
typedef enum mode { EVALUATE, TRAIN, PREFILL, DECODE } mode;

typedef struct pass {
    an_gpt *m;
    mode mode;
    an_tensor *position, *n_keys; /* i32 scalars, DECODE only */
} pass;

/* ---- parameters */

static an_tensor *parameter(an_ctx *cx, const char *owner, const char *what, an_shape shape, an_init init)
{
    char name[128];
    snprintf(name, sizeof name, "transformer.%s.%s", owner, what);
    return an_param(cx, name, AN_F32, shape, init);
}

static norm norm_open(an_gpt *m, const char *owner)
{
    an_shape shape = AN_SHAPE(m->c.width);
    return (norm){.gain = parameter(m->cx, owner, "weight", shape, AN_ONES),
                  .bias = m->c.bias ? parameter(m->cx, owner, "bias", shape, AN_ZEROS) : NULL};
}

static linear linear_open(an_gpt *m, const char *owner, int64_t out, int64_t in, double std)
{
    return (linear){.weight = parameter(m->cx, owner, "weight", AN_SHAPE(out, in), AN_NORMAL(std)),
                    .bias = m->c.bias ? parameter(m->cx, owner, "bias", AN_SHAPE(out), AN_ZEROS) : NULL};
}

/* The two layers that write to the residual stream are initialized with a smaller deviation, so that the stream's
 * variance does not grow with the number of layers. */
static block block_open(an_gpt *m, int64_t i)
{
    char owner[64];
    const int64_t C = m->c.width;
    const double std = 0.02, residual_std = 0.02 / sqrt(2.0 * (double)m->c.layers);
    block b;
#define OWNER(part) (snprintf(owner, sizeof owner, "h.%d.%s", (int)i, part), owner)
    b.ln_1 = norm_open(m, OWNER("ln_1"));
    b.c_attn = linear_open(m, OWNER("attn.c_attn"), 3 * C, C, std);
    b.attn_proj = linear_open(m, OWNER("attn.c_proj"), C, C, residual_std);
    b.ln_2 = norm_open(m, OWNER("ln_2"));
    b.c_fc = linear_open(m, OWNER("mlp.c_fc"), 4 * C, C, std);
    b.mlp_proj = linear_open(m, OWNER("mlp.c_proj"), C, 4 * C, residual_std);
#undef OWNER
    return b;
}

const char *an_gpt_fault(const an_gpt_config *c)
{
    if (c->vocab < 1) return "the vocabulary is empty";
    if (c->block < 1) return "block_size must be at least 1";
    if (c->layers < 1 || c->layers > 4096) return "n_layer must be between 1 and 4096";
    if (c->heads < 1 || c->width < 1 || c->width % c->heads) return "n_embd must be a multiple of n_head";
    if (!(c->dropout >= 0 && c->dropout < 1)) return "dropout must be in [0, 1)";
    if (c->vocab > INT32_MAX / c->width || c->block > INT32_MAX / c->width || c->width > 65536)
        return "a table of the model has more than 2^31 elements";
    return NULL;
}

an_gpt *an_gpt_open(an_ctx *cx, const an_gpt_config *c)
{
    if (an_gpt_fault(c)) return NULL;
    an_gpt *m = calloc(1, sizeof *m + (size_t)c->layers * sizeof m->h[0]);
    if (!m) return NULL;
    m->cx = cx;
    m->c = *c;
    m->wte = parameter(cx, "wte", "weight", AN_SHAPE(c->vocab, c->width), AN_NORMAL(0.02));
    m->wpe = parameter(cx, "wpe", "weight", AN_SHAPE(c->block, c->width), AN_NORMAL(0.02));
    for (int64_t i = 0; i < c->layers; i++) m->h[i] = block_open(m, i);
    m->ln_f = norm_open(m, "ln_f");
    return m;
}

void an_gpt_close(an_gpt *m)
{
    free(m);
}

const an_gpt_config *an_gpt_config_of(const an_gpt *m)
{
    return &m->c;
}

/* ---- one block */

static an_tensor *apply_norm(norm n, an_tensor *x)
{
    return an_layer_norm(x, n.gain, n.bias, 1e-5);
}
static an_tensor *apply_linear(linear l, an_tensor *x)
{
    return an_linear(x, l.weight, l.bias);
}

static an_tensor *drop(const pass *p, an_tensor *x)
{
    return p->mode == TRAIN && p->m->c.dropout > 0 ? an_dropout(x, p->m->c.dropout) : x;
}

/* x + y: the stream x is f32, y [B,T,C] has the mixed-precision policy's dtype. */
static an_tensor *add_to_stream(an_tensor *x, an_tensor *y)
{
    return an_add(x, an_cast(y, AN_F32));
}

/* [B,T,C] of qkv [B,T,3C]; `which` is 0 for q, 1 for k, 2 for v. */
static an_tensor *third_of(const an_gpt *m, an_tensor *qkv, int which)
{
    return an_slice(qkv, 2, which * m->c.width, (which + 1) * m->c.width);
}

/* A view of x [B,T,C] as heads [B,H,T,D]. */
static an_tensor *heads(const an_gpt *m, an_tensor *x)
{
    const an_shape s = an_shape_of(x);
    an_tensor *split = an_reshape(x, AN_SHAPE(s.dim[0], s.dim[1], m->c.heads, m->c.width / m->c.heads)); /* [B,T,H,D] */
    return an_permute(split, AN_SHAPE(0, 2, 1, 3));                                                      /* [B,H,T,D] */
}

/* Writes `fresh` (keys or values [B,T,C]) into the layer's KV cache and returns what attention reads. A prefill reads
 * `fresh` itself; decoding reads the full cache [B,S,C] with the fresh row at `position`. The planner
 * (planner/row_updates.c) recognizes assign(cache, where(row == position, fresh, cache)) and updates that row in place.
 * Attention reads float16 as float32 (an_attention): what a float16 cache saves, each token would pay for in casting
 * all of it. */
static an_tensor *update_kv_cache(const pass *p, int64_t layer, const char *which, an_tensor *fresh)
{
    const an_gpt *m = p->m;
    const int64_t B = an_shape_of(fresh).dim[0], T = an_shape_of(fresh).dim[1], S = m->c.block;
    char name[64];
    if (B == 1)
        snprintf(name, sizeof name, "kv.h.%d.%s", (int)layer, which);
    else /* of so many texts at a time */
        snprintf(name, sizeof name, "kv%d.h.%d.%s", (int)B, (int)layer, which);
    if (an_dtype_of(fresh) == AN_F16) fresh = an_cast(fresh, AN_F32);
    const an_shape shape = AN_SHAPE(B, S, m->c.width);
    an_tensor *cache = an_state(m->cx, name, an_dtype_of(fresh), shape, AN_ZEROS);
    if (p->mode == PREFILL) {
        an_assign(cache, T < S ? an_pad(fresh, 1, 0, S - T, 0.0) : fresh);
        return fresh;
    }
    an_tensor *here = an_eq(an_iota(m->cx, AN_SHAPE(1, S, 1), 1), p->position); /* bool [1,S,1]: true in one row */
    an_tensor *rows = an_expand(fresh, shape), *value = an_where(an_expand(here, shape), rows, cache);
    an_assign(cache, value);
    return value;
}

static an_tensor *attention(const pass *p, int64_t layer, an_tensor *x)
{
    const an_gpt *m = p->m;
    const block *b = &m->h[layer];
    const bool cached = p->mode == PREFILL || p->mode == DECODE;
    an_tensor *qkv = apply_linear(b->c_attn, x); /* [B,T,3C] */
    an_tensor *q = heads(m, third_of(m, qkv, 0)), *k = third_of(m, qkv, 1);
    k = heads(m, cached ? update_kv_cache(p, layer, "k", k) : k);
    an_tensor *v = third_of(m, qkv, 2);
    v = heads(m, cached ? update_kv_cache(p, layer, "v", v) : v);
    const double dropout = p->mode == TRAIN ? m->c.dropout : 0.0;
    an_tensor *y = an_attention_at(AN_AT, q, k, v, 0.0, true, dropout, p->n_keys); /* [B,H,T,D] */
    const an_shape s = an_shape_of(x);
    an_tensor *joined = an_reshape(an_permute(y, AN_SHAPE(0, 2, 1, 3)), AN_SHAPE(s.dim[0], s.dim[1], m->c.width));
    return drop(p, apply_linear(b->attn_proj, joined)); /* [B,T,C] */
}

static an_tensor *mlp(const pass *p, const block *b, an_tensor *x)
{
    an_tensor *wide = apply_linear(b->c_fc, x); /* [B,T,4C] */
    wide = p->m->c.gelu_tanh ? an_gelu_tanh(wide) : an_gelu(wide);
    return drop(p, apply_linear(b->mlp_proj, wide)); /* [B,T,C] */
}

/* ---- the model: losses, logits, prefill, decode */

/* Rows of the position table for this pass: [T,C], or [1,C] at the decoded position. */
static an_tensor *positions(const pass *p, int64_t T)
{
    if (p->mode == DECODE) return an_gather(p->m->wpe, an_reshape(p->position, AN_SHAPE(1)));
    return T < p->m->c.block ? an_slice(p->m->wpe, 0, 0, T) : p->m->wpe;
}

/* The residual stream before the final norm, f32 [B,T,C], of tokens [B,T]. */
static an_tensor *stream(const pass *p, an_tensor *tokens)
{
    an_gpt *m = p->m;
    const int64_t T = an_shape_of(tokens).dim[1];
    an_tensor *where = positions(p, T), *x = drop(p, an_add(an_gather(m->wte, tokens), where));
    for (int64_t i = 0; i < m->c.layers; i++) {
        char scope[32];
        snprintf(scope, sizeof scope, "h.%d", (int)i);
        an_scope_push(m->cx, scope);
        an_scope_push(m->cx, "attn");
        x = add_to_stream(x, attention(p, i, apply_norm(m->h[i].ln_1, x)));
        an_scope_pop(m->cx);
        an_scope_push(m->cx, "mlp");
        x = add_to_stream(x, mlp(p, &m->h[i], apply_norm(m->h[i].ln_2, x)));
        an_scope_pop(m->cx);
        an_scope_pop(m->cx);
    }
    return x;
}

an_tensor *an_gpt_losses(an_gpt *m, an_tensor *tokens, an_tensor *labels, bool training)
{
    const pass p = {.m = m, .mode = training ? TRAIN : EVALUATE};
    an_scope_push(m->cx, "gpt");
    an_tensor *x = apply_norm(m->ln_f, stream(&p, tokens));         /* [B,T,C] */
    an_tensor *losses = an_linear_cross_entropy(x, m->wte, labels); /* [B,T] */
    an_scope_pop(m->cx);
    return losses;
}

static an_tensor *head(an_gpt *m, an_tensor *x)
{
    return an_cast(an_linear(apply_norm(m->ln_f, x), m->wte, NULL), AN_F32); /* [...,V] */
}

an_tensor *an_gpt_logits(an_gpt *m, an_tensor *tokens)
{
    const pass p = {.m = m, .mode = EVALUATE};
    an_scope_push(m->cx, "gpt");
    an_tensor *logits = head(m, stream(&p, tokens)); /* [B,T,V] */
    an_scope_pop(m->cx);
    return logits;
}

/* [V], or [B,V] of several texts. */
static an_tensor *next_logits(an_gpt *m, an_tensor *x, int64_t B)
{
    an_tensor *logits = head(m, x);
    return B == 1 ? an_reshape(logits, AN_SHAPE(m->c.vocab)) : an_reshape(logits, AN_SHAPE(B, m->c.vocab));
}

an_tensor *an_gpt_prefill(an_gpt *m, an_tensor *tokens, an_tensor *last)
{
    const pass p = {.m = m, .mode = PREFILL};
    const int64_t B = an_shape_of(tokens).dim[0], P = an_shape_of(tokens).dim[1];
    an_scope_push(m->cx, "gpt");
    an_tensor *x = stream(&p, tokens);                            /* [B,P,C] */
    an_tensor *rows = an_reshape(x, AN_SHAPE(B * P, m->c.width)); /* [B P,C] */
    an_tensor *at = an_reshape(last, AN_SHAPE(1));
    if (B > 1) { /* row b P + last of each text b */
        an_tensor *texts = an_iota(m->cx, AN_SHAPE(B), 0), *apart = an_full(m->cx, AN_I32, AN_SHAPE(B), (double)P),
                  *first = an_mul(texts, apart), *lasts = an_expand(at, AN_SHAPE(B));
        at = an_add(first, lasts);
    }
    an_tensor *logits = next_logits(m, an_gather(rows, at), B);
    an_scope_pop(m->cx);
    return logits;
}

an_tensor *an_gpt_decode(an_gpt *m, an_tensor *token, an_tensor *position, an_tensor *n_keys)
{
    const pass p = {.m = m, .mode = DECODE, .position = position, .n_keys = n_keys};
    an_scope_push(m->cx, "gpt");
    an_tensor *logits = next_logits(m, stream(&p, token), an_shape_of(token).dim[0]); /* of [B,1,C] */
    an_scope_pop(m->cx);
    return logits;
}

/* ---- counts of parameters and operations */

int64_t an_gpt_parameters_printed(const an_gpt_config *c)
{
    const int64_t C = c->width, biases = c->bias ? 1 : 0;
    const int64_t norms = (2 * c->layers + 1) * C * (1 + biases);
    const int64_t a_block = 12 * C * C + biases * (3 * C + C + 4 * C + C);
    return c->vocab * C + c->layers * a_block + norms;
}

int64_t an_gpt_parameters(const an_gpt_config *c)
{
    return an_gpt_parameters_printed(c) + c->block * c->width;
}

double an_gpt_flops(const an_gpt_config *c, int64_t B, int64_t T)
{
    const double C = (double)c->width, L = (double)c->layers;
    const double gemm_weights = (double)c->vocab * C + L * 12 * C * C;
    return (6 * gemm_weights + 12 * L * C * (double)T) * (double)B * (double)T;
}
