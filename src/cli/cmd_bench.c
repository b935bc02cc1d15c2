/* cmd_bench.c: times a training step, the tokens of a text, or one operation, on one device or on several for
 * comparison. A step's line has the format of the other programs' benchmarks (bench/cpu). */
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/progress_bar.h"
#include "tools/bench.h"
#include "tools/bench_op.h"
#include "infer/generate.h"
#include "tools/bench_sample.h"
#include <anneal_tools.h>
#include <string.h>

enum { MOST_DEVICES = 8 };

typedef struct bench_values {
    int64_t steps, warmup, n, iters, prompt, tokens, together;
} bench_values;

#define AT(name) offsetof(bench_values, name)
static const an_config_field fields[] = {
    {"steps", AN_CONFIG_INT, AT(steps), "0", 0, 1e6, NULL, "steps to time; 0: as many as the preset deserves"},
    {"warmup", AN_CONFIG_INT, AT(warmup), "-1", -1, 1e6, NULL, "steps before them, after the first; -1: the preset's"},
    {"n", AN_CONFIG_INT, AT(n), "0", 0, 65536, NULL,
     "of an operation: side of the matrices, MiB to copy, channels; 0: 1000, 256, 64"},
    {"iters", AN_CONFIG_INT, AT(iters), "100", 1, 1e7, NULL, "of an operation: iterations to time, after a tenth more"},
    {"prompt", AN_CONFIG_INT, AT(prompt), "0", 0, 1e6, NULL,
     "of sample: tokens of the prompt; 0: a quarter of the context, 16 at most"},
    {"tokens", AN_CONFIG_INT, AT(tokens), "0", 0, 1e6, NULL,
     "of sample: tokens to draw, at least 2; 0: as many as the context takes, 200 at most"},
    {"together", AN_CONFIG_INT, AT(together), "1", 1, AN_MOST_TEXTS, NULL,
     "of sample: texts drawn at a time, in one pass of the model a token"},
};
const an_config an_bench_keys = {.fields = fields, .n = AN_COUNT(fields)};

/* ---- devices: "cpu,cuda" */

static an_status split_devices(an_err *err, const char *list, char out[MOST_DEVICES][AN_CONFIG_TEXT_BYTES], int *n)
{
    *n = 0;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        if (*n == MOST_DEVICES) return an_fail(err, AN_E_USAGE, "bench: more than %d devices", MOST_DEVICES);
        if (length == 0) return an_fail(err, AN_E_USAGE, "bench: device=%.100s: a name is missing at a comma", list);
        snprintf(out[*n], AN_CONFIG_TEXT_BYTES, "%.*s", (int)length, at);
        if (strcmp(out[*n], "auto") == 0) snprintf(out[*n], AN_CONFIG_TEXT_BYTES, "%s", an_cli_device("auto"));
        ++*n;
        at += length;
        if (!*at) return AN_OK;
    }
}

/* ---- one operation */

static const struct {
    const char *name;
    an_bench_kind kind;
    int64_t n;
} operations[] = {{"matmul", AN_BENCH_MATMUL, 1000},
                  {"copy", AN_BENCH_COPY, 256},
                  {"read", AN_BENCH_READ, 256},
                  {"conv", AN_BENCH_CONV, 64}};

static bool in_memory(an_bench_kind kind) /* no arithmetic to speak of */
{
    return kind == AN_BENCH_COPY || kind == AN_BENCH_READ;
}

static int operation_of(const char *word)
{
    for (size_t i = 0; i < AN_COUNT(operations); i++)
        if (strcmp(operations[i].name, word) == 0) return (int)i;
    return -1;
}

static void print_operation(an_text *out, int which, const an_bench_op *op, const an_train_config *c,
                            const an_bench_op_result *r, double speed_up, bool json)
{
    const char *device = c->device;
    const bool tf32 = op->dtype == AN_F32 && !in_memory(op->kind) && an_cli_tf32(c, device);
    if (json) {
        an_text_printf(out, "%s{\"operation\":\"%s\",\"device\":", out->len ? "," : "[", operations[which].name);
        an_json_put(out, device);
        an_text_printf(out, ",\"dtype\":\"%s\",\"tf32\":%s,\"n\":%lld,\"iters\":%lld", an_dtype_text(op->dtype),
                       tf32 ? "true" : "false", (long long)op->n, (long long)op->iters);
        an_put_json(out, "ms", r->ms);
        an_put_json(out, "min_ms", r->min_ms);
        an_put_json(out, "first_s", r->first_s);
        an_put_json(out, "gflops", r->gflops);
        an_put_json(out, "gbytes", r->gbytes);
        an_put_json(out, "speed_up", speed_up);
        an_text_puts(out, "}");
        return;
    }
    char what[64], flops[32];
    if (op->kind == AN_BENCH_MATMUL)
        snprintf(what, sizeof what, "matmul %lldx%lld", (long long)op->n, (long long)op->n);
    else
        snprintf(what, sizeof what, in_memory(op->kind) ? "%s %lld MiB" : "%s 8x56x56x%lld", operations[which].name,
                 (long long)op->n);
    an_text_printf(out, "%s%-10s %s %s%s: %.3f ms (fastest %.3f), ", out->len ? "\n" : "", device, what,
                   an_dtype_text(op->dtype), tf32 ? " in tf32" : "", r->ms, r->min_ms);
    if (!in_memory(op->kind)) an_text_printf(out, "%s, ", an_flops_text(r->gflops, flops));
    an_text_printf(out, "%.2f GB/s", r->gbytes);
}

/* With several devices, an absent one is reported and left out. */
static an_status go_on_without(an_err *err, const char *device, an_status status)
{
    if (status != AN_E_ENV && status != AN_E_DEVICE) return status;
    an_say("note    device=%.32s is left out: %s", device, err->text);
    an_err_clear(err);
    return AN_OK;
}

static an_status bench_operation(an_err *err, const an_args *args, int which, const bench_values *v, an_train_config *c)
{
    char device[MOST_DEVICES][AN_CONFIG_TEXT_BYTES];
    double first_ms = 0;
    int n, first = 0;
    an_text out = {0};
    const an_bench_op op = {.kind = operations[which].kind,
                            .dtype = in_memory(operations[which].kind) ? AN_F32 : c->dtype,
                            .n = v->n ? v->n : operations[which].n,
                            .iters = v->iters};
    an_status status = split_devices(err, c->device, device, &n);
    for (int i = 0; i < n && status == AN_OK; i++) {
        an_bench_op_result r;
        memcpy(c->device, device[i], sizeof c->device);
        status = an_bench_run_op(err, c, &op, &r);
        const bool ran = status == AN_OK;
        if (n > 1) status = go_on_without(err, device[i], status);
        if (!ran) continue;
        if (first_ms == 0) first_ms = r.ms, first = i;
        print_operation(&out, which, &op, c, &r, first_ms / r.ms, args->json);
        if (i > first && !args->json)
            an_text_printf(&out, "\n%-10s is %.2f times as fast as %s", device[i], first_ms / r.ms, device[first]);
    }
    if (status == AN_OK && !out.len) status = an_fail(err, AN_E_ENV, "bench: none of these devices is here");
    if (status == AN_OK && args->json) an_text_puts(&out, "]");
    if (status == AN_OK) return an_print_line(err, &out);
    an_text_free(&out);
    return status;
}

/* ---- training steps */

/* A GPU is timed as by nanoGPT's bench.py: 20 steps after 10. On a CPU the preset sets the numbers. */
static void protocol_of(const an_train_config *c, bench_values *v)
{
    an_device_facts f;
    const bool cpu = an_device_find(c->device, &f) && !f.gpu;
    int64_t steps = cpu ? 4 : 20, warmup = cpu ? 2 : 10;
    const an_model *model;
    const an_preset *p = an_preset_find(c->preset, &model);
    if (cpu && p && p->bench_steps > 0) {
        steps = p->bench_steps;
        warmup = p->bench_warm;
    }
    if (v->steps == 0) v->steps = steps;
    if (v->warmup < 0) v->warmup = warmup;
}

typedef struct step_row {
    const char *device;
    const an_bench_result *b, *fused; /* fused: the same step with compile=true; NULL when b is that already */
    double share, first_ms;           /* of the peak; the first device's time, 0 for itself */
} step_row;

static void print_step(an_text *out, const an_train_config *c, const step_row *row)
{
    enum { A100 = 312000 }; /* GFLOP/s: nanoGPT's MFU is a share of what an A100 does in bfloat16 */
    char flops[32], peak[32];
    const an_bench_result *b = row->b;
    an_text_printf(out, "%s%s %s%s on %s%s: %.3f ms a step (fastest %.3f), first step %.2f s, %s", out->len ? "\n" : "",
                   c->preset, an_dtype_text(c->dtype), an_cli_tf32(c, row->device) ? " with matmuls in tf32" : "",
                   row->device, c->compile ? "" : ", unfused", b->ms, b->min_ms, b->first_s,
                   an_flops_text(b->gflops, flops));
    if (row->share > 0)
        an_text_printf(out, " (MFU %.0f %% of the peak of %s measured, %.2f %% of an A100's)", 100 * row->share,
                       an_flops_text(b->fma_peak_gflops, peak), 100 * b->gflops / A100);
    else
        an_text_printf(out, " (MFU %.2f %% of an A100's 312 TFLOP/s)", 100 * b->gflops / A100);
    an_text_printf(out, ", peak RSS %.0f MiB", b->peak_rss_mib);
    if (row->fused)
        an_text_printf(out, "\n%s fused: %.3f ms a step (fastest %.3f): %.2f times as fast, %d launches instead of %d",
                       c->preset, row->fused->ms, row->fused->min_ms, b->ms / row->fused->ms, row->fused->bill.launches,
                       b->bill.launches);
    if (row->first_ms > 0) an_text_printf(out, "\n%s is %.2f times as fast", row->device, row->first_ms / b->ms);
}

static void json_step(an_text *out, const an_train_config *c, const step_row *row)
{
    const an_bench_result *b = row->b;
    an_text_printf(out, "%s{\"peer\":\"anneal-%s\",\"preset\":", out->len ? "\n" : "", AN_VERSION);
    an_json_put(out, c->preset);
    an_text_puts(out, ",\"device\":");
    an_json_put(out, row->device);
    an_text_printf(out, ",\"dtype\":\"%s\",\"tf32\":%s,\"compile\":\"%d\",\"threads\":%lld", an_dtype_text(c->dtype),
                   an_cli_tf32(c, row->device) ? "true" : "false", c->compile, (long long)c->threads);
    an_text_printf(
        out, ",\"ms\":%.3f,\"min_ms\":%.3f,\"cpu_ms\":%.3f,\"first_s\":%.3f,\"gflops\":%.1f,\"peak_rss_mib\":%.0f",
        b->ms, b->min_ms, b->cpu_ms, b->first_s, b->gflops, b->peak_rss_mib);
    an_text_printf(out, ",\"fma_peak_gflops\":%.1f,\"share_of_peak\":%.4f", b->fma_peak_gflops, row->share);
    if (b->tenth_ms > 0) an_put_json(out, "tenth_ms", b->tenth_ms);
    an_text_printf(out, ",\"launches\":%d,\"peak_bytes\":%llu", b->bill.launches,
                   (unsigned long long)b->bill.peak_bytes);
    if (row->fused) an_put_json(out, "fused_ms", row->fused->ms);
    if (row->fused) an_put_json(out, "fusion_speed_up", b->ms / row->fused->ms);
    if (row->first_ms > 0) an_put_json(out, "speed_up", row->first_ms / b->ms);
    an_text_puts(out, "}");
}

/* an_bench with a line of progress. */
static an_status bench(an_err *err, const an_args *args, const an_train_config *c, const bench_values *v,
                       an_bench_result *out)
{
    an_bar *bar = an_bar_open(args, "bench", "steps", NULL, NULL);
    an_status status = an_bench(err, c, v->warmup, v->steps, an_bar_tell, bar, out);
    an_bar_close(bar);
    return status;
}

/* Times one device; with compile=false also the fused step, for comparison. */
static an_status bench_device(an_err *err, const an_args *args, const an_train_config *c, bench_values v,
                              double *first_ms, an_text *out)
{
    an_bench_result b, fused;
    protocol_of(c, &v);
    AN_TRY(bench(err, args, c, &v, &b));
    if (!args->quiet) an_progress_bill(&b.bill, b.on_cpu);
    if (!c->compile) {
        an_train_config with = *c;
        with.compile = true;
        AN_TRY(bench(err, args, &with, &v, &fused));
    }
    const step_row row = {.device = c->device,
                          .b = &b,
                          .fused = c->compile ? NULL : &fused,
                          .share = b.fma_peak_gflops > 0 ? b.gflops / b.fma_peak_gflops : 0,
                          .first_ms = *first_ms};
    if (args->json)
        json_step(out, c, &row);
    else
        print_step(out, c, &row);
    if (*first_ms == 0) *first_ms = b.ms;
    return AN_OK;
}

static an_status bench_steps(an_err *err, const an_args *args, const bench_values *v, an_train_config *c)
{
    char device[MOST_DEVICES][AN_CONFIG_TEXT_BYTES];
    double first_ms = 0;
    int n;
    an_text out = {0};
    an_task_assume(c);
    AN_TRY(an_train_config_check(err, c));
    an_status status = split_devices(err, c->device, device, &n);
    for (int i = 0; i < n && status == AN_OK; i++) {
        memcpy(c->device, device[i], sizeof c->device);
        status = bench_device(err, args, c, *v, &first_ms, &out);
        if (n > 1) status = go_on_without(err, device[i], status);
    }
    if (status == AN_OK && !out.len) status = an_fail(err, AN_E_ENV, "bench: none of these devices is here");
    if (status == AN_OK) return an_print_line(err, &out);
    an_text_free(&out);
    return status;
}

/* ---- sampling */

static void print_sample(an_text *out, const an_train_config *c, const char *source, int64_t texts,
                         const an_bench_sample_result *b)
{
    char many[32] = "one text";
    if (texts > 1) snprintf(many, sizeof many, "%d texts", (int)texts);
    const double gbytes = b->moved_bytes / b->p50_ms / 1e6;
    an_text_printf(out,
                   "%s %s on %s, %s: %.0f tokens/s; a token p50 %.3f, p95 %.3f, p99 %.3f ms; the first %.1f ms "
                   "(cold %.2f s)\n%.1f MB a token, %.2f GB/s: %.0f %% of the %.2f GB/s at which %lld MiB are read "
                   "again and again here",
                   source, an_dtype_text(c->dtype), c->device, many, b->tokens_per_s, b->p50_ms, b->p95_ms, b->p99_ms,
                   b->first_ms, b->cold_s, b->moved_bytes / 1e6, gbytes, 100 * gbytes / b->read_gbytes, b->read_gbytes,
                   (long long)b->read_mib);
}

static void json_sample(an_text *out, const an_train_config *c, const char *source, const bench_values *v,
                        const an_bench_sample_result *b)
{
    an_text_puts(out, "{\"sample\":");
    an_json_put(out, source);
    an_text_puts(out, ",\"device\":");
    an_json_put(out, c->device);
    an_text_printf(out, ",\"dtype\":\"%s\",\"threads\":%lld,\"texts\":%lld,\"prompt\":%lld,\"tokens\":%lld",
                   an_dtype_text(c->dtype), (long long)c->threads, (long long)v->together, (long long)v->prompt,
                   (long long)b->tokens);
    an_put_json(out, "tokens_per_s", b->tokens_per_s);
    an_put_json(out, "p50_ms", b->p50_ms);
    an_put_json(out, "p95_ms", b->p95_ms);
    an_put_json(out, "p99_ms", b->p99_ms);
    an_put_json(out, "first_ms", b->first_ms);
    an_put_json(out, "cold_s", b->cold_s);
    an_put_json(out, "moved_bytes", b->moved_bytes);
    an_put_json(out, "gbytes", b->moved_bytes / b->p50_ms / 1e6);
    an_put_json(out, "read_gbytes", b->read_gbytes);
    an_text_printf(out, ",\"read_bytes\":%lld", (long long)b->read_mib << 20);
    an_text_puts(out, "}");
}

/* The settings of a preset, whose weights are drawn, or of a run or file, which is left open in *st. */
static an_status sample_source(an_err *err, const char *name, an_train_config *c, an_st **st)
{
    const an_model *model;
    if (!an_preset_find(name, &model)) return an_cli_open_weights(err, name, false, -1, c, st);
    AN_TRY(an_train_config_open(err, name, c));
    an_task_assume(c);
    return AN_OK;
}

static an_status bench_sample(an_err *err, const an_args *args, bench_values *v)
{
    an_train_config c;
    an_st *st = NULL;
    an_session *r = NULL;
    an_bench_sample_result b;
    if (args->n_words < 2)
        return an_fail(err, AN_E_USAGE, "bench sample: name a preset or a run: anneal bench sample macbook");
    AN_TRY(sample_source(err, args->words[1], &c, &st));
    c.device[0] = 0;
    an_status status = an_args_apply_run(err, args, &an_bench_keys, v, &c);
    if (!c.device[0] || strcmp(c.device, "auto") == 0) snprintf(c.device, sizeof c.device, "%s", an_cli_device("auto"));
    if (status == AN_OK) status = an_session_open(err, &c, st, AN_RUN_PARAMETERS_ONLY, &r);
    an_st_close(st);
    if (status == AN_OK) {
        const an_decoder *d = r->cfg.model->decoder;
        const int64_t context = d ? d->context(an_model_settings(&r->cfg)) : 0;
        if (v->prompt == 0) v->prompt = AN_MAX(AN_MIN(context / 4, 16), 1);
        const int64_t left = context - v->prompt;
        if (v->tokens == 0) v->tokens = AN_MAX(AN_MIN(left, 200), 2);
        status = v->tokens < 2 ? an_fail(err, AN_E_USAGE, "bench sample: tokens=1 leaves none to time; at least 2")
                               : an_bench_sample(err, r, v->together, v->prompt, v->tokens, &b);
    }
    if (status == AN_OK) {
        an_text out = {0};
        if (args->json)
            json_sample(&out, &r->cfg, args->words[1], v, &b);
        else
            print_sample(&out, &r->cfg, args->words[1], v->together, &b);
        status = an_print_line(err, &out);
    }
    an_session_close(r);
    return status;
}

an_status an_cmd_bench(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    bench_values v;
    an_train_config c;
    const int which = operation_of(args->words[0]);
    if (strcmp(args->words[0], "sample") == 0) {
        AN_TRY(an_config_defaults(err, &an_bench_keys, &v));
        return bench_sample(err, args, &v);
    }
    if (args->n_words > 1)
        return an_fail(err, AN_E_USAGE, "bench: %.128s follows %.128s; only bench sample takes two names",
                       args->words[1], args->words[0]);
    if (which >= 0)
        AN_TRY(an_train_config_defaults(err, an_models[0], NULL, &c));
    else
        AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_config_defaults(err, &an_bench_keys, &v));
    if (which < 0) c.threads = 2; /* like the programs it is compared with */
    AN_TRY(an_args_apply_run(err, args, &an_bench_keys, &v, &c));
    return which >= 0 ? bench_operation(err, args, which, &v, &c) : bench_steps(err, args, &v, &c);
}
