/* cmd_plan.c: prints a run's memory bill without running it. */
#include "cli/cmd_plan.h"
#include "comm/comm.h"
#include "train/run_dir.h"
#include <anneal_tools.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_values {
    char show[AN_CONFIG_TEXT_BYTES], fit[AN_CONFIG_TEXT_BYTES], what_if[AN_CONFIG_TEXT_BYTES],
        svg[AN_CONFIG_TEXT_BYTES];
    bool trace;
    an_plan_scaling scaling;
} plan_values;

#define AT(name) offsetof(plan_values, name)
static const an_config_field fields[] = {
    {"show", AN_CONFIG_TEXT, AT(show), "bill", 0, 0, "bill|plan|memory|kernels|chips",
     "the bill, a line a step, memory over time, the rendered kernels, or an estimate for Apple's chips"},
    {"fit", AN_CONFIG_TEXT, AT(fit), "", 0, 0, NULL,
     "an amount of memory, as 8GiB: the largest micro-batch and the recompute choice that fit it"},
    {"what_if", AN_CONFIG_TEXT, AT(what_if), "", 0, 0, NULL,
     "a change, as batch/2, seq*2 or n_layer=3: what each kind would take; may be given several times"},
    {"trace", AN_CONFIG_BOOL, AT(trace), "false", 0, 0, NULL,
     "an update stage by stage: where it runs, what it moves, what it waits for, what may fail"},
    {"devices", AN_CONFIG_INT, AT(scaling.devices), "1", 1, 4096, NULL,
     "as if so many devices trained together: the bill of one rank, and with update_ms how fast they would be"},
    {"ranks", AN_CONFIG_INT, AT(scaling.ranks), "0", 0, 4096, NULL,
     "the same, under the name that `train` has for processes"},
    {"link", AN_CONFIG_TEXT, AT(scaling.link), "nvlink", 0, 0, "nvlink|pcie|10gbe|wifi",
     "of these: what connects them"},
    {"update_ms", AN_CONFIG_FLOAT, AT(scaling.update_ms), "0", 0, 1e9, NULL,
     "of these: the time of an update of one, with as many micro-batches as each has (ms in metrics.jsonl)"},
    {"svg", AN_CONFIG_TEXT, AT(svg), "", 0, 0, NULL, "a file for a picture of memory over the step"},
};
const an_config an_plan_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { LARGEST = 5 };

void an_memory_kinds(const an_estimate *p, an_memory_kind out[AN_ESTIMATE_KINDS])
{
    const an_bill *b = &p->bill;
    const an_memory_kind kinds[AN_ESTIMATE_KINDS] = {
        {"weights", "weight_bytes", b->weight_bytes},   {"gradients", "gradient_bytes", b->gradient_bytes},
        {"moments", "moment_bytes", b->moment_bytes},   {"activations", "activation_bytes", b->activation_bytes},
        {"scratch", "scratch_bytes", b->scratch_bytes}, {"state", "state_bytes", b->state_bytes},
        {"inputs", "input_bytes", b->input_bytes},      {"data", "data_bytes", p->data_bytes},
        {"workers", "worker_bytes", p->worker_bytes},   {"host buffers", "host_bytes", p->host_bytes}};
    memcpy(out, kinds, sizeof kinds);
}

/* The largest tensors of the plan, largest first. */
static int find_largest(const an_ctx *cx, an_plan_tensor out[LARGEST])
{
    int n = 0;
    an_plan_tensor t;
    for (int i = 0; i < an_plan_tensor_count(cx); i++) {
        if (!an_plan_tensor_get(cx, i, &t)) continue;
        int at = n;
        while (at > 0 && out[at - 1].bytes < t.bytes) at--;
        if (at == LARGEST) continue;
        const int moved = (n < LARGEST ? n : LARGEST - 1) - at;
        memmove(&out[at + 1], &out[at], (size_t)moved * sizeof *out);
        out[at] = t;
        if (n < LARGEST) n++;
    }
    return n;
}

static an_status print_bill_json(an_err *err, const an_session *r, const an_estimate *p, const plan_values *v,
                                 const an_args *args)
{
    const an_bill *b = &p->bill;
    an_memory_kind kinds[AN_ESTIMATE_KINDS];
    an_plan_tensor big[LARGEST];
    char name[160];
    an_model_counts counts;
    const an_cpu_launches on_cpu = an_planned_on_cpu(r->cx);
    r->cfg.model->count(an_model_settings(&r->cfg), r->cfg.batch_size, &counts);
    const struct {
        const char *key;
        uint64_t value;
    } row[] = {{"total_bytes", p->total_bytes},
               {"process_bytes", p->process_bytes},
               {"address_bytes", p->address_bytes},
               {"device_limit_bytes", p->device_limit_bytes},
               {"driver_bytes", p->driver_bytes},
               {"updates", (uint64_t)r->cfg.max_iters},
               {"launches", (uint64_t)b->launches},
               {"kernels", (uint64_t)b->kernels},
               {"flops", b->flops},
               {"bytes", b->moved_bytes},
               {"fallbacks", (uint64_t)b->fallbacks},
               {"fallback_bytes", b->fallback_bytes},
               {"placed", (uint64_t)on_cpu.placed},
               {"cpu_turns", (uint64_t)on_cpu.turns},
               {"syncs", (uint64_t)b->syncs},
               {"copies", (uint64_t)b->copies},
               {"compiled", (uint64_t)b->compiled},
               {"cached", (uint64_t)b->cached}};
    an_text line = {0};
    an_text_puts(&line, "{\"preset\":");
    an_json_put(&line, r->cfg.preset);
    an_text_puts(&line, ",\"device\":");
    an_json_put(&line, an_cli_device(r->cfg.device));
    an_text_printf(&line, ",\"dtype\":\"%s\",\"weights_dtype\":\"%s\",\"parameters\":%lld,\"peak_bytes\":%llu",
                   an_dtype_text(r->cfg.dtype), an_dtype_text(r->cfg.weights_dtype), (long long)counts.parameters,
                   (unsigned long long)b->peak_bytes);
    an_memory_kinds(p, kinds);
    for (size_t i = 0; i < AN_ESTIMATE_KINDS; i++)
        an_text_printf(&line, ",\"%s\":%llu", kinds[i].key, (unsigned long long)kinds[i].bytes);
    for (size_t i = 0; i < AN_COUNT(row); i++)
        an_text_printf(&line, ",\"%s\":%llu", row[i].key, (unsigned long long)row[i].value);
    an_put_json(&line, "plan_ms", b->plan_ms);
    an_put_json(&line, "compile_ms", b->compile_ms);
    an_text_puts(&line, ",\"largest\":[");
    for (int i = 0, n = find_largest(r->cx, big); i < n; i++) {
        an_text_printf(&line, "%s{\"bytes\":%llu,\"kind\":\"%s\",\"first\":%d,\"last\":%d,\"name\":", i ? "," : "",
                       (unsigned long long)big[i].bytes, big[i].kind, big[i].first, big[i].last);
        an_json_put(&line, an_estimate_name(&big[i], name));
        an_text_puts(&line, "}");
    }
    an_text_puts(&line, "]");
    an_plan_put_scaling(r, &v->scaling, &line);
    an_status status = an_plan_what_if_json(err, r, p, args, &line);
    an_text_puts(&line, "}");
    if (status == AN_OK) return an_print_line(err, &line);
    an_text_free(&line);
    return status;
}

static void print_bill(const an_session *r, const an_estimate *p)
{
    const an_bill *b = &p->bill;
    char text[16], other[16];
    char name[160], line[AN_CLI_ON_CPU_BYTES];
    const an_cpu_launches on_cpu = an_planned_on_cpu(r->cx);
    an_memory_kind kinds[AN_ESTIMATE_KINDS];
    an_plan_tensor big[LARGEST];
    printf("peak memory    %s, of which %s on the device\n", an_bytes_text((double)p->total_bytes, text),
           an_bytes_text((double)b->peak_bytes, other));
    an_memory_kinds(p, kinds);
    for (size_t i = 0; i < AN_ESTIMATE_KINDS; i++)
        printf("  %-12s %s%s\n", kinds[i].name, an_bytes_text((double)kinds[i].bytes, text),
               strcmp(kinds[i].name, "weights") == 0 && r->cfg.weights_dtype == AN_BF16
                   ? ", matrices in bfloat16, norms and biases in float32"
                   : "");
    printf("program        about %s more for itself\n", an_bytes_text((double)p->process_bytes, text));
    if (p->device_limit_bytes)
        printf("GPU            %s may be taken; driver, libraries and other programs hold %s,\n"
               "               kernels add to it when they are loaded\n",
               an_bytes_text((double)p->device_limit_bytes, text), an_bytes_text((double)p->driver_bytes, other));
    printf("launches       %d of %d kernels; %d copies, %d fallbacks, %d syncs\n", b->launches, b->kernels, b->copies,
           on_cpu.all - on_cpu.placed, b->syncs);
    if (on_cpu.all) printf("on the CPU     %s\n", an_cli_on_cpu(b, on_cpu, line));
    printf("work           %.3f GFLOP, %s moved\n", 1e-9 * (double)b->flops,
           an_bytes_text((double)b->moved_bytes, text));
    const int n = find_largest(r->cx, big);
    for (int i = 0; i < n; i++)
        printf("%-15s%-9s %.36s, launches %d to %d\n", i == 0 ? "largest" : "",
               an_bytes_text((double)big[i].bytes, text), an_estimate_name(&big[i], name), big[i].first, big[i].last);
}

/* Plans for an absent device too, since nothing runs. */
static void plan_for_absent(an_train_config *c)
{
    an_device_facts f = {0};
    if (strcmp(c->device, "auto") == 0 || !an_device_find(c->device, &f) || f.available || !*f.planned_by) return;
    an_say("note    %s is not here%s%.200s; the plan is that of %s", c->device, *f.reason ? ": " : "", f.reason,
           f.planned_by);
    snprintf(c->device, sizeof c->device, "%s", f.planned_by);
}

/* Whether the model's sizes follow from the settings alone, or from published weights. */
static bool sizes_are_known(const an_train_config *c)
{
    const an_weight_formats *w = c->model->weights;
    bool known = true;
    for (size_t i = 0; i < c->model->n_data_keys; i++) {
        int64_t size;
        memcpy(&size, c->model_settings.bytes + c->model->keys->fields[i].offset, sizeof size);
        known &= size > 0;
    }
    return known || (w && w->is_published && w->is_published(c->init_from));
}

/* Of the data only the size matters: a plan needs no data when the number of token ids is known. */
static an_status open_once(an_err *err, const an_train_config *c, an_session **out)
{
    an_err missing = {0};
    an_status status = an_session_open(&missing, c, NULL, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY, out);
    if (status == AN_OK) return AN_OK;
    const bool known = sizes_are_known(c);
    if (!known || (status != AN_E_IO && status != AN_E_ENV)) return an_fail(err, status, "%s", missing.text);
    AN_TRY(an_session_open(err, c, NULL, AN_RUN_PARAMETERS_ONLY, out));
    an_say("note    without the data: %s", missing.text);
    return AN_OK;
}

/* As a run with these settings would be; with `whole`, its batch is not divided. */
static an_status open_run(an_err *err, an_train_config *c, bool whole, an_session **out)
{
    AN_TRY(open_once(err, c, out));
    an_status status = whole ? AN_OK : an_cli_divide(err, c, out);
    if (status == AN_OK && !*out) return open_once(err, c, out);
    if (status != AN_OK) an_session_close(*out);
    return status;
}

static an_status show(an_err *err, an_session *r, const an_estimate *p, const plan_values *v, const an_args *args)
{
    if (*v->svg) AN_TRY(an_plan_svg(err, r, p, v->svg));
    if (v->trace) return an_plan_trace(err, r, p, args->json);
    if (args->json) return print_bill_json(err, r, p, v, args);
    if (strcmp(v->show, "bill") == 0) {
        an_cli_warn(r->cx);
        print_bill(r, p);
        an_plan_print_scaling(r, &v->scaling);
        return an_plan_what_if(err, r, p, args);
    }
    if (strcmp(v->show, "memory") == 0) return an_plan_timeline(err, r, p);
    const char *text = an_report_text(r->cx, v->show);
    if (!text && strcmp(v->show, "chips") == 0)
        return an_fail(err, AN_E_USAGE, "show=chips is an estimate of a Metal plan: add device=null:metal");
    if (!text) return an_fail(err, AN_E_UNSUPPORTED, "device %s has no text of its %s", r->cfg.device, v->show);
    if (strcmp(v->show, "kernels") == 0)
        fputs(text, stdout);
    else
        an_print_folded(stdout, text);
    if (strcmp(v->show, "chips") == 0)
        printf("This run: %lld updates of %lld such steps.\n", (long long)r->cfg.max_iters,
               (long long)an_train_micros(&r->cfg));
    return AN_OK;
}

static an_status check_fit(an_err *err, const plan_values *v, uint64_t *budget)
{
    const char *other = v->scaling.update_ms > 0       ? "update_ms="
                        : *v->what_if                  ? "what_if="
                        : v->trace                     ? "trace="
                        : strcmp(v->show, "bill") != 0 ? "show="
                        : *v->svg                      ? "svg="
                                                       : NULL;
    if (other)
        return an_fail(err, AN_E_USAGE, "fit= searches for what fits and prints nothing else: leave %s out", other);
    return an_bytes_parse(err, "fit", v->fit, budget);
}

/* link= says nothing of one device, nor of several without the time of an update. */
static an_status check_link(an_err *err, const an_args *args, const plan_values *v)
{
    bool given = false;
    for (size_t i = 0; i < args->n_settings; i++) given = given || strcmp(args->settings[i].key, "link") == 0;
    if (given && AN_MAX(v->scaling.devices, v->scaling.ranks) < 2)
        return an_fail(err, AN_E_USAGE,
                       "link= is what connects several devices: add devices=2 or more, and update_ms=");
    if (given && !(v->scaling.update_ms > 0))
        return an_fail(err, AN_E_USAGE,
                       "link= is for a prediction: add update_ms=, the time of an update of one device");
    return AN_OK;
}

an_status an_cmd_plan(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_train_config c;
    plan_values v;
    an_session *r;
    an_estimate estimate;
    uint64_t budget = 0;
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_config_defaults(err, &an_plan_keys, &v));
    AN_TRY(an_args_apply_run(err, args, &an_plan_keys, &v, &c));
    AN_TRY(an_run_dir_check_output(err, v.svg));
    AN_TRY(an_train_config_check(err, &c));
    AN_TRY(check_link(err, args, &v));
    plan_for_absent(&c);
    if (*v.fit) AN_TRY(check_fit(err, &v, &budget));
    an_status status = an_plan_be_rank(err, &v.scaling, &c);
    if (status == AN_OK) status = open_run(err, &c, *v.fit, &r);
    if (status != AN_OK) {
        an_comm_close(c.comm);
        return status;
    }
    status = *v.fit         ? an_plan_fit(err, r, budget, args->json)
             : c.budget > 0 ? an_estimate_check(err, r, &estimate)
                            : an_estimate_run(err, r, &estimate);
    if (status == AN_OK && !*v.fit) status = show(err, r, &estimate, &v, args);
    an_session_close(r);
    an_comm_close(c.comm);
    return status;
}
