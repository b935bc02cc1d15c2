/* session_ranks.c: what ranks have in common and what not. See session_ranks.h. */
#include "train/session_ranks.h"
#include "comm/comm.h"
#include "train/step.h"
#include <anneal_tools.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

an_status an_ranks_check_division(an_err *err, const an_train_config *c)
{
    const int64_t ranks = an_comm_ranks(c->comm), micros = c->gradient_accumulation_steps, all = micros * c->batch_size;
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

/* Whether checkpoints have it and it is the model's own. */
static bool is_models(const an_persist *p)
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
        if (is_models(&p))
            return an_fail(
                err, AN_E_UNSUPPORTED,
                "model %s keeps %s between batches, which several ranks do not share so far: train it on one",
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
        const int64_t micro = is_models(&p) ? r->cfg.model->state_micro(p.name) : AN_STATE_OF_ALL;
        if (micro >= 0 && micro % ranks != 0) AN_TRY(send_state(err, r, i, &p, (int)(micro % ranks)));
    }
    return AN_OK;
}

/* ---- before the first update */

an_status an_ranks_check(an_err *err, an_session *r)
{
    an_comm *comm = r->cfg.comm;
    an_text yaml = {0};
    an_device_facts device = {0};
    if (an_comm_ranks(comm) == 1) return AN_OK;
    AN_TRY(check_states(err, r));
    an_device_opened(r->cx, &device);
    AN_TRY(an_comm_agree(err, comm, device.name, strlen(device.name), "devices"));
    an_train_config_yaml(&r->cfg, &yaml);
    an_status status = yaml.failed ? an_fail_nomem(err, "the settings as text", yaml.len)
                                   : an_comm_agree(err, comm, yaml.data, yaml.len, "settings");
    an_text_free(&yaml);
    AN_TRY(status);
    AN_TRY(an_comm_agree(err, comm, r->data_xxh3, sizeof r->data_xxh3, "data"));
    return an_comm_agree(err, comm, &r->step, sizeof r->step, "progress in its checkpoint");
}
