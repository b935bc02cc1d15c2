/* oracle_eval.c: an_eval and an_read on the device "ref": every node is evaluated by the oracle, in double, without a plan.
 *
 * Owns: reading leaves as doubles, writing assigned values back, the results, one after the other in cx->arena.
 *
 * Invariant: every leaf is read before the first assigned value is written, because assignments take effect at the end of
 * the step.
 */
#include "runtime/oracle_eval.h"

#include "base/exact.h"
#include "base/rng.h"
#include "oracle/oracle.h"
#include "runtime/buffers.h"
#include "runtime/param_blocks.h"
#include "runtime/stores.h"
#include "runtime/variables.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* ---------------------------------------------------------------------------------------------- stored bytes and wide values */

/* out: double for floats, int64_t for integers and bools */
static void widen(an_dtype t, const void *raw, int64_t n, void *out)
{
    double *d = out;
    int64_t *w = out;
    for (int64_t i = 0; i < n; i++) switch (t) {
        case AN_F32: d[i] = (double)((const float *)raw)[i]; break;
        case AN_F64: d[i] = ((const double *)raw)[i]; break;
        case AN_BF16: d[i] = (double)an_bf16_to_f32(((const uint16_t *)raw)[i]); break;
        case AN_F16: d[i] = (double)an_f16_to_f32(((const uint16_t *)raw)[i]); break;
        case AN_I32: w[i] = ((const int32_t *)raw)[i]; break;
        case AN_I64: w[i] = ((const int64_t *)raw)[i]; break;
        default: w[i] = ((const uint8_t *)raw)[i]; break;
        }
}

/* Values of a node, as an_oracle_eval gives them, as bytes of its dtype. */
static void narrow(an_dtype t, const double *x, int64_t n, void *raw)
{
    for (int64_t i = 0; i < n; i++) switch (t) {
        case AN_F32: ((float *)raw)[i] = (float)x[i]; break;
        case AN_F64: ((double *)raw)[i] = x[i]; break;
        case AN_BF16: ((uint16_t *)raw)[i] = (uint16_t)an_f32_to_bf16((float)x[i]); break;
        case AN_F16: ((uint16_t *)raw)[i] = (uint16_t)an_f32_to_f16((float)x[i]); break;
        case AN_I32: ((int32_t *)raw)[i] = (int32_t)x[i]; break;
        case AN_I64: ((int64_t *)raw)[i] = (int64_t)x[i]; break;
        default: ((uint8_t *)raw)[i] = (uint8_t)x[i]; break;
        }
}

/* ---------------------------------------------------------------------------------------------- callbacks of the oracle */

static an_status leaf_value(an_err *err, void *user, const struct an_tensor *leaf, void *out)
{
    (void)err;
    an_ctx *cx = user;
    int index = (int)leaf->attr[1];
    if (leaf->attr[0] == AN_LEAF_INPUT) {
        widen((an_dtype)leaf->dtype, cx->input[index].data, leaf->numel, out);
    } else if (leaf->attr[0] == AN_LEAF_SCALAR) {
        char raw[8]; /* as the input block of a plan holds it */
        an_scalar_bytes(cx, index, raw);
        widen((an_dtype)leaf->dtype, raw, 1, out);
    } else {
        an_leaf_place at = an_leaf_place_of(cx, (an_leaf)leaf->attr[0], index);
        widen((an_dtype)leaf->dtype, (const char *)cx->store[at.slot - AN_SLOT_FIRST].mem.host + at.offset, leaf->numel,
              out);
    }
    return AN_OK;
}

static int64_t pack_element(void *user, const struct an_tensor *pack, int i)
{
    int64_t block_bytes;
    return an_pack_place(user, (int)pack->attr[0], i, &block_bytes) / (int64_t)an_dtype_bytes((an_dtype)pack->dtype);
}

/* ---------------------------------------------------------------------------------------------- evaluating */

static size_t node_bytes(const an_ctx *cx, int32_t id)
{
    return (size_t)cx->graph.node[id]->numel * an_dtype_bytes((an_dtype)cx->graph.node[id]->dtype);
}

static void assign(an_ctx *cx, const struct an_tensor *n, const double *value)
{
    const struct an_tensor *state = cx->graph.node[n->src[0]];
    an_leaf_place at = an_leaf_place_of(cx, (an_leaf)state->attr[0], (int)state->attr[1]);
    narrow((an_dtype)state->dtype, value, state->numel,
           (char *)cx->store[at.slot - AN_SLOT_FIRST].mem.host + at.offset);
}

/* ids: the roots, then the assignments. Allocates value[i] of every id; the caller frees them. */
static an_status evaluate(an_ctx *cx, const int32_t *ids, int n_roots, int n, double **value)
{
    const an_oracle_options o = {
        .rng_key = an_rng_key(cx->options.seed, cx->step_number), .first_sample = cx->sample, .pack = pack_element};
    size_t bytes = 0, at = 0;
    for (int i = 0; i < n; i++) {
        value[i] = malloc(((size_t)cx->graph.node[ids[i]]->numel + 1) * sizeof(double));
        if (!value[i]) return an_fail_nomem(&cx->err, "ref", (size_t)cx->graph.node[ids[i]]->numel * sizeof(double));
        if (i < n_roots) bytes += (size_t)an_round_up((int64_t)node_bytes(cx, ids[i]), ALIGN);
    }
    AN_TRY(an_oracle_eval(&cx->err, &cx->graph, &o, leaf_value, cx, ids, n, value));
    AN_TRY(an_buffer_reserve(cx, &cx->arena, (int64_t)bytes));
    for (int i = 0; i < n; i++) {
        const struct an_tensor *t = cx->graph.node[ids[i]];
        if (i >= n_roots) {
            assign(cx, t, value[i]);
            continue;
        }
        narrow((an_dtype)t->dtype, value[i], t->numel, (char *)cx->arena.host + at);
        at += (size_t)an_round_up((int64_t)node_bytes(cx, ids[i]), ALIGN);
    }
    return AN_OK;
}

an_status an_oracle_run(an_ctx *cx, const int32_t *roots, int n_roots)
{
    AN_TRY(an_stores_ready(cx));
    int n = n_roots, all = n_roots + cx->graph.n;
    int32_t *ids = malloc(sizeof *ids * (size_t)(all + 1));
    double **value = calloc((size_t)all + 1, sizeof *value);
    if (!ids || !value) {
        free(ids);
        free(value);
        return an_fail_nomem(&cx->err, "ref", sizeof *value * (size_t)all);
    }
    if (n_roots > 0) memcpy(ids, roots, sizeof *ids * (size_t)n_roots); /* an evaluation of effects alone has none */
    for (int32_t id = cx->effects_from; id < cx->graph.n; id++)
        if (cx->graph.node[id]->op == AN_OP_ASSIGN) ids[n++] = id;
    an_status status = evaluate(cx, ids, n_roots, n, value);
    for (int i = 0; i < n; i++) free(value[i]);
    free(value);
    free(ids);
    return status;
}

an_status an_oracle_read(an_ctx *cx, int which, void *dst, size_t bytes)
{
    size_t at = 0;
    for (int i = 0; i < which; i++) at += (size_t)an_round_up((int64_t)node_bytes(cx, cx->root[i]), ALIGN);
    if (bytes == 0) return AN_OK; /* a buffer of nothing may have no address */
    return cx->backend->read(&cx->err, cx->device, &cx->arena, at, dst, bytes);
}
