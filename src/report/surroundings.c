/* surroundings.c: see surroundings.h. */
#define _DEFAULT_SOURCE
#include "report/surroundings.h"
#include "io/data/disk_speed.h"
#include "io/text/utf8.h"
#include "platform/platform.h"
#include "platform/scratch.h"
#include <anneal_tools.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PROGRAMS = 3, PS_BYTES = 256 << 10, BLOCK = 64 << 10, LARGE_BLOCK = 4 << 20 };

typedef struct program {
    double percent; /* of one processor */
    char name[64];
} program;

/* `line` is "  26.7 name"; the name may hold blanks, a path, or bytes that are no UTF-8. */
static bool read_program(const char *line, size_t n, const char *own, program *out)
{
    char text[256], *end;
    snprintf(text, sizeof text, "%.*s", (int)AN_MIN(n, sizeof text - 1), line);
    out->percent = strtod(text, &end);
    while (*end == ' ') end++;
    const char *name = strrchr(end, '/') ? strrchr(end, '/') + 1 : end;
    snprintf(out->name, sizeof out->name, "%.63s", name);
    an_text_printable(out->name, strlen(out->name));
    if (an_json_check_text(NULL, "", out->name) != AN_OK) snprintf(out->name, sizeof out->name, "?");
    return isfinite(out->percent) && out->percent > 0 && *out->name && strcmp(out->name, own) != 0 &&
           strcmp(out->name, "ps") != 0;
}

void an_surroundings_busiest(const char *ps, const char *own, an_text *out)
{
    program top[PROGRAMS] = {{0}}, p;
    for (const char *line = ps; *line; line += *line == '\n') {
        const size_t n = strcspn(line, "\n");
        if (read_program(line, n, own, &p))
            for (int k = 0; k < PROGRAMS; k++)
                if (p.percent > top[k].percent) {
                    const program lower = top[k];
                    top[k] = p;
                    p = lower;
                }
        line += n;
    }
    an_text_puts(out, "[");
    for (int k = 0; k < PROGRAMS && top[k].percent > 0; k++) {
        an_text_puts(out, k ? ",[" : "[");
        an_json_put(out, top[k].name);
        an_text_printf(out, ",%.1f]", top[k].percent);
    }
    an_text_puts(out, "]");
}

/* What ps prints, to be freed; NULL: it is not there. */
static char *list_programs(void)
{
    static const char *const argv[] = {"ps", "-Ao", "pcpu=,comm=", NULL};
    char *text = malloc(PS_BYTES);
    int code = 1;
    if (text && an_spawn(NULL, argv, 2, text, PS_BYTES, &code) == AN_OK && code == 0) return text;
    free(text);
    return NULL;
}

static void put_busiest(an_text *out)
{
    char *text = list_programs();
    an_text_puts(out, ",\"busiest\":");
    if (text)
        an_surroundings_busiest(text, "anneal", out);
    else
        an_text_puts(out, "null");
    free(text);
}

/* ---- what closed= and store= promise */

int an_surroundings_running(const char *ps, const char *names, an_text *out)
{
    int found = 0;
    an_text_puts(out, "[");
    for (const char *name = names; *name; name += *name == ',') {
        const size_t n = strcspn(name, ",");
        char wanted[64];
        bool runs = false;
        snprintf(wanted, sizeof wanted, "%.*s", (int)AN_MIN(n, sizeof wanted - 1), name);
        name += n;
        for (const char *line = ps; *line && *wanted; line += *line == '\n') {
            const size_t length = strcspn(line, "\n");
            const char *end = line + length, *at = end;
            while (at > line && at[-1] != '/' && at[-1] != ' ') at--;
            runs |= (size_t)(end - at) == strlen(wanted) && strncasecmp(at, wanted, strlen(wanted)) == 0;
            line = end;
        }
        if (!runs || an_json_check_text(NULL, "", wanted) != AN_OK) continue;
        an_text_puts(out, found++ ? "," : "");
        an_json_put(out, wanted);
    }
    an_text_puts(out, "]");
    return found;
}

static void put_text(an_text *out, const char *key, const char *text);

static void check_closed(const char *closed, an_text *members, an_text *notes)
{
    an_text list = {0};
    char *ps = list_programs();
    an_text_puts(members, ",");
    put_text(members, "closed", closed);
    if (ps && an_surroundings_running(ps, closed, &list) > 0)
        an_text_printf(notes, "closed= names programs that still run: %s\n", list.data ? list.data : "");
    an_text_printf(members, ",\"still_running\":%s", ps && list.data ? list.data : "null");
    members->failed |= list.failed;
    an_text_free(&list);
    free(ps);
}

enum { ROUND_TRIP_BYTES = 1 << 20, STORE_PATH_BYTES = 1300, STORE_SECONDS = 30 };

/* A store is a folder, or HOST:FOLDER as scp has it: a colon before any slash. */
static const char *host_end(const char *store)
{
    const size_t n = strcspn(store, ":/");
    return n > 0 && store[n] == ':' ? store + n : NULL;
}

/* Writes the batch of commands with which sftp takes the file `here` to the store and back over itself, over one
 * connection. */
static an_status write_batch(an_err *err, const char *batch, const char *here, const char *there)
{
    an_text text = {0};
    if (strpbrk(there, "\"\\\n") || strpbrk(here, "\"\\\n"))
        return an_fail(err, AN_E_USAGE, "a path with quotes, backslashes or line ends is not handed to sftp");
    an_text_printf(&text, "put \"%s\" \"%s\"\nget \"%s\" \"%s.back\"\nrm \"%s\"\n", here, there, there, here, there);
    an_status status =
        text.failed ? an_fail_nomem(err, "a batch for sftp", text.len) : an_file_write(err, batch, text.data, text.len);
    an_text_free(&text);
    return status;
}

/* Runs the user's own sftp, with the user's keys and configuration, in batch mode: a host that asks for a password
 * fails. */
static an_status run_sftp(an_err *err, const char *host, const char *batch)
{
    const char *const argv[] = {"sftp", "-q", "-o", "ConnectTimeout=10", "-b", batch, "--", host, NULL};
    char output[2048] = "";
    int code = 1;
    AN_TRY(an_spawn(err, argv, STORE_SECONDS, output, sizeof output, &code));
    if (code == 0) return AN_OK;
    an_text_printable(output, strlen(output));
    for (char *c = output; *c; c++)
        if (*c == '\n') *c = ' ';
    return an_fail(err, AN_E_IO, "sftp %.100s: %.200s", host,
                   code < 0  ? "no answer in time"
                   : *output ? output
                             : "it failed");
}

/* Copies the block to HOST:FOLDER and back, through a temporary folder here. */
static an_status trip_to_host(an_err *err, const char *store, const char *name, const unsigned char *block, char **back,
                              size_t *n)
{
    const char *end = host_end(store);
    an_scratch dir;
    char file[1100], batch[1100], got[1120], there[STORE_PATH_BYTES], host[256];
    snprintf(host, sizeof host, "%.*s", (int)AN_MIN((size_t)(end - store), sizeof host - 1), store);
    snprintf(there, sizeof there, "%.1100s%s%s", end + 1, end[1] ? "/" : "", name);
    AN_TRY(an_scratch_open(err, NULL, &dir));
    snprintf(file, sizeof file, "%s/block", dir.path);
    snprintf(got, sizeof got, "%s.back", file);
    snprintf(batch, sizeof batch, "%s/batch", dir.path);
    an_status status = an_file_write(err, file, block, ROUND_TRIP_BYTES);
    if (status == AN_OK) status = write_batch(err, batch, file, there);
    if (status == AN_OK) status = run_sftp(err, host, batch);
    if (status == AN_OK) status = an_file_read(err, got, ROUND_TRIP_BYTES, back, n);
    an_scratch_close(&dir);
    return status;
}

static an_status trip_to_folder(an_err *err, const char *store, const char *name, const unsigned char *block,
                                char **back, size_t *n)
{
    char path[STORE_PATH_BYTES];
    an_scratch dir;
    AN_TRY(an_scratch_open(err, store, &dir));
    snprintf(path, sizeof path, "%s/%s", dir.path, name);
    an_status status = an_file_write(err, path, block, ROUND_TRIP_BYTES);
    if (status == AN_OK) status = an_file_read(err, path, ROUND_TRIP_BYTES, back, n);
    an_scratch_close(&dir);
    return status;
}

/* A mebibyte of a pattern to the store and back. */
static void check_store(const char *store, an_text *members, an_text *notes)
{
    char name[64], random[AN_RANDOM_NAME_BYTES], *back = NULL;
    unsigned char *block = malloc(ROUND_TRIP_BYTES);
    size_t n = 0;
    an_err why = {0};
    an_random_name(random);
    snprintf(name, sizeof name, ".anneal-round-trip-%s", random);
    for (size_t i = 0; block && i < ROUND_TRIP_BYTES; i++) block[i] = (unsigned char)(i * 31 + (i >> 8));
    const double begin = an_seconds();
    const bool done = block && (host_end(store) ? trip_to_host(&why, store, name, block, &back, &n)
                                                : trip_to_folder(&why, store, name, block, &back, &n)) == AN_OK;
    const double ms = 1e3 * (an_seconds() - begin);
    const bool intact = done && n == ROUND_TRIP_BYTES && memcmp(back, block, ROUND_TRIP_BYTES) == 0;
    an_text_puts(members, ",\"store\":{");
    put_text(members, "folder", store);
    an_text_printf(members, ",\"intact\":%s", intact ? "true" : "false");
    an_json_put_number(members, "ms", done ? ms : (double)NAN);
    an_text_puts(members, "}");
    if (!intact)
        an_text_printf(notes, "store=: a file cannot be written there and read back: %s\n",
                       *why.text ? why.text : "what came back is not what was written");
    free(back);
    free(block);
}

void an_surroundings_check(const char *closed, const char *store, an_text *members, an_text *notes)
{
    if (*closed) check_closed(closed, members, notes);
    if (*store) check_store(store, members, notes);
}

static void put_text(an_text *out, const char *key, const char *text)
{
    an_text_printf(out, "\"%s\":", key);
    if (an_json_check_text(NULL, key, text) == AN_OK)
        an_json_put(out, text);
    else
        an_text_puts(out, "null");
}

/* Writes a file of `bytes` to the disk itself, not to the page cache. False: it cannot be written. */
static bool write_through(const char *path, const char *block, size_t bytes)
{
    if (an_file_write(NULL, path, block, bytes) != AN_OK) return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool done = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return done;
}

typedef struct cache_speed {
    double ms;               /* for 64 KiB written and read back; NaN: they cannot be written */
    double write_mb_s, mb_s; /* of 4 MiB; NaN: not measured */
} cache_speed;

/* Measures what is slow on a network volume. The larger block is left out where the small one took 50 ms or more. */
static cache_speed measure_cache(const char *dir)
{
    char path[1200], *block = calloc(1, LARGE_BLOCK), *back = NULL;
    cache_speed speed = {NAN, NAN, NAN};
    an_storage disk;
    an_scratch scratch;
    size_t n;
    if (!block || an_scratch_open(NULL, dir, &scratch) != AN_OK) return free(block), speed;
    snprintf(path, sizeof path, "%s/speed", scratch.path);
    double begin = an_seconds();
    if (an_file_write(NULL, path, block, BLOCK) == AN_OK && an_file_read(NULL, path, BLOCK, &back, &n) == AN_OK)
        speed.ms = 1e3 * (an_seconds() - begin);
    begin = an_seconds();
    if (speed.ms < 50 && write_through(path, block, LARGE_BLOCK)) {
        speed.write_mb_s = 1e-6 * LARGE_BLOCK / (an_seconds() - begin);
        an_storage_look(path, &disk);
        if (disk.mb_s > 0) speed.mb_s = disk.mb_s;
    }
    an_scratch_close(&scratch);
    free(back);
    free(block);
    return speed;
}

static void put_cache(an_text *out)
{
    an_mount_info mount = {0};
    char folder[900], why[512];
    an_cache_folder(folder, why);
    an_text_puts(out, ",\"cache\":{");
    put_text(out, "folder", folder);
    if (*folder) an_mount_info_read(folder, &mount);
    an_text_puts(out, ",");
    put_text(out, "mount", mount.type);
    const cache_speed speed = *folder ? measure_cache(folder) : (cache_speed){NAN, NAN, NAN};
    an_json_put_number(out, "ms_64_kib", speed.ms);
    an_json_put_number(out, "write_mb_s", speed.write_mb_s);
    an_json_put_number(out, "mb_s", speed.mb_s);
    an_text_puts(out, "}");
}

void an_surroundings_put(const char *data, const an_storage *measured, an_text *out)
{
    an_storage disk = {.mb_s = 0};
    if (*data && measured)
        disk = *measured;
    else if (*data)
        an_storage_look(data, &disk);
    an_text_puts(out, ",");
    put_text(out, "mount", disk.mount.type);
    an_json_put_number(out, "data_mb_s", disk.mb_s > 0 ? disk.mb_s : (double)NAN);
    put_cache(out);
    put_busiest(out);
}

void an_surroundings_put_policy(an_dtype dtype, an_dtype weights, an_dtype moments, an_text *out)
{
    const char *products = an_dtype_text(dtype), *kept = an_dtype_text(weights);
    an_text_printf(out,
                   ",\"dtype_policy\":{\"matrix_weights\":\"%s\",\"convolution_weights\":\"%s\","
                   "\"norm_statistics\":\"float32\",\"softmax\":\"float32\",\"reductions\":\"float32\","
                   "\"weight_gradients\":\"%s\",\"master_weights\":\"%s\",\"moments\":\"%s\"}",
                   products, products, kept, kept, an_dtype_text(moments));
}
