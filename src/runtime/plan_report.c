/* plan_report.c: an_report and an_report_text: what the last plan takes, what it did, and why it was made. */
#include "runtime/context.h"

#include "base/text.h"
#include "codegen/gpu_module.h"
#include "runtime/in_flight.h"
#include "runtime/stores.h"

#include <stdlib.h>
#include <string.h>

an_status an_report(const an_ctx *cx, an_bill *out)
{
    if (!cx || !out || !cx->last) return AN_E_USAGE;
    *out = cx->last->plan->bill;
    uint64_t by[AN_N_USES] = {0};
    out->peak_bytes = (uint64_t)an_persistent_bytes(cx, by) + (uint64_t)cx->last->plan->arena_bytes + out->input_bytes;
    out->weight_bytes += by[AN_USE_WEIGHT];
    out->gradient_bytes += by[AN_USE_GRADIENT];
    out->moment_bytes = by[AN_USE_MOMENT];
    out->state_bytes = by[AN_USE_STATE];
    for (int s = 0; cx->last->exec && s < cx->last->plan->n_steps; s++)
        if (cx->last->plan->step[s].fallback)
            out->fallback_ms += 1e3 * cx->backend->step_seconds(cx->device, cx->last->exec, s);
    out->allocated_bytes = cx->allocated_bytes;
    out->allocations = cx->allocations;
    out->syncs = cx->syncs;
    out->waits = cx->waits;
    out->stalls = cx->stalls;
    return AN_OK;
}

/* Settings that do nothing here, or may do harm. */
static void warnings(const an_ctx *cx, an_text *t)
{
    if (cx->options.high_watermark < 0)
        an_text_printf(
            t, "the high watermark is off: a step that does not fit may make the whole machine swap, or be killed "
               "by the system");
    if (cx->options.on_cpu && cx->device && !cx->backend->target(cx->device)->cpu_steps)
        an_text_printf(t,
                       "%sno launch is moved to the CPU (place=): that is for an Apple GPU alone, whose memory the CPU "
                       "shares, and this device is %s",
                       t->len ? "; " : "", cx->backend->name);
    if (!cx->options.tf32 || !cx->device || cx->backend->plans_only) return;
    const char *before = t->len ? "; " : "";
    const an_dtype gemm = cx->graph.matmul_dtype;
    if (!cx->backend->target(cx->device)->tf32)
        an_text_printf(t, "%stf32 is asked for and has no effect: %s multiplies float32 unrounded", before,
                       cx->backend->name);
    else if (gemm == AN_BF16 || gemm == AN_F16)
        an_text_printf(t,
                       "%stf32 has little effect: matrix products are made in %s, and tf32 is about those in float32",
                       before, an_dtype_name(gemm));
}

const char *an_report_text(an_ctx *cx, const char *what)
{
    if (!cx || !what) return NULL;
    if (!strcmp(what, "device")) return cx->device_text;
    if (!strcmp(what, "miss")) return cx->miss;
    an_text t = {0};
    if (!strcmp(what, "warning")) {
        warnings(cx, &t);
        free(cx->text);
        return cx->text = t.data;
    }
    if (!cx->last) return NULL;
    if (!strcmp(what, "note")) return cx->last->stats.note;
    if (!strcmp(what, "plan")) return cx->last->plan->text_plan;
    if (!strcmp(what, "memory")) return cx->last->plan->text_memory;
    if (strcmp(what, "kernels") && strcmp(what, "time") && strcmp(what, "chips")) return NULL;
    const an_plan *p = cx->last->plan;
    if (!strcmp(what, "kernels")) {
        an_render_plan(cx->backend->target(cx->device)->dialect, p, &t);
    } else if (!strcmp(what, "chips")) {
        if (!cx->backend->estimate) return NULL;
        cx->backend->estimate(p, &t);
    } else if (cx->last->exec) {
        an_wait_idle(cx);
        for (int s = 0; s < p->n_steps; s++) {
            double sec = cx->backend->step_seconds(cx->device, cx->last->exec, s);
            an_text_printf(&t, "%4d %9.1f us %8.1f GFLOP/s %7.1f GB/s  %s\n", s, sec * 1e6,
                           (double)p->step[s].flops / AN_MAX(sec, 1e-9) * 1e-9,
                           (double)p->step[s].bytes / AN_MAX(sec, 1e-9) * 1e-9, p->kernel[p->step[s].kernel].name);
        }
    }
    free(cx->text);
    return cx->text = t.data;
}

double an_fma_peak(an_ctx *cx, an_dtype dtype)
{
    if (!cx || !cx->device || !cx->backend->measured_peak) return 0;
    return cx->backend->measured_peak(cx->device, dtype, 0.05);
}
