/* measured_run.c: see measured_run.h. */
#define _DEFAULT_SOURCE
#include "cli/measured_run.h"
#include "report/run_record.h"
#include <string.h>
#include <unistd.h>

const char *an_measured_program(void)
{
    return access("/proc/self/exe", X_OK) == 0 ? "/proc/self/exe" : an_program;
}

void an_measured_sentence(char *output, char out[256])
{
    char *at = output;
    for (char *p = output; (p = strstr(p, "anneal: ")) != NULL; p++) at = p + strlen("anneal: ");
    at[strcspn(at, "\n")] = 0;
    an_text_printable(at, strlen(at));
    snprintf(out, 256, "%.200s", *at ? at : "the program ended without a sentence");
    while (an_json_check_text(NULL, "", out) != AN_OK) out[strlen(out) - 1] = 0;
}

bool an_measured_is_there(const char *dir, const char *note)
{
    an_err unused = {0};
    an_run_record r;
    const bool there =
        an_run_record_read(&unused, dir, &r) == AN_OK && *note && strcmp(an_run_text(r.begin, "note"), note) == 0 &&
        strcmp(an_run_text(r.begin, "commit"), an_commit) == 0 && strcmp(an_run_text(r.end, "event"), "end") == 0;
    an_run_record_free(&r);
    return there;
}

void an_measured_forget_weights(const char *dir)
{
    char path[AN_CKPT_PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/last.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/best.safetensors", dir);
    unlink(path);
}
