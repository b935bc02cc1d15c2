/* rank_times.c: see rank_times.h. */
#include "train/rank_times.h"
#include "io/checkpoint.h"
#include "io/formats/json.h"
#include <math.h>
#include <stdio.h>

an_status an_rank_times_gather(an_err *err, an_comm *c, const an_rank_times *mine, an_rank_times all[AN_COMM_RANKS])
{
    return an_comm_gather(err, c, sizeof *mine, mine, all);
}

int an_rank_times_slowest(const an_rank_times *all, int ranks, double *slower)
{
    int slowest = -1;
    double most = 0, sum = 0;
    *slower = 0;
    for (int r = 0; r < ranks; r++) {
        const double own = all[r].ms - all[r].wait_ms;
        if (!isfinite(own)) return -1;
        sum += own;
        if (slowest < 0 || own > most) slowest = r, most = own;
    }
    const double others = ranks > 1 ? (sum - most) / (ranks - 1) : most;
    if (others > 0) *slower = most / others - 1;
    return slowest;
}

double an_rank_times_share(const an_rank_times *all, int ranks)
{
    double exposed = 0, whole = 0;
    for (int r = 0; r < ranks; r++) exposed += all[r].exposed_ms, whole += all[r].ms;
    return whole > 0 ? exposed / whole : (double)NAN;
}

an_status an_rank_times_open(an_err *err, const char *dir, int64_t step, an_jsonl *out)
{
    char path[AN_CKPT_PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/ranks.jsonl", dir);
    if (n < 0 || n >= (int)sizeof path)
        return an_fail(err, AN_E_USAGE, "%.200s...: the path of the run is longer than %d bytes", dir,
                       AN_CKPT_PATH_BYTES - 1);
    AN_TRY(an_jsonl_drop_after(err, path, "step", step - 1, NULL));
    return an_jsonl_open(err, path, out);
}

an_status an_rank_times_write(an_err *err, an_jsonl *j, int64_t step, const an_rank_times *all, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        const an_rank_times *t = &all[r];
        an_text line = {0};
        an_text_printf(&line, "{\"step\":%lld,\"rank\":%d", (long long)step, r);
        an_json_put_number(&line, "ms", t->ms);
        an_json_put_number(&line, "exchange_ms", t->exchange_ms);
        an_json_put_number(&line, "exposed_ms", t->exposed_ms);
        an_json_put_number(&line, "wait_ms", t->wait_ms);
        an_json_put_number(&line, "data_wait_ms", t->data_wait_ms);
        an_json_put_number(&line, "rss_bytes", t->rss_bytes);
        an_json_put_number(&line, "live_bytes", t->live_bytes);
        an_text_puts(&line, "}");
        an_status status =
            line.failed ? an_fail_nomem(err, "a line of metrics", line.len) : an_jsonl_write(err, j, line.data);
        an_text_free(&line);
        AN_TRY(status);
    }
    return AN_OK;
}
