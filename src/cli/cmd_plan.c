/* cmd_plan.c: the bill of a training step, without running it. */
#include "cli/cli.h"
#include "cli/narrate.h"
#include "train/step.h"
#include <stdlib.h>
#include <string.h>

typedef struct plan_values {
    char show[AN_CONFIG_TEXT_BYTES];
} plan_values;

static const an_config_field fields[] = {
    {"show", AN_CONFIG_TEXT, offsetof(plan_values, show), "bill", 0, 0, "bill|plan|memory|kernels",
     "the bill, a line a step, memory over time, or the rendered kernels"},
};
const an_config an_plan_keys = {fields, 1};

static an_status print_bill_json(an_err *err, const an_run *r, const an_bill *b)
{
    const struct {
        const char *key;
        uint64_t value;
    } row[] = {{"parameters", (uint64_t)an_gpt_parameters(an_gpt_config_of(r->model))},
               {"peak_bytes", b->peak_bytes},
               {"weight_bytes", b->weight_bytes},
               {"gradient_bytes", b->gradient_bytes},
               {"moment_bytes", b->moment_bytes},
               {"state_bytes", b->state_bytes},
               {"activation_bytes", b->activation_bytes},
               {"scratch_bytes", b->scratch_bytes},
               {"input_bytes", b->input_bytes},
               {"launches", (uint64_t)b->launches},
               {"kernels", (uint64_t)b->kernels},
               {"flops", b->flops},
               {"bytes", b->moved_bytes},
               {"fallbacks", (uint64_t)b->fallbacks},
               {"syncs", (uint64_t)b->syncs},
               {"copies", (uint64_t)b->copies},
               {"compiled", (uint64_t)b->compiled},
               {"cached", (uint64_t)b->cached}};
    an_text line = {0};
    an_text_puts(&line, "{\"preset\":");
    an_put_json_text(&line, r->cfg.preset);
    an_text_puts(&line, ",\"device\":");
    an_put_json_text(&line, r->cfg.device);
    an_text_printf(&line, ",\"dtype\":\"%s\"", an_dtype_text(r->cfg.dtype));
    for (size_t i = 0; i < AN_COUNT(row); i++)
        an_text_printf(&line, ",\"%s\":%llu", row[i].key, (unsigned long long)row[i].value);
    an_put_json(&line, "plan_ms", b->plan_ms);
    an_put_json(&line, "compile_ms", b->compile_ms);
    an_text_puts(&line, "}");
    return an_print_line(err, &line);
}

static void print_bill(const an_bill *b)
{
    char text[16];
    printf("peak memory   %s\n", an_bytes_text((double)b->peak_bytes, text));
    printf("  weights     %s\n", an_bytes_text((double)b->weight_bytes, text));
    printf("  gradients   %s\n", an_bytes_text((double)b->gradient_bytes, text));
    printf("  moments     %s\n", an_bytes_text((double)b->moment_bytes, text));
    printf("  activations %s\n", an_bytes_text((double)b->activation_bytes, text));
    printf("  scratch     %s\n", an_bytes_text((double)b->scratch_bytes, text));
    printf("  state       %s\n", an_bytes_text((double)b->state_bytes, text));
    printf("  inputs      %s\n", an_bytes_text((double)b->input_bytes, text));
    printf("launches      %d of %d kernels; %d copies, %d fallbacks, %d syncs\n", b->launches, b->kernels, b->copies,
           b->fallbacks, b->syncs);
    printf("work          %.3f GFLOP, %s moved\n", 1e-9 * (double)b->flops,
           an_bytes_text((double)b->moved_bytes, text));
}

/* The plan of the last micro-batch, which ends in the update, and its bill. */
static an_status plan_step(an_err *err, an_run *r, an_bill *out)
{
    const size_t n = (size_t)(r->cfg.batch_size * r->cfg.block_size);
    int32_t *zeros = calloc(n, sizeof *zeros);
    if (!zeros) return an_fail_nomem(err, "a batch", n * sizeof *zeros);
    const an_step s = an_step_build(r->cx, r->model, &r->cfg, 0, r->cfg.gradient_accumulation_steps - 1, zeros, zeros);
    free(zeros);
    AN_TRY(an_run_result(err, r->cx, an_plan(s.loss, s.norm)));
    return an_run_result(err, r->cx, an_report(r->cx, out));
}

an_status an_cmd_plan(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    an_train_config c;
    plan_values v;
    an_run *r;
    an_bill bill;
    AN_TRY(an_train_config_open(err, args->words[0], &c));
    AN_TRY(an_config_defaults(err, &an_plan_keys, &v));
    AN_TRY(an_args_apply(err, args, (an_key_set[]){{&an_plan_keys, &v}, {&an_train_keys, &c}}, 2));
    AN_TRY(an_train_config_check(err, &c));
    AN_TRY(an_run_open(err, &c, NULL, AN_RUN_DATA | AN_RUN_PARAMETERS_ONLY, &r));
    an_status status = plan_step(err, r, &bill);
    if (status == AN_OK && args->json)
        status = print_bill_json(err, r, &bill);
    else if (status == AN_OK && strcmp(v.show, "bill") == 0)
        print_bill(&bill);
    else if (status == AN_OK) {
        const char *text = an_report_text(r->cx, v.show);
        if (text)
            fputs(text, stdout);
        else
            status = an_fail(err, AN_E_UNSUPPORTED, "device %s has no text of its %s", c.device, v.show);
    }
    an_run_close(r);
    return status;
}
