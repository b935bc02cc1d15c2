/* Packs: any bytes are an archive, or a sentence; what begins with a brace is pack.json of an archive that is in order, so
 * that a search gets behind the hashes. Whatever is taken is written into the new folder and nowhere else. */
#define FUZZ_ROUNDS 1500
#include "io/formats/zip_write.h"
#include "tools/drift.h"
#include "fuzz.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[80], pack[100], outside[100];

static void make_folder(void)
{
    if (*folder) return;
    snprintf(folder, sizeof folder, "%s/anneal-fuzz-pack-%ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp",
             (long)getpid());
    snprintf(pack, sizeof pack, "%s/pack", folder);
    snprintf(outside, sizeof outside, "%s/x", folder); /* where data/../../x would be */
    FUZZ_CHECK(an_make_dirs(NULL, folder, 0700) == AN_OK);
}

/* An archive with the members of a run, each the text of one line, and this manifest. */
static void write_archive(const char *manifest, size_t bytes, bool settings)
{
    static const char line[] = "{\"event\":\"begin\",\"host\":\"a\",\"environment\":{\"OMP_NUM_THREADS\":\"1\"}}\n";
    an_zip_writer w;
    an_err err = {0};
    FUZZ_CHECK(an_zip_begin(&err, pack, &w) == AN_OK);
    for (int i = 0; i < (settings ? 1 : AN_PACK_RUN_FILES); i++)
        FUZZ_CHECK(an_zip_add(&err, &w, an_pack_files[i], line, sizeof line - 1) == AN_OK);
    FUZZ_CHECK(an_zip_add(&err, &w, "data/x", line, sizeof line - 1) == AN_OK);
    FUZZ_CHECK(an_zip_add(&err, &w, "pack.json", manifest, bytes) == AN_OK);
    FUZZ_CHECK(an_zip_commit(&err, &w) == AN_OK);
    an_zip_abort(&w);
}

static void remove_taken(const char *dir)
{
    char path[200];
    static const char *const made[] = {"anneal.service", "anneal.plist", "pack.json", "data/x", "data"};
    for (int i = 0; i < AN_PACK_RUN_FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, an_pack_files[i]);
        (void)remove(path);
    }
    for (size_t i = 0; i < AN_COUNT(made); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, made[i]);
        (void)remove(path);
    }
    FUZZ_CHECK(rmdir(dir) == 0 || access(dir, F_OK) != 0); /* it held nothing else */
}

static bool fuzz_one(const char *data, size_t bytes)
{
    char dir[100];
    an_err err = {0};
    an_pack p;
    an_handoff h;
    json_t *beginning = NULL;
    make_folder();
    snprintf(dir, sizeof dir, "%s/taken", folder);
    if (bytes && *data == '{') {
        write_archive(data, bytes, bytes > 8 && memcmp(data, "{\"kind\"", 7) == 0);
    } else {
        FILE *f = fopen(pack, "wb");
        FUZZ_CHECK(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    }
    const an_status opened = an_pack_open(&err, pack, &p);
    fuzz_check_sentence(opened, &err);
    if (opened == AN_OK) {
        (void)an_pack_beginning(NULL, &p, &beginning);
        json_decref(beginning);
        an_pack_close(&p);
    }
    err = (an_err){0};
    const an_status taken = an_pack_take(&err, pack, dir, "/usr/bin/anneal", &h);
    fuzz_check_sentence(taken, &err);
    FUZZ_CHECK(opened == AN_OK || access(dir, F_OK) != 0); /* nothing is written of what was not checked */
    FUZZ_CHECK(taken != AN_OK || (h.command.data && !strchr(h.command.data, '\n')));
    FUZZ_CHECK(access(outside, F_OK) != 0);
    an_handoff_free(&h);
    remove_taken(dir);
    (void)remove(pack);
    if (rmdir(folder) == 0) folder[0] = 0;
    FUZZ_CHECK(!*folder); /* it is empty: nothing climbed */
    return opened == AN_OK;
}

static size_t fuzz_seeds(const fuzz_seed **out)
{
    enum { SEEDS = 3, BYTES = 4096 };
    static char text[SEEDS][BYTES];
    static fuzz_seed seeds[SEEDS];
    /* SHA-256 of the line above */
    static const char hash[] = "4eb243d903547ffc6ed55339eb355a5bb00b89617b8d45db2bf7f6fd2939c0eb";
    *out = seeds;
    if (seeds[0].bytes) return SEEDS;
    for (int s = 0; s < 2; s++) {
        size_t n =
            (size_t)snprintf(text[s], BYTES,
                             "{%s\"schema\":1,\"step\":4,\"owner\":\"A\",\"host\":\"a\",\"device\":\"cpu\",\"ms\":1.5,"
                             "\"environment\":{\"OMP_NUM_THREADS\":\"1\"},\"data\":\"file\",\"data_name\":\"x\","
                             "\"files\":[{\"name\":\"data/x\",\"sha256\":\"%s\"}",
                             s ? "\"kind\":\"settings\"," : "", hash);
        for (int i = 0; i < (s ? 1 : AN_PACK_RUN_FILES); i++)
            n += (size_t)snprintf(text[s] + n, BYTES - n, ",{\"name\":\"%s\",\"sha256\":\"%s\"}", an_pack_files[i],
                                  hash);
        n += (size_t)snprintf(text[s] + n, BYTES - n, "]}");
        seeds[s] = (fuzz_seed){text[s], n};
    }
    make_folder();
    write_archive(seeds[1].data, seeds[1].bytes, true); /* a whole archive, of settings */
    char *archive;
    size_t n;
    FUZZ_CHECK(an_file_read(NULL, pack, BYTES, &archive, &n) == AN_OK);
    memcpy(text[2], archive, n);
    free(archive);
    seeds[2] = (fuzz_seed){text[2], n};
    (void)remove(pack);
    return SEEDS;
}
