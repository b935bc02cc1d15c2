/* cmd_bench.c: the time of a training step, printed as the benchmarks of other programs print it (bench/cpu). */
#include "cli/cli.h"
#include "cli/narrate.h"
#include "train/bench.h"
#include <string.h>

typedef struct bench_values {
    int64_t steps;
} bench_values;

static const an_config_field fields[] = {
    {"steps", AN_CONFIG_INT, offsetof(bench_values, steps), "0", 0, 1e6, NULL,
     "steps to time; 0: as many as the preset deserves"},
};
const an_config an_bench_keys = {fields, AN_COUNT(fields)};

/* What other programs' benchmarks of these presets do: steps timed, steps before that. */
static const struct {
    const char *preset;
    int64_t steps, warm_up;
} protocols[] = {{"macbook", 60, 10},        {"demo", 60, 10}, {"char", 4, 2},
                 {"shakespeare_char", 4, 2}, {"gpt2s", 6, 2},  {"gpt2", 2, 2}};

static void protocol_of(const char *preset, int64_t *steps, int64_t *warm_up)
{
    int64_t asked = *steps;
    *steps = 4;
    *warm_up = 2;
    for (size_t i = 0; i < AN_COUNT(protocols); i++)
        if (strcmp(protocols[i].preset, preset) == 0) {
            *steps = protocols[i].steps;
            *warm_up = protocols[i].warm_up;
        }
    if (asked) *steps = asked;
}

static an_status print_result(an_err *err, const an_train_config *c, const an_bench_result *b, bool json)
{
    an_text line = {0};
    const double share = b->fma_peak_gflops > 0 ? b->gflops / b->fma_peak_gflops : 0;
    if (!json) {
        an_text_printf(&line, "%s %s: %.3f ms a step (fastest %.3f), first step %.2f s, %.1f GFLOP/s", c->preset,
                       an_dtype_text(c->dtype), b->ms, b->min_ms, b->first_s, b->gflops);
        if (share > 0) an_text_printf(&line, " (%.0f %% of the peak of %.0f)", 100 * share, b->fma_peak_gflops);
        an_text_printf(&line, ", peak RSS %.0f MiB", b->peak_rss_mib);
        return an_print_line(err, &line);
    }
    an_text_printf(&line, "{\"peer\":\"anneal-%s\",\"preset\":", AN_VERSION);
    an_put_json_text(&line, c->preset);
    an_text_printf(&line, ",\"dtype\":\"%s\",\"compile\":\"%d\",\"threads\":%lld", an_dtype_text(c->dtype), c->compile,
                   (long long)c->threads);
    an_text_printf(&line, ",\"ms\":%.3f,\"min_ms\":%.3f,\"first_s\":%.3f,\"gflops\":%.1f,\"peak_rss_mib\":%.0f", b->ms,
                   b->min_ms, b->first_s, b->gflops, b->peak_rss_mib);
    an_text_printf(&line, ",\"fma_peak_gflops\":%.1f,\"share_of_peak\":%.4f}", b->fma_peak_gflops, share);
    return an_print_line(err, &line);
}

an_status an_cmd_bench(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    bench_values v;
    an_train_config c;
    an_bench_result result;
    int64_t warm_up;
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_config_defaults(err, &an_bench_keys, &v));
    c.threads = 2; /* as the programs it is compared with */
    AN_TRY(an_args_apply(err, args, (an_key_set[]){{&an_bench_keys, &v}, {&an_train_keys, &c}}, 2));
    if (c.vocab_size == 0) c.vocab_size = 65; /* the characters of Shakespeare */
    AN_TRY(an_train_config_check(err, &c));
    protocol_of(c.preset, &v.steps, &warm_up);
    AN_TRY(an_bench(err, &c, warm_up, v.steps, &result));
    if (!args->quiet) an_narrate_bill(&result.bill);
    return print_result(err, &c, &result, args->json);
}
