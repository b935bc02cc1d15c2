/* cmd_selftest.c: does this machine compute what it should? Every kernel of a model, checked; exit code 3 when one is
 * wrong. */
#include "cli/cli.h"
#include "train/selftest.h"
#include <string.h>

typedef struct table {
    bool json, quiet, begun;
    an_text rows; /* of JSON */
} table;

static void tell(void *user, const an_kernel_check *k)
{
    table *t = user;
    const char *verdict = k->fault[0] ? "WRONG" : k->skipped[0] ? "skipped" : "good";
    if (t->json) {
        an_text_puts(&t->rows, t->rows.len ? ",{\"kernel\":" : "{\"kernel\":");
        an_put_json_text(&t->rows, k->kernel);
        an_text_printf(&t->rows, ",\"kind\":\"%s\",\"launches\":%d,\"elements\":%lld,\"verdict\":\"%s\"", k->kind,
                       k->launches, (long long)k->elements, verdict);
        an_put_json(&t->rows, "worst", k->worst);
        if (k->fault[0] || k->skipped[0]) {
            an_text_puts(&t->rows, ",\"why\":");
            an_put_json_text(&t->rows, k->fault[0] ? k->fault : k->skipped);
        }
        an_text_puts(&t->rows, "}");
        return;
    }
    if (t->quiet && !k->fault[0] && !k->skipped[0]) return;
    if (!t->begun && !t->quiet)
        printf("verdict kind   launches  elements   worst  kernel (worst: 1 is what is allowed)\n");
    t->begun = true;
    printf("%-8s%-11s%5d %9lld %7.3f  %s\n", verdict, k->kind, k->launches, (long long)k->elements, k->worst,
           k->kernel);
    if (k->fault[0] || k->skipped[0]) printf("        %s\n", k->fault[0] ? k->fault : k->skipped);
}

an_status an_cmd_selftest(an_err *err, const an_args *args, int *exit_code)
{
    an_train_config c;
    an_check_result r;
    table t = {.json = args->json, .quiet = args->quiet};
    AN_TRY(an_train_config_open(err, args->n_words ? args->words[0] : "demo", &c));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_train_keys, &c}, 1));
    if (c.vocab_size == 0) c.vocab_size = 65; /* the characters of Shakespeare */
    AN_TRY(an_train_config_check(err, &c));
    an_status status = an_selftest(err, &c, tell, &t, &r);
    if (status != AN_OK) {
        an_text_free(&t.rows);
        return status;
    }
    if (r.faults) *exit_code = AN_EXIT_NUMERIC;
    an_text line = {0};
    if (t.json) {
        an_text_puts(&line, "{\"preset\":");
        an_put_json_text(&line, c.preset);
        an_text_puts(&line, ",\"device\":");
        an_put_json_text(&line, an_cli_device(c.device));
        an_text_printf(&line, ",\"kernels\":%d,\"faults\":%d,\"skipped\":%d,\"elements\":%lld,\"checks\":[%s]}",
                       r.kernels, r.faults, r.skipped, (long long)r.elements, t.rows.data ? t.rows.data : "");
        line.failed |= t.rows.failed;
    } else {
        an_text_printf(&line, "%s on %s: %d kernels, %lld elements compared, %d skipped: %s", c.preset,
                       an_cli_device(c.device), r.kernels, (long long)r.elements, r.skipped,
                       r.faults ? "SOMETHING IS WRONG, see above" : "all as the oracle has them");
    }
    an_text_free(&t.rows);
    return an_print_line(err, &line);
}
