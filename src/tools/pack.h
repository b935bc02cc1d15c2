/* pack.h: a run, or settings before there is one, as one file that another machine continues from: settings, checkpoint,
 * history, data or its checksums.
 *
 *     pack.json          what follows, with its SHA-256: version, owner, where the data are, variables, figures of the origin
 *     config.yaml  metrics.jsonl  logbook.jsonl  last.safetensors      of settings: config.yaml alone
 *     data/NAME          the data, where they were asked for
 *
 * Owns:      the format (a zip archive of stored members), what may be in it, the files that the receiver gets.
 * Does not:  train, or start anything.
 *
 * Why this project's zip reader and no archive library: it knows stored members only, with checked ranges and unique
 * names, so that there is nothing to unpack that is larger than the file, and neither links, folders nor modes exist in
 * it; and weights are hashed and written from the mapped file.
 *
 * Invariants: a pack is untrusted. Every member is named in pack.json with its SHA-256, and the other way round; names come
 * from the list above, NAME is plain; nothing is written before all names and hashes were checked, and then into a new
 * folder. The command and the units are made here from settings that were checked (an_train_config_untrusted clears
 * those that name programs or places); variables are taken from a list of names, their values from a list of
 * characters. Compiled kernels do not travel. */
#ifndef AN_TOOLS_PACK_H
#define AN_TOOLS_PACK_H

#include "io/formats/json.h"
#include "io/checkpoint.h"
#include "io/formats/zip.h"
#include "platform/platform.h"
#include "train/config.h"

enum {
    AN_PACK_SCHEMA = 1,
    AN_PACK_MOST_FILES = 256,
    AN_PACK_OWNER_BYTES = 128,
    AN_PACK_NAME_BYTES = 128,
    AN_PACK_RUN_FILES = 4
};
extern const char *const an_pack_files[AN_PACK_RUN_FILES]; /* config.yaml first */
extern const char *const an_pack_variables[];              /* that may travel; NULL past the last */
bool an_pack_name_is_plain(const char *name);
bool an_pack_variable_travels(const char *name, const char *value);

typedef struct an_pack_options {
    const char *owner;  /* a person's name, for the receiver; "" */
    const char *commit; /* of the program; "" */
    bool with_data;     /* the data travel; else their checksums only */
} an_pack_options;

typedef struct an_pack_result {
    int files;
    int64_t step; /* updates done */
    uint64_t bytes;
} an_pack_result;

/* The checkpoint of the folder must be one that this program would resume: its settings and how far it is are read.
 * `step`: updates that are in it; NULL is fine. */
an_status an_pack_check_checkpoint(an_err *err, const char *dir, int64_t *step);

/* AN_E_USAGE: no run was trained in `dir`, a process trains there now, or its data cannot travel. */
an_status an_pack_write(an_err *err, const char *dir, const char *path, const an_pack_options *o, an_pack_result *out);

/* The same of settings: config.yaml and the data. */
an_status an_pack_write_settings(an_err *err, const an_train_config *c, const char *path, const an_pack_options *o,
                                 an_pack_result *out);

/* A pack whose names and hashes were checked. */
typedef struct an_pack {
    const char *path;
    an_map_file map;
    an_arena arena;
    an_zip zip;
    json_t *manifest;
    bool settings_only; /* there is no run in it */
    int64_t step;       /* updates done, as the manifest says */
} an_pack;
/* AN_E_DATA: a sentence that names the member. */
an_status an_pack_open(an_err *err, const char *path, an_pack *out);
void an_pack_close(an_pack *p);
/* Writes the run without its data into the existing folder `dir`, and checks the checkpoint there. */
an_status an_pack_write_run(an_err *err, const an_pack *p, const char *dir);

typedef struct an_handoff {
    bool settings_only; /* the command begins a run in DIR/run */
    int files;
    int64_t step;
    char owner[AN_PACK_OWNER_BYTES], origin[160]; /* host and device of the origin; printable */
    double ms, units_per_s, live_bytes;           /* of the origin, medians; NaN: unknown */
    char data[AN_CKPT_PATH_BYTES];                /* path of the data here; "": built in, or the receiver names them */
    bool needs_data;                              /* the data were not in the pack */
    char train_xxh3[40];                          /* what the training split must hash to; "" */
    an_text environment;                          /* "NAME=value" lines that are allowed */
    an_text command;                              /* shell command that continues the run */
    bool units;                                   /* anneal.service (systemd) and anneal.plist (launchd) were written */
} an_handoff;

/* Checks all of `path`, then makes folder `dir` and writes the files, the command and the units. `program`: how this
 * program is called. AN_E_DATA: a sentence that names the member. */
an_status an_pack_take(an_err *err, const char *path, const char *dir, const char *program, an_handoff *out);
void an_handoff_free(an_handoff *h);

#endif
