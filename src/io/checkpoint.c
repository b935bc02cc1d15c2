/* checkpoint.c: see checkpoint.h. A file is written by safetensors.c through platform/atomic_save.c. Order of a save:
 * the new file under one name, then links to it under the others, `last` at the end; so a run that is killed in between
 * resumes from the checkpoint before. */
#define _DEFAULT_SOURCE
#include "io/checkpoint.h"
#include "base/arena.h"
#include "platform/platform.h"
#include "io/formats/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_LAST = -1, STEP_BEST = -2, STEP_NONE = -3 };
static const char suffix[] = ".safetensors";

/* "last", "best", "step_120" -> -1, -2, 120. Digits without a leading zero, so that a step has one name. */
static int64_t step_of(const char *name, size_t n)
{
    if (n == 4 && memcmp(name, "last", 4) == 0) return STEP_LAST;
    if (n == 4 && memcmp(name, "best", 4) == 0) return STEP_BEST;
    if (n < 6 || n > 5 + 18 || memcmp(name, "step_", 5) != 0 || (name[5] == '0' && n > 6)) return STEP_NONE;
    int64_t step = 0;
    for (size_t i = 5; i < n; i++) {
        if (name[i] < '0' || name[i] > '9') return STEP_NONE;
        step = 10 * step + (name[i] - '0');
    }
    return step;
}

static an_status make_path(an_err *err, const char *dir, const char *name, const char *end,
                           char out[AN_CKPT_PATH_BYTES])
{
    int n = snprintf(out, AN_CKPT_PATH_BYTES, "%s/%s%s", dir, name, end);
    if (n >= 0 && n < AN_CKPT_PATH_BYTES) return AN_OK;
    return an_fail(err, AN_E_USAGE, "%.200s...: the path of a checkpoint is longer than %d bytes", dir,
                   AN_CKPT_PATH_BYTES - 1);
}

static an_status path_of(an_err *err, const char *dir, const char *which, char out[AN_CKPT_PATH_BYTES])
{
    char quoted[AN_QUOTED_BYTES];
    if (step_of(which, strlen(which)) == STEP_NONE)
        return an_fail(err, AN_E_USAGE, "%s: no checkpoint is called %s; say last, best or step_N", dir,
                       an_quoted(which, quoted));
    return make_path(err, dir, which, suffix, out);
}

/* ---- saving */

static bool is_checkpoint(const char *name, size_t n, const void *unused)
{
    const size_t end = sizeof suffix - 1;
    (void)unused;
    return n > end && strncmp(name + n - end, suffix, end) == 0 && step_of(name, n - end) != STEP_NONE;
}

static an_status add_all(an_err *err, an_st_writer *w, const an_ckpt *what)
{
    for (size_t i = 0; i < what->n_meta; i++) AN_TRY(an_st_set_meta(err, w, what->meta[i].key, what->meta[i].value));
    for (size_t i = 0; i < what->n_tensors; i++) {
        const an_ckpt_tensor *t = &what->tensors[i];
        char name[512];
        int n = snprintf(name, sizeof name, "%s%s", t->prefix ? t->prefix : "", t->name);
        if (n < 0 || n >= (int)sizeof name)
            return an_fail(err, AN_E_USAGE, "the name of tensor %.64s... is longer than %zu bytes", t->name,
                           sizeof name - 1);
        if (t->data)
            AN_TRY(an_st_add(err, w, name, t->dtype, t->rank, t->shape, t->data));
        else
            AN_TRY(an_st_add_read(err, w, name, t->dtype, t->rank, t->shape, t->read, t->arg));
    }
    return AN_OK;
}

an_status an_ckpt_save(an_err *err, const char *dir, const char *which, const an_ckpt *what)
{
    char path[AN_CKPT_PATH_BYTES];
    AN_TRY(path_of(err, dir, which, path));
    an_save_sweep(dir, is_checkpoint, NULL);
    an_st_writer *w;
    AN_TRY(an_st_begin(err, path, &w));
    an_status status = add_all(err, w, what);
    if (status == AN_OK) return an_st_commit(err, w);
    an_st_abort(w);
    return status;
}

static an_status copy_file(an_err *err, const char *from, const char *to)
{
    an_map_file map;
    AN_TRY(an_file_map(err, from, &map));
    an_save save;
    an_status status = an_save_begin(err, to, &save);
    if (status == AN_OK) {
        status = an_save_write(err, &save, map.data, map.bytes);
        if (status == AN_OK)
            status = an_save_commit(err, &save);
        else
            an_save_abort(&save);
    }
    an_file_unmap(&map);
    return status;
}

/* link() does not replace a file, rename() does: link to a name aside, then rename. When both names are the same file
 * already, rename() does nothing and leaves the name aside: hence the unlink. */
an_status an_ckpt_link(an_err *err, const char *dir, const char *from, const char *to)
{
    char source[AN_CKPT_PATH_BYTES], target[AN_CKPT_PATH_BYTES], aside[AN_CKPT_PATH_BYTES];
    AN_TRY(path_of(err, dir, from, source));
    AN_TRY(path_of(err, dir, to, target));
    char name[96], random[AN_RANDOM_NAME_BYTES];
    an_random_name(random);
    snprintf(name, sizeof name, ".%s%s.%s", to, suffix, random);
    AN_TRY(make_path(err, dir, name, ".tmp", aside));
    if (link(source, aside) != 0) return copy_file(err, source, target);
    if (rename(aside, target) != 0) {
        int why = errno;
        (void)unlink(aside);
        return an_fail(err, AN_E_IO, "%s: %s", target, strerror(why));
    }
    (void)unlink(aside);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* the new name survives a power cut */
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    return AN_OK;
}

/* ---- finding */

static int compare_steps(const void *a, const void *b)
{
    const an_ckpt_entry *x = a, *y = b;
    return x->step < y->step ? -1 : x->step > y->step;
}

an_status an_ckpt_list(an_err *err, const char *dir, an_ckpt_entry **out, size_t *n)
{
    *out = NULL;
    *n = 0;
    DIR *d = opendir(dir);
    if (!d) return an_fail(err, AN_E_IO, "%s: %s; name a run folder or a checkpoint file", dir, strerror(errno));
    an_status status = AN_OK;
    an_ckpt_entry *list = NULL;
    size_t cap = 0;
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        const char *dot = strstr(e->d_name, suffix);
        int64_t step = dot && strcmp(dot, suffix) == 0 ? step_of(e->d_name, (size_t)(dot - e->d_name)) : STEP_NONE;
        if (step == STEP_NONE) continue;
        if (*n == cap) {
            cap = cap ? 2 * cap : 16;
            an_ckpt_entry *more = realloc(list, cap * sizeof *list);
            if (!more) {
                status = an_fail_nomem(err, dir, cap * sizeof *list);
                break;
            }
            list = more;
        }
        list[*n].step = step;
        status = make_path(err, dir, e->d_name, "", list[*n].path);
        *n += status == AN_OK;
    }
    closedir(d);
    if (status != AN_OK) {
        free(list);
        *n = 0;
        return status;
    }
    if (*n > 0) qsort(list, *n, sizeof *list, compare_steps);
    *out = list;
    return AN_OK;
}

an_status an_ckpt_prune(an_err *err, const char *dir, int keep)
{
    if (keep <= 0) return AN_OK;
    an_ckpt_entry *list;
    size_t n, numbered = 0;
    AN_TRY(an_ckpt_list(err, dir, &list, &n));
    for (size_t i = 0; i < n; i++) numbered += list[i].step >= 0;
    an_status status = AN_OK;
    for (size_t i = n - numbered; i < n && numbered > (size_t)keep && status == AN_OK; i++, numbered--)
        if (unlink(list[i].path) != 0)
            status = an_fail(err, AN_E_IO, "%s: cannot remove an old checkpoint: %s", list[i].path, strerror(errno));
    free(list);
    return status;
}

/* A folder may have come from anywhere: a link in it is not followed. */
an_status an_ckpt_check(an_err *err, const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) return an_fail(err, AN_E_IO, "%s: %s", path, strerror(errno));
    if (S_ISREG(info.st_mode)) return AN_OK;
    return an_fail(err, AN_E_IO, "%s: %s; name the checkpoint file itself", path,
                   S_ISLNK(info.st_mode) ? "is a symbolic link, which is not followed in the folder of a run"
                                         : "not a regular file");
}

/* The newest step_N of a folder that another program's run left, without an ending; "" in out: there is none. */
static an_status find_without_ending(an_err *err, const char *dir, char out[AN_CKPT_PATH_BYTES])
{
    int64_t newest = -1;
    an_status status = AN_OK;
    *out = 0;
    DIR *d = opendir(dir);
    if (!d) return an_fail(err, AN_E_IO, "%s: %s; name a run folder or a checkpoint file", dir, strerror(errno));
    for (struct dirent *e; status == AN_OK && (e = readdir(d)) != NULL;) {
        const int64_t step = step_of(e->d_name, strlen(e->d_name));
        if (step <= newest) continue;
        newest = step;
        status = make_path(err, dir, e->d_name, "", out);
    }
    closedir(d);
    return status;
}

an_status an_ckpt_find(an_err *err, const char *run_or_file, bool best, char out[AN_CKPT_PATH_BYTES])
{
    struct stat info;
    if (stat(run_or_file, &info) != 0)
        return an_fail(err, AN_E_IO, "%s: %s; name a run folder or a checkpoint file", run_or_file, strerror(errno));
    if (!S_ISDIR(info.st_mode)) {
        size_t n = strlen(run_or_file);
        if (n < AN_CKPT_PATH_BYTES) return memmove(out, run_or_file, n + 1), AN_OK; /* out may be run_or_file */
        return an_fail(err, AN_E_USAGE, "%.200s...: the path of a checkpoint is longer than %d bytes", run_or_file,
                       AN_CKPT_PATH_BYTES - 1);
    }
    an_ckpt_entry *list;
    size_t n;
    AN_TRY(an_ckpt_list(err, run_or_file, &list, &n));
    const an_ckpt_entry *found = NULL;
    for (size_t i = 0; i < n; i++) {
        if (best ? list[i].step == STEP_BEST : list[i].step == STEP_LAST) found = &list[i];
        if (!best && list[i].step >= 0 && !(found && found->step == STEP_LAST))
            found = &list[i]; /* sorted: the newest stays */
    }
    char dir[AN_CKPT_PATH_BYTES]; /* out may be run_or_file */
    snprintf(dir, sizeof dir, "%s", run_or_file);
    if (found) memcpy(out, found->path, sizeof found->path);
    free(list);
    if (found) return an_ckpt_check(err, out);
    if (!best && n == 0) {
        AN_TRY(find_without_ending(err, dir, out));
        if (*out) return an_ckpt_check(err, out);
        run_or_file = dir;
    }
    return an_fail(err, AN_E_IO, "%s: the folder has no %s checkpoint%s", run_or_file, best ? "best" : "last or step_N",
                   n > 0 ? "; it has others" : "; has the run saved one yet?");
}

an_status an_ckpt_expect(an_err *err, const an_st *st, const char *prefix, const char *name, an_dtype dtype, int rank,
                         const int64_t *shape, const an_st_tensor **out)
{
    char full[512], has[AN_ST_SHAPE_BYTES], wants[AN_ST_SHAPE_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", prefix ? prefix : "", name);
    *out = n >= 0 && n < (int)sizeof full ? an_st_find(st, full) : NULL;
    if (!*out)
        return an_fail(err, AN_E_IO,
                       "%s: there is no tensor \"%.400s\", which the model has; is it a checkpoint of this model?",
                       an_st_path(st), full);
    const an_st_tensor *t = *out;
    if (t->rank == rank && (rank == 0 || memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0) &&
        t->dtype == dtype)
        return AN_OK;
    bool same_shape = t->rank == rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) == 0;
    return an_fail(err, same_shape ? AN_E_DTYPE : AN_E_SHAPE,
                   "%s: byte %" PRIu64 ": tensor \"%.400s\" is %s%s here, the model wants %s%s; compare the settings",
                   an_st_path(st), t->at, full, an_st_dtype_name(t->dtype), an_st_shape_text(t->rank, t->shape, has),
                   an_st_dtype_name(dtype), an_st_shape_text(rank, shape, wants));
}

/* ---- state hashes */

/* Lengths come before names and shapes, so that no two different tensors give the same bytes to hash. */
an_status an_ckpt_hash_tensor(an_err *err, const an_st_tensor *t, an_hash128 *out)
{
    const char *dtype = an_st_dtype_name(t->dtype);
    const uint64_t head[3] = {strlen(t->name), strlen(dtype), (uint64_t)t->rank};
    an_hasher h = an_hasher_begin();
    an_hasher_add(&h, head, sizeof head);
    an_hasher_add(&h, t->name, head[0]);
    an_hasher_add(&h, dtype, head[1]);
    an_hasher_add(&h, t->shape, (size_t)t->rank * sizeof *t->shape);
    an_hasher_add(&h, t->data, t->bytes);
    return an_hasher_end(&h, out) ? AN_OK : an_fail_nomem(err, "a hash", 576);
}

an_status an_ckpt_hash(an_err *err, const an_st *st, an_hash128 *out, an_hash128 *each)
{
    const size_t n = an_st_count(st);
    an_hash128 *all = each ? each : malloc((n + 1) * sizeof *all);
    if (!all) return an_fail_nomem(err, "the hashes of a checkpoint", n * sizeof *all);
    an_status status = AN_OK;
    for (size_t i = 0; i < n && status == AN_OK; i++)
        status = an_ckpt_hash_tensor(err, an_st_tensor_by_name(st, i), &all[i]);
    an_hasher h = an_hasher_begin();
    an_hasher_add(&h, all, n * sizeof *all);
    if (!an_hasher_end(&h, out) && status == AN_OK) status = an_fail_nomem(err, "a hash", 576);
    if (!each) free(all);
    return status;
}

/* ---- weights for others */

enum { MAX_META = 16 };

/* Whether the settings in the file say weights_dtype=bfloat16. */
static bool keeps_narrow(const an_st *st)
{
    const char *json = an_st_meta(st, AN_CKPT_CONFIG);
    json_t *settings = json ? json_loads(json, 0, NULL) : NULL;
    const char *dtype = json_string_value(json_object_get(settings, "weights_dtype"));
    const bool narrow = dtype && strcmp(dtype, "bfloat16") == 0;
    json_decref(settings);
    return narrow;
}

static an_status widen(an_err *err, an_arena *arena, an_st_tensor *t)
{
    const size_t n = t->bytes / 2;
    uint32_t *wide = AN_NEW_ARRAY(arena, uint32_t, n + 1);
    if (!wide) return an_fail_nomem(err, t->name, n * sizeof *wide);
    an_st_widen(t, n, wide);
    t->data = wide;
    t->bytes = n * sizeof *wide;
    t->dtype = AN_F32;
    return AN_OK;
}

/* Tensors of the view, without moments and averages, and whether any is another than in the file. */
static an_status list_weights(an_err *err, const an_st *st, an_arena *arena, an_st_tensor *out, size_t *n, bool *any)
{
    const bool narrow = keeps_narrow(st);
    for (size_t i = 0; i < an_st_count(st); i++) {
        const an_st_tensor *t = an_st_tensor_at(st, i), *a;
        char key[512];
        if (strncmp(t->name, AN_CKPT_EMA, strlen(AN_CKPT_EMA)) == 0 || strncmp(t->name, "optimizer.", 10) == 0)
            continue;
        const int length = snprintf(key, sizeof key, "%s%s", AN_CKPT_EMA, t->name);
        a = length > 0 && (size_t)length < sizeof key ? an_st_find(st, key) : NULL;
        an_st_tensor *now = &out[(*n)++];
        *now = a ? *a : *t;
        now->name = t->name;
        const bool widens = narrow && now->dtype == AN_BF16 && now->rank >= 2;
        if (widens) AN_TRY(widen(err, arena, now));
        *any |= a != NULL || widens;
    }
    return AN_OK;
}

static void free_arena(void *arena)
{
    an_arena_free(arena);
    free(arena);
}

an_status an_ckpt_weights(an_err *err, const an_st *st, an_st **out)
{
    const char *meta[MAX_META][2], *value;
    bool any = false;
    *out = NULL;
    an_arena *arena = calloc(1, sizeof *arena); /* of the widened tensors */
    an_st_tensor *tensors = calloc(an_st_count(st) + 1, sizeof *tensors);
    an_st_view view = {
        .tensors = tensors, .meta = (const char *const(*)[2])meta, .owner = arena, .release = free_arena};
    for (size_t i = 0; i < MAX_META && (meta[i][0] = an_st_meta_at(st, i, &value)) != NULL; i++)
        meta[view.n_meta++][1] = value;
    an_status status = arena && tensors ? list_weights(err, st, arena, tensors, &view.n, &any)
                                        : an_fail_nomem(err, "a table of weights", an_st_count(st) * sizeof *tensors);
    if (status == AN_OK && any)
        status = an_st_open_view(err, an_st_path(st), &view, out); /* releases the arena when it fails, too */
    else if (arena)
        free_arena(arena);
    free(tensors);
    return status;
}
