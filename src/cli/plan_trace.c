/* plan_trace.c: anneal plan --trace: an update as tools/step_trace.h tells it, in words or as JSON. */
#include "cli/cmd_plan.h"
#include "tools/step_trace.h"

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void put_stage(an_text *out, int i, const an_stage *s)
{
    char bytes[16];
    an_text_printf(out, "%d %-9s  on %s: %s", i + 1, s->name, s->where, an_bytes_text((double)s->bytes, bytes));
    if (s->launches)
        an_text_printf(out, ", %d launch%s, %.3f GFLOP", s->launches, s->launches == 1 ? "" : "es",
                       1e-9 * (double)s->flops);
    if (s->fallbacks) an_text_printf(out, ", %d on the CPU instead", s->fallbacks);
    if (s->per_updates > 1)
        an_text_printf(out, "; once in %lld updates", (long long)s->per_updates);
    else if (s->times > 1)
        an_text_printf(out, "; %lld times an update", (long long)s->times);
    an_text_printf(out, "\n             waits     %s\n             may fail  %s\n", s->waits, s->fails);
}

static void put_changes(an_text *out, const an_step_trace *t)
{
    char bytes[16];
    if (!t->apart) {
        an_text_puts(out, "changes of backend: none, host and device are the same processor");
        return;
    }
    const int64_t reads = t->stage[AN_STAGE_READ].per_updates;
    an_text_printf(out, "changes of backend, deliberate: %lld batch%s in an update, the loss out every %lld update%s\n",
                   (long long)t->micro_batches, t->micro_batches == 1 ? "" : "es", (long long)reads, plural(reads));
    an_text_printf(out, "changes of backend, hot path:   %d", t->n_hot);
    for (int i = 0; i < t->n_crossing; i++)
        an_text_printf(out, "\n  launches %d to %d on the CPU: %s, %s", t->crossing[i].first, t->crossing[i].last,
                       t->crossing[i].scope, an_bytes_text((double)t->crossing[i].bytes, bytes));
}

static void put_json(an_text *out, const an_session *r, const an_step_trace *t)
{
    an_text_puts(out, "{\"preset\":");
    an_json_put(out, r->cfg.preset);
    an_text_puts(out, ",\"device\":");
    an_json_put(out, an_cli_device(r->cfg.device));
    an_text_printf(out, ",\"micro_batches\":%lld,\"stages\":[", (long long)t->micro_batches);
    for (int i = 0; i < AN_N_STAGES; i++) {
        const an_stage *s = &t->stage[i];
        if (!an_step_trace_has(t, i)) continue;
        an_text_printf(out, "%s{\"stage\":\"%s\",\"where\":\"%s\",\"bytes\":%llu,\"flops\":%llu,\"launches\":%d,",
                       i ? "," : "", s->name, s->where, (unsigned long long)s->bytes, (unsigned long long)s->flops,
                       s->launches);
        an_text_printf(out,
                       "\"fallbacks\":%d,\"times\":%lld,\"per_updates\":%lld,\"boundary\":%s,\"waits\":", s->fallbacks,
                       (long long)s->times, (long long)s->per_updates, s->boundary ? "true" : "false");
        an_json_put(out, s->waits);
        an_text_puts(out, ",\"may_fail\":");
        an_json_put(out, s->fails);
        an_text_puts(out, "}");
    }
    an_text_printf(out, "],\"deliberate_changes\":%lld,\"hot_path_changes\":%d,\"hot_path\":[",
                   t->apart ? (long long)t->micro_batches + 1 : 0, t->n_hot);
    for (int i = 0; i < t->n_crossing; i++) {
        an_text_printf(out, "%s{\"first\":%d,\"last\":%d,\"bytes\":%llu,\"scope\":", i ? "," : "", t->crossing[i].first,
                       t->crossing[i].last, (unsigned long long)t->crossing[i].bytes);
        an_json_put(out, t->crossing[i].scope);
        an_text_puts(out, "}");
    }
    an_text_puts(out, "]}");
}

an_status an_plan_trace(an_err *err, const an_session *r, const an_estimate *p, bool json)
{
    an_step_trace t;
    an_text out = {0};
    an_step_trace_make(r, p, &t);
    if (json) {
        put_json(&out, r, &t);
    } else {
        for (int i = 0, n = 0; i < AN_N_STAGES; i++)
            if (an_step_trace_has(&t, i)) put_stage(&out, n++, &t.stage[i]);
        put_changes(&out, &t);
    }
    return an_print_line(err, &out);
}
