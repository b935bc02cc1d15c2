/* runtime/context.c: the context's life and an_eval: find the plan or make it, and have it run (runtime/execute.c).
 *
 * Owns:      the plan cache (least recently used out).
 * Does not:  build nodes (graph/), plan (plan/) or run (runtime/execute.c, device/).
 */
#include "runtime/runtime.h"

#include "base/exact.h"
#include "platform/platform.h"
#include "base/rng.h"
#include "base/text.h"
#include "codegen/gpu_module.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- open and close */

/* What people have set for PyTorch on a Mac is heard. */
static an_status settle_fallback(an_ctx *cx)
{
    const char *asked = cx->options.fallback, *set = getenv("PYTORCH_ENABLE_MPS_FALLBACK");
    if (!asked) cx->options.fallback = set && !strcmp(set, "1") ? "cpu" : "none";
    static const char *const allowed[] = {"cpu", "none"};
    for (size_t i = 0; i < AN_COUNT(allowed); i++)
        if (!asked || !strcmp(asked, allowed[i])) return AN_OK;
    return an_fail(&cx->err, AN_E_USAGE, "an_open: fallback is \"%s\"; it is \"cpu\" or \"none\"", asked);
}

static an_status keep_options(an_ctx *cx, const an_options *o, size_t size)
{
    memcpy(&cx->options, o,
           AN_MIN(size, sizeof cx->options)); /* a program built against an older header passes fewer fields */
    const char **text[] = {&cx->options.device,    &cx->options.isa,  &cx->options.cc,       &cx->options.cache_dir,
                           &cx->options.recompute, &cx->options.dump, &cx->options.dump_dir, &cx->options.fallback};
    for (size_t i = 0; i < AN_COUNT(text); i++)
        if (*text[i] && !(*text[i] = an_arena_strdup(&cx->forever, *text[i])))
            return an_fail_nomem(&cx->err, "the options", 0);
    const char *r = cx->options.recompute;
    static const char *const words[] = {"off", "on", "auto"};
    cx->recompute = 2;
    for (int i = 0; r && i < 3; i++)
        if (!strcmp(r, words[i])) cx->recompute = i;
    const an_options *mine = &cx->options;
    AN_TRY(an_memory_limits(cx, mine->low_watermark, mine->high_watermark));
    AN_TRY(settle_fallback(cx));
    if (r && strcmp(r, words[cx->recompute]))
        return an_fail(&cx->err, AN_E_USAGE, "an_open: recompute is \"%s\"; it is \"auto\", \"on\" or \"off\"", r);
#ifndef NDEBUG
    cx->options.verify = true;
#endif
    return AN_OK;
}

/* By name; "auto" is the first GPU that answers, else the CPU, and `why` says what kept the others out. */
static an_status choose_device(an_ctx *cx, const char *name, const an_backend **out, an_device_info *info, an_text *why)
{
    const bool any = !strcmp(name, "auto");
    *out = any ? NULL : an_backend_find(&cx->err, name);
    if (!any && !*out) return cx->err.code;
    for (int i = 0; !any || an_backend_auto(i); i++) {
        if (any) *out = an_backend_auto(i);
        *info = (an_device_info){0};
        if ((*out)->probe(info)) return AN_OK;
        if (!any) break;
        an_text_printf(why, "; not %s: %.*s", (*out)->name, (int)strcspn(info->reason, ";"), info->reason);
    }
    return an_fail(&cx->err, AN_E_ENV, "%s: not available: %s", name, info->reason);
}

static an_status open_device(an_ctx *cx)
{
    const char *name = cx->options.device && *cx->options.device ? cx->options.device : "auto";
    an_device_options o = {.threads = cx->options.threads,
                           .isa = cx->options.isa,
                           .cc = cx->options.cc,
                           .cache_dir = cx->options.cache_dir,
                           .exact = cx->options.exact,
                           .tf32 = cx->options.tf32,
                           .isolate_buffers = cx->options.place_apart,
                           .fallback = cx->options.fallback && strcmp(cx->options.fallback, "none")};
    an_device_info info = {0};
    an_text why = {0};
    const an_backend *b = NULL;
    AN_TRY(choose_device(cx, name, &b, &info, &why));
    an_status status = b->open(&cx->err, &o, &cx->device);
    if (status == AN_OK)
        cx->device_text = an_arena_printf(&cx->forever, "%s: %s%s", info.name, info.reason, why.data ? why.data : "");
    an_text_free(&why);
    if (status != AN_OK) return status;
    cx->backend = b;
    cx->graph.device_name = b->name;
    return AN_OK;
}

an_ctx *an_open_sized(const an_options *o, size_t size)
{
    an_ctx *cx = calloc(1, sizeof *cx);
    static const an_options none;
    if (!cx) return NULL;
    cx->loss = -1;
    if (an_graph_open(&cx->err, cx, &cx->graph) != AN_OK) {
        an_graph_close(&cx->graph);
        free(cx);
        return NULL;
    }
    if (keep_options(cx, o ? o : &none, o ? size : sizeof none) == AN_OK) open_device(cx);
    return cx;
}

static void drop_plan(an_ctx *cx, an_cached_plan *p)
{
    if (p->exec) {
        an_wait_idle(cx); /* a failure is said by the next call that can */
        cx->backend->unload(cx->device, p->exec);
    }
    an_plan_free(p->plan);
    free(p->node_hash);
    free(p->request);
    *p = (an_cached_plan){0};
}

void an_close(an_ctx *cx)
{
    if (!cx) return;
    if (cx->device) {
        an_wait_idle(cx);
        for (int i = 0; i < AN_PLAN_CACHE; i++) drop_plan(cx, &cx->plans[i]);
        if (cx->arena.bytes) cx->backend->free(cx->device, &cx->arena);
        for (int i = 0; i < AN_MOST_IN_FLIGHT; i++)
            if (cx->inputs[i].bytes) cx->backend->free(cx->device, &cx->inputs[i]);
    }
    an_leaves_close(cx);
    if (cx->device) cx->backend->close(cx->device);
    an_graph_close(&cx->graph);
    an_arena_free(&cx->step);
    an_arena_free(&cx->forever);
    free(cx->miss);
    free(cx->text);
    free(cx->wait);
    free(cx->image);
    free(cx);
}

void an_drop_idle(an_ctx *cx, const an_cached_plan *kept)
{
    for (int i = 0; i < AN_PLAN_CACHE; i++) {
        an_cached_plan *p = &cx->plans[i];
        if (p == kept || !p->plan) continue;
        if (p == cx->ran) cx->ran = NULL, cx->n_roots = 0; /* its results go with it */
        if (p == cx->last) cx->last = NULL;
        drop_plan(cx, p);
    }
    const uint64_t arena = kept ? (uint64_t)kept->plan->arena_bytes : 0,
                   inputs = kept ? (uint64_t)kept->plan->input_bytes : 0;
    if (cx->arena.bytes && cx->arena.bytes != arena) an_memory_freed(cx, &cx->arena);
    for (int i = 0; i < AN_MOST_IN_FLIGHT; i++)
        if (cx->inputs[i].bytes && cx->inputs[i].bytes != inputs) an_memory_freed(cx, &cx->inputs[i]);
}

const char *an_error(const an_ctx *cx)
{
    return !cx ? "an_open: no memory" : cx->err.code ? cx->err.text : NULL;
}
an_status an_error_status(const an_ctx *cx)
{
    return cx ? cx->err.code : AN_E_NOMEM;
}
void an_error_clear(an_ctx *cx)
{
    if (cx) an_err_clear(&cx->err);
}

an_graph *an_ctx_graph(an_ctx *cx)
{
    return cx ? &cx->graph : NULL;
}

void an_reset(an_ctx *cx)
{
    if (!cx) return;
    an_graph_reset(&cx->graph);
    an_arena_reset(&cx->step);
    cx->n_inputs = cx->n_scalars = 0;
    cx->effects_from = 0;
    cx->loss = -1;
    cx->n_roots = 0;
    for (int b = 0; b < cx->n_blocks; b++) { /* what did not run has not happened */
        cx->block[b].pack = cx->block[b].sum = NULL;
        cx->block[b].after = cx->block[b].pending;
    }
    cx->updates_after = cx->updates;
    if (cx->device) an_err_clear(&cx->err); /* a context that never opened keeps saying why */
}

void an_scope_push(an_ctx *cx, const char *name)
{
    if (cx) an_graph_scope_push(&cx->graph, name ? name : "");
}

void an_scope_pop(an_ctx *cx)
{
    if (cx) an_graph_scope_pop(&cx->graph);
}

void an_set_step(an_ctx *cx, uint64_t step)
{
    if (cx) cx->step_number = step;
}

void an_set_sample(an_ctx *cx, uint64_t first)
{
    if (cx) cx->sample = first;
}

void an_set_policy(an_ctx *cx, an_policy p)
{
    if (!cx) return;
    cx->graph.matmul_dtype = p.matmul;
    cx->graph.most_logits = p.logits;
}

an_policy an_get_policy(const an_ctx *cx)
{
    return cx ? (an_policy){.matmul = cx->graph.matmul_dtype, .logits = cx->graph.most_logits} : (an_policy){0};
}

/* ---------------------------------------------------------------------------------------------- finding the plan */

static void dump_to_file(void *user, const char *pass, const char *text)
{
    an_ctx *cx = user;
    char path[1024];
    an_err quiet = {0};
    an_save s;
    const char *wanted = cx->options.dump;
    if (strcmp(wanted, "all") && !strstr(wanted, pass)) return;
    snprintf(path, sizeof path, "%s/%s.txt", cx->options.dump_dir ? cx->options.dump_dir : ".", pass);
    an_status status = an_save_begin(&quiet, path, &s);
    if (status == AN_OK) {
        status = an_save_write(&quiet, &s, text, strlen(text));
        if (status == AN_OK)
            status = an_save_commit(&quiet, &s);
        else
            an_save_abort(&s);
    }
    if (status != AN_OK)
        an_fail(&cx->dump_err, status, "dump: %s. Make the folder dump_dir names, or leave dump out", quiet.text);
}

/* Says which node made the difference to the plan used last. */
static void explain_miss(an_ctx *cx)
{
    free(cx->miss);
    cx->miss = NULL;
    if (!cx->last || !cx->last->node_hash) return;
    int32_t i = 0, n = AN_MIN(cx->graph.n, cx->last->n_nodes);
    while (i < n && cx->graph.node[i]->hash == cx->last->node_hash[i]) i++;
    an_text t = {0};
    if (i < cx->graph.n) {
        const an_tensor *x = cx->graph.node[i];
        char shape[128];
        an_text_printf(&t, "plan rebuilt at step %llu: node %d %s %s differs from the last plan's",
                       (unsigned long long)cx->step_number, i, an_ops[x->op].name,
                       an_shape_text(x->rank, x->shape, shape, sizeof shape));
        if (x->op == AN_OP_CONST)
            an_text_printf(&t, " (it is %.9g now; for a number that changes use an_scalar)", x->imm[0]);
        if (x->at) an_text_printf(&t, ", built at %s", x->at);
    } else {
        an_text_printf(&t, "plan rebuilt at step %llu: %d nodes now, %d in the last plan",
                       (unsigned long long)cx->step_number, cx->graph.n, cx->last->n_nodes);
    }
    cx->miss = t.data;
}

/* A plan is found by the graph's key, a hash of 64 bits, and taken only if all it was made from is the same: the
 * request written out, a few bytes a number. */
typedef struct writer {
    char *out;        /* NULL: only counts */
    const char *with; /* compares instead of writing */
    size_t n, size;   /* of `with` */
    bool same;
} writer;

static void put(writer *w, const void *data, size_t bytes)
{
    if (!bytes) return;
    if (w->out) memcpy(w->out + w->n, data, bytes);
    if (w->with) w->same = w->same && bytes <= w->size - w->n && !memcmp(w->with + w->n, data, bytes);
    if (w->same) w->n += bytes;
}

static void put_request(writer *w, const an_ctx *cx, const int32_t *roots, int n)
{
    const an_graph *g = &cx->graph;
    const int32_t head[] = {g->n, n, cx->effects_from, cx->loss};
    w->same = true;
    put(w, head, sizeof head);
    put(w, roots, sizeof *roots * (size_t)n);
    for (int32_t id = 0; id < g->n && w->same; id++) {
        const an_tensor *t = g->node[id];
        const uint8_t counts[] = {t->dtype, t->rank, t->n_src, t->n_attr};
        uint64_t fixed[4] = {t->op, 0, 0, (uint64_t)t->imm_i};
        memcpy((char *)fixed + 4, counts, sizeof counts);
        memcpy(fixed + 1, t->imm, sizeof t->imm);
        put(w, fixed, sizeof fixed);
        put(w, t->shape, sizeof *t->shape * t->rank);
        put(w, t->src, sizeof *t->src * t->n_src);
        put(w, t->attr, sizeof *t->attr * t->n_attr);
    }
}

static an_cached_plan *find_plan(an_ctx *cx, uint64_t key, const int32_t *roots, int n)
{
    for (int i = 0; i < AN_PLAN_CACHE; i++) {
        an_cached_plan *p = &cx->plans[i];
        if (!p->plan || p->key != key) continue;
        writer w = {.with = p->request, .size = p->request_bytes};
        put_request(&w, cx, roots, n);
        if (w.same && w.n == w.size) return p;
    }
    return NULL;
}

static char *request_copy(const an_ctx *cx, const int32_t *roots, int n, size_t *bytes)
{
    writer w = {0};
    put_request(&w, cx, roots, n);
    *bytes = w.n;
    w = (writer){.out = malloc(w.n)};
    if (w.out) put_request(&w, cx, roots, n);
    return w.out;
}

static an_status refuse_if_large(an_ctx *cx, const an_plan *p)
{
    uint64_t budget = cx->options.budget_bytes;
    if (!budget || p->bill.peak_bytes <= budget) return AN_OK;
    char need[16], have[16], big[16];
    const an_value *largest = NULL;
    for (int v = 0; v < p->n_values; v++)
        if (p->value[v].slot == AN_SLOT_ARENA && p->value[v].inside < 0 &&
            (!largest || p->value[v].bytes > largest->bytes))
            largest = &p->value[v];
    return an_fail(&cx->err, AN_E_BUDGET,
                   "%s: the step needs %s, the budget is %s. Largest: %s %s. Try a smaller batch, recompute=on, or a "
                   "larger budget",
                   cx->backend->name, an_bytes_text((double)p->bill.peak_bytes, need),
                   an_bytes_text((double)budget, have), largest ? largest->name : "",
                   largest ? an_bytes_text((double)largest->bytes, big) : "");
}

static an_status make_plan(an_ctx *cx, uint64_t key, const int32_t *roots, int n, an_cached_plan **out)
{
    an_cached_plan *slot = &cx->plans[0];
    for (int i = 0; i < AN_PLAN_CACHE; i++)
        if (!cx->plans[i].plan || (slot->plan && cx->plans[i].used < slot->used)) slot = &cx->plans[i];
    explain_miss(cx);
    an_plan_request rq = {.graph = &cx->graph,
                          .root = roots,
                          .n_roots = n,
                          .effects_from = cx->effects_from,
                          .target = cx->backend->target(cx->device),
                          .leaf = an_leaf_place_of,
                          .pack = an_pack_place,
                          .user = cx,
                          .unfused = cx->options.unfused,
                          .apart = cx->options.place_apart,
                          .verify = cx->options.verify,
                          .recompute = cx->recompute,
                          .loss = cx->loss,
                          .budget_bytes = cx->options.budget_bytes,
                          .persistent_bytes = (uint64_t)an_persistent_bytes(cx, NULL),
                          .dump = cx->options.dump ? dump_to_file : NULL};
    an_plan *p;
    double start = an_seconds();
    an_err_clear(&cx->dump_err);
    AN_TRY(an_plan_make(&cx->err, &rq, &p));
    p->bill.plan_ms = (an_seconds() - start) * 1e3;
    an_status status = refuse_if_large(cx, p);
    if (status == AN_OK && cx->dump_err.code) status = an_fail(&cx->err, cx->dump_err.code, "%s", cx->dump_err.text);
    uint64_t *hashes = status == AN_OK ? malloc(sizeof *hashes * (size_t)(cx->graph.n + 1)) : NULL;
    size_t request_bytes = 0;
    char *request = hashes ? request_copy(cx, roots, n, &request_bytes) : NULL;
    if (!request) {
        free(hashes);
        an_plan_free(p);
        return status != AN_OK ? status : an_fail_nomem(&cx->err, "the plan cache", 0);
    }
    if (slot == cx->last) cx->last = NULL;
    if (slot == cx->ran) cx->n_roots = 0; /* what it left is about to be overwritten */
    drop_plan(cx, slot);
    for (int i = 0; i < cx->graph.n; i++) hashes[i] = cx->graph.node[i]->hash;
    *slot = (an_cached_plan){.key = key,
                             .plan = p,
                             .node_hash = hashes,
                             .n_nodes = cx->graph.n,
                             .request = request,
                             .request_bytes = request_bytes};
    *out = slot;
    return AN_OK;
}

static an_status plan_for(an_ctx *cx, const int32_t *roots, int n, an_cached_plan **out)
{
    uint64_t key = an_hash(roots, sizeof *roots * (size_t)n, cx->graph.key);
    key = an_hash_u64((uint64_t)(uint32_t)cx->effects_from << 32 | (uint32_t)cx->loss, key);
    *out = find_plan(cx, key, roots, n);
    bool found = *out != NULL;
    if (!found) AN_TRY(make_plan(cx, key, roots, n, out));
    (*out)->used = ++cx->clock;
    (*out)->plan->bill.plan_cached = found;
    cx->last = *out;
    return AN_OK;
}

/* ---------------------------------------------------------------------------------------------- running */

static an_status roots_of(an_ctx *cx, const char *at, const char *who, an_tensor *const *t, int n, int32_t *ids)
{
    if (n > 16) {
        an_poison(&cx->graph, AN_E_USAGE, at, "%s: %d tensors; at most 16 are evaluated together", who, n);
        return cx->err.code;
    }
    for (int i = 0; i < n; i++) {
        an_tensor *node = an_use(&cx->graph, t[i], at, who);
        if (node->poison) return cx->err.code ? cx->err.code : AN_E_USAGE;
        ids[i] = node->id;
    }
    return cx->err.code;
}

/* Kernels clamp an id, so a wrong one would pass unseen: those that the caller gave are looked at here. */
static an_status check_ids(an_ctx *cx)
{
    an_graph *g = &cx->graph;
    for (const an_id_range *r = g->id_ranges; r; r = r->next) {
        const an_tensor *leaf = g->node[r->leaf];
        const int32_t *id = cx->input[leaf->attr[1]].data;
        int64_t i = id ? 0 : leaf->numel;
        while (i < leaf->numel && id[i] < r->limit && (id[i] >= 0 || r->negative_too)) i++;
        if (i == leaf->numel) continue;
        char shape[128];
        int32_t scope = g->scope;
        g->scope = r->scope; /* where it was built */
        an_poison(g, AN_E_DATA, r->at, "%s: element %lld of the int32 input %s is %d, outside [0,%d)", r->doing,
                  (long long)i, an_shape_text(leaf->rank, leaf->shape, shape, sizeof shape), (int)id[i], (int)r->limit);
        g->scope = scope;
        return cx->err.code;
    }
    return AN_OK;
}

static an_status check_data(an_ctx *cx)
{
    for (int i = 0; i < cx->n_inputs; i++)
        if (!cx->input[i].data)
            return an_poison(&cx->graph, AN_E_USAGE, cx->input[i].at,
                             "an_input: data is NULL; a step without it can be planned (an_plan) and not run"),
                   cx->err.code;
    return AN_OK;
}

static an_status prepare(an_ctx *cx, const char *at, const char *who, an_tensor *const *t, int n, int32_t *ids,
                         an_cached_plan **out)
{
    if (cx->err.code) return cx->err.code;
    if (!cx->device) return AN_E_ENV;
    AN_TRY(an_still_whole(cx));
    AN_TRY(an_freeze(cx));
    AN_TRY(roots_of(cx, at, who, t, n, ids));
    AN_TRY(check_ids(cx));
    an_flush_gradients(cx);
    if (cx->err.code) return cx->err.code;
    *out = NULL;
    return an_is_ref(cx) ? AN_OK : plan_for(cx, ids, n, out); /* the oracle evaluates nodes and has no plan */
}

static an_status eval(an_ctx *cx, const char *at, an_tensor *const *t, int n)
{
    an_cached_plan *c;
    int32_t ids[16];
    cx->n_roots = 0;
    AN_TRY(check_data(cx));
    AN_TRY(prepare(cx, at, "an_eval", t, n, ids, &c));
    AN_TRY(c ? an_run_plan(cx, c) : an_oracle_run(cx, ids, n));
    cx->ran = c;
    for (int b = 0; b < cx->n_blocks; b++) {
        cx->block[b].pending = cx->block[b].after;
        cx->block[b].sum = NULL;
    }
    cx->updates = cx->updates_after;
    cx->effects_from = cx->graph.n;
    memcpy(cx->root, ids, sizeof *ids * (size_t)n);
    cx->n_roots = n;
    cx->root_epoch = cx->graph.epoch;
    return an_note_peek(cx);
}

static an_ctx *ctx_of(an_tensor *const *t, int n)
{
    for (int i = 0; i < n; i++)
        if (t[i]) return t[i]->g->owner;
    return NULL;
}

an_status an_eval_at(const char *at, an_tensor *const *roots, int n)
{
    an_ctx *cx = ctx_of(roots, n);
    return cx ? eval(cx, at, roots, n) : AN_E_USAGE;
}

an_status an_eval_effects_at(const char *at, an_ctx *cx)
{
    return cx ? eval(cx, at, NULL, 0) : AN_E_USAGE;
}

an_status an_plan_at(const char *at, an_tensor *const *roots, int n)
{
    an_ctx *cx = ctx_of(roots, n);
    an_cached_plan *c;
    int32_t ids[16];
    if (!cx) return AN_E_USAGE;
    if (an_is_ref(cx))
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "an_plan: the device ref evaluates node by node and has no plan; use device=null:cpu for the "
                       "plan of a CPU");
    return prepare(cx, at, "an_plan", roots, n, ids, &c);
}

/* ---------------------------------------------------------------------------------------------- reporting */

an_status an_report(const an_ctx *cx, an_bill *out)
{
    if (!cx || !out || !cx->last) return AN_E_USAGE;
    *out = cx->last->plan->bill;
    uint64_t by[AN_N_USES] = {0};
    out->peak_bytes = (uint64_t)an_persistent_bytes(cx, by) + (uint64_t)cx->last->plan->arena_bytes + out->input_bytes;
    out->weight_bytes = by[AN_USE_WEIGHT];
    out->gradient_bytes += by[AN_USE_GRADIENT];
    out->moment_bytes = by[AN_USE_MOMENT];
    out->state_bytes = by[AN_USE_STATE];
    for (int s = 0; cx->last->exec && s < cx->last->plan->n_steps; s++)
        if (cx->last->plan->step[s].fallback)
            out->fallback_ms += 1e3 * cx->backend->step_seconds(cx->device, cx->last->exec, s);
    out->allocated_bytes = cx->allocated_bytes;
    out->allocations = cx->allocations;
    out->syncs = cx->syncs;
    out->waits = cx->waits;
    out->stalls = cx->stalls;
    return AN_OK;
}

const char *an_report_text(an_ctx *cx, const char *what)
{
    if (!cx || !what) return NULL;
    if (!strcmp(what, "device")) return cx->device_text;
    if (!strcmp(what, "miss")) return cx->miss;
    if (!strcmp(what, "warning")) return cx->warning;
    if (!cx->last) return NULL;
    if (!strcmp(what, "note")) return cx->last->stats.note;
    if (!strcmp(what, "plan")) return cx->last->plan->text_plan;
    if (!strcmp(what, "memory")) return cx->last->plan->text_memory;
    if (strcmp(what, "kernels") && strcmp(what, "time") && strcmp(what, "chips")) return NULL;
    an_text t = {0};
    const an_plan *p = cx->last->plan;
    if (!strcmp(what, "kernels")) {
        an_render_plan(cx->backend->target(cx->device)->dialect, p, &t);
    } else if (!strcmp(what, "chips")) {
        if (!cx->backend->estimate) return NULL;
        cx->backend->estimate(p, &t);
    } else if (cx->last->exec) {
        an_wait_idle(cx);
        for (int s = 0; s < p->n_steps; s++) {
            double sec = cx->backend->step_seconds(cx->device, cx->last->exec, s);
            an_text_printf(&t, "%4d %9.1f us %8.1f GFLOP/s %7.1f GB/s  %s\n", s, sec * 1e6,
                           (double)p->step[s].flops / AN_MAX(sec, 1e-9) * 1e-9,
                           (double)p->step[s].bytes / AN_MAX(sec, 1e-9) * 1e-9, p->kernel[p->step[s].kernel].name);
        }
    }
    free(cx->text);
    return cx->text = t.data;
}

double an_fma_peak(an_ctx *cx, an_dtype dtype)
{
    if (!cx || !cx->device || !cx->backend->fma_peak) return 0;
    return cx->backend->fma_peak(cx->device, dtype, 0.05);
}

const char *an_dtype_text(an_dtype t)
{
    return an_dtype_name(t);
}
size_t an_dtype_size(an_dtype t)
{
    return an_dtype_bytes(t);
}

bool an_dtype_parse(const char *name, an_dtype *out)
{
    static const struct {
        const char *name;
        an_dtype t;
    } also[] = {{"f32", AN_F32}, {"fp32", AN_F32}, {"bf16", AN_BF16}, {"f16", AN_F16}, {"fp16", AN_F16},
                {"f64", AN_F64}, {"i32", AN_I32},  {"i64", AN_I64},   {"u8", AN_U8}};
    for (int t = 0; name && t < AN_N_DTYPES; t++)
        if (!strcmp(name, an_dtype_name((an_dtype)t))) {
            *out = (an_dtype)t;
            return true;
        }
    for (size_t i = 0; name && i < AN_COUNT(also); i++)
        if (!strcmp(name, also[i].name)) {
            *out = also[i].t;
            return true;
        }
    return false;
}
