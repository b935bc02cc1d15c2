/* cmd_note.c: a person's sentence in a run's logbook. It may be written while the run goes on: a line is one write. */
#include "cli/cli.h"
#include "io/formats/json.h"
#include "report/run_record.h"
#include "train/run_dir.h"
#include <string.h>

typedef struct note_values {
    char rejected[AN_CONFIG_TEXT_BYTES];
} note_values;

static const an_config_field fields[] = {
    {"rejected", AN_CONFIG_TEXT, offsetof(note_values, rejected), "", 0, 0, NULL,
     "a hypothesis that was tried and is wrong; TEXT says why"},
};
const an_config an_note_keys = {.fields = fields, .n = AN_COUNT(fields)};

enum { MOST_NOTE_BYTES = 65536 };

static an_status check_text(an_err *err, const char *what, const char *text)
{
    if (strlen(text) > MOST_NOTE_BYTES)
        return an_fail(err, AN_E_USAGE, "note: %s is longer than %d bytes", what, MOST_NOTE_BYTES);
    return an_json_check_text(err, what, text);
}

/* Updates that metrics.jsonl knows of; a folder that is not a run's is refused. */
static an_status updates_done(an_err *err, const char *dir, int64_t *out)
{
    an_run_record r;
    if (!an_run_dir_is_a_run(dir))
        return an_fail(err, AN_E_USAGE, "%s: no run was trained in this folder; name the one that train's out= named",
                       dir);
    an_status status = an_run_record_read(err, dir, &r);
    if (status == AN_E_DATA && !r.n) { /* before the run's first line */
        an_err_clear(err);
        status = AN_OK;
    }
    *out = r.n ? r.update[r.n - 1].step + 1 : 0;
    an_run_record_free(&r);
    return status;
}

an_status an_cmd_note(an_err *err, const an_args *args, int *exit_code)
{
    (void)exit_code;
    note_values v;
    int64_t step = 0;
    an_text members = {0};
    const char *dir = args->words[0], *text = args->n_words > 1 ? args->words[1] : "";
    AN_TRY(an_config_defaults(err, &an_note_keys, &v));
    AN_TRY(an_args_apply(err, args, &(an_key_set){&an_note_keys, &v}, 1));
    if (!*text && !*v.rejected)
        return an_fail(err, AN_E_USAGE, "note: nothing to write: anneal note %s \"what was seen or decided\"", dir);
    AN_TRY(check_text(err, "the text", text));
    AN_TRY(check_text(err, "rejected", v.rejected));
    AN_TRY(updates_done(err, dir, &step));
    if (*v.rejected) an_text_puts(&members, ",\"hypothesis\":"), an_json_put(&members, v.rejected);
    if (*text) an_text_puts(&members, ",\"text\":"), an_json_put(&members, text);
    an_status status = an_logbook_add(err, dir, step, *v.rejected ? "rejected" : "note", &members);
    if (status == AN_OK && args->json) {
        an_text line = {0};
        an_text_printf(&line, "{\"event\":\"%s\",\"step\":%lld%s}", *v.rejected ? "rejected" : "note", (long long)step,
                       members.data);
        status = an_print_line(err, &line);
    } else if (status == AN_OK && !args->quiet) {
        an_say("noted in %s/logbook.jsonl, after %lld updates", dir, (long long)step);
    }
    an_text_free(&members);
    return status;
}
