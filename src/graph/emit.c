/* emit.c: an_emit, the only function that appends nodes, and the array's life: open, reset, close, scopes, persistent
 * tensors, error messages.
 *
 * Owns:      the memory of nodes, and so their lifetime: until an_graph_reset; CSE (value numbering: equal nodes are one node);
 *            the running key (runtime/plan_cache.c).
 * Does not:  know what ops mean: shape.c says what fits, fold.c what is equal to something simpler.
 * Invariants: a node and its sources and attributes are one allocation in the step's arena; a warm step calls no
 * malloc. CSE compares whole nodes: a collision of hashes costs a duplicate, never a wrong answer. The key is a
 * function of the emitted nodes alone (not of scopes, places or addresses).
 */
#include "graph/compose.h"
#include "base/rng.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 256 * 1024, NONE = -1 };
#define KEY_START 0x616E6E65616C3031u /* "anneal01" */

/* ------------------------------------------------------------------------------------------------ sentences */

/* The poison of "no graph at all": an operand is NULL and there is no other. */
static const an_tensor lost = {.id = NONE, .poison = 1};

an_tensor *an_poison_of(an_graph *g)
{
    return g != NULL ? g->poison : (an_tensor *)&lost;
}

static an_tensor *poison_with(an_graph *g, an_status code, const char *at, const char *text)
{
    const char *scope = g->scopes[g->scope];
    an_fail(g->err, code, "%s%s%s%s%s", at ? at : "", at ? ": " : "", text, *scope ? " in " : "", scope);
    return g->poison;
}

an_tensor *an_poison(an_graph *g, an_status code, const char *at, const char *fmt, ...)
{
    char text[700];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return poison_with(g, code, at, text);
}

an_tensor *an_refuse(an_graph *g, an_status code, const char *fmt, ...)
{
    char text[700];
    int n = snprintf(text, sizeof text, "%s: ", g->doing ? g->doing : "?");
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, sizeof text - (size_t)n, fmt, args);
    va_end(args);
    return poison_with(g, code, g->at, text);
}

static an_tensor *poison_nomem(an_graph *g, size_t bytes)
{
    an_fail_nomem(g->err, "graph", bytes);
    return g->poison;
}

const char *an_doing(const an_graph *g, an_op op, const char *at, char *out)
{
    if (at == g->at && g->doing != NULL) return g->doing;
    int n = snprintf(out, 32, "an_%s", an_ops[op].name);
    for (int i = 3; i < n && i < 32; i++) out[i] = (char)tolower((unsigned char)out[i]);
    return out;
}

/* ------------------------------------------------------------------------------------------------ life */

an_status an_graph_open(an_err *err, void *owner, an_graph *out)
{
    *out = (an_graph){.err = err, .owner = owner, .key = KEY_START, .epoch = 1};
    out->arena.chunk_bytes = out->previous.chunk_bytes = CHUNK_BYTES;
    out->cap = 1024;
    out->cap_scopes = 64;
    out->cap_cse = 4096;
    out->cse = calloc((size_t)out->cap_cse, sizeof *out->cse);
    out->node = malloc((size_t)out->cap * sizeof *out->node);
    out->scopes = malloc((size_t)out->cap_scopes * sizeof *out->scopes);
    out->scope_parent = malloc((size_t)out->cap_scopes * sizeof *out->scope_parent);
    out->poison = AN_NEW(&out->forever, an_tensor);
    if (out->cse == NULL || out->node == NULL || out->scopes == NULL || out->scope_parent == NULL ||
        out->poison == NULL) {
        an_graph_close(out);
        return an_fail_nomem(err, "graph", (size_t)out->cap * sizeof *out->node);
    }
    *out->poison = (an_tensor){.g = out, .id = NONE, .poison = 1, .op = AN_OP_CONST};
    out->scopes[0] = "";
    out->scope_parent[0] = NONE;
    out->n_scopes = 1;
    return AN_OK;
}

void an_graph_reset(an_graph *g)
{
    an_arena ended = g->arena;
    g->arena = g->previous;
    g->previous = ended;
    an_arena_reset(&g->arena);
    memset(g->cse, 0, (size_t)g->cap_cse * sizeof *g->cse);
    g->n = g->n_grad = g->n_rules = g->n_folded = g->n_assigns = 0;
    g->has_empty = false;
    g->grad = g->grad_as_built = NULL;
    g->loss = NULL;
    g->id_ranges = NULL;
    g->rand_ordinal = 0;
    g->key = KEY_START;
    g->epoch++;
    g->deferred = false;
    g->phase = AN_PHASE_FORWARD;
    g->at = g->doing = NULL;
}

void an_graph_close(an_graph *g)
{
    an_arena_free(&g->arena);
    an_arena_free(&g->previous);
    an_arena_free(&g->forever);
    an_map_free(&g->scope_index);
    free(g->cse);
    free(g->node);
    free(g->scopes);
    free(g->scope_parent);
    free(g->rules);
    free(g->assign);
    free(g->folded);
    *g = (an_graph){0};
}

/* ------------------------------------------------------------------------------------------------ scopes, streams */

static int32_t add_scope(an_graph *g, const char *name)
{
    if (g->n_scopes == g->cap_scopes) {
        int32_t cap = g->cap_scopes * 2;
        const char **scopes = realloc(g->scopes, (size_t)cap * sizeof *scopes);
        if (scopes != NULL) g->scopes = scopes;
        int32_t *parents = realloc(g->scope_parent, (size_t)cap * sizeof *parents);
        if (parents != NULL) g->scope_parent = parents;
        if (scopes == NULL || parents == NULL) return NONE;
        g->cap_scopes = cap;
    }
    const char *parent = g->scopes[g->scope];
    char *path = an_arena_printf(&g->forever, "%s%s%s", parent, *parent ? "." : "", name);
    if (path == NULL) return NONE;
    g->scopes[g->n_scopes] = path;
    g->scope_parent[g->n_scopes] = g->scope;
    return g->n_scopes++;
}

/* True when scope i is `name` within the current scope. */
static bool is_scope(const an_graph *g, int32_t i, const char *name)
{
    if (g->scope_parent[i] != g->scope) return false;
    size_t parent = strlen(g->scopes[g->scope]);
    return strcmp(g->scopes[i] + parent + (parent > 0), name) == 0;
}

bool an_graph_scope_push(an_graph *g, const char *name)
{
    uint64_t key = an_hash(name, strlen(name), (uint64_t)g->scope), found;
    if (an_map_get(&g->scope_index, key, &found) && is_scope(g, (int32_t)found, name)) {
        g->scope = (int32_t)found;
        return true;
    }
    int32_t made = add_scope(g, name);
    if (made == NONE || !an_map_set(&g->scope_index, key, (uint64_t)made)) {
        an_fail_nomem(g->err, "graph: scope", strlen(name) + 1);
        return false;
    }
    g->scope = made;
    return true;
}

void an_graph_scope_pop(an_graph *g)
{
    if (g->scope_parent[g->scope] == NONE) {
        an_fail(g->err, AN_E_USAGE, "an_scope_pop: no scope is open");
        return;
    }
    g->scope = g->scope_parent[g->scope];
}

uint32_t an_graph_stream(an_graph *g)
{
    const char *scope = g->scopes[g->scope];
    return an_rng_stream(an_hash(scope, strlen(scope), 0), g->rand_ordinal++);
}

/* ------------------------------------------------------------------------------------------------ using tensors */

an_tensor *an_persistent(an_graph *g, an_leaf kind, int index, an_dtype dtype, int rank, const int32_t *shape)
{
    an_tensor *t = AN_NEW(&g->forever, an_tensor);
    int64_t *attr = AN_NEW_ARRAY(&g->forever, int64_t, 2);
    if (t == NULL || attr == NULL) return poison_nomem(g, sizeof *t);
    attr[0] = kind;
    attr[1] = index;
    *t = (an_tensor){.g = g, .id = NONE, .op = AN_OP_LEAF, .dtype = (uint8_t)dtype, .rank = (uint8_t)rank};
    t->attr = attr;
    t->n_attr = 2;
    if (rank > 0) memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->numel = an_count(rank, shape);
    t->leaf_id = NONE;
    return t;
}

an_tensor *an_use_leaf(an_graph *g, an_tensor *t, const char *at)
{
    if (t->leaf_epoch == g->epoch) return g->node[t->leaf_id];
    an_emit_args e = {.op = AN_OP_LEAF, .dtype = (an_dtype)t->dtype, .rank = t->rank, .shape = t->shape, .n_attr = 2};
    e.attr = t->attr;
    e.at = at;
    an_tensor *leaf = an_emit(g, &e);
    if (leaf->poison) return leaf;
    t->leaf_id = leaf->id;
    t->leaf_epoch = g->epoch;
    return leaf;
}

/* What the readers of a persistent tensor get. */
static an_tensor *use_leaf(an_graph *g, an_tensor *t, const char *at)
{
    an_tensor *leaf = an_use_leaf(g, t, at);
    if (!t->narrow || leaf->poison) return leaf;
    return an_emit(g, &(an_emit_args){.op = AN_OP_CAST, .dtype = AN_F32, .n_src = 1, .src = &leaf, .at = at});
}

/* Cold: says why `t` cannot be used in `g`. */
static an_tensor *refuse_use(an_graph *g, const an_tensor *t, const char *at, const char *op)
{
    char shape[8 * 12 + 3];
    an_shape_text(t->rank, t->shape, shape, sizeof shape);
    if (t->g == g) {
        const char *scope = g->scopes[t->scope];
        return an_poison(
            g, AN_E_CONTEXT, at,
            "%s: the operand %s%s%s%s%s is of a step that an_reset has ended; build it again, or keep it in "
            "a state",
            op, shape, *scope ? " of " : "", scope, t->at ? " from " : "", t->at ? t->at : "");
    }
    const char *here = g->device_name ? g->device_name : "?", *there = t->g->device_name ? t->g->device_name : "?";
    return an_poison(g, AN_E_CONTEXT, at, "%s: the operand %s belongs to another context (on %s, this one is on %s)",
                     op, shape, there, here);
}

/* As an_use, but a folded tensor is returned as it is. */
static an_tensor *use_as_given(an_graph *g, an_tensor *t, const char *at, const char *op)
{
    if (t == NULL) return an_poison(g, AN_E_USAGE, at, "%s: an operand is NULL", op);
    if (t->poison && t->g != g)
        return an_poison(g, AN_E_USAGE, at, "%s: an operand is the result of an operation that failed %s", op,
                         t->g ? "in another context" : "because its own operands are NULL");
    if (t->poison && g->err->code == AN_OK) /* what failed was forgotten (an_error_clear), what it left was not */
        return an_poison(
            g, AN_E_USAGE, at,
            "%s: an operand is the result of an operation that failed; its error was cleared, build it again", op);
    if (t->poison) return g->poison;
    if (t->g == g && t->id >= 0 && t->leaf_epoch == g->epoch) return t;
    if (t->g == g && t->id < 0) return use_leaf(g, t, at);
    return refuse_use(g, t, at, op);
}

an_tensor *an_use(an_graph *g, an_tensor *t, const char *at, const char *op)
{
    an_tensor *used = use_as_given(g, t, at, op);
    return used->folded != 0 ? g->node[used->id] : used;
}

bool an_enter(const char *at, const char *name, int n, int required, an_tensor **t)
{
    an_graph *g = NULL;
    for (int i = 0; i < n && g == NULL; i++) g = t[i] ? t[i]->g : NULL;
    bool fine = g != NULL;
    if (fine) {
        g->at = at;
        g->doing = name;
        g->n_operands = 0;
    }
    for (int i = 0; i < n && fine; i++) {
        if (t[i] == NULL && i >= required) continue;
        if (t[i] == NULL)
            t[i] = an_refuse(g, AN_E_USAGE, "operand %d is NULL", i + 1);
        else
            t[i] = use_as_given(g, t[i], at, name);
        fine = !t[i]->poison;
    }
    if (!fine) t[0] = an_poison_of(g);
    return fine;
}

an_graph *an_ctx_graph(an_ctx *cx)
{
    return (an_graph *)cx;
}

an_graph *an_enter_ctx(const char *at, const char *name, an_ctx *cx)
{
    an_graph *g = cx != NULL ? an_ctx_graph(cx) : NULL;
    if (g == NULL || g->poison == NULL) return NULL;
    g->at = at;
    g->doing = name;
    g->n_operands = 0;
    return g;
}

/* ------------------------------------------------------------------------------------------------ emission */

/* A node before it is appended: everything that makes it equal to another. */
typedef struct draft {
    an_dtype dtype;
    int rank;
    int32_t shape[AN_MAX_RANK];
    int64_t numel;
    uint64_t hash;
    int32_t src[UINT8_MAX];
    int32_t sources_as_built[UINT8_MAX]; /* set where has_folded_sources, else as src: an_tensor.sources_as_built */
    bool has_folded_sources;
} draft;

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* One multiply a word; an_hash_u64 mixes at the end. */
static inline uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 32);
}

/* Two 32-bit numbers a word: the chain of multiplies is what hashing costs. */
static inline uint64_t mix_pairs(uint64_t h, const int32_t *x, int n)
{
    for (int i = 0; i + 1 < n; i += 2) h = mix(h, (uint64_t)(uint32_t)x[i] << 32 | (uint32_t)x[i + 1]);
    return n & 1 ? mix(h, (uint32_t)x[n - 1]) : h;
}

static uint64_t hash_draft(const an_emit_args *e, const draft *d)
{
    uint64_t h = mix(KEY_START, (uint64_t)e->op | (uint64_t)d->dtype << 16 | (uint64_t)d->rank << 24 |
                                    (uint64_t)e->n_src << 32 | (uint64_t)e->n_attr << 40);
    h = mix_pairs(h, d->src, e->n_src);
    h = mix_pairs(h, d->shape, d->rank);
    for (int i = 0; i < e->n_attr; i++) h = mix(h, (uint64_t)e->attr[i]);
    uint64_t numbers = bits_of(e->imm[0]) ^ bits_of(e->imm[1]) * 3 ^ (uint64_t)e->imm_i * 5;
    return an_hash_u64(numbers, h);
}

static bool equals(const an_tensor *t, const an_emit_args *e, const draft *d)
{
    return t->hash == d->hash && t->op == e->op && t->dtype == d->dtype && t->rank == d->rank && t->n_src == e->n_src &&
           t->n_attr == e->n_attr && t->imm_i == e->imm_i && bits_of(t->imm[0]) == bits_of(e->imm[0]) &&
           bits_of(t->imm[1]) == bits_of(e->imm[1]) &&
           (d->rank == 0 || memcmp(t->shape, d->shape, (size_t)d->rank * sizeof *d->shape) == 0) &&
           (e->n_src == 0 || memcmp(t->src, d->src, (size_t)e->n_src * sizeof *d->src) == 0) &&
           (e->n_attr == 0 || memcmp(t->attr, e->attr, (size_t)e->n_attr * sizeof *e->attr) == 0);
}

/* The slot of the node equal to the draft, or the empty one where it belongs; the table is never more than half full.
 */
static int32_t *find_slot(const an_graph *g, const an_emit_args *e, const draft *d)
{
    uint32_t mask = (uint32_t)g->cap_cse - 1, i = (uint32_t)d->hash & mask;
    while (g->cse[i] != 0 && !(e != NULL && equals(g->node[g->cse[i] - 1], e, d))) i = (i + 1) & mask;
    return &g->cse[i];
}

static bool grow_cse(an_graph *g)
{
    if (g->cap_cse > INT32_MAX / 2) return false;
    int32_t *more = calloc((size_t)g->cap_cse * 2, sizeof *more);
    if (more == NULL) return false;
    free(g->cse);
    g->cse = more;
    g->cap_cse *= 2;
    for (int32_t id = 0; id < g->n; id++) {
        draft d;
        d.hash = g->node[id]->hash;
        *find_slot(g, NULL, &d) = id + 1;
    }
    return true;
}

static bool room_for_node(an_graph *g)
{
    if (g->n < g->cap) return true;
    if (g->cap > INT32_MAX / 2) return false;
    an_tensor **more = realloc(g->node, (size_t)g->cap * 2 * sizeof(an_tensor *));
    if (more == NULL) return false;
    g->node = more;
    g->cap *= 2;
    return true;
}

static an_tensor *append(an_graph *g, const an_emit_args *e, const draft *d)
{
    size_t attr_bytes = (size_t)e->n_attr * sizeof(int64_t), src_bytes = (size_t)e->n_src * sizeof(int32_t);
    size_t bytes = sizeof(an_tensor) + attr_bytes + src_bytes;
    an_tensor *t = room_for_node(g) ? an_arena_alloc(&g->arena, bytes) : NULL;
    if (t == NULL) return poison_nomem(g, bytes);
    t->g = g;
    t->id = g->n;
    t->op = (uint16_t)e->op;
    t->dtype = (uint8_t)d->dtype;
    t->rank = (uint8_t)d->rank;
    t->n_src = (uint8_t)e->n_src;
    t->n_attr = (uint8_t)e->n_attr;
    t->scope = g->scope;
    t->deferred = g->deferred;
    t->phase = (uint8_t)g->phase;
    memcpy(t->shape, d->shape, sizeof t->shape);
    t->numel = d->numel;
    if (e->n_attr > 0) t->attr = memcpy(t + 1, e->attr, attr_bytes);
    if (e->n_src > 0) t->src = memcpy((char *)(t + 1) + attr_bytes, d->src, src_bytes);
    t->imm[0] = e->imm[0];
    t->imm[1] = e->imm[1];
    t->imm_i = e->imm_i;
    t->at = e->at;
    t->hash = d->hash;
    t->leaf_id = t->id;
    t->leaf_epoch = g->epoch;
    g->node[g->n++] = t;
    g->key = mix(g->key, d->hash);
    return t;
}

/* Random nodes and effects are never merged, even when equal. */
static bool may_merge(const an_graph *g, an_op op)
{
    return !g->keep_duplicates && op != AN_OP_RAND && an_ops[op].cls != AN_CLS_EFFECT;
}

/* Sources as they are now, their ids in the draft; false: poison. *changed: some were persistent and are their leaves
 * now, or folded tensors and are their nodes. */
static bool take_sources(an_graph *g, const an_emit_args *e, an_tensor **src, draft *d, bool *changed)
{
    char name[32];
    *changed = d->has_folded_sources = false;
    for (int i = 0; i < e->n_src; i++) {
        src[i] = e->src[i];
        if (src[i] == NULL || src[i]->g != g || src[i]->id < 0 || src[i]->leaf_epoch != g->epoch) {
            src[i] = an_use(g, src[i], e->at, an_doing(g, e->op, e->at, name));
            *changed = true;
        }
        if (src[i]->poison) return false;
        d->src[i] = d->sources_as_built[i] = src[i]->id;
        if (src[i]->folded != 0) {
            d->sources_as_built[i] = -src[i]->folded;
            d->has_folded_sources = *changed = true;
            src[i] = g->node[d->src[i]];
        }
    }
    return true;
}

/* a + b and b + a are one node: the older operand comes first. Exact for these ops (MAXIMUM is not: zeros of two
 * signs). */
bool an_op_commutes(an_op op)
{
    return op == AN_OP_ADD || op == AN_OP_MUL || op == AN_OP_EQ || op == AN_OP_NE || op == AN_OP_AND ||
           op == AN_OP_OR || op == AN_OP_XOR;
}

static void order_operands(an_tensor **src, draft *d)
{
    an_tensor *t = src[0];
    src[0] = src[1];
    src[1] = t;
    d->src[0] = src[0]->id;
    d->src[1] = src[1]->id;
    int32_t written = d->sources_as_built[0];
    d->sources_as_built[0] = d->sources_as_built[1];
    d->sources_as_built[1] = written;
}

/* ------------------------------------------------------------------------------------------------ folded tensors */

static an_tensor *node_or_folded(const an_graph *g, int32_t written)
{
    return written < 0 ? g->folded[-written - 1].t : g->node[written];
}

/* A folded tensor: the expression `e` as it was built, whose value is `node`. */
static an_tensor *make_folded(an_graph *g, const an_emit_args *e, const draft *d, const an_tensor *node)
{
    const size_t attr_bytes = (size_t)e->n_attr * sizeof(int64_t), src_bytes = (size_t)e->n_src * sizeof(int32_t);
    if (g->n_folded == g->cap_folded) {
        const int32_t cap = g->cap_folded ? g->cap_folded * 2 : 64;
        an_folded *more = realloc(g->folded, (size_t)cap * sizeof *more);
        if (more == NULL) return poison_nomem(g, (size_t)cap * sizeof *more);
        g->folded = more;
        g->cap_folded = cap;
    }
    an_tensor *t = an_arena_alloc(&g->arena, sizeof *t + attr_bytes + 2 * src_bytes);
    if (t == NULL) return poison_nomem(g, sizeof *t);
    *t = *node;
    t->op = (uint16_t)e->op;
    t->n_src = (uint8_t)e->n_src;
    t->n_attr = (uint8_t)e->n_attr;
    char *behind = (char *)(t + 1);
    t->attr = e->n_attr > 0 ? memcpy(behind, e->attr, attr_bytes) : NULL;
    t->src = memcpy(behind + attr_bytes, d->src, src_bytes);
    t->sources_as_built = memcpy(behind + attr_bytes + src_bytes, d->sources_as_built, src_bytes);
    t->imm[0] = e->imm[0];
    t->imm[1] = e->imm[1];
    t->imm_i = e->imm_i;
    t->scope = g->scope;
    t->at = e->at;
    t->rule = 0;
    t->has_folded = false;
    g->folded[g->n_folded] = (an_folded){t, g->n};
    t->folded = ++g->n_folded;
    g->node[node->id]->has_folded = true;
    for (int i = 0; i < e->n_src; i++)
        if (d->sources_as_built[i] >= 0) g->node[d->sources_as_built[i]]->has_folded = true;
    return t;
}

/* What the caller gets for `e`, which fold found equal to `node`: a source as it was given when no other was bypassed,
 * else a folded tensor. Numbers and tensors without gradients need none, save numbers that were made of nothing: what
 * they were made of has a gradient of zeros. */
static an_tensor *as_built(an_graph *g, const an_emit_args *e, const draft *d, an_tensor *node)
{
    double x;
    int64_t i;
    int32_t only = NONE;
    bool one = true, empty = node->numel == 0, number = an_uniform(node, &x, &i);
    if (g->no_folded || node->poison || e->n_src == 0 || !an_dtype_is_float((an_dtype)node->dtype)) return node;
    for (int k = 0; k < e->n_src; k++) empty |= e->src[k]->numel == 0;
    g->has_empty |= empty;
    if (empty && e->n_src > 0 && d->src[0] != node->id) return make_folded(g, e, d, node);
    for (int k = 0; k < e->n_src; k++) number &= d->sources_as_built[k] >= 0;
    if (number) return node;
    for (int k = 0; k < e->n_src; k++) {
        if (!an_dtype_is_float((an_dtype)e->src[k]->dtype)) continue;
        if (d->sources_as_built[k] >= 0 && an_uniform(e->src[k], &x, &i)) continue;
        one &=
            d->src[k] == node->id && (only == NONE || only == k || d->sources_as_built[only] == d->sources_as_built[k]);
        only = k;
    }
    return one && only != NONE ? node_or_folded(g, d->sources_as_built[only]) : make_folded(g, e, d, node);
}

/* The same where `node` is equal to `e` as it is, but for what was given as sources. */
static an_tensor *with_sources_as_built(an_graph *g, const an_emit_args *e, const draft *d, an_tensor *node,
                                        bool is_new)
{
    const size_t bytes = (size_t)e->n_src * sizeof(int32_t);
    const int32_t *has = node->sources_as_built != NULL ? node->sources_as_built : node->src;
    if (node->poison || g->no_folded || e->n_src == 0 || memcmp(has, d->sources_as_built, bytes) == 0) return node;
    if (!is_new) return make_folded(g, e, d, node);
    int32_t *written = an_arena_alloc(&g->arena, bytes);
    if (written == NULL) return poison_nomem(g, bytes);
    node->sources_as_built = memcpy(written, d->sources_as_built, bytes);
    return node;
}

static an_tensor *merge_or_append(an_graph *g, const an_emit_args *e, draft *d)
{
    d->hash = hash_draft(e, d);
    if (!may_merge(g, e->op)) return append(g, e, d);
    int32_t *slot = find_slot(g, e, d);
    if (*slot != 0) return g->node[*slot - 1];
    an_tensor *t = append(g, e, d);
    if (t->poison) return t;
    *slot = g->n;
    return g->n <= g->cap_cse / 2 || grow_cse(g) ? t : poison_nomem(g, (size_t)g->cap_cse * 2 * sizeof *g->cse);
}

an_tensor *an_emit(an_graph *g, const an_emit_args *e)
{
    draft d;
    an_tensor *src[UINT8_MAX];
    an_emit_args current;
    bool changed;
    char name[32];
    if (e->n_src < 0 || e->n_src > UINT8_MAX || e->n_attr < 0 || e->n_attr > UINT8_MAX)
        return an_poison(g, AN_E_INTERNAL, e->at, "%s: %d sources, %d attributes", an_ops[e->op].name, e->n_src,
                         e->n_attr);
    memset(d.shape, 0, sizeof d.shape);
    d.src[0] = d.src[1] = 0;
    if (!take_sources(g, e, src, &d, &changed)) return g->poison;
    if (e->n_src == 2 && d.src[0] > d.src[1] && an_op_commutes(e->op) && !g->keep_duplicates) {
        order_operands(src, &d);
        changed = true;
    }
    if (changed) {
        current = *e;
        current.src = src;
        e = &current;
    }
    if (an_infer(g, e, &d.dtype, &d.rank, d.shape) != AN_OK) return g->poison;
    d.numel = an_count(d.rank, d.shape);
    if (d.numel < 0)
        return an_poison(g, AN_E_SHAPE, e->at, "%s: the result has more elements than any machine holds",
                         an_doing(g, e->op, e->at, name));
    if (g->keep_duplicates) return merge_or_append(g, e, &d);
    const bool quiet = g->no_folded;
    g->no_folded = true; /* the caller cannot name the intermediate nodes of a simplification */
    an_tensor *simpler = an_fold(g, e, d.dtype, d.rank, d.shape);
    g->no_folded = quiet;
    if (simpler != NULL) return as_built(g, e, &d, simpler);
    const int32_t n = g->n;
    an_tensor *node = merge_or_append(g, e, &d);
    return with_sources_as_built(g, e, &d, node, g->n > n);
}

an_rule *an_graph_new_rule(an_graph *g)
{
    if (g->n_rules == g->cap_rules) {
        int32_t cap = g->cap_rules ? g->cap_rules * 2 : 64;
        an_rule *more = realloc(g->rules, (size_t)cap * sizeof *more);
        if (more == NULL) {
            an_fail_nomem(g->err, "graph: rules", (size_t)cap * sizeof *more);
            return NULL;
        }
        g->rules = more;
        g->cap_rules = cap;
    }
    return &g->rules[g->n_rules++];
}
