/* introspect.c: facts about devices, the compiler and its cache, and the last plan, for the tools (anneal_tools.h).
 *
 * Does not: change anything. Checking kernels is in check_kernels.c.
 */
#define _DEFAULT_SOURCE  /* lstat on Linux ... */
#define _DARWIN_C_SOURCE /* ... and on macOS */
#include "device/kernel_cache.h"
#include "runtime/introspect.h"
#include "platform/platform.h"

#include <anneal_tools.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---------------------------------------------------------------------------------------------- devices */

double an_device_busy_seconds(const an_ctx *cx)
{
    return cx && cx->device && cx->backend->busy_seconds ? cx->backend->busy_seconds(cx->device) : -1;
}

bool an_gates_rows(const an_tensor *x, int64_t m, int64_t n, int64_t k)
{
    const an_ctx *cx = x->g->owner;
    if (!cx->device || x->g->matmul_dtype != AN_BF16 || x->dtype == AN_F64) return false;
    const an_target *t = cx->backend->target(cx->device);
    return t->gates && t->gates(t, m, n, k) != AN_GATES_NOT;
}

bool an_mac_state(int *thermal, int *low_power)
{
    int n;
    const an_backend *const *all = an_backend_all(&n);
    for (int i = 0; i < n; i++)
        if (all[i]->power_state) return all[i]->power_state(thermal, low_power);
    *thermal = *low_power = -1;
    return false;
}

static const an_backend *backend_with_awake(void)
{
    int n;
    const an_backend *const *all = an_backend_all(&n);
    for (int i = 0; i < n; i++)
        if (all[i]->awake_begin) return all[i];
    return NULL;
}

void *an_awake_begin(void)
{
    const an_backend *b = backend_with_awake();
    return b ? b->awake_begin() : NULL;
}

void an_awake_end(void *token)
{
    const an_backend *b = backend_with_awake();
    if (b && token) b->awake_end(token);
}

/* What is known of a backend without asking its driver. */
static void describe(const an_backend *b, an_device_facts *out)
{
    *out = (an_device_facts){.runs = !b->plans_only && !b->evaluates_nodes,
                             .gpu = b->gpu,
                             .own_memory = b->own_memory,
                             .plans_only = b->plans_only,
                             .bench_side = b->bench_side ? b->bench_side : 1024};
    snprintf(out->name, sizeof out->name, "%s", b->name);
    snprintf(out->planned_by, sizeof out->planned_by, "%s", b->planned_by ? b->planned_by : "");
}

static void ask(const an_backend *b, an_device_facts *out)
{
    an_device_info info = {0};
    describe(b, out);
    out->available = b->probe(&info) != 0;
    out->built = info.built;
    snprintf(out->reason, sizeof out->reason, "%s", info.reason);
}

int an_devices(an_device_facts *out, int cap)
{
    int n;
    const an_backend *const *all = an_backend_all(&n);
    for (int i = 0; i < n && i < cap; i++) ask(all[i], &out[i]);
    return n;
}

bool an_device_find(const char *name, an_device_facts *out)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, name);
    if (b) ask(b, out);
    return b != NULL;
}

void an_device_modes(const char *name, bool *exact, bool *tf32)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, name);
    const an_device_options o = {.exact = *exact, .tf32 = *tf32};
    *tf32 = false;
    if (b && b->modes) b->modes(&o, exact, tf32);
}

const char *an_device_auto(void)
{
    const an_backend *b = NULL;
    for (int i = 0; an_backend_auto(i); i++) {
        an_device_info info = {0};
        b = an_backend_auto(i);
        if (b->probe(&info)) break;
    }
    return b->name;
}

bool an_device_opened(const an_ctx *cx, an_device_facts *out)
{
    if (!cx || !cx->device) return false;
    describe(cx->backend, out);
    out->available = out->built = true;
    return true;
}

bool an_device_examine(const char *name, an_self_check_fn *tell, void *user)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, name);
    if (!b || !b->self_check) return false;
    b->self_check(tell, user);
    return true;
}

const char *an_device_isa(const an_ctx *cx)
{
    return cx && cx->device && cx->backend->isa ? cx->backend->isa(cx->device) : NULL;
}

const char *an_isa_of_bits(const char *device, const char *began)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, device);
    return b && b->isa_as ? b->isa_as(began) : NULL;
}

void an_isa_rates_of(const char *device, an_isa_rate_fn *tell, void *user)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, device);
    if (b && b->isa_rates) b->isa_rates(tell, user);
}

const char *an_gemm_body(const an_ctx *cx, int i)
{
    return cx && cx->device && cx->backend->gemm_body ? cx->backend->gemm_body(i) : NULL;
}

void an_gemm_body_use(an_ctx *cx, an_dtype dtype, int i)
{
    if (an_gemm_body(cx, i)) cx->backend->gemm_use(cx->device, dtype, i);
}

an_status an_gemm_body_keep(an_ctx *cx)
{
    return an_gemm_body(cx, 0) ? cx->backend->gemm_keep(&cx->err, cx->device) : AN_OK;
}

void an_device_links(const char *name, an_self_check_fn *tell, void *user)
{
    an_err quiet = {0};
    const an_backend *b = an_backend_find(&quiet, name);
    if (b && b->links) b->links(tell, user);
}

/* ---------------------------------------------------------------------------------------------- the compiler */

/* The first line of `cc --version`. */
static void ask_version(const char *path, char *out, size_t cap)
{
    char said[2048] = "";
    int code = -1;
    an_err quiet = {0};
    if (an_spawn(&quiet, (const char *const[]){path, "--version", NULL}, 10, said, sizeof said, &code) == AN_OK &&
        code == 0)
        snprintf(out, cap, "%.*s", (int)AN_MIN(strcspn(said, "\r\n"), cap - 1), said);
}

static void find_compiler(const an_device_options *o, an_device_compiler *out)
{
    int n;
    const an_backend *const *all = an_backend_all(&n);
    for (int i = 0; i < n; i++)
        if (all[i]->find_compiler) {
            all[i]->find_compiler(o, out);
            return;
        }
}

uint64_t an_cache_clean(const char *cache_dir, int64_t *files)
{
    return an_cache_trim(cache_dir, 0, files);
}

void an_cache_folder(char folder[900], char why[512])
{
    an_device_compiler c = {0};
    find_compiler(&(an_device_options){.cc = NULL}, &c);
    snprintf(folder, 900, "%s", c.cache_dir);
    snprintf(why, 512, "%s", c.why_cache);
}

void an_compiler_facts_read(const char *cc, const char *cache_dir, an_compiler_facts *out)
{
    an_device_compiler c = {0};
    *out = (an_compiler_facts){0};
    find_compiler(&(an_device_options){.cc = cc, .cache_dir = cache_dir}, &c);
    snprintf(out->path, sizeof out->path, "%s", c.path);
    snprintf(out->why, sizeof out->why, "%s", c.why);
    snprintf(out->cache_dir, sizeof out->cache_dir, "%s", c.cache_dir);
    snprintf(out->why_cache, sizeof out->why_cache, "%s", c.why_cache);
    if (c.path[0]) ask_version(c.path, out->version, sizeof out->version);
    DIR *d = c.cache_dir[0] ? opendir(c.cache_dir) : NULL;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[1200];
        struct stat st;
        snprintf(path, sizeof path, "%s/%.255s", c.cache_dir, e->d_name);
        if (e->d_name[0] == '.' || lstat(path, &st) != 0 || !S_ISREG(st.st_mode)) continue;
        out->cached_files++;
        out->cached_bytes += (int64_t)st.st_size;
    }
    if (d != NULL) closedir(d);
}

/* ---------------------------------------------------------------------------------------------- launches */

const char *an_kernel_kind_text(an_kernel_kind kind)
{
    static const char *const names[] = {[AN_KERNEL_LOOP] = "row",        [AN_KERNEL_GEMM] = "product",
                                        [AN_KERNEL_ATTN] = "attention",  [AN_KERNEL_ATTN_GRAD] = "attention'",
                                        [AN_KERNEL_SCATTER] = "scatter", [AN_KERNEL_CALL] = "call",
                                        [AN_KERNEL_ZERO] = "zero",       [AN_KERNEL_COPY] = "copy",
                                        [AN_KERNEL_ROW_UPDATE] = "put"};
    return (size_t)kind < AN_COUNT(names) && names[kind] ? names[kind] : "other";
}

void an_profile(an_ctx *cx, bool on)
{
    if (cx && cx->device && cx->backend->profile) cx->backend->profile(cx->device, on);
}

int an_launch_count(const an_ctx *cx)
{
    return cx && cx->last && cx->last->exec ? cx->last->plan->n_steps : 0;
}

int an_planned_launch_count(const an_ctx *cx)
{
    return cx && cx->last ? cx->last->plan->n_steps : 0;
}

bool an_planned_launch_get(const an_ctx *cx, int i, an_launch *out)
{
    static const char *const phases[] = {
        [AN_PHASE_FORWARD] = "forward", [AN_PHASE_BACKWARD] = "backward", [AN_PHASE_UPDATE] = "update"};
    if (i < 0 || i >= an_planned_launch_count(cx)) return false;
    const an_plan *p = cx->last->plan;
    const an_plan_step *s = &p->step[i];
    *out = (an_launch){.kernel = p->kernel[s->kernel].name,
                       .scope = s->scope ? s->scope : "",
                       .kind = an_kernel_kind_text(p->kernel[s->kernel].kind),
                       .enqueue_s = -1,
                       .begin_s = -1,
                       .flops = s->flops,
                       .bytes = s->bytes,
                       .recompute = s->recompute,
                       .fallback = s->fallback,
                       .placed = s->placed,
                       .exchange = an_kernel_is_exchange(&p->kernel[s->kernel]),
                       .phase = phases[s->phase]};
    an_text shape = {0};
    an_plan_shape(p, i, &shape);
    if (shape.data && !shape.failed) snprintf(out->shape, sizeof out->shape, "%s", shape.data);
    an_text_free(&shape);
    return true;
}

an_cpu_launches an_planned_on_cpu(const an_ctx *cx)
{
    an_cpu_launches n = {0};
    for (int i = 0; i < an_planned_launch_count(cx); i++) {
        const an_plan_step *s = &cx->last->plan->step[i];
        n.all += s->fallback;
        n.placed += s->placed;
        n.turns += s->fallback && !(i > 0 && s[-1].fallback);
    }
    return n;
}

static bool is_placed(const an_plan *p, const char *scope)
{
    for (int s = 0; s < p->n_steps; s++)
        if (p->step[s].placed && an_glob_list(scope, p->step[s].scope ? p->step[s].scope : "")) return true;
    return false;
}

const char *an_planned_unplaced(an_ctx *cx)
{
    an_text all = {0};
    if (!cx || !cx->last || !cx->options.on_cpu || !cx->backend->target(cx->device)->cpu_steps) return NULL;
    for (const char *at = cx->options.on_cpu; *at;) {
        const size_t length = strcspn(at, ",");
        an_text scope = {0};
        an_text_putn(&scope, at, length);
        if (length && scope.data && !is_placed(cx->last->plan, scope.data))
            an_text_printf(&all, "%s%s", all.len ? ", " : "", scope.data);
        an_text_free(&scope);
        at += length + (at[length] == ',');
    }
    free(cx->text);
    return cx->text = all.data;
}

bool an_launch_get(const an_ctx *cx, int i, an_launch *out)
{
    if (i >= an_launch_count(cx) || !an_planned_launch_get(cx, i, out)) return false;
    out->device_s = cx->backend->step_seconds(cx->device, cx->last->exec, i);
    if (cx->backend->step_begin) out->begin_s = cx->backend->step_begin(cx->device, cx->last->exec, i);
    if (cx->backend->enqueue_seconds) out->enqueue_s = cx->backend->enqueue_seconds(cx->device, cx->last->exec, i);
    return true;
}

/* ---- exchanges beside other launches */

static int earlier_first(const void *x, const void *y)
{
    const an_launch *a = x, *b = y;
    return a->begin_s < b->begin_s ? -1 : a->begin_s > b->begin_s;
}

/* The part of [from, to) in which launches that are no exchanges run; they are ordered by when they began. */
static double covered(const an_launch *launch, int n, double from, double to)
{
    double sum = 0;
    for (int i = 0; i < n && launch[i].begin_s < to; i++) {
        const double end = AN_MIN(launch[i].begin_s + launch[i].device_s, to), begin = AN_MAX(launch[i].begin_s, from);
        if (launch[i].exchange || end <= begin) continue;
        sum += end - begin;
        from = end;
    }
    return sum;
}

an_exchange_time an_exchange_time_of(an_launch *launch, int n)
{
    an_exchange_time t = {0};
    double end = 0; /* of the exchanges so far: they follow one another */
    qsort(launch, (size_t)n, sizeof *launch, earlier_first);
    for (int i = 0; i < n; i++) {
        const an_launch *l = &launch[i];
        if (!l->exchange) continue;
        const bool in_turn = l->begin_s < 0;
        const double begin = in_turn ? 0 : AN_MAX(l->begin_s, end),
                     until = in_turn ? l->device_s : l->begin_s + l->device_s;
        if (until <= begin) continue;
        t.exchange_s += until - begin;
        t.exposed_s += until - begin - (in_turn ? 0 : covered(launch, n, begin, until));
        if (!in_turn) end = until;
    }
    return t;
}

an_status an_exchange_time_read(an_ctx *cx, an_exchange_time *out)
{
    const int all = an_launch_count(cx);
    int n = 0;
    *out = (an_exchange_time){0};
    if (!all) return AN_OK;
    an_launch *launch = malloc((size_t)all * sizeof *launch);
    if (!launch) return an_fail_nomem(&cx->err, "the times of launches", (size_t)all * sizeof *launch);
    for (int i = 0; i < all; i++)
        if (an_launch_get(cx, i, &launch[n]) && launch[n].device_s > 0) n++;
    *out = an_exchange_time_of(launch, n);
    free(launch);
    return AN_OK;
}

int an_plan_tensor_count(const an_ctx *cx)
{
    return cx && cx->last ? cx->last->plan->n_values : 0;
}

bool an_plan_tensor_get(const an_ctx *cx, int i, an_plan_tensor *out)
{
    static const char *const kinds[AN_N_USES] = {
        [AN_USE_WEIGHT] = "weights", [AN_USE_GRADIENT] = "gradients",     [AN_USE_MOMENT] = "moments",
        [AN_USE_STATE] = "state",    [AN_USE_ACTIVATION] = "activations", [AN_USE_SCRATCH] = "scratch",
        [AN_USE_INPUT] = "inputs"};
    if (i < 0 || i >= an_plan_tensor_count(cx)) return false;
    const an_plan *p = cx->last->plan;
    const an_value *v = &p->value[i];
    if (v->slot != AN_SLOT_ARENA || v->inside >= 0 || v->first < 0) return false;
    *out = (an_plan_tensor){.name = v->name ? v->name : "",
                            .kind = kinds[v->usage],
                            .scope = v->first < p->n_steps && p->step[v->first].scope ? p->step[v->first].scope : "",
                            .bytes = (uint64_t)v->bytes,
                            .first = v->first,
                            .last = AN_MIN(v->last, p->n_steps - 1)};
    return true;
}
