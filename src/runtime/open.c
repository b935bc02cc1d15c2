/* open.c: a context's life: its options, its device (which one `auto` means, and why the others are not available), the reset
 * between steps, the end. */
#include "runtime/context.h"

#include "base/text.h"
#include "comm/comm.h"
#include "runtime/in_flight.h"
#include "runtime/plan_cache.h"
#include "runtime/stores.h"

#include <anneal_tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The option, or else the environment variable that PyTorch users set on a Mac. */
static an_status settle_fallback(an_ctx *cx)
{
    const char *asked = cx->options.fallback, *set = getenv("PYTORCH_ENABLE_MPS_FALLBACK");
    if (!asked) cx->options.fallback = set && !strcmp(set, "1") ? "cpu" : "none";
    static const char *const allowed[] = {"cpu", "none"};
    for (size_t i = 0; i < AN_COUNT(allowed); i++)
        if (!asked || !strcmp(asked, allowed[i])) return AN_OK;
    return an_fail(&cx->err, AN_E_USAGE, "an_open: fallback is \"%s\"; it is \"cpu\" or \"none\"", asked);
}

/* A watermark that is not set is taken from the environment, where PyTorch's 0 means none. */
static an_status settle_watermark(an_ctx *cx, const char *variable, double *mark)
{
    const char *set = getenv(variable);
    if (*mark != 0 || !set || !*set) return AN_OK;
    char *end;
    const double part = strtod(set, &end);
    if (*end || !isfinite(part) || part < 0)
        return an_fail(&cx->err, AN_E_USAGE,
                       "%s=%.64s in the environment: it is a number from 0 (no limit) up; unset it or correct it",
                       variable, set);
    *mark = part > 0 ? part : -1;
    return AN_OK;
}

static an_status keep_options(an_ctx *cx, const an_options *o, size_t size)
{
    memcpy(&cx->options, o,
           AN_MIN(size, sizeof cx->options)); /* a program built against an older header passes fewer fields */
    const char **text[] = {&cx->options.device,    &cx->options.isa,       &cx->options.cc,
                           &cx->options.cache_dir, &cx->options.recompute, &cx->options.dump,
                           &cx->options.dump_dir,  &cx->options.fallback,  &cx->options.on_cpu};
    for (size_t i = 0; i < AN_COUNT(text); i++)
        if (*text[i] && !(*text[i] = an_arena_strdup(&cx->forever, *text[i])))
            return an_fail_nomem(&cx->err, "the options", 0);
    const char *r = cx->options.recompute;
    static const char *const words[] = {"off", "on", "auto"};
    cx->recompute = 2;
    for (int i = 0; r && i < 3; i++)
        if (!strcmp(r, words[i])) cx->recompute = i;
    an_options *mine = &cx->options;
    AN_TRY(settle_watermark(cx, "PYTORCH_MPS_LOW_WATERMARK_RATIO", &mine->low_watermark));
    AN_TRY(settle_watermark(cx, "PYTORCH_MPS_HIGH_WATERMARK_RATIO", &mine->high_watermark));
    AN_TRY(an_memory_limits(cx, mine->low_watermark, mine->high_watermark));
    AN_TRY(settle_fallback(cx));
    if (mine->dump) AN_TRY(an_dump_check(&cx->err, mine->dump));
    if (r && strcmp(r, words[cx->recompute]))
        return an_fail(&cx->err, AN_E_USAGE, "an_open: recompute is \"%s\"; it is \"auto\", \"on\" or \"off\"", r);
#ifndef NDEBUG
    cx->options.verify = true;
#endif
    return AN_OK;
}

/* By name. "auto" takes the first device that is available, in the order of an_backend_auto; `why` collects the reasons
 * of the ones that were skipped. */
static an_status choose_device(an_ctx *cx, const char *name, const an_backend **out, an_device_info *info, an_text *why)
{
    const bool any = !strcmp(name, "auto");
    *out = any ? NULL : an_backend_find(&cx->err, name);
    if (!any && !*out) return cx->err.code;
    for (int i = 0; !any || an_backend_auto(i); i++) {
        if (any) *out = an_backend_auto(i);
        *info = (an_device_info){0};
        if ((*out)->probe(info)) return AN_OK;
        if (!any) break;
        an_text_printf(why, "; not %s: %.*s", (*out)->name, (int)strcspn(info->reason, ";"), info->reason);
    }
    return an_fail(&cx->err, AN_E_ENV, "%s: not available: %s", name, info->reason);
}

static an_status open_device(an_ctx *cx)
{
    const char *name = cx->options.device && *cx->options.device ? cx->options.device : "auto";
    an_device_options o = {.threads = cx->options.threads,
                           .isa = cx->options.isa,
                           .cc = cx->options.cc,
                           .cache_dir = cx->options.cache_dir,
                           .exact = cx->options.exact,
                           .tf32 = cx->options.tf32,
                           .isolate_buffers = cx->options.place_apart,
                           .fallback = cx->options.fallback && strcmp(cx->options.fallback, "none")};
    an_device_info info = {0};
    an_text why = {0};
    const an_backend *b = NULL;
    AN_TRY(choose_device(cx, name, &b, &info, &why));
    an_status status = b->open(&cx->err, &o, &cx->device);
    if (status == AN_OK)
        cx->device_text = an_arena_printf(&cx->forever, "%s: %s%s", info.name, info.reason, why.data ? why.data : "");
    an_text_free(&why);
    if (status != AN_OK) return status;
    cx->backend = b;
    cx->graph.device_name = b->name;
    return AN_OK;
}

an_ctx *an_open_sized(const an_options *o, size_t size)
{
    an_ctx *cx = calloc(1, sizeof *cx);
    static const an_options none;
    if (!cx) return NULL;
    cx->loss = -1;
    if (an_graph_open(&cx->err, cx, &cx->graph) != AN_OK) {
        an_graph_close(&cx->graph);
        free(cx);
        return NULL;
    }
    if (keep_options(cx, o ? o : &none, o ? size : sizeof none) == AN_OK) open_device(cx);
    return cx;
}

an_status an_join(an_ctx *cx, struct an_comm *c)
{
    if (!cx || !c || an_comm_ranks(c) == 1) return AN_OK;
    if (!cx->device) return cx->err.code;
    if (!cx->backend->join && !cx->backend->plans_only)
        return an_fail(
            &cx->err, AN_E_UNSUPPORTED,
            "%s: one process trains on it. Start one, which does the same micro-batches one after the other, or "
            "ranks with device=cpu (or device=cuda, where several GPUs are)",
            cx->backend->name);
    if (cx->backend->join) AN_TRY(cx->backend->join(&cx->err, cx->device, c));
    cx->graph.ranks = an_comm_ranks(c);
    cx->graph.rank = an_comm_rank(c);
    return AN_OK;
}

void an_overlap_exchanges(an_ctx *cx, bool overlap)
{
    if (cx) cx->no_overlap = !overlap;
}

an_status an_exchange_bf16(an_ctx *cx, bool bf16)
{
    if (!cx) return AN_E_USAGE;
    if (bf16 && cx->graph.ranks > 1 && cx->device && cx->backend->target(cx->device)->exact)
        return an_fail(&cx->err, AN_E_UNSUPPORTED,
                       "an_exchange_bf16: exact mode adds gradients in float32, so that any number of ranks has the "
                       "same bits");
    cx->narrow = bf16 && cx->graph.ranks > 1;
    return AN_OK;
}

an_status an_shard_optimizer(an_ctx *cx, an_shard what)
{
    if (!cx) return AN_E_USAGE;
    if (cx->n_blocks > 0)
        return an_fail(&cx->err, AN_E_USAGE,
                       "an_shard_optimizer: the parameters have their places already; call it first");
    cx->shard = cx->graph.ranks > 1 ? what : AN_SHARD_NONE;
    return AN_OK;
}

void an_close(an_ctx *cx)
{
    if (!cx) return;
    if (cx->device) {
        an_wait_idle(cx);
        an_plan_cache_close(cx);
        if (cx->arena.bytes) cx->backend->free(cx->device, &cx->arena);
        for (int i = 0; i < AN_MAX_IN_FLIGHT; i++)
            if (cx->inputs[i].bytes) cx->backend->free(cx->device, &cx->inputs[i]);
    }
    an_stores_close(cx);
    if (cx->device) cx->backend->close(cx->device);
    an_graph_close(&cx->graph);
    an_arena_free(&cx->step);
    an_arena_free(&cx->forever);
    free(cx->miss);
    free(cx->text);
    free(cx->wait);
    free(cx->image);
    free(cx->root);
    free(cx->asked);
    free(cx);
}

void an_reset(an_ctx *cx)
{
    if (!cx) return;
    an_graph_reset(&cx->graph);
    an_arena_reset(&cx->step);
    cx->n_inputs = cx->n_scalars = 0;
    cx->effects_from = 0;
    cx->loss = -1;
    cx->n_roots = 0;
    if (cx->hooks) cx->hooks->discarded(cx);
    if (cx->device) an_err_clear(&cx->err); /* a context that never opened keeps saying why */
}
