/* session_ranks.c: checks that ranks agree, and gathers what each has alone. See session_ranks.h. */
#include "train/session_ranks.h"
#include "comm/comm.h"
#include "io/hash128.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

an_status an_ranks_check_division(an_err *err, const an_train_config *c)
{
    return an_ranks_check_division_by(err, c, an_comm_ranks(c->comm));
}

an_status an_ranks_check_division_by(an_err *err, const an_train_config *c, int64_t ranks)
{
    const int64_t micros = c->gradient_accumulation_steps, all = micros * c->batch_size;
    if (micros % ranks == 0) return AN_OK;
    char other[128] = "";
    if (all % ranks == 0)
        snprintf(other, sizeof other,
                 "; gradient_accumulation_steps=%lld batch_size=%lld are the same %lld samples an update",
                 (long long)ranks, (long long)(all / ranks), (long long)all);
    return an_fail(err, AN_E_USAGE, "gradient_accumulation_steps=%lld does not divide by %lld ranks%s",
                   (long long)micros, (long long)ranks, other);
}

/* ---- states of the model */

/* Whether it is a state of the model that checkpoints hold (not of the optimizer, and no temporary). */
static bool is_state_of_model(const an_persist *p)
{
    return p->kind == 2 && !an_step_is_transient(p->name) && strncmp(p->name, "optimizer.", 10) != 0;
}

/* A state that changes with the batches that a rank sees would differ from rank to rank. */
static an_status check_states(an_err *err, const an_session *r)
{
    an_persist p;
    if (r->cfg.model->state_micro) return AN_OK;
    for (int i = 0; i < an_persist_count(r->cx); i++) {
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
        if (is_state_of_model(&p))
            return an_fail(
                err, AN_E_UNSUPPORTED,
                "model %s keeps %s between batches, which several ranks cannot share: train it with one rank",
                r->cfg.model->name, p.name);
    }
    return AN_OK;
}

/* The value of entry i of rank `owner`, to rank 0. */
static an_status send_state(an_err *err, an_session *r, int i, const an_persist *p, int owner)
{
    an_comm *comm = r->cfg.comm;
    size_t bytes = an_dtype_size(p->dtype);
    for (int axis = 0; axis < p->shape.rank; axis++) bytes *= (size_t)p->shape.dim[axis];
    void *value = malloc(bytes + 1);
    if (!value) return an_fail_nomem(err, "a state of another rank", bytes);
    an_status status = AN_OK;
    if (an_comm_rank(comm) == owner) status = an_session_result(err, r->cx, an_persist_read(r->cx, i, value, bytes));
    if (status == AN_OK) status = an_comm_broadcast(err, comm, owner, bytes, value);
    if (status == AN_OK && an_comm_rank(comm) == 0)
        status = an_session_result(err, r->cx, an_persist_write(r->cx, i, value, bytes));
    free(value);
    return status;
}

an_status an_ranks_gather_states(an_err *err, an_session *r)
{
    const int ranks = an_comm_ranks(r->cfg.comm);
    an_persist p;
    if (ranks == 1 || !r->cfg.model->state_micro) return AN_OK;
    for (int i = 0; i < an_persist_count(r->cx); i++) {
        AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, &p)));
        const int64_t micro = is_state_of_model(&p) ? r->cfg.model->state_micro(p.name) : AN_STATE_OF_ALL;
        if (micro >= 0 && micro % ranks != 0) AN_TRY(send_state(err, r, i, &p, (int)(micro % ranks)));
    }
    return AN_OK;
}

/* ---- moments that are divided among ranks: rank 0 broadcasts the number of an entry, then each rank its part of it */

enum { NO_MORE = -1 };

static bool has_parts(const an_session *r)
{
    return an_comm_ranks(r->cfg.comm) > 1 && strcmp(r->cfg.shard, "none") != 0;
}

/* *out: whether `rank` holds only a part of entry i. */
static an_status lacks(an_err *err, an_session *r, int i, int64_t numel, int rank, bool *out)
{
    int64_t first, n;
    AN_TRY(an_session_result(err, r->cx, an_persist_part(r->cx, i, rank, &first, &n)));
    return *out = n != numel, AN_OK;
}

/* *out: whether this rank does. */
static an_status is_in_parts(an_err *err, an_session *r, int i, int64_t numel, bool *out)
{
    return lacks(err, r, i, numel, an_comm_rank(r->cfg.comm), out);
}

/* *out: whether one of several ranks does: the same answer on each. */
static an_status is_shared_out(an_err *err, an_session *r, int i, int64_t numel, bool *out)
{
    bool first, second;
    AN_TRY(lacks(err, r, i, numel, 0, &first));
    AN_TRY(lacks(err, r, i, numel, 1, &second)); /* what is in parts is whole on one rank at most */
    return *out = first || second, AN_OK;
}

/* Every rank calls it: fills `whole` with the parts of entry i that others hold; this rank's is there already. */
static an_status exchange_parts(an_err *err, an_session *r, int i, size_t each, char *whole)
{
    for (int rank = 0; rank < an_comm_ranks(r->cfg.comm); rank++) {
        int64_t first, n;
        AN_TRY(an_session_result(err, r->cx, an_persist_part(r->cx, i, rank, &first, &n)));
        AN_TRY(an_comm_broadcast(err, r->cfg.comm, rank, (size_t)n * each, whole + (size_t)first * each));
    }
    return AN_OK;
}

static an_status describe(an_err *err, an_session *r, int i, an_persist *p, int64_t *numel)
{
    AN_TRY(an_session_result(err, r->cx, an_persist_get(r->cx, i, p)));
    *numel = 1;
    for (int axis = 0; axis < p->shape.rank; axis++) *numel *= p->shape.dim[axis];
    return AN_OK;
}

an_status an_ranks_read(an_err *err, an_session *r, int i, void *out, size_t bytes)
{
    an_persist p;
    int64_t numel;
    bool parts = false;
    int32_t asked = i;
    if (has_parts(r)) {
        AN_TRY(describe(err, r, i, &p, &numel));
        AN_TRY(is_in_parts(err, r, i, numel, &parts));
        if (parts) AN_TRY(an_comm_broadcast(err, r->cfg.comm, 0, sizeof asked, &asked));
    }
    AN_TRY(an_session_result(err, r->cx, an_persist_read(r->cx, i, out, bytes)));
    return parts ? exchange_parts(err, r, i, an_dtype_size(p.dtype), out) : AN_OK;
}

static an_status send_parts(an_err *err, an_session *r, int i)
{
    an_persist p;
    int64_t numel;
    AN_TRY(describe(err, r, i, &p, &numel));
    const size_t each = an_dtype_size(p.dtype), bytes = (size_t)numel * each;
    char *whole = malloc(bytes + 1);
    if (!whole) return an_fail_nomem(err, "a moment for a checkpoint", bytes);
    an_status status = an_session_result(err, r->cx, an_persist_read(r->cx, i, whole, bytes));
    if (status == AN_OK) status = exchange_parts(err, r, i, each, whole);
    free(whole);
    return status;
}

an_status an_ranks_send_parts(an_err *err, an_session *r)
{
    int32_t asked = 0;
    if (!has_parts(r)) return AN_OK;
    while (asked != NO_MORE) {
        AN_TRY(an_comm_broadcast(err, r->cfg.comm, 0, sizeof asked, &asked));
        if (asked != NO_MORE) AN_TRY(send_parts(err, r, asked));
    }
    return AN_OK;
}

an_status an_ranks_end_parts(an_err *err, an_session *r)
{
    int32_t asked = NO_MORE;
    return has_parts(r) ? an_comm_broadcast(err, r->cfg.comm, 0, sizeof asked, &asked) : AN_OK;
}

/* ---- parameters: every rank has all of them, and computes their updates itself */

static an_status hash_params(an_err *err, an_session *r, an_hasher *h)
{
    an_persist p;
    int64_t numel;
    for (int i = 0; i < an_persist_count(r->cx); i++) {
        AN_TRY(describe(err, r, i, &p, &numel));
        bool parts;
        AN_TRY(is_shared_out(err, r, i, numel, &parts));
        if (p.kind != 0 || parts) continue; /* of a part there is no second copy */
        const size_t bytes = (size_t)numel * an_dtype_size(p.dtype);
        void *value = malloc(bytes + 1);
        if (!value) return an_fail_nomem(err, "a parameter to compare", bytes);
        an_status status = an_session_result(err, r->cx, an_persist_read(r->cx, i, value, bytes));
        if (status == AN_OK && !an_hasher_add(h, value, bytes)) status = an_fail_nomem(err, "a hash", 0);
        free(value);
        AN_TRY(status);
    }
    return AN_OK;
}

an_status an_ranks_check_params(an_err *err, an_session *r, bool began)
{
    an_hash128 mine = {{0}}, all[AN_COMM_RANKS];
    an_comm *comm = r->cfg.comm;
    if (an_comm_ranks(comm) == 1) return AN_OK;
    an_hasher h = an_hasher_begin();
    an_status status = hash_params(err, r, &h);
    if (!an_hasher_end(&h, &mine) && status == AN_OK) status = an_fail_nomem(err, "a hash", 0);
    AN_TRY(status);
    AN_TRY(an_comm_gather(err, comm, sizeof mine, &mine, all));
    for (int rank = 1; rank < an_comm_ranks(comm); rank++)
        if (memcmp(&all[rank], &all[0], sizeof mine) != 0)
            return an_fail(err, AN_E_ENV, "rank %d has other parameters than rank 0 after %lld updates: %s", rank,
                           (long long)r->step,
                           began ? "its processor rounds otherwise, or its memory fails; exact=true has the same "
                                   "bits on all processors. The last checkpoint is whole"
                                 : "the files that it reads are others; copy the run's folder of rank 0");
    return AN_OK;
}

/* ---- before the first update */

/* The settings of a machine, which change no loss. */
static void leave_out_machine(an_train_config *c)
{
    c->threads = c->workers = 0;
    c->budget = 0;
    c->high_watermark = c->low_watermark = -1;
    c->isa[0] = '\0';
}

an_status an_ranks_check(an_err *err, an_session *r)
{
    an_comm *comm = r->cfg.comm;
    an_text yaml = {0};
    an_device_facts device = {0};
    if (an_comm_ranks(comm) == 1) return AN_OK;
    AN_TRY(check_states(err, r));
    an_device_opened(r->cx, &device);
    AN_TRY(an_comm_agree(err, comm, device.name, strlen(device.name), "devices"));
    an_train_config common = r->cfg;
    leave_out_machine(&common);
    an_train_config_yaml(&common, &yaml);
    an_status status = yaml.failed ? an_fail_nomem(err, "the settings as text", yaml.len)
                                   : an_comm_agree(err, comm, yaml.data, yaml.len, "settings");
    an_text_free(&yaml);
    AN_TRY(status);
    AN_TRY(an_comm_agree(err, comm, r->data_xxh3, sizeof r->data_xxh3, "data"));
    AN_TRY(an_comm_agree(err, comm, &r->step, sizeof r->step, "progress in its checkpoint"));
    return an_ranks_check_params(err, r, false);
}
