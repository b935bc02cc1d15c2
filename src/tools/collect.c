/* collect.c: see collect.h. */
#include "tools/collect.h"
#include "io/formats/safetensors.h"
#include "platform/scratch.h"
#include "report/metrics.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include "train/run_state.h"
#include <stdio.h>
#include <string.h>

/* The last update that is in the run's checkpoint. Of its metrics there may be more: an earlier collect was killed
 * before it was done, or the run itself between two checkpoints. */
static int64_t last_update(const char *dir, const an_run_record *home)
{
    int64_t last = home->n ? home->update[home->n - 1].step : -1;
    char path[AN_CKPT_PATH_BYTES];
    an_err unused = {0};
    an_run_state state;
    an_st *st;
    if (an_ckpt_find(&unused, dir, false, path) != AN_OK || an_st_open(&unused, path, &st) != AN_OK) return last;
    const char *text = an_st_meta(st, AN_CKPT_STATE);
    if (text && an_run_state_read(&unused, path, text, "", &state) == AN_OK) last = AN_MIN(last, state.step - 1);
    an_st_close(st);
    return last;
}

/* AN_E_DATA unless the pack begins with the home folder's updates, loss by loss, and has later ones. */
static an_status check_continues(an_err *err, const char *path, const char *dir, const an_run_record *home,
                                 const an_run_record *away, int64_t away_last)
{
    const char *a = an_run_text(home->begin, "train_xxh3"), *b = an_run_text(away->begin, "train_xxh3");
    const int64_t last = last_update(dir, home);
    if (strcmp(a, b) != 0)
        return an_fail(err, AN_E_DATA,
                       "%s: trained on other data than %s (the hash of the training split): not the same run; "
                       "anneal handoff takes it into a folder of its own",
                       path, dir);
    for (size_t i = 0, k = 0; i < home->n; i++) {
        const an_run_update *u = &home->update[i];
        while (k < away->n && away->update[k].step < u->step) k++;
        const bool there = k < away->n && away->update[k].step == u->step;
        const double x = u->at[AN_RUN_LOSS], y = there ? away->update[k].at[AN_RUN_LOSS] : 0;
        if (!there || memcmp(&x, &y, sizeof x) != 0)
            return an_fail(
                err, AN_E_DATA,
                "%s: does not go on with %s: update %lld %s; anneal handoff takes it into a folder of its own", path,
                dir, (long long)u->step, there ? "has another loss there" : "is not in it");
    }
    if (away_last > last) return AN_OK;
    return an_fail(err, AN_E_DATA, "%s: nothing to collect: %s has all of its %lld updates", path, dir,
                   (long long)last + 1);
}

static an_status note_it(an_err *err, const char *dir, const an_collected *c)
{
    an_text text = {0}, members = {0};
    an_text_printf(&text, "collected from %s: updates %lld to %lld", c->origin, (long long)c->from,
                   (long long)c->step - 1);
    an_text_puts(&members, ",\"text\":");
    an_json_put(&members, text.data ? text.data : "");
    an_status status = an_logbook_add(err, dir, c->step, "note", &members);
    an_text_free(&text);
    an_text_free(&members);
    return status;
}

/* The checkpoint is the last of the pack's files: a collect that is cut short leaves the older one, which can be
 * resumed. */
static an_status take_place(an_err *err, const char *from, const char *dir, an_collected *out)
{
    an_status status = an_run_dir_replace(err, dir, from, an_pack_files, AN_PACK_RUN_FILES, out->aside);
    if (status == AN_OK) status = note_it(err, dir, out);
    if (status != AN_OK && *out->aside) {
        char why[256];
        snprintf(why, sizeof why, "%.250s", err ? err->text : "");
        status = an_fail(err, status, "%s; the older state is in %s", why, out->aside);
    }
    return status;
}

static void describe(const char *dir, const an_run_record *home, const an_run_record *away, int64_t away_last,
                     an_collected *out)
{
    out->from = last_update(dir, home) + 1;
    out->step = away_last + 1;
    snprintf(out->origin, sizeof out->origin, "%.150s", an_run_text(away->begin, "host"));
    for (char *c = out->origin; *c; c++)
        if ((unsigned char)*c < 32 || (unsigned char)*c > 126) *c = '?';
    const char *data = json_string_value(json_object_get(an_run_settings(home), "data"));
    snprintf(out->data, sizeof out->data, "%.1000s", data ? data : "");
}

static an_status collect_from(an_err *err, const an_pack *p, const char *from, const char *dir, an_collected *out)
{
    an_run_record home, away;
    an_status status = an_run_record_read(err, dir, &home);
    if (status != AN_OK) {
        an_run_record_free(&home);
        return status;
    }
    status = an_pack_write_run(err, p, from);
    memset(&away, 0, sizeof away);
    if (status == AN_OK) status = an_run_record_read(err, from, &away);
    const int64_t away_last = status == AN_OK ? last_update(from, &away) : -1;
    if (status == AN_OK) status = check_continues(err, p->path, dir, &home, &away, away_last);
    if (status == AN_OK) describe(dir, &home, &away, away_last, out);
    an_run_record_free(&home);
    an_run_record_free(&away);
    return status == AN_OK ? take_place(err, from, dir, out) : status;
}

static an_status collect_locked(an_err *err, const an_pack *p, const char *dir, an_collected *out)
{
    an_scratch from;
    AN_TRY(an_scratch_open(err, dir, &from));
    an_status status = collect_from(err, p, from.path, dir, out);
    an_scratch_close(&from);
    return status;
}

an_status an_collect(an_err *err, const char *path, const char *dir, an_collected *out)
{
    an_pack p;
    int lock;
    *out = (an_collected){.step = 0};
    if (!an_run_dir_is_a_run(dir))
        return an_fail(err, AN_E_USAGE,
                       "%s: no run was trained in this folder; anneal handoff takes a pack into a new one", dir);
    if (an_run_dir_is_locked(dir))
        return an_fail(err, AN_E_USAGE, "%s: a process trains here: anneal stop %s first", dir, dir);
    if (strlen(dir) > 700) return an_fail(err, AN_E_USAGE, "%.100s...: the path is too long", dir);
    AN_TRY(an_pack_open(err, path, &p));
    an_status status = an_run_dir_lock(err, dir, &lock);
    if (status == AN_OK) {
        status = collect_locked(err, &p, dir, out);
        an_run_dir_unlock(lock);
    }
    an_pack_close(&p);
    return status;
}
