/* test_engine_compiler.c: a C compiler or kernel cache that is missing, damaged, slow or another program's costs time,
 * never results: each time a sentence says what is wrong, and parameters have the same bits. */
#define _DEFAULT_SOURCE
#include <anneal.h>
#include "platform/platform.h"
#include "proof/train_case.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 3, NOBODY = 65534 };

static const train_case model = {.B = 2, .T = 12, .C = 32, .L = 2, .H = 2, .V = 65, .dropout = 0.1};

typedef struct outcome {
    uint64_t hash;
    an_bill bill; /* of the first step */
    char note[512];
} outcome;

static an_status try_train(an_err *err, const char *cc, const char *cache, outcome *out)
{
    an_ctx *cx;
    an_gpt *m;
    const an_options o = {.device = "cpu", .seed = 5, .threads = 2, .cc = cc, .cache_dir = cache};
    an_status status = case_open(err, &model, &o, &cx, &m);
    if (status == AN_OK) status = case_train(err, cx, m, &model, 0, 1, NULL);
    if (status == AN_OK) status = an_report(cx, &out->bill);
    const char *note = status == AN_OK ? an_report_text(cx, "note") : NULL;
    snprintf(out->note, sizeof out->note, "%s", note ? note : "");
    if (status == AN_OK) status = case_train(err, cx, m, &model, 1, STEPS - 1, NULL);
    if (status == AN_OK) status = case_hash(err, cx, &out->hash);
    case_close(cx, m);
    return status;
}

static outcome train(const char *cc, const char *cache)
{
    an_err err = {0};
    outcome o = {0};
    if (try_train(&err, cc, cache, &o) != AN_OK) fail_msg("%s", err.text);
    return o;
}

/* What an undisturbed compiler gives; its cache stays in FOLDER/good. */
static const outcome *good(void)
{
    static outcome o;
    if (!o.hash) {
        o = train(NULL, test_path("good"));
        if (o.bill.compiled < 6)
            fail_msg("%d programs compiled: this test needs a C compiler (%s)", o.bill.compiled, o.note);
        assert_string_equal(o.note, "");
    }
    return &o;
}

static void says(const outcome *o, const char *words)
{
    if (!strstr(o->note, words)) fail_msg("the note \"%s\" lacks \"%s\"", o->note, words);
}

static void interpreted_with_the_same_bits(const outcome *o)
{
    if (o->bill.compiled || o->bill.cached)
        fail_msg("%d programs compiled, %d from a cache", o->bill.compiled, o->bill.cached);
    says(o, "interpreted");
    assert_true(o->hash == good()->hash);
}

static void compiled_anew_with_the_same_bits(const outcome *o)
{
    if (o->bill.compiled != good()->bill.compiled)
        fail_msg("%d programs compiled, not %d (%s)", o->bill.compiled, good()->bill.compiled, o->note);
    assert_true(o->hash == good()->hash);
}

/* A script in place of a compiler. */
static const char *script(const char *name, const char *body)
{
    char text[1200];
    const char *path = test_path(name);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", body);
    test_write_file(path, text, strlen(text));
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* $CC of all tests: the compiler, which translates a text once; after that its output is a copy. The texts are few, and tests
 * that spoil a cache have the engine translate all of them again: that it asks is what they show. */
static int remember_what_was_compiled(void **state)
{
    (void)state;
    const char *cc = getenv("CC");
    setenv("AN_REAL_CC", cc && *cc ? cc : "cc", 1);
    setenv("AN_MEMO", test_path("memo"), 1);
    assert_int_equal(mkdir(test_path("memo"), 0777), 0);
    assert_int_equal(chmod(test_path("memo"), 0777), 0); /* one test runs as another user */
    return setenv("CC",
                  script("memo_cc",
                         "before= out= text= flags=\n"
                         "for a in \"$@\"; do\n"
                         "    case $before$a in -o*) out=$a ;; *.c) text=$a ;; *) flags=\"$flags $a\" ;; esac\n"
                         "    case $a in -o) before=-o ;; *) before= ;; esac\n"
                         "done\n"
                         "[ -f \"$text\" ] || exec $AN_REAL_CC \"$@\"\n"
                         "kept=$AN_MEMO/$( (echo \"$flags\"; cat \"$text\") | cksum | tr ' ' -)\n"
                         "[ -f $kept ] && exec cp $kept \"$out\"\n"
                         "$AN_REAL_CC \"$@\" || exit\n"
                         "cp \"$out\" $kept.$$ && mv $kept.$$ $kept"),
                  1);
}

static void no_work_folder_is_left(const char *cache)
{
    DIR *d = opendir(cache);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (strstr(e->d_name, "scratch") || strstr(e->d_name, ".tmp")) fail_msg("%s/%s is left", cache, e->d_name);
    if (d) closedir(d);
}

/* ---- compilers */

static void a_missing_compiler_is_named_and_programs_are_interpreted(void **state)
{
    (void)state;
    const outcome o = train("/nonexistent/cc", test_path("cc_missing"));
    interpreted_with_the_same_bits(&o);
    says(&o, "/nonexistent/cc");
}

static void without_any_compiler_in_the_path_the_sentence_lists_what_was_tried(void **state)
{
    (void)state;
    good();
    char path[4096], cc[256];
    snprintf(path, sizeof path, "%s", getenv("PATH"));
    snprintf(cc, sizeof cc, "%s", getenv("CC") ? getenv("CC") : "");
    setenv("PATH", test_folder(), 1);
    unsetenv("CC");
    const outcome o = train(NULL, test_path("cc_none"));
    setenv("PATH", path, 1);
    if (*cc) setenv("CC", cc, 1);
    interpreted_with_the_same_bits(&o);
    says(&o, "no C compiler (tried $CC, cc, clang, gcc)");
}

static void a_failing_compiler_is_quoted_and_programs_are_interpreted(void **state)
{
    (void)state;
    const char *cache = test_path("cc_fails");
    const outcome o = train(script("fails", "echo cc: out of patience >&2; exit 1"), cache);
    interpreted_with_the_same_bits(&o);
    says(&o, "exit code 1");
    says(&o, "cc: out of patience");
    no_work_folder_is_left(cache);
}

/* Much of it, without line ends and with bytes that no terminal should see. */
static void a_compiler_that_prints_garbage_is_quoted_in_one_printable_line(void **state)
{
    (void)state;
    const outcome o =
        train(script("garbage", "head -c 100000 /dev/urandom | tr -d '\\n\\r'; exit 3"), test_path("cc_garbage"));
    interpreted_with_the_same_bits(&o);
    says(&o, "exit code 3");
    for (const char *p = o.note; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) fail_msg("the sentence has a byte %d", *p);
    const outcome fine =
        train(script("chatty", "head -c 100000 /dev/urandom; exec $CC \"$@\""), test_path("cc_chatty"));
    compiled_anew_with_the_same_bits(&fine);
}

static void a_slow_compiler_is_ended_after_its_time_and_programs_are_interpreted(void **state)
{
    (void)state;
    const char *cache = test_path("cc_slow");
    good();
    setenv("ANNEAL_CC_TIMEOUT", "0.5", 1);
    const double begin = an_seconds();
    const outcome o = train(script("slow", "sleep 600"), cache);
    const double took = an_seconds() - begin;
    unsetenv("ANNEAL_CC_TIMEOUT");
    interpreted_with_the_same_bits(&o);
    says(&o, "did not finish");
    says(&o, "ANNEAL_CC_TIMEOUT");
    if (took > 60) fail_msg("it took %.0f s", took);
    no_work_folder_is_left(cache);
}

static void a_compiler_killed_by_a_signal_is_reported_as_such(void **state)
{
    (void)state;
    const outcome o = train(script("killed", "kill -9 $$"), test_path("cc_killed"));
    interpreted_with_the_same_bits(&o);
    says(&o, "killed by signal 9");
}

static void a_compiler_that_writes_nothing_or_rubbish_is_not_believed(void **state)
{
    (void)state;
    const outcome nothing = train(script("nothing", "exit 0"), test_path("cc_nothing"));
    interpreted_with_the_same_bits(&nothing);
    says(&nothing, "cannot be loaded");
    const outcome rubbish = train(script("rubbish", "while [ \"$1\" != -o ]; do shift; done; echo rubbish >\"$2\""),
                                  test_path("cc_rubbish"));
    interpreted_with_the_same_bits(&rubbish);
    says(&rubbish, "cannot be loaded");
}

/* ---- the cache */

/* A copy of the good cache, to be spoilt. Each copy has a name of its own. */
static const char *copy_of_the_cache(const char *name)
{
    char command[1200];
    const char *copy = test_path(name);
    good();
    snprintf(command, sizeof command, "cp -a '%s/good' '%s'", test_folder(), copy);
    assert_int_equal(system(command), 0);
    return copy;
}

/* Spoils each file that ends in `suffix`; the number of files. */
static int spoil(const char *folder, const char *suffix, void (*how)(const char *path))
{
    char path[1024];
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        const size_t length = strlen(e->d_name);
        if (length <= strlen(suffix) || strcmp(e->d_name + length - strlen(suffix), suffix) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        how(path);
        n++;
    }
    closedir(d);
    assert_true(n > 0);
    return n;
}

static void overwrite_at(const char *path, long at, size_t n)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, at, SEEK_SET);
    for (size_t i = 0; i < n; i++) fputc(0x5a, f);
    fclose(f);
}

/* In the middle lies code: the loader of the system would not notice. */
static void corrupt_middle(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    overwrite_at(path, st.st_size / 3, (size_t)st.st_size / 3);
}
static void corrupt_head(const char *path)
{
    overwrite_at(path, 40, 24);
}
static void halve(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size / 2), 0);
}
static void empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}
static void open_to_all(const char *path)
{
    assert_int_equal(chmod(path, 0777), 0);
}
static void make_foreign(const char *path)
{
    assert_int_equal(chown(path, NOBODY, NOBODY), 0);
}
static void replace_by_link(const char *path)
{
    char there[1040];
    snprintf(there, sizeof there, "%s.there", path);
    assert_int_equal(rename(path, there), 0);
    assert_int_equal(symlink(there, path), 0);
}

static void a_warm_cache_is_used(void **state)
{
    (void)state;
    const outcome o = train(NULL, copy_of_the_cache("warm"));
    assert_int_equal(o.bill.compiled, 0);
    assert_int_equal(o.bill.cached, good()->bill.compiled);
    assert_true(o.hash == good()->hash);
}

static void a_spoilt_file_is_not_loaded_but_made_again(void **state)
{
    (void)state;
    static const struct {
        const char *name, *suffix;
        void (*how)(const char *path);
    } ways[] = {
        {"so_middle", ".so", corrupt_middle}, {"so_head", ".so", corrupt_head},  {"so_half", ".so", halve},
        {"so_empty", ".so", empty},           {"so_open", ".so", open_to_all},   {"ref_middle", ".ref", corrupt_middle},
        {"ref_half", ".ref", halve},          {"ref_open", ".ref", open_to_all}, {"so_link", ".so", replace_by_link}};
    for (size_t i = 0; i < AN_COUNT(ways); i++) {
        const char *cache = copy_of_the_cache(ways[i].name);
        spoil(cache, ways[i].suffix, ways[i].how);
        const outcome o = train(NULL, cache), again = train(NULL, cache);
        print_message("# %s\n", ways[i].name);
        compiled_anew_with_the_same_bits(&o);
        assert_int_equal(again.bill.compiled, 0); /* the cache is whole again */
        assert_true(again.hash == o.hash);
    }
}

static void a_folder_open_to_others_is_named_and_left_alone(void **state)
{
    (void)state;
    const char *cache = copy_of_the_cache("open");
    assert_int_equal(chmod(cache, 0777), 0);
    const outcome o = train(NULL, cache);
    compiled_anew_with_the_same_bits(&o);
    says(&o, "is open to other users (its mode should be 0700)");
    says(&o, cache);
}

static void a_file_in_the_place_of_the_folder_is_named_and_left_alone(void **state)
{
    (void)state;
    const char *cache = test_path("file");
    test_write_file(cache, "precious", 8);
    const outcome o = train(NULL, cache);
    compiled_anew_with_the_same_bits(&o);
    says(&o, "is not a directory");
    struct stat st;
    assert_true(stat(cache, &st) == 0 && st.st_size == 8);
}

static void a_folder_or_file_of_another_user_is_not_loaded_from(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        test_skip("only root can give files away");
    }
    const char *cache = copy_of_the_cache("foreign");
    make_foreign(cache);
    const outcome o = train(NULL, cache);
    compiled_anew_with_the_same_bits(&o);
    says(&o, "belongs to another user");
    cache = copy_of_the_cache("foreign_files");
    spoil(cache, ".so", make_foreign);
    const outcome files = train(NULL, cache);
    compiled_anew_with_the_same_bits(&files);
}

/* Root may write everywhere: the attempt is made as nobody, in a process of its own. */
static void a_read_only_folder_is_named_and_kernels_are_compiled_elsewhere(void **state)
{
    (void)state;
    const char *cache = copy_of_the_cache("read_only");
    const bool root = geteuid() == 0;
    if (root) {
        assert_int_equal(chmod(test_folder(), 0755), 0);
        assert_int_equal(chown(cache, NOBODY, NOBODY), 0);
    }
    assert_int_equal(chmod(cache, 0500), 0);
    const outcome *want = good();
    const pid_t pid = fork();
    if (pid == 0) {
        an_err err = {0};
        outcome o = {0};
        if (root && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) _exit(2);
        if (try_train(&err, NULL, cache, &o) != AN_OK) _exit(3);
        if (!strstr(o.note, "cannot be written")) _exit(4);
        _exit(o.hash == want->hash && o.bill.compiled == want->bill.compiled ? 0 : 5);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    chmod(cache, 0700);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void without_a_home_kernels_are_compiled_each_time(void **state)
{
    (void)state;
    char home[1024];
    good();
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "");
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("ANNEAL_CACHE");
    const outcome o = train(NULL, NULL);
    if (*home) setenv("HOME", home, 1);
    compiled_anew_with_the_same_bits(&o);
    says(&o, "Set ANNEAL_CACHE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_compiler_is_named_and_programs_are_interpreted),
        cmocka_unit_test(without_any_compiler_in_the_path_the_sentence_lists_what_was_tried),
        cmocka_unit_test(a_failing_compiler_is_quoted_and_programs_are_interpreted),
        cmocka_unit_test(a_compiler_that_prints_garbage_is_quoted_in_one_printable_line),
        cmocka_unit_test(a_slow_compiler_is_ended_after_its_time_and_programs_are_interpreted),
        cmocka_unit_test(a_compiler_killed_by_a_signal_is_reported_as_such),
        cmocka_unit_test(a_compiler_that_writes_nothing_or_rubbish_is_not_believed),
        cmocka_unit_test(a_warm_cache_is_used),
        cmocka_unit_test(a_spoilt_file_is_not_loaded_but_made_again),
        cmocka_unit_test(a_folder_open_to_others_is_named_and_left_alone),
        cmocka_unit_test(a_file_in_the_place_of_the_folder_is_named_and_left_alone),
        cmocka_unit_test(a_folder_or_file_of_another_user_is_not_loaded_from),
        cmocka_unit_test(a_read_only_folder_is_named_and_kernels_are_compiled_elsewhere),
        cmocka_unit_test(without_a_home_kernels_are_compiled_each_time),
    };
    return cmocka_run_group_tests(tests, remember_what_was_compiled, NULL);
}
