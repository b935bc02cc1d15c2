/* plan_cache.c: looking plans up by key (hit, miss, eviction), making them when they are not there, refusing those over the
 * memory budget, freeing them. Caches of compiled kernels on disk: device/kernel_cache.h.
 *
 * Owns:     cx->plans (least recently used out), the explanation of a miss, the dumps of planner passes.
 * Does not: plan (planner/) or run (execute.c).
 *
 * Invariant: a plan is reused only if the graph, the roots, and what of the context changes after it was opened (effects,
 * loss, averages, and with a budget the bytes of its variables) are equal, byte for byte; the 64-bit key only finds
 * candidates. All else that a plan is made from is fixed when the context is opened.
 */
#include "runtime/plan_cache.h"

#include "base/text.h"
#include "platform/platform.h"
#include "runtime/buffers.h"
#include "runtime/in_flight.h"
#include "runtime/param_blocks.h"
#include "runtime/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void dump_to_file(void *user, const char *pass, const char *text)
{
    an_ctx *cx = user;
    char path[1024];
    an_err quiet = {0};
    an_save s;
    if (!an_dump_wants(cx->options.dump, pass)) return;
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

/* ---------------------------------------------------------------------------------------------- the request as bytes */

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
    const int32_t head[] = {g->n, n, cx->effects_from, cx->loss, cx->averages};
    w->same = true;
    put(w, head, sizeof head);
    if (cx->options.budget_bytes) {
        const uint64_t persistent = (uint64_t)an_persistent_bytes(cx, NULL);
        put(w, &persistent, sizeof persistent);
    }
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

/* ---------------------------------------------------------------------------------------------- finding and making */

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

static void drop_plan(an_ctx *cx, an_cached_plan *p)
{
    if (p->exec) {
        an_wait_idle(cx); /* a failure is returned by the next call that reports errors */
        cx->backend->unload(cx->device, p->exec);
    }
    an_plan_free(p->plan);
    free(p->node_hash);
    free(p->request);
    *p = (an_cached_plan){0};
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
                          .isolate_values = cx->options.place_apart,
                          .verify = cx->options.verify,
                          .on_cpu = cx->backend->target(cx->device)->cpu_steps ? cx->options.on_cpu : NULL,
                          .gather_ahead = !cx->no_overlap && cx->backend->target(cx->device)->side_by_side,
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
    if (slot == cx->ran) cx->n_roots = 0; /* its results in the arena are about to be overwritten */
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

an_status an_plan_cache_get(an_ctx *cx, const int32_t *roots, int n, an_cached_plan **out)
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

void an_plan_cache_trim(an_ctx *cx, const an_cached_plan *kept)
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
    if (cx->arena.bytes && cx->arena.bytes != arena) an_device_free(cx, &cx->arena);
    for (int i = 0; i < AN_MAX_IN_FLIGHT; i++)
        if (cx->inputs[i].bytes && cx->inputs[i].bytes != inputs) an_device_free(cx, &cx->inputs[i]);
}

void an_plan_cache_close(an_ctx *cx)
{
    for (int i = 0; i < AN_PLAN_CACHE; i++) drop_plan(cx, &cx->plans[i]);
}
