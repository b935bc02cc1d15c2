/* cmd_profile.c: where the time of a step goes, launch by launch; two such profiles are cmd_profile_diff.c's. */
#define _DEFAULT_SOURCE
#include "cli/cli.h"
#include "cli/progress_bar.h"
#include "cli/ranks.h"
#include "report/profile_diff.h"
#include "tools/profile.h"
#include "train/run_dir.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct profile_values {
    int64_t warmup, steps, top;
    bool forward_only, data_only;
    char trace[AN_CONFIG_TEXT_BYTES], inputs[AN_CONFIG_TEXT_BYTES], logbook[AN_CONFIG_TEXT_BYTES];
    an_rank_values ranks;
} profile_values;

#define AT(name) offsetof(profile_values, name)
static const an_config_field fields[] = {
    {"warmup", AN_CONFIG_INT, AT(warmup), "5", 0, 1e6, NULL, "steps before the timed ones, after the first"},
    {"steps", AN_CONFIG_INT, AT(steps), "10", 1, 1e5, NULL, "steps to time; medians are shown"},
    {"forward_only", AN_CONFIG_BOOL, AT(forward_only), "false", 0, 0, NULL, "the loss alone, as in an evaluation"},
    {"data_only", AN_CONFIG_BOOL, AT(data_only), "false", 0, 0, NULL, "only the preparation of batches"},
    {"inputs", AN_CONFIG_TEXT, AT(inputs), "data", 0, 0, "data|fixed",
     "the run's data, or one random batch for every step, for which no data need be there"},
    {"logbook", AN_CONFIG_TEXT, AT(logbook), "", 0, 0, NULL,
     "profile diff: a run whose logbook gets the conclusion, if the same three were slowest a week apart"},
    {"top", AN_CONFIG_INT, AT(top), "0", 0, 1e6, NULL, "show the slowest launches only; 0: all, in the plan's order"},
    {"trace", AN_CONFIG_TEXT, AT(trace), "", 0, 0, NULL, "file for Chrome's about:tracing or ui.perfetto.dev"},
    AN_RANK_FIELDS(profile_values, ranks),
};
const an_config an_profile_keys = {.fields = fields, .n = AN_COUNT(fields)};

static int slower_first(const void *a, const void *b)
{
    const an_profile_launch *x = a, *y = b;
    return x->device_s > y->device_s ? -1 : x->device_s < y->device_s;
}

static void print_launches(an_text *out, const an_profile_result *p, int shown)
{
    char bytes[16];
    an_text_puts(out, "      us  enqueue    GFLOP      moved  roof  launch\n");
    for (int i = 0; i < shown; i++) {
        const an_profile_launch *l = &p->launch[i];
        an_text_printf(out, "%8.1f ", 1e6 * l->device_s);
        if (l->enqueue_s >= 0)
            an_text_printf(out, "%8.1f ", 1e6 * l->enqueue_s);
        else
            an_text_printf(out, "%8s ", "-");
        an_text_printf(out, "%8.3f %10s ", 1e-9 * (double)l->flops, an_bytes_text((double)l->bytes, bytes));
        an_text_printf(out, l->above_roof ? ">100%%  " : "%4.0f%%  ", 100 * l->share);
        an_text_printf(out, "%s%s\n", l->kernel, l->on_cpu ? " (on the CPU)" : l->recompute ? " (again)" : "");
    }
}

/* A batch's time in a loader thread, by stage: what waiting for data hides while threads are ahead. */
static const char *const stages[AN_LOADER_STAGES] = {"collate", "read", "decode", "augment"};

static double stage_ms(const an_loader_times *t, int stage)
{
    return t->batches ? 1e3 * t->s[stage] / (double)t->batches : 0.0 / 0.0;
}

static void print_stages(an_text *out, const an_loader_times *t)
{
    char bytes[16];
    const double n = (double)t->batches;
    if (!t->batches) return;
    an_text_printf(out, "\nbatch     read %.3f ms, decode %.3f ms, augment %.3f ms,\n", stage_ms(t, AN_LOADER_READ),
                   stage_ms(t, AN_LOADER_DECODE), stage_ms(t, AN_LOADER_AUGMENT));
    an_text_printf(out, "          collate %.3f ms in a loader thread; %.4g copies of %s",
                   stage_ms(t, AN_LOADER_COLLATE), (double)t->copies / n,
                   an_bytes_text((double)t->copied_bytes / n, bytes));
}

static void print_summary(an_text *out, const an_profile_result *p, const an_train_config *c, const profile_values *v)
{
    an_text_printf(out, "window    %lld step%s after the first and %lld of warm-up; %s\n", (long long)v->steps,
                   v->steps == 1 ? "" : "s", (long long)v->warmup,
                   strcmp(v->inputs, "fixed") == 0 ? "one random batch" : "the run's data");
    an_text_printf(out, "step      %.3f ms, %.0f %s/s on %s%s\n", p->step_ms, 1e3 * (double)p->units / p->step_ms,
                   c->task->units, an_cli_device(c->device), an_cli_tf32(c, c->device) ? " with matmuls in tf32" : "");
    an_text_printf(out, "          data %.3f ms, graph %.3f ms, run %.3f ms", p->data_ms, p->build_ms, p->run_ms);
    print_stages(out, &p->loader);
    if (p->n_launches) {
        double flops = 0, bytes = 0;
        for (int i = 0; i < p->n_launches; i++) {
            flops += (double)p->launch[i].flops;
            bytes += (double)p->launch[i].bytes;
        }
        const bool tera = p->roof.gflops >= 1e4;
        const double unit = tera ? 1e-3 : 1;
        an_text_printf(out, "\nlaunches  %d in %.3f ms: %.1f %sFLOP/s of %.1f, %.1f GB/s of %.1f", p->n_launches,
                       p->device_ms, unit * flops / p->device_ms / 1e6, tera ? "T" : "G", unit * p->roof.gflops,
                       bytes / p->device_ms / 1e6, p->roof.gbytes);
        if (v->forward_only)
            an_text_puts(out, "\nphases    forward only");
        else
            an_text_printf(out, "\nphases    forward %.3f ms, backward %.3f ms, optimizer %.3f ms", p->forward_ms,
                           p->backward_ms, p->update_ms);
        if (an_comm_ranks(c->comm) > 1)
            an_text_printf(out, "\nexchange  %.3f ms between %d ranks, of which %.3f ms are hidden", p->exchange_ms,
                           an_comm_ranks(c->comm), p->exchange_ms - p->exposed_ms);
        if (p->n_above)
            an_text_printf(out,
                           "\nroof      %d launches beat the roof measured after them: the machine was busy\n"
                           "          then, or their data lay in caches; measure again on a quiet machine",
                           p->n_above);
    }
}

static void json_launches(an_text *out, const an_profile_result *p, int shown)
{
    for (int i = 0; i < shown; i++) {
        const an_profile_launch *l = &p->launch[i];
        an_text_printf(out, "%s{\"kernel\":", i ? "," : "");
        an_json_put(out, l->kernel);
        an_text_puts(out, ",\"scope\":");
        an_json_put(out, l->scope);
        an_text_printf(out, ",\"kind\":\"%s\",\"phase\":\"%s\",\"shape\":\"%s\",\"recompute\":%s,\"on_cpu\":%s",
                       l->kind, l->phase, l->shape, l->recompute ? "true" : "false", l->on_cpu ? "true" : "false");
        an_put_json(out, "device_us", 1e6 * l->device_s);
        an_put_json(out, "enqueue_us", l->enqueue_s >= 0 ? 1e6 * l->enqueue_s : 0.0 / 0.0);
        if (l->exchange) an_text_puts(out, ",\"exchange\":true");
        an_put_json(out, "flops", (double)l->flops);
        an_put_json(out, "bytes", (double)l->bytes);
        an_put_json(out, "share_of_roof", l->above_roof ? 0.0 / 0.0 : l->share);
        an_text_puts(out, "}");
    }
}

static void json_all(an_text *out, const an_profile_result *p, const an_train_config *c, const profile_values *v,
                     int shown)
{
    an_text_puts(out, "{\"preset\":");
    an_json_put(out, c->preset);
    an_text_puts(out, ",\"device\":");
    an_json_put(out, an_cli_device(c->device));
    an_text_printf(out, ",\"dtype\":\"%s\",\"tf32\":%s", an_dtype_text(c->dtype),
                   an_cli_tf32(c, c->device) ? "true" : "false");
    char utc[32] = "";
    struct tm t;
    const time_t now = time(NULL);
    if (gmtime_r(&now, &t)) strftime(utc, sizeof utc, "%Y-%m-%dT%H:%M:%SZ", &t);
    an_text_printf(out, ",\"schema\":%d,\"time\":\"%s\",\"anneal\":\"%s\",\"commit\":", AN_PROFILE_SCHEMA, utc,
                   AN_VERSION);
    an_json_put(out, an_commit);
    an_text_printf(out, ",\"what\":\"%s\",\"inputs\":\"%s\"",
                   v->data_only      ? "data"
                   : v->forward_only ? "forward"
                                     : "train",
                   v->inputs);
    an_text_printf(out, ",\"warmup\":%lld,\"steps\":%lld", (long long)v->warmup, (long long)v->steps);
    an_put_json(out, "step_ms", p->step_ms);
    an_put_json(out, "data_ms", p->data_ms);
    for (int k = 0; k < AN_LOADER_STAGES; k++) {
        char key[32];
        snprintf(key, sizeof key, "%s_ms", stages[k]);
        an_put_json(out, key, stage_ms(&p->loader, k));
    }
    const double batches = (double)p->loader.batches;
    an_put_json(out, "copies", (double)p->loader.copies / batches); /* null where there were none */
    an_put_json(out, "copied_bytes", (double)p->loader.copied_bytes / batches);
    an_put_json(out, "graph_ms", p->build_ms);
    an_put_json(out, "run_ms", p->run_ms);
    an_put_json(out, "device_ms", p->device_ms);
    an_put_json(out, "forward_ms", p->forward_ms);
    an_put_json(out, "backward_ms", p->backward_ms);
    an_put_json(out, "update_ms", p->update_ms);
    if (an_comm_ranks(c->comm) > 1) {
        an_text_printf(out, ",\"ranks\":%d", an_comm_ranks(c->comm));
        an_put_json(out, "exchange_ms", p->exchange_ms);
        an_put_json(out, "exposed_ms", p->exposed_ms);
    }
    an_put_json(out, "peak_gflops", p->roof.gflops);
    an_put_json(out, "peak_gbytes", p->roof.gbytes);
    an_text_puts(out, ",\"launches\":[");
    json_launches(out, p, shown);
    an_text_puts(out, "]}");
}

static an_status profile_rank(an_err *err, const an_args *args, an_comm *comm, int *exit_code)
{
    (void)exit_code;
    profile_values v;
    an_train_config c;
    an_profile_result p;
    an_text out = {0};
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_config_defaults(err, &an_profile_keys, &v));
    AN_TRY(an_args_apply_run(err, args, &an_profile_keys, &v, &c));
    AN_TRY(an_run_dir_check_output(err, v.trace));
    AN_TRY(an_train_config_check(err, &c));
    c.comm = comm;
    if (v.forward_only && v.data_only)
        return an_fail(err, AN_E_USAGE, "profile: forward_only and data_only exclude each other; leave one out");
    if (v.data_only && strcmp(v.inputs, "fixed") == 0)
        return an_fail(err, AN_E_USAGE,
                       "profile: data_only times the data, which inputs=fixed leaves out; leave one out");
    an_bar *bar = an_bar_open(args, "profile", "steps", NULL, NULL);
    const an_profile_options o = {.what = v.data_only      ? AN_PROFILE_DATA
                                          : v.forward_only ? AN_PROFILE_FORWARD
                                                           : AN_PROFILE_TRAIN,
                                  .warmup = v.warmup,
                                  .steps = v.steps,
                                  .trace = v.trace[0] ? v.trace : NULL,
                                  .fixed = strcmp(v.inputs, "fixed") == 0,
                                  .tell = an_bar_tell,
                                  .tell_arg = bar};
    an_status status = an_profile_steps(err, &c, &o, &p);
    an_bar_close(bar);
    AN_TRY(status);
    if (an_comm_rank(comm) > 0) return an_profile_free(&p), AN_OK;
    if (v.top && p.n_launches) qsort(p.launch, (size_t)p.n_launches, sizeof *p.launch, slower_first);
    const int shown = v.top ? (int)AN_MIN(v.top, p.n_launches) : p.n_launches;
    if (args->json) {
        json_all(&out, &p, &c, &v, shown);
    } else {
        if (shown) print_launches(&out, &p, shown);
        print_summary(&out, &p, &c, &v);
    }
    an_profile_free(&p);
    return an_print_line(err, &out);
}

an_status an_cmd_profile(an_err *err, const an_args *args, int *exit_code)
{
    profile_values v;
    if (strcmp(args->words[0], "diff") == 0) {
        AN_TRY(an_config_defaults(err, &an_profile_keys, &v));
        AN_TRY(an_args_apply(err, args, &(an_key_set){&an_profile_keys, &v}, 1));
        return an_profile_diff_print(err, args, v.logbook);
    }
    if (args->n_words > 1)
        return an_fail(err, AN_E_USAGE,
                       "profile: one preset or file, not %s; two profiles are compared by anneal "
                       "profile diff A B",
                       args->words[1]);
    return an_ranks_run(err, args, profile_rank, exit_code);
}
