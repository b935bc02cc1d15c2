/* cmd_plan.h: what the parts of `anneal plan` share: cmd_plan.c (the bill), plan_queries.c (--fit, --what-if), plan_trace.c
 * (--trace), plan_scaling.c (devices=), memory_svg.c (memory over time). */
#ifndef AN_CLI_CMD_PLAN_H
#define AN_CLI_CMD_PLAN_H

#include "cli/cli.h"
#include "tools/estimate.h"

/* The kinds of an estimate in the order they are shown. */
typedef struct an_memory_kind {
    const char *name, *key; /* "activations", "activation_bytes" */
    uint64_t bytes;
} an_memory_kind;
enum { AN_ESTIMATE_KINDS = 10 };
void an_memory_kinds(const an_estimate *p, an_memory_kind out[AN_ESTIMATE_KINDS]);

/* The largest batches for a budget; the change of each kind by each `what_if` among the arguments. */
an_status an_plan_fit(an_err *err, const an_session *r, uint64_t budget, bool json);
an_status an_plan_what_if(an_err *err, const an_session *r, const an_estimate *now, const an_args *args);
/* The same as ,"what_if":[{"change":"batch/2",...}]. */
an_status an_plan_what_if_json(an_err *err, const an_session *r, const an_estimate *now, const an_args *args,
                               an_text *out);

/* The update's memory over its launches: on a terminal, with the largest tensors; as a picture, stacked by kind. */
an_status an_plan_timeline(an_err *err, const an_session *r, const an_estimate *p);
/* What devices=N (or ranks=N) link=L update_ms=T asks for: an update shared by several devices. */
typedef struct an_plan_scaling {
    int64_t devices, ranks;
    char link[AN_CONFIG_TEXT_BYTES];
    double update_ms; /* of one device; 0: not told */
} an_plan_scaling;
/* The run is then one of so many ranks, that do not exist: c->comm is the caller's to close. v->devices is their number from here on. */
an_status an_plan_be_rank(an_err *err, an_plan_scaling *v, an_train_config *c);
void an_plan_put_scaling(const an_session *r, const an_plan_scaling *v, an_text *out);
void an_plan_print_scaling(const an_session *r, const an_plan_scaling *v);
an_status an_plan_trace(an_err *err, const an_session *r, const an_estimate *p, bool json);
an_status an_plan_svg(an_err *err, const an_session *r, const an_estimate *p, const char *path);

#endif
