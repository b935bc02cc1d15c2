/* step_trace.c: the stages of an update, from its plan and its settings. See step_trace.h. */
#include "tools/step_trace.h"
#include "comm/comm.h"
#include "train/step.h"
#include <stdio.h>
#include <string.h>

static an_stage_kind stage_of(const an_launch *l)
{
    return l->exchange                         ? AN_STAGE_EXCHANGE
           : strcmp(l->phase, "forward") == 0  ? AN_STAGE_FORWARD
           : strcmp(l->phase, "backward") == 0 ? AN_STAGE_BACKWARD
                                               : AN_STAGE_UPDATE;
}

void an_step_trace_add(an_step_trace *t, int i, const an_launch *l)
{
    an_stage *s = &t->stage[stage_of(l)];
    s->launches++;
    s->flops += l->flops;
    s->bytes += l->bytes;
    s->fallbacks += l->fallback;
    if (!l->fallback) return;
    const bool enters = t->n_hot == 0 || t->fallback_end != i;
    t->fallback_end = i + 1;
    if (enters) t->n_hot += 2; /* in and out */
    if (t->n_hot > 2 * AN_TRACE_CROSSINGS) return;
    t->n_crossing = t->n_hot / 2;
    struct an_crossing *c = &t->crossing[t->n_crossing - 1];
    if (enters) {
        c->first = i;
        snprintf(c->scope, sizeof c->scope, "%s", *l->scope ? l->scope : l->kernel);
    }
    c->last = i;
    c->bytes += l->bytes;
}

bool an_step_trace_has(const an_step_trace *t, int i)
{
    return i != AN_STAGE_EXCHANGE || t->stage[i].launches > 0;
}

static uint64_t batch_bytes(const an_train_config *c)
{
    an_array array[AN_MAX_ARRAYS];
    uint64_t bytes = 0;
    const int n = c->model->inputs(an_model_settings(c), c->batch_size, array);
    for (int i = 0; i < n; i++) bytes += an_array_bytes(&array[i]);
    return bytes;
}

#define TELL(field, ...) snprintf(field, sizeof(field), __VA_ARGS__)

static void tell_input(const an_train_config *c, const an_step_trace *t, an_stage *batch, an_stage *move)
{
    if (c->workers)
        TELL(batch->waits, "where batches are taken faster than %lld worker%s can prepare them", (long long)c->workers,
             c->workers == 1 ? "" : "s");
    else
        TELL(batch->waits, "yes: it is made when it is asked for (workers=0)");
    TELL(batch->fails, "slow or shrinking files, an id that the model does not have: anneal profile --data-only");
    if (t->apart) {
        TELL(move->waits, "only for the oldest of two updates under way, whose input block it needs");
        TELL(move->fails, "a queue that drains because the host is slow: \"stalls\" of train --json");
    } else {
        TELL(move->waits, "no: a copy within the machine's memory");
        TELL(move->fails, "nothing likely: %llu bytes are copied", (unsigned long long)move->bytes);
    }
}

static void tell_launches(const an_train_config *c, const an_estimate *p, an_step_trace *t)
{
    char text[16];
    an_stage *forward = &t->stage[AN_STAGE_FORWARD], *backward = &t->stage[AN_STAGE_BACKWARD],
             *exchange = &t->stage[AN_STAGE_EXCHANGE], *update = &t->stage[AN_STAGE_UPDATE];
    const bool beside = c->overlap && !c->exact && c->exchange_dtype == AN_F32 && strcmp(c->shard, "none") == 0;
    for (an_stage *s = forward; s <= update; s++) {
        if (s->fallbacks)
            TELL(s->waits, "yes: %d of its launches run on the CPU, for which the GPU must end", s->fallbacks);
        else if (t->apart)
            TELL(s->waits, "no: it is queued, and the host goes on");
        else
            TELL(s->waits, "the host is the device: it computes");
    }
    TELL(exchange->waits, "%s",
         !t->apart ? "for what the other ranks have computed"
         : beside  ? "no: it is queued, beside the backward pass; the update waits for it"
                   : "no: it is queued; the GPU waits for the other ranks");
    TELL(exchange->fails, "a rank that ends, hangs or falls behind: \"wait_ms\" in ranks.jsonl");
    TELL(forward->fails, "memory: %s of activations are kept for the backward pass; recompute=on, or a smaller batch",
         an_bytes_text((double)p->bill.activation_bytes, text));
    TELL(backward->fails, "a gradient that is not finite; nan=%.20s says what happens then", c->nan);
    TELL(update->fails, "%s",
         c->dtype == AN_F16 ? "updates skipped because the loss scale was too large: \"skipped\" in metrics.jsonl"
                            : "a learning rate that is too large: the loss rises some updates later");
}

static void tell_read(const an_train_config *c, const an_step_trace *t, an_stage *read)
{
    if (t->apart)
        TELL(read->waits, "yes: until all queued updates have ended; every %lld updates (log_interval)",
             (long long)c->log_interval);
    else
        TELL(read->waits, "no: the update has ended; every %lld updates (log_interval)", (long long)c->log_interval);
    TELL(read->fails, "%s",
         t->apart && c->log_interval < 5 ? "a GPU that idles at each read: a larger log_interval"
                                         : "a loss that is not finite, seen at the next line of metrics");
}

bool an_plans_for_gpu(const an_ctx *cx)
{
    an_device_facts opened, all[16];
    if (!an_device_opened(cx, &opened)) return false;
    const int n = AN_MIN(an_devices(all, AN_COUNT(all)), (int)AN_COUNT(all));
    bool found = opened.gpu;
    for (int i = 0; i < n; i++) found |= all[i].gpu && strcmp(all[i].planned_by, opened.name) == 0;
    return found;
}

void an_step_trace_make(const an_session *r, const an_estimate *p, an_step_trace *out)
{
    static const char *const names[] = {"batch", "move", "forward", "backward", "exchange", "optimizer", "loss read"};
    const an_train_config *c = &r->cfg;
    an_device_facts device = {0};
    *out = (an_step_trace){.micro_batches = an_train_micros(c)};
    an_device_opened(r->cx, &device);
    out->apart = an_plans_for_gpu(r->cx);
    for (int i = 0; i < AN_N_STAGES; i++)
        out->stage[i] = (an_stage){.name = names[i], .times = out->micro_batches, .per_updates = 1};
    an_stage *s = out->stage;
    for (int i = AN_STAGE_FORWARD; i <= AN_STAGE_UPDATE; i++) TELL(s[i].where, "%s", device.name);
    TELL(s[AN_STAGE_BATCH].where, "host");
    TELL(s[AN_STAGE_MOVE].where, "host%s%s", out->apart ? " to " : "", out->apart ? device.name : "");
    TELL(s[AN_STAGE_READ].where, "%s%shost", out->apart ? device.name : "", out->apart ? " to " : "");
    s[AN_STAGE_BATCH].bytes = batch_bytes(c);
    s[AN_STAGE_MOVE].bytes = p->bill.input_bytes;
    s[AN_STAGE_READ].bytes = (uint64_t)an_step_sums(c) * sizeof(float);
    s[AN_STAGE_UPDATE].times = s[AN_STAGE_READ].times = 1;
    const bool each = c->exact || strcmp(c->shard, "gradients") == 0 || strcmp(c->shard, "weights") == 0;
    if (!each) s[AN_STAGE_EXCHANGE].times = 1;
    TELL(s[AN_STAGE_EXCHANGE].where, "%s, %d ranks", device.name, an_comm_ranks(c->comm));
    s[AN_STAGE_READ].per_updates = c->log_interval;
    s[AN_STAGE_MOVE].boundary = s[AN_STAGE_READ].boundary = out->apart;
    an_launch l;
    for (int i = 0; an_planned_launch_get(r->cx, i, &l); i++) an_step_trace_add(out, i, &l);
    tell_input(c, out, &s[AN_STAGE_BATCH], &s[AN_STAGE_MOVE]);
    tell_launches(c, p, out);
    tell_read(c, out, &s[AN_STAGE_READ]);
}
