/* test_pack.c: packs made to do harm: names that climb or hide, lists that lie, members that are extra, twice or missing. */
#define _DEFAULT_SOURCE
#include "lib/test.h"

#include "io/formats/sha256.h"
#include "io/formats/zip_write.h"
#include "platform/platform.h"
#include "tools/pack.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct hostile {
    const char *name, *extra; /* a member more; listed with `extra` as its name in pack.json. NULL: not listed */
    const char *head;         /* members in front of "files" */
    const char *want;         /* in the sentence */
} hostile;

static const char usual[] = "\"schema\":1,\"data\":\"builtin\",\"data_name\":\"corpus\"";

static void put_file(an_text *list, const char *name, const char *text)
{
    char hash[AN_SHA256_TEXT_BYTES];
    an_sha256(text, strlen(text), hash);
    an_text_puts(list, list->len ? ",{\"name\":" : "{\"name\":");
    an_json_put(list, name);
    an_text_printf(list, ",\"sha256\":\"%s\"}", hash);
}

/* `change`: what becomes of pack.json, in place; NULL: nothing. */
static void write_changed_pack(const hostile *h, const char *path, void (*change)(an_text *manifest, uint64_t *random),
                               uint64_t *random)
{
    static const char *const names[] = {"config.yaml", "metrics.jsonl", "logbook.jsonl", "last.safetensors"};
    an_err err = {0};
    an_zip_writer w;
    an_text list = {0}, manifest = {0};
    assert_int_equal(an_zip_begin(&err, path, &w), AN_OK);
    for (size_t i = 0; i < AN_COUNT(names); i++) {
        assert_int_equal(an_zip_add(&err, &w, names[i], "x", 1), AN_OK);
        put_file(&list, names[i], "x");
    }
    if (h->name) assert_int_equal(an_zip_add(&err, &w, h->name, "y", 1), AN_OK);
    if (h->extra) put_file(&list, h->extra, "y");
    an_text_printf(&manifest, "{%s,\"files\":[%s]}", h->head ? h->head : usual, list.data);
    if (change) change(&manifest, random);
    assert_int_equal(an_zip_add(&err, &w, "pack.json", manifest.data, manifest.len), AN_OK);
    if (an_zip_commit(&err, &w) != AN_OK) fail_msg("%s", err.text);
    an_zip_abort(&w);
    an_text_free(&list);
    an_text_free(&manifest);
}

static void write_pack(const hostile *h, const char *path)
{
    write_changed_pack(h, path, NULL, NULL);
}

static void packs_made_to_do_harm_are_refused_and_write_nothing(void **state)
{
    (void)state;
    static const char far[] = "../climbed";
    static const hostile all[] = {
        {far, far, NULL, "no file of this name"},
        {"data/../../climbed", "data/../../climbed", NULL, "no file of this name"},
        {"/tmp/climbed", "/tmp/climbed", NULL, "no file of this name"},
        {"data/a/b", "data/a/b", NULL, "no file of this name"},
        {"data/.hidden", "data/.hidden", NULL, "no file of this name"},
        {"data/-option", "data/-option", NULL, "no file of this name"},
        {"data/", "data/", NULL, "no file of this name"},
        {"data/a\nb", "data/a\nb", NULL, "no file of this name"},
        {".lock", ".lock", NULL, "no file of this name"},
        {"anneal.service", "anneal.service", NULL, "no file of this name"},
        {"kernels.so", "kernels.so", NULL, "no file of this name"},
        {"data/extra", NULL, NULL, "other files"},
        {NULL, "data/missing", NULL, "other files"},
        {"data/x", "config.yaml", NULL, "SHA-256"},
        {"data/x", "data/missing", NULL, "lacks it"},
        {NULL, NULL, "\"schema\":2", "schema"},
        {NULL, NULL, "\"schema\":\"1\"", "schema"},
        {NULL, NULL, "\"schema\":1,\"data\":\"file\",\"data_name\":\"../../etc/passwd\"", "not in the pack"},
        {NULL, NULL, "\"schema\":1,\"data\":\"file\",\"data_name\":\"absent\"", "not in the pack"},
        {NULL, NULL, "\"schema\":1,\"data\":\"other\"", "kind of data"},
    };
    for (size_t i = 0; i < AN_COUNT(all); i++) {
        an_err err = {0};
        an_handoff h;
        char pack[256], dir[256];
        snprintf(pack, sizeof pack, "%s", test_path("pack"));
        snprintf(dir, sizeof dir, "%s", test_path("taken"));
        write_pack(&all[i], pack);
        const an_status status = an_pack_take(&err, pack, dir, "anneal", &h);
        if (status != AN_E_DATA || !strstr(err.text, all[i].want)) fail_msg("case %zu: %d %s", i, status, err.text);
        if (access(dir, F_OK) == 0) fail_msg("case %zu wrote something", i);
        assert_int_not_equal(access(test_path("climbed"), F_OK), 0);
        an_handoff_free(&h);
    }
}

/* All is in order but the checkpoint, which is the letter x. */
static void a_checkpoint_that_cannot_be_resumed_is_no_handoff(void **state)
{
    (void)state;
    an_err err = {0};
    an_handoff h;
    char pack[256], dir[256];
    snprintf(pack, sizeof pack, "%s", test_path("pack"));
    snprintf(dir, sizeof dir, "%s", test_path("taken"));
    write_pack(&(hostile){.name = NULL}, pack);
    assert_int_not_equal(an_pack_take(&err, pack, dir, "anneal", &h), AN_OK);
    assert_non_null(strstr(err.text, "last.safetensors"));
    an_handoff_free(&h);
}

static uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* Bytes become others, go, come twice, or give way to words that a path, a number or a list would be hurt by. */
static void change_manifest(an_text *manifest, uint64_t *random)
{
    static const char *const words[] = {"../", "/",     "\\u0000", "\"", "data/", "1e999",   "[",       "{}",
                                        "-1",  "1e308", "null",    ",",  "\\n",   "\x1b[2J", "builtin", "\xff"};
    for (uint64_t n = 1 + next(random) % 3; n > 0; n--) {
        an_text out = {0};
        const size_t at = next(random) % (manifest->len + 1), rest = manifest->len - at, some = next(random) % 12;
        const size_t gone = some < rest ? some : rest;
        const uint64_t how = next(random) % 4;
        const char *word = words[next(random) % AN_COUNT(words)], byte = (char)next(random);
        an_text_putn(&out, manifest->data, at);
        if (how == 0 && rest > 0) an_text_putn(&out, &byte, 1);
        if (how == 1) an_text_putn(&out, manifest->data + at, gone);
        if (how == 2) an_text_puts(&out, word);
        const size_t skip = how == 0 ? rest > 0 : how == 3 ? gone : 0;
        an_text_putn(&out, manifest->data + at + skip, rest - skip);
        an_text_free(manifest);
        *manifest = out;
    }
}

static void a_changed_list_is_refused_with_a_sentence_and_writes_nowhere_else(void **state)
{
    (void)state;
    uint64_t random = 7;
    int taken = 0;
    for (int i = 0; i < 1500; i++) {
        an_err err = {0};
        an_handoff h;
        char pack[256], dir[256], name[32];
        snprintf(name, sizeof name, "taken%d", taken);
        snprintf(dir, sizeof dir, "%s", test_path(name));
        snprintf(pack, sizeof pack, "%s", test_path("pack"));
        write_changed_pack(&(hostile){.name = "data/corpus", .extra = "data/corpus"}, pack, change_manifest, &random);
        const an_status status = an_pack_take(&err, pack, dir, "anneal", &h); /* its checkpoint is the letter x */
        assert_int_not_equal(status, AN_OK);
        if (!*err.text || strchr(err.text, '\n') || strchr(err.text, 27)) fail_msg("%d: %s", i, err.text);
        if (strstr(err.text, "/last.safetensors: "))
            taken++; /* a change that says the same: all files were written, the checkpoint is refused */
        if (access(dir, F_OK) == 0) fail_msg("%d: %s is left: %s", i, dir, err.text);
        assert_int_not_equal(access(test_path("corpus"), F_OK), 0);
        an_handoff_free(&h);
    }
    print_message("# %d of 1500 lists were still sound\n", taken);
    assert_true(taken > 0 && taken < 1000);
}

/* Links, folders and compressed members (bombs): their marks in a directory of a zip archive that is in order else. */
static void members_that_are_links_or_compressed_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t at; /* in the entry of the archive's directory */
        unsigned char value;
    } marks[] = {{10, 8}, {10, 12}, {8, 1}}; /* deflate, bzip2, encrypted */
    char pack[256], dir[256], *data;
    size_t n;
    snprintf(pack, sizeof pack, "%s", test_path("pack"));
    snprintf(dir, sizeof dir, "%s", test_path("taken"));
    for (size_t i = 0; i < AN_COUNT(marks); i++) {
        an_err err = {0};
        an_handoff h;
        write_pack(&(hostile){.name = NULL}, pack);
        assert_int_equal(an_file_read(&err, pack, 0, &data, &n), AN_OK);
        size_t entry = 0;
        while (memcmp(data + entry, "PK\1\2", 4) != 0) entry++;
        data[entry + marks[i].at] = (char)marks[i].value;
        test_write_file(pack, data, n);
        free(data);
        if (an_pack_take(&err, pack, dir, "anneal", &h) == AN_OK) fail_msg("mark %zu was taken", i);
        assert_int_not_equal(access(dir, F_OK), 0);
        an_handoff_free(&h);
    }
}

/* Unix modes in a directory (a link, a device) have no effect: what is written is a plain file. */
static void modes_of_an_archive_make_no_links(void **state)
{
    (void)state;
    char pack[256], dir[256], path[300], *data;
    size_t n;
    an_err err = {0};
    an_handoff h;
    struct stat info;
    snprintf(pack, sizeof pack, "%s", test_path("pack"));
    snprintf(dir, sizeof dir, "%s", test_path("linked"));
    write_pack(&(hostile){.name = NULL}, pack);
    assert_int_equal(an_file_read(&err, pack, 0, &data, &n), AN_OK);
    for (size_t at = 0; at + 46 < n; at++)
        if (memcmp(data + at, "PK\1\2", 4) == 0) {
            data[at + 5] = 3;                                       /* made on Unix */
            data[at + 40] = (char)0xff, data[at + 41] = (char)0xa1; /* lrwxrwxrwx */
        }
    test_write_file(pack, data, n);
    free(data);
    assert_int_not_equal(an_pack_take(&err, pack, dir, "anneal", &h), AN_OK); /* its checkpoint is the letter x */
    snprintf(path, sizeof path, "%s/config.yaml", dir);
    if (lstat(path, &info) == 0) assert_true(S_ISREG(info.st_mode));
    an_handoff_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_made_to_do_harm_are_refused_and_write_nothing),
        cmocka_unit_test(members_that_are_links_or_compressed_are_refused),
        cmocka_unit_test(modes_of_an_archive_make_no_links),
        cmocka_unit_test(a_checkpoint_that_cannot_be_resumed_is_no_handoff),
        cmocka_unit_test(a_changed_list_is_refused_with_a_sentence_and_writes_nowhere_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
