/* memory.c: watermarks, and what a context holds (an_memory_* of anneal.h). A step above the high one is refused here, before the
 * device is asked. A plan over the budget: plan_cache.c. A device's own refusal (out of memory) gets its sentence in the backend:
 * an_cuda_check of device/cuda/cuda.c.
 *
 * The rule: above the high watermark nothing is requested; above the low one, idle plans and buffers are freed first.
 * Both are fractions of what the device recommends. A plan knows its bytes before it runs, so nothing is half allocated.
 */
#include "runtime/memory.h"

#include "base/text.h"
#include "runtime/in_flight.h"
#include "runtime/plan_cache.h"

#include <string.h>

static const double HIGH_MARK = 0.95, LOW_MARK = 0.8; /* of what the device recommends */

static void ask_device(const an_ctx *cx, uint64_t *driver, uint64_t *recommended)
{
    *driver = *recommended = 0;
    if (cx->device && cx->backend->memory) cx->backend->memory(cx->device, driver, recommended);
}

/* A watermark in bytes; UINT64_MAX: no limit. */
static uint64_t mark(const an_ctx *cx, double asked, double usual)
{
    uint64_t driver, recommended;
    ask_device(cx, &driver, &recommended);
    if (asked < 0 || !recommended) return UINT64_MAX;
    double bytes = (asked > 0 ? asked : usual) * (double)recommended;
    return bytes < 0x1p63 ? (uint64_t)bytes : UINT64_MAX;
}

/* Bytes that running this plan would still have to allocate. */
static uint64_t missing_bytes(const an_ctx *cx, const an_plan *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < cx->n_stores; i++)
        if (!cx->store[i].allocated && !cx->store[i].bound) sum += (uint64_t)cx->store[i].bytes;
    if ((uint64_t)p->arena_bytes > cx->arena.bytes) sum += (uint64_t)p->arena_bytes - cx->arena.bytes;
    for (int i = 0; i < an_input_blocks(cx); i++)
        if ((uint64_t)p->input_bytes > cx->inputs[i].bytes) sum += (uint64_t)p->input_bytes - cx->inputs[i].bytes;
    return sum;
}

an_status an_memory_admit(an_ctx *cx, const an_cached_plan *c)
{
    const uint64_t more = missing_bytes(cx, c->plan);
    if (!more) return AN_OK;
    const uint64_t after = cx->allocated_bytes + more;
    if (after > mark(cx, cx->options.low_watermark, LOW_MARK)) an_plan_cache_trim(cx, c);
    const uint64_t high = mark(cx, cx->options.high_watermark, HIGH_MARK);
    if (after <= high) return AN_OK;
    char need[16], most[16];
    return an_fail(&cx->err, AN_E_NOMEM,
                   "%s: out of memory: the step needs %s, the high watermark allows %s. Try a smaller batch, "
                   "recompute=on, or set high_watermark",
                   cx->backend->name, an_bytes_text((double)after, need), an_bytes_text((double)high, most));
}

an_status an_memory_read(const an_ctx *cx, an_memory *out)
{
    if (!cx || !out) return AN_E_USAGE;
    *out = (an_memory){.requested_bytes = cx->allocated_bytes,
                       .peak_bytes = cx->peak_bytes,
                       .allocations = cx->allocations,
                       .low_bytes = mark(cx, cx->options.low_watermark, LOW_MARK),
                       .high_bytes = mark(cx, cx->options.high_watermark, HIGH_MARK)};
    ask_device(cx, &out->driver_bytes, &out->recommended_bytes);
    for (int i = 0; i < cx->n_stores; i++)
        if (cx->store[i].allocated) out->live_bytes += (uint64_t)cx->store[i].bytes;
    if (cx->ran && cx->ran->exec)
        out->live_bytes += (uint64_t)cx->ran->plan->arena_bytes + cx->ran->plan->bill.input_bytes;
    for (int i = 0; i < AN_PLAN_CACHE; i++) out->plans += cx->plans[i].plan != NULL;
    return AN_OK;
}

void an_memory_reset_peak(an_ctx *cx)
{
    if (cx) cx->peak_bytes = cx->allocated_bytes;
}

an_status an_empty_cache(an_ctx *cx)
{
    if (!cx) return AN_E_USAGE;
    if (cx->device) an_plan_cache_trim(cx, NULL);
    return AN_OK;
}

an_status an_memory_limits(an_ctx *cx, double low, double high)
{
    if (!cx) return AN_E_USAGE;
    if (low != low || high != high || (high > 0 && low > high))
        return an_fail(&cx->err, AN_E_USAGE, "an_memory_limits: the low watermark %g is above the high one %g", low,
                       high);
    cx->options.low_watermark = low;
    cx->options.high_watermark = high;
    return AN_OK;
}
