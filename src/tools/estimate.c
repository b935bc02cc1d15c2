/* estimate.c: the memory of a run before it starts. Plans its three graphs (first micro-batch, update, evaluation),
 * takes the largest arena of them, and adds data, loader and the process itself. Nothing runs.
 *
 *     total_bytes   = largest plan + data + loader + host buffers        exact
 *     process_bytes = resident memory now + margin + loader threads      estimated
 *     address_bytes = total_bytes + address space of the process         estimated */
#define _DEFAULT_SOURCE
#include "tools/estimate.h"
#include "comm/comm.h"
#include "train/step.h"
#include "io/formats/json.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- plans */

typedef enum plan_kind { FIRST, UPDATE, EVALUATION, N_PLANS } plan_kind;

/* Plans one of the three graphs of a run and reads its cost report. */
static an_status plan_one(an_err *err, an_session *r, plan_kind kind, an_bill *out)
{
    const an_train_config *c = &r->cfg;
    an_status status;
    an_use_averages(r->cx, kind == EVALUATION && c->ema);
    if (kind == EVALUATION) {
        status = an_plan(an_step_evaluation(r->cx, r->model, c, 0, NULL));
    } else {
        const int64_t micro = kind == FIRST ? 0 : c->gradient_accumulation_steps - 1;
        /* As in the run, where the micro-batches before the update have left a sum. */
        an_assume_kept_gradients(r->cx, kind == UPDATE && an_train_micros(c) > 1);
        const an_step s = an_step_build(r->cx, r->model, c, 0, micro, NULL);
        status = an_step_plan(&s);
    }
    status = an_session_result(err, r->cx, status);
    if (status == AN_OK) status = an_session_result(err, r->cx, an_report(r->cx, out));
    an_reset(r->cx);
    an_assume_kept_gradients(r->cx, false);
    an_use_averages(r->cx, false);
    return status;
}

/* Plans all graphs twice: a plan may declare persistent buffers (gradients kept across micro-batches) that count in the
 * plans made before it. The update is planned last, so that reports on the last plan are about the update. */
static an_status plan_all(an_err *err, an_session *r, an_bill bill[N_PLANS])
{
    static const plan_kind order[] = {FIRST, EVALUATION, UPDATE};
    an_status status = AN_OK;
    for (int pass = 0; pass < 2 && status == AN_OK; pass++)
        for (int i = 0; i < N_PLANS && status == AN_OK; i++)
            if (order[i] != FIRST || an_train_micros(&r->cfg) > 1) status = plan_one(err, r, order[i], &bill[order[i]]);
    return status;
}

/* The run's bill: all plans share one arena and one input block, each as large as the largest plan needs. */
static void join_bills(const an_bill bill[N_PLANS], an_bill *out)
{
    uint64_t rest = 0, inputs = 0;
    plan_kind fullest = UPDATE;
    for (plan_kind k = FIRST; k < N_PLANS; k++) {
        const uint64_t mine = bill[k].peak_bytes - bill[k].input_bytes;
        if (mine > rest) rest = mine, fullest = k;
        if (bill[k].input_bytes > inputs) inputs = bill[k].input_bytes;
    }
    *out = bill[UPDATE];
    out->gradient_bytes = bill[fullest].gradient_bytes;
    out->activation_bytes = bill[fullest].activation_bytes;
    out->scratch_bytes = bill[fullest].scratch_bytes;
    out->input_bytes = inputs;
    out->peak_bytes = rest + inputs;
}

/* ---- host memory and the process */

/* First and second field of /proc/self/statm in bytes; elsewhere the highest resident size so far, twice. */
static void size_now(uint64_t *address, uint64_t *resident)
{
    unsigned long long pages[2];
    FILE *f = fopen("/proc/self/statm", "r");
    const bool known = f && fscanf(f, "%llu %llu", &pages[0], &pages[1]) == 2;
    if (f) fclose(f);
    if (known) {
        const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        *address = pages[0] * page;
        *resident = pages[1] * page;
        return;
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
#if defined(__APPLE__)
    *address = *resident = (uint64_t)usage.ru_maxrss; /* bytes there, KiB elsewhere */
#else
    *address = *resident = 1024 * (uint64_t)usage.ru_maxrss;
#endif
}

/* Per loader thread: its stack and the address space that the C library reserves for its heap (glibc: 64 MiB, aligned,
 * so up to twice that for a moment); of both it touches little. */
enum { STACK_BYTES = 8 << 20, RESERVE_BYTES = 128 << 20, TOUCHED_BYTES = 256 << 10 };

static void add_process(const an_train_config *c, an_estimate *p)
{
    uint64_t address, resident;
    size_now(&address, &resident);
    const uint64_t threads = (uint64_t)c->workers;
    p->process_bytes =
        (resident > p->data_bytes ? resident - p->data_bytes : 0) + AN_ESTIMATE_MARGIN_BYTES + threads * TOUCHED_BYTES;
    p->address_bytes = address - AN_MIN(address, p->data_bytes) + p->total_bytes + AN_ESTIMATE_MARGIN_BYTES +
                       threads * (STACK_BYTES + RESERVE_BYTES);
}

/* Whether the context runs on a GPU, and whether that GPU shares the host's memory. */
static bool runs_on_gpu(const an_ctx *cx, bool *shares_memory)
{
    an_device_facts f;
    const bool gpu = an_device_opened(cx, &f) && f.gpu;
    *shares_memory = gpu && !f.own_memory;
    return gpu;
}

uint64_t an_estimate_driver(const an_ctx *cx)
{
    an_memory m;
    an_device_facts f;
    if (!an_device_opened(cx, &f) || !f.gpu || an_memory_read(cx, &m) != AN_OK || m.driver_bytes < m.requested_bytes)
        return 0;
    return m.driver_bytes - m.requested_bytes;
}

static void add_device(const an_ctx *cx, an_estimate *p)
{
    an_memory m;
    if (!runs_on_gpu(cx, &p->device_shares) || an_memory_read(cx, &m) != AN_OK || !m.recommended_bytes) return;
    p->device_limit_bytes = m.high_bytes;
    p->driver_bytes = an_estimate_driver(cx);
}

static void complete(const an_train_config *c, const an_task_data *data, an_estimate *p)
{
    p->data_bytes = data ? data->bytes : 0;
    p->worker_bytes = an_session_loader_bytes(c);
    p->host_bytes = an_session_buffer_bytes(c);
    p->total_bytes = p->bill.peak_bytes + p->data_bytes + p->worker_bytes + p->host_bytes;
    add_process(c, p);
}

const char *an_estimate_name(const struct an_plan_tensor *t, char out[160])
{
    const char *name = t->name + strspn(t->name, " "); /* a name without scope begins with a blank */
    if (strchr(name, '.') || !*t->scope)
        snprintf(out, 160, "%s", name);
    else
        snprintf(out, 160, "%s of %s", name, t->scope);
    return out;
}

static void find_largest(const an_ctx *cx, an_estimate *out)
{
    an_plan_tensor t;
    for (int i = 0; i < an_plan_tensor_count(cx); i++)
        if (an_plan_tensor_get(cx, i, &t) && t.bytes > out->largest_bytes) {
            out->largest_bytes = t.bytes;
            an_estimate_name(&t, out->largest);
        }
}

an_status an_estimate_run(an_err *err, an_session *r, an_estimate *out)
{
    an_bill bill[N_PLANS] = {{0}};
    *out = (an_estimate){0};
    AN_TRY(plan_all(err, r, bill));
    char quoted[AN_QUOTED_BYTES];
    const char *nowhere = an_planned_unplaced(r->cx);
    if (nowhere)
        return an_fail(err, AN_E_USAGE,
                       "place=: no launch of an update has the scope %s; anneal plan with show=plan and without place= "
                       "lists them, a launch a line with its scope",
                       an_quoted(nowhere, quoted));
    join_bills(bill, &out->bill);
    find_largest(r->cx, out);
    add_device(r->cx, out);
    complete(&r->cfg, r->data, out);
    return AN_OK;
}

an_status an_estimate_settings(an_err *err, const an_train_config *c, const an_task_data *data, an_estimate *out)
{
    an_train_config cfg = *c;
    an_session *r;
    cfg.budget = 0;
    AN_TRY(an_session_open(err, &cfg, NULL, AN_RUN_PARAMETERS_ONLY, &r));
    an_status status = an_estimate_run(err, r, out);
    if (status == AN_OK) complete(&cfg, data, out);
    an_session_close(r);
    return status;
}
