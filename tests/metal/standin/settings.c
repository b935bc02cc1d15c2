/* settings.c: reads the words of README.md's tables. The machines: names and families as Apple's Feature Set Tables
 * (October 2025) have them; AMD and Intel are those of the last Intel Macs. */
#define _GNU_SOURCE
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gpu gpus[] = {
    {"apple7", "Apple M1", "applegpu_g13g", 7, true, true, true, 4, false},
    {"apple8", "Apple M2", "applegpu_g14g", 8, true, true, true, 4, false},
    {"apple9", "Apple M3", "applegpu_g15g", 9, true, true, true, 4, false},
    {"apple10", "Apple M5", "applegpu_g17g", 10, true, true, true, 4, false},
    {"paravirtual", "Apple Paravirtual device", "applegpu_g13p", 5, true, false, false, 4, false},
    {"apple5", "Apple A12 GPU", "applegpu_g11p", 5, true, false, false, 4, true},
    {"amd", "AMD Radeon Pro 5500M", "gfx1012", 0, false, false, false, 32, false},
    {"intel", "Intel(R) UHD Graphics 630", "gen9", 0, true, false, true, 32, false},
    {"none", "", "", 0, true, false, false, 4, false},
};
enum { N_GPUS = sizeof gpus / sizeof *gpus };

static settings now;

settings *the(void)
{
    return &now;
}

uint32_t draw(uint32_t below)
{
    now.seed = now.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((now.seed >> 33) % below);
}

/* The place of `word` among names that end with NULL; -1. */
static int place_of(const char *word, const char *const *names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(word, names[i])) return i;
    return -1;
}

static bool read_bytes(const char *text, uint64_t *out)
{
    char *end;
    *out = strtoull(text, &end, 10);
    if (*end == 'k') *out <<= 10, end++;
    if (*end == 'm') *out <<= 20, end++;
    if (*end == 'g') *out <<= 30, end++;
    return end != text && !*end;
}

static const char *fault_read(const char *text, settings *out)
{
    static const char *const kinds[] = {"commit",  "hang",   "buffer",   "queue",   "library",  "function", "pipeline",
                                        "warning", "device", "commands", "encoder", "encoding", NULL};
    static const char *const forms[] = {"nothing", "prefix", "all", NULL};
    static const char *const codes[] = {"internal", "timeout", "page",          "access",
                                        "memory",   "removed", "interactivity", NULL};
    static const int values[] = {1, 2, 3, 4, 8, 11, 14};
    char copy[96], *part[5] = {0};
    int n = 0;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return "a fault has too many letters";
    for (char *p = copy; p && n < 5; n++) {
        part[n] = p;
        p = strchr(p, ':');
        if (p) *p++ = 0;
    }
    fault f = {.at = 1};
    int kind = place_of(part[0], kinds);
    if (kind < 0)
        return "a fault is commit, hang, buffer, queue, commands, encoder, library, function, pipeline, warning, "
               "encoding or device";
    f.kind = (fault_kind)kind;
    if (f.kind != FAULT_DEVICE && (n < 2 || !(f.at = strtoull(part[1], NULL, 10))))
        return "a fault lacks its number, from 1";
    if (f.kind == FAULT_COMMIT) {
        int form = n > 2 ? place_of(part[2], forms) : -1, code = n > 3 ? place_of(part[3], codes) : -1;
        if (form < 0 || code < 0) return "a commit fault is commit:NUMBER:nothing|prefix|all:CODE";
        f.form = (fault_form)form, f.code = values[code], f.on = n > 4 && !strcmp(part[4], "on");
    }
    if (out->n_faults == MAX_FAULTS) return "too many faults";
    out->fault[out->n_faults++] = f;
    return NULL;
}

const fault *fault_now(fault_kind kind)
{
    uint64_t at = ++now.created[kind];
    for (int i = 0; i < now.n_faults; i++) {
        const fault *f = &now.fault[i];
        if (f->kind != kind) continue;
        if (f->at == at || (f->on && at > f->at) || kind == FAULT_DEVICE) return f;
    }
    return NULL;
}

const char *faults_read(const char *text, settings *out)
{
    char copy[1024];
    const char *wrong = NULL;
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return "too many letters";
    for (char *p = copy, *next; p && !wrong; p = next) {
        next = strchr(p, '+');
        if (next) *next++ = 0;
        wrong = fault_read(p, out);
    }
    return wrong;
}

static const char *read_one(const char *key, char *value, settings *out)
{
    static const char *const misuses[] = {"abort", "record", NULL}, *const pools[] = {"strict", "absent", NULL};
    static const char *const whens[] = {"late", "early", "random", NULL};
    static const char *const ways[] = {"checked", "fast", "none", NULL};
    int at = 0;
    bool good = true;
    if (!strcmp(key, "macos")) {
        char *minor;
        out->macos = (int)strtol(value, &minor, 10) * 100;
        out->macos += *minor == '.' ? atoi(minor + 1) : 0;
        good = out->macos >= 1011 && out->macos < 9900;
    } else if (!strcmp(key, "gpu")) {
        while (at < N_GPUS && strcmp(gpus[at].key, value)) at++;
        good = at < N_GPUS;
        if (good) out->gpu = &gpus[at];
    } else if (!strcmp(key, "misuse")) {
        good = (at = place_of(value, misuses)) >= 0, out->record = at == 1;
    } else if (!strcmp(key, "pool")) {
        good = (at = place_of(value, pools)) >= 0, out->pools_may_lack = at == 1;
    } else if (!strcmp(key, "when")) {
        good = (at = place_of(value, whens)) >= 0, out->when = (when)at;
    } else if (!strcmp(key, "kernels")) {
        good = (at = place_of(value, ways)) >= 0, out->kernels = (kernels)at;
    } else if (!strcmp(key, "end")) {
        static const char *const ends[] = {"ignore", "check", NULL};
        good = (at = place_of(value, ends)) >= 0, out->check_end = at == 1;
    } else if (!strcmp(key, "seed")) {
        out->seed = strtoull(value, NULL, 10);
    } else if (!strcmp(key, "launch_us")) {
        out->launch_us = strtoull(value, NULL, 10);
    } else if (!strcmp(key, "thermal")) {
        out->thermal = strtoull(value, NULL, 10), good = out->thermal < 4;
    } else if (!strcmp(key, "low_power")) {
        out->low_power = strtoull(value, NULL, 10), good = out->low_power < 2;
    } else if (!strcmp(key, "memory")) {
        good = read_bytes(value, &out->memory);
    } else if (!strcmp(key, "working_set")) {
        good = read_bytes(value, &out->working_set);
    } else if (!strcmp(key, "max_buffer")) {
        good = read_bytes(value, &out->max_buffer);
    } else if (!strcmp(key, "cache")) {
        snprintf(out->cache, sizeof out->cache, "%s", value);
    } else if (!strcmp(key, "edit")) {
        good = sscanf(value, "%79[^>]>%79[^>]", out->edit_from, out->edit_to) == 2;
    } else if (!strcmp(key, "fault")) {
        return faults_read(value, out);
    } else {
        return "an unknown key; README.md lists them";
    }
    return good ? NULL : "a value that its key does not take; README.md lists them";
}

const char *settings_read(const char *text, settings *out)
{
    const char *build = getenv("AN_BUILD") ? getenv("AN_BUILD") : "build", *wrong = NULL;
    char *whole = realpath(build, NULL);
    *out = (settings){.macos = 1500, .gpu = &gpus[0], .seed = 1, .memory = 16ull << 30, .launch_us = 100};
    snprintf(out->cache, sizeof out->cache, "%s/standin-cache", whole ? whole : build);
    free(whole);
    char copy[2048];
    if (!text) text = "";
    if (snprintf(copy, sizeof copy, "%s", text) >= (int)sizeof copy) return "too many letters";
    for (char *p = copy, *next; p && *p && !wrong; p = next) {
        next = strchr(p, ',');
        if (next) *next++ = 0;
        char *value = strchr(p, '=');
        if (!value) return "a setting is key=value";
        *value++ = 0;
        wrong = read_one(p, value, out);
    }
    if (!out->working_set) out->working_set = out->memory / 3 * 2;
    if (!out->max_buffer) out->max_buffer = out->memory / 2;
    return wrong;
}
