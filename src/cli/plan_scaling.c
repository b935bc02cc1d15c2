/* plan_scaling.c: what `anneal plan` says of several devices: the bill of one rank, and how fast they would be together. */
#include "cli/cmd_plan.h"
#include "comm/comm.h"
#include "tools/scaling.h"
#include "tools/step_trace.h"
#include "train/session_ranks.h"
#include <anneal_tools.h>
#include <math.h>
#include <string.h>

/* Makes the run that is planned one of so many ranks, which are never started. */
an_status an_plan_be_rank(an_err *err, an_plan_scaling *v, an_train_config *c)
{
    if (v->ranks > 0 && v->devices > 1 && v->ranks != v->devices)
        return an_fail(err, AN_E_USAGE, "ranks=%lld and devices=%lld: each device is a rank; leave one of them out",
                       (long long)v->ranks, (long long)v->devices);
    v->devices = AN_MAX(v->devices, v->ranks);
    if (v->update_ms > 0 && v->devices < 2)
        return an_fail(err, AN_E_USAGE, "update_ms= is for a prediction of several devices: add devices=2 or more");
    if (v->devices < 2) return AN_OK;
    AN_TRY(an_ranks_check_division_by(err, c, v->devices));
    const int ranks = (int)AN_MIN(v->devices, AN_COMM_RANKS);
    if (v->devices > ranks) {
        an_say("note    the bill is that of a rank of %d, the most that a job has", ranks);
        c->gradient_accumulation_steps =
            c->gradient_accumulation_steps / v->devices * ranks; /* a rank's as they were */
    }
    AN_TRY(an_comm_new(err, ranks, &c->comm));
    an_comm_become(c->comm, 0);
    return AN_OK;
}

/* Bytes that an update exchanges, as those of sums over all ranks: each is a reduce-scatter and a gather, of half the
 * bytes. */
static double exchanged_bytes(const an_train_config *c, double parameters)
{
    const double gradients = (c->exchange_dtype == AN_BF16 ? 2.0 : 4.0) * parameters, weights = 4.0 * parameters,
                 micros = (double)an_train_micros(c);
    if (strcmp(c->shard, "none") == 0) return gradients;
    if (strcmp(c->shard, "moments") == 0) return (gradients + weights) / 2;
    if (strcmp(c->shard, "gradients") == 0) return (micros * gradients + weights) / 2;
    return micros * (gradients / 2 + weights); /* weights twice */
}

static void work_of(const an_session *r, const an_plan_scaling *v, an_scaling_work *out)
{
    const an_train_config *c = &r->cfg;
    an_model_counts counts;
    c->model->count(an_model_settings(c), c->batch_size, &counts);
    *out = (an_scaling_work){.update_s = 1e-3 * v->update_ms,
                             .exchanged_bytes = exchanged_bytes(c, (double)counts.parameters),
                             .micros = an_train_micros(c),
                             .overlap = c->overlap && !c->exact && c->exchange_dtype == AN_F32 &&
                                        strcmp(c->shard, "none") == 0 && an_plans_for_gpu(r->cx)};
}

/* 2, 4, 8, ... and the number asked for. */
static int64_t more(int64_t n, int64_t most)
{
    return n < most ? AN_MIN(2 * n, most) : most + 1;
}

void an_plan_put_scaling(const an_session *r, const an_plan_scaling *v, an_text *out)
{
    an_scaling_work work;
    if (v->devices < 2) return;
    an_text_printf(out, ",\"ranks\":%lld", (long long)v->devices);
    if (!(v->update_ms > 0)) return;
    work_of(r, v, &work);
    an_text_printf(out, ",\"link\":\"%s\",\"scaling\":[", v->link);
    for (int64_t n = 2; n <= v->devices; n = more(n, v->devices)) {
        an_scaling s;
        an_scaling_predict(&work, an_link_find(v->link), n, &s);
        an_text_printf(out, "%s{\"devices\":%lld", n > 2 ? "," : "", (long long)n);
        an_put_json(out, "exchange_ms", 1e3 * s.exchange_s);
        an_put_json(out, "exposed_ms", 1e3 * s.exposed_s);
        an_put_json(out, "update_ms", 1e3 * s.update_s);
        an_put_json(out, "efficiency", s.efficiency);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]");
}

void an_plan_print_scaling(const an_session *r, const an_plan_scaling *v)
{
    an_scaling_work work;
    char text[16];
    if (v->devices < 2) return;
    const an_link *link = an_link_find(v->link);
    printf("devices        the bill is that of one rank; ranks share %s of host memory\n",
           an_bytes_text((double)an_comm_bytes(an_comm_ranks(r->cfg.comm)), text));
    if (!(v->update_ms > 0)) {
        printf("               update_ms=, the time of an update of one device, predicts how fast they are together\n");
        return;
    }
    work_of(r, v, &work);
    printf("link           %s: %s; assumed %s/s, %g us a hop\n", link->name, link->what,
           an_bytes_text(link->bytes_per_s, text), 1e6 * link->hop_s);
    printf("exchange       %s of %s an update, %s\n", an_bytes_text(work.exchanged_bytes, text),
           strcmp(r->cfg.shard, "weights") == 0 ? "gradients and weights" : "gradients",
           work.overlap ? "beside the backward pass" : "after the backward pass");
    if (work.overlap)
        printf("               what is hidden makes the backward pass longer, by %.0f %% of it\n",
               100 * link->contention);
    printf("%7s  %12s  %12s  %12s  %s\n", "devices", "exchange", "not hidden", "update", "of as many times one");
    for (int64_t n = 2; n <= v->devices; n = more(n, v->devices)) {
        an_scaling s;
        an_scaling_predict(&work, link, n, &s);
        printf("%7lld  %9.2f ms  %9.2f ms  %9.2f ms  %.1f %%\n", (long long)n, 1e3 * s.exchange_s, 1e3 * s.exposed_s,
               1e3 * s.update_s, 100 * s.efficiency);
    }
}
