/* test_platform.c: files, crash-safe replacement with a disk that fails at every call, programs, pages, limits.
 *
 * write, fsync, close and renameat are this program's own: they ask `broken` first. So a full disk is tested where it
 * shows: at the write, at the sync, or only at the close. */
#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE
#endif
#include "lib/test.h"

#include "platform/dynamic_library.h"
#include "platform/platform.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
static struct {
    const char *call; /* which one fails */
    int error, after; /* with what, after so many that succeed */
} broken;

static bool breaks(const char *call)
{
    if (broken.call == NULL || strcmp(broken.call, call) != 0 || broken.after-- > 0) return false;
    broken.call = NULL;
    errno = broken.error;
    return true;
}

ssize_t write(int fd, const void *data, size_t n)
{
    if (breaks("write")) return -1;
    if (n > 5 && breaks("short write")) n = 5;
    return syscall(SYS_write, fd, data, n);
}
int fsync(int fd)
{
    return breaks("fsync") ? -1 : (int)syscall(SYS_fsync, fd);
}
int close(int fd)
{
    int r = (int)syscall(SYS_close, fd);
    return breaks("close") ? -1 : r;
}
int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return breaks("renameat") ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}
#endif

static const char *temp_text(const char *name, const char *text)
{
    const char *path = test_path(name);
    test_write_file(path, text, strlen(text));
    return path;
}

/* Files in the temporary folder whose name contains `part`. */
static int count_files(const char *part)
{
    DIR *d = opendir(test_folder());
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) n += strstr(e->d_name, part) != NULL;
    closedir(d);
    return n;
}

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

static char *read_text(const char *path)
{
    char *text;
    size_t n;
    assert_int_equal(an_file_read(NULL, path, 0, &text, &n), AN_OK);
    assert_int_equal(strlen(text), n);
    return text;
}

static void assert_text(const char *path, const char *want)
{
    char *text = read_text(path);
    assert_string_equal(text, want);
    free(text);
}

static an_status save(an_err *err, const char *path, const char *text)
{
    an_save s;
    AN_TRY(an_save_begin(err, path, &s));
    an_status status = an_save_write(err, &s, text, strlen(text));
    if (status == AN_OK) status = an_save_write(err, &s, "!", 1);
    if (status == AN_OK) status = an_save_commit(err, &s);
    an_save_abort(&s);
    return status;
}

static void a_file_is_read_whole_and_ends_with_nul(void **state)
{
    (void)state;
    assert_text(temp_text("a.txt", "hello"), "hello");
    assert_text(temp_text("empty.txt", ""), "");
    char *text = read_text("/proc/self/status"); /* its size is said to be 0 */
    assert_true(strlen(text) > 100);
    free(text);
}

static void a_file_above_the_limit_is_refused_and_one_at_the_limit_is_not(void **state)
{
    (void)state;
    an_err err = {0};
    char *text;
    size_t n;
    const char *path = temp_text("limit.txt", "0123456789");
    assert_int_equal(an_file_read(&err, path, 10, &text, &n), AN_OK);
    assert_int_equal(n, 10);
    free(text);
    assert_int_equal(an_file_read(&err, path, 9, &text, &n), AN_E_IO);
    assert_null(text);
    assert_contains(err.text, "larger than 9 bytes");
    an_err_clear(&err);
    assert_int_equal(an_file_read(&err, "/dev/zero", 1 << 20, &text, &n), AN_E_IO);
}

static void an_unreadable_path_is_named_with_what_to_do(void **state)
{
    (void)state;
    an_err err = {0};
    char *text;
    size_t n;
    an_map_file map;
    assert_int_equal(an_file_read(&err, test_path("none"), 0, &text, &n), AN_E_IO);
    assert_contains(err.text, "/none: cannot open: ");
    assert_contains(err.text, "check the name");
    an_err_clear(&err);
    assert_int_equal(an_file_read(&err, test_path("."), 0, &text, &n), AN_E_IO);
    assert_contains(err.text, "this is a folder");
    an_err_clear(&err);
    assert_int_equal(an_file_map(&err, test_path("."), &map), AN_E_IO);
    assert_contains(err.text, "not a regular file");
    an_err_clear(&err);
    assert_int_equal(an_file_map(&err, test_path("none"), &map), AN_E_IO);
    assert_null(map.data);
}

static an_status read_one(an_err *err, void *path)
{
    char *text;
    size_t n;
    AN_TRY(an_file_read(err, path, 0, &text, &n));
    free(text);
    return AN_OK;
}

static void a_refused_allocation_while_reading_leaks_nothing(void **state)
{
    (void)state;
    test_refuse_each_allocation(read_one, (void *)(uintptr_t) "/proc/self/smaps"); /* grows its buffer */
}

static void a_mapped_file_shows_its_bytes_and_an_empty_one_none(void **state)
{
    (void)state;
    an_map_file map;
    assert_int_equal(an_file_map(NULL, temp_text("map.txt", "mapped"), &map), AN_OK);
    assert_int_equal(map.bytes, 6);
    assert_memory_equal(map.data, "mapped", 6);
    an_file_unmap(&map);
    assert_null(map.data);
    assert_int_equal(an_file_map(NULL, temp_text("nothing.txt", ""), &map), AN_OK);
    assert_null(map.data);
    an_file_unmap(&map);
}

static void a_save_replaces_the_file_and_leaves_nothing_else(void **state)
{
    (void)state;
    const char *path = test_path("ckpt");
    assert_int_equal(save(NULL, path, "one"), AN_OK);
    assert_int_equal(save(NULL, path, "two"), AN_OK);
    assert_text(path, "two!");
    assert_int_equal(count_files(".tmp"), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
}

static void an_aborted_or_failed_save_leaves_the_old_file_and_no_other(void **state)
{
    (void)state;
    const char *path = temp_text("kept", "old");
    an_save s;
    assert_int_equal(an_save_begin(NULL, path, &s), AN_OK);
    assert_int_equal(an_save_write(NULL, &s, "new", 3), AN_OK);
    assert_int_equal(count_files(".kept."), 1);
    an_save_abort(&s);
    an_save_abort(&s);
    assert_text(path, "old");
    assert_int_equal(count_files(".tmp"), 0);
}

#ifdef __linux__
static void a_full_disk_at_write_sync_close_or_rename_names_the_file_and_keeps_the_old_one(void **state)
{
    (void)state;
    const struct {
        const char *call;
        int error, after;
        const char *say;
    } cases[] = {
        {"write", ENOSPC, 0, "cannot write: "},      {"write", ENOSPC, 1, "cannot write: "},
        {"write", EDQUOT, 0, "your quota"},          {"fsync", ENOSPC, 0, "cannot sync: "},
        {"fsync", EIO, 0, "cannot sync: "},          {"close", ENOSPC, 0, "cannot close: "},
        {"renameat", EACCES, 0, "cannot replace: "},
    };
    for (size_t i = 0; i < AN_COUNT(cases); i++) {
        const char *path = temp_text("precious", "old");
        an_err err = {0};
        broken.error = cases[i].error, broken.after = cases[i].after, broken.call = cases[i].call;
        assert_int_equal(save(&err, path, "something new"), AN_E_IO);
        assert_null(broken.call);
        assert_contains(err.text, path);
        assert_contains(err.text, cases[i].say);
        if (cases[i].error == ENOSPC) assert_contains(err.text, "free some space");
        assert_text(path, "old");
        assert_int_equal(count_files(".tmp"), 0);
    }
}

static void an_interrupted_or_partial_write_is_continued(void **state)
{
    (void)state;
    const char *path = test_path("partial");
    broken.error = EINTR, broken.after = 0, broken.call = "write";
    assert_int_equal(save(NULL, path, "interrupted"), AN_OK);
    assert_text(path, "interrupted!");
    broken.after = 0, broken.call = "short write";
    assert_int_equal(save(NULL, path, "written in two parts"), AN_OK);
    assert_null(broken.call);
    assert_text(path, "written in two parts!");
    broken.error = EINTR, broken.after = 0, broken.call = "fsync";
    assert_int_equal(save(NULL, path, "sync interrupted"), AN_OK);
    assert_text(path, "sync interrupted!");
}

/* The second fsync is the folder's. */
static void a_folder_that_cannot_be_synced_is_said_and_the_new_file_is_in_place(void **state)
{
    (void)state;
    const char *path = temp_text("moved", "old");
    an_err err = {0};
    broken.error = EIO, broken.after = 1, broken.call = "fsync";
    assert_int_equal(save(&err, path, "new"), AN_E_IO);
    assert_contains(err.text, "may not survive a power loss");
    assert_text(path, "new!");
    broken.error = EINVAL, broken.after = 1, broken.call = "fsync"; /* a file system that cannot do it */
    assert_int_equal(save(NULL, path, "newer"), AN_OK);
}

static void after_a_failed_write_the_save_cannot_be_committed(void **state)
{
    (void)state;
    const char *path = temp_text("half", "old");
    an_save s;
    an_err err = {0};
    assert_int_equal(an_save_begin(NULL, path, &s), AN_OK);
    broken.error = ENOSPC, broken.after = 0, broken.call = "write";
    assert_int_equal(an_save_write(NULL, &s, "abc", 3), AN_E_IO);
    assert_int_equal(an_save_write(NULL, &s, "def", 3), AN_E_IO);
    assert_int_equal(an_save_commit(&err, &s), AN_E_IO);
    assert_contains(err.text, "was not saved");
    assert_text(path, "old");
}

/* A child saves over and over and is killed: the file is always one whole version. */
static void a_killed_writer_leaves_the_old_or_the_new_file_whole(void **state)
{
    (void)state;
    const char *path = temp_text("victim", "start");
    static char a[20001], b[20001];
    memset(a, 'a', 20000);
    memset(b, 'b', 20000);
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0)
            for (int i = 0;; i++)
                if (save(NULL, path, i % 2 ? a : b) != AN_OK) _exit(1);
        usleep((useconds_t)(2000 + 1711 * round));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        char *text = read_text(path);
        size_t n = strlen(text);
        assert_true(n == 5 || (n == 20001 && text[0] == text[19999] && text[20000] == '!'));
        free(text);
    }
}
#endif

static void a_save_into_nowhere_is_refused_at_its_beginning(void **state)
{
    (void)state;
    an_err err = {0};
    an_save s;
    assert_int_equal(an_save_begin(&err, test_path("no/such/folder/x"), &s), AN_E_IO);
    assert_contains(err.text, "temporary file beside it");
    an_save_abort(&s);
    assert_int_equal(an_save_begin(NULL, test_path("folder/"), &s), AN_E_IO);
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(an_save_begin(NULL, longer, &s), AN_E_IO);
    an_save_abort(&s);
}

static void folders_are_made_with_all_above_them_and_may_exist(void **state)
{
    (void)state;
    an_err err = {0};
    assert_int_equal(an_make_dirs(NULL, test_path("d1/d2//d3/"), 0755), AN_OK);
    assert_int_equal(an_make_dirs(NULL, test_path("d1/d2/d3"), 0755), AN_OK);
    assert_int_equal(an_make_dirs(NULL, "/", 0755), AN_OK);
    struct stat st;
    assert_int_equal(stat(test_path("d1/d2/d3"), &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    temp_text("d1/file", "x");
    assert_int_equal(an_make_dirs(&err, test_path("d1/file/sub"), 0755), AN_E_IO);
    assert_contains(err.text, "d1/file: cannot make the folder");
    assert_int_equal(an_make_dirs(NULL, "", 0755), AN_E_IO);
}

static void a_program_gives_its_output_and_its_exit_code(void **state)
{
    (void)state;
    char out[64];
    int code = -7;
    assert_int_equal(an_spawn(NULL, (const char *const[]){"sh", "-c", "echo out; echo err >&2; exit 3", NULL}, 10, out,
                              sizeof out, &code),
                     AN_OK);
    assert_int_equal(code, 3);
    assert_string_equal(out, "out\nerr\n");
    assert_int_equal(
        an_spawn(NULL, (const char *const[]){"sh", "-c", "kill -TERM $$", NULL}, 10, out, sizeof out, &code), AN_OK);
    assert_int_equal(code, 128 + SIGTERM);
    assert_string_equal(out, "");
    /* stdin is empty: cat ends */
    assert_int_equal(an_spawn(NULL, (const char *const[]){"cat", NULL}, 10, out, sizeof out, &code), AN_OK);
    assert_int_equal(code, 0);
}

static void output_beyond_the_room_is_dropped_and_does_not_block_the_program(void **state)
{
    (void)state;
    char out[11];
    int code;
    const char *const argv[] = {"sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done; exit 5",
                                NULL};
    assert_int_equal(an_spawn(NULL, argv, 60, out, sizeof out, &code), AN_OK);
    assert_int_equal(code, 5);
    assert_string_equal(out, "0123456789");
    assert_int_equal(an_spawn(NULL, argv, 60, NULL, 0, &code), AN_OK);
    assert_int_equal(code, 5);
}

static void a_program_that_takes_too_long_is_killed_with_all_it_started(void **state)
{
    (void)state;
    char out[64];
    int code;
    const char *mark = test_path("survivor");
    char script[700];
    snprintf(script, sizeof script, "echo begun; (sleep 1; touch %s) & sleep 30", mark);
    double t = an_seconds();
    assert_int_equal(an_spawn(NULL, (const char *const[]){"sh", "-c", script, NULL}, 0.3, out, sizeof out, &code),
                     AN_OK);
    assert_true(an_seconds() - t < 5);
    assert_int_equal(code, -1);
    assert_string_equal(out, "begun\n");
    usleep(1300000);
    assert_int_equal(access(mark, F_OK), -1);
}

static void a_left_behind_grandchild_does_not_hold_the_call(void **state)
{
    (void)state;
    char out[64];
    int code;
    double t = an_seconds();
    assert_int_equal(
        an_spawn(NULL, (const char *const[]){"sh", "-c", "sleep 20 & echo done", NULL}, 15, out, sizeof out, &code),
        AN_OK);
    assert_true(an_seconds() - t < 10);
    assert_int_equal(code, 0);
    assert_string_equal(out, "done\n");
}

static void several_programs_run_at_once_each_with_its_own_room(void **state)
{
    (void)state;
    const char *const a[] = {"sh", "-c", "sleep 0.4; echo a", NULL},
                      *const b[] = {"sh", "-c", "sleep 0.4; echo b; exit 1", NULL},
                      *const c[] = {"sh", "-c", "sleep 30", NULL};
    const char *const *const all[] = {a, b, c};
    char out[3][16];
    int codes[3];
    double t = an_seconds();
    assert_int_equal(an_spawn_many(NULL, all, 3, 2.5, out[0], sizeof out[0], codes), AN_OK);
    assert_true(an_seconds() - t < 10);
    assert_string_equal(out[0], "a\n");
    assert_string_equal(out[1], "b\n");
    assert_true(codes[0] == 0 && codes[1] == 1 && codes[2] == -1);
    assert_int_equal(an_spawn_many(NULL, all, 0, 1, NULL, 0, NULL), AN_OK);
}

static void a_save_replaces_files_and_nothing_else(void **state)
{
    (void)state;
    an_err err = {0};
    an_save save;
    char pipe[1100];
    snprintf(pipe, sizeof pipe, "%s", test_path("a_pipe"));
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(an_save_begin(&err, pipe, &save), AN_E_IO);
    assert_contains(err.text, "is not a regular file");
    assert_int_equal(an_save_begin(NULL, "/dev/null", &save), AN_E_IO);
    assert_int_equal(an_save_begin(NULL, test_folder(), &save), AN_E_IO);
}

static void a_program_that_is_not_there_is_an_error_and_the_others_are_ended(void **state)
{
    (void)state;
    const char *const a[] = {"sh", "-c", "sleep 30", NULL}, *const b[] = {"no-such-program-here", NULL};
    const char *const *const all[] = {a, b};
    char out[2][16];
    int codes[2];
    an_err err = {0};
    if (an_spawn(NULL, b, 10, out[0], sizeof out[0], codes) == AN_OK) {
        test_skip("an emulator that does not tell that a program did not start: the child's exit code is %d", codes[0]);
    }
    double t = an_seconds();
    assert_int_equal(an_spawn_many(&err, all, 2, 60, out[0], sizeof out[0], codes), AN_E_ENV);
    assert_true(an_seconds() - t < 10);
    assert_contains(err.text, "no-such-program-here: cannot be started");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static an_status spawn_true(an_err *err, void *arg)
{
    (void)arg;
    int code;
    return an_spawn(err, (const char *const[]){"true", NULL}, 10, NULL, 0, &code);
}

static void a_refused_allocation_before_a_program_starts_is_reported(void **state)
{
    (void)state;
    test_refuse_each_allocation(spawn_true, NULL);
}

static void a_shared_object_is_loaded_by_name_or_its_absence_is_a_sentence(void **state)
{
    (void)state;
    an_err err = {0};
    assert_null(an_dl_open(&err, "libno_such_library.so.9"));
    assert_int_equal(err.code, AN_E_ENV);
    assert_contains(err.text, "libno_such_library.so.9: cannot be loaded");
    an_dl_close(NULL);
#ifdef __linux__
    void *lib = an_dl_open(NULL, "libm.so.6");
    assert_non_null(lib);
    assert_non_null(an_dl_sym(lib, "cos"));
    assert_null(an_dl_sym(lib, "no_such_symbol"));
    an_dl_close(lib);
#endif
}

static void a_library_that_is_missing_or_too_old_is_a_sentence_with_what_to_do(void **state)
{
    (void)state;
    struct {
        double (*cosine)(double);
        void *other;
    } table = {0};
    static const char *const none[] = {"libno_such_library.so.9", NULL}, *const some[] = {"libno_such_library.so.9",
                                                                                          "libm.so.6", NULL};
    const an_dl_symbol symbols[] = {{"cos", 0}, {"no_such_function", sizeof table.cosine}};
    an_dl_library l = {none, "the library of cosines", "libcosine1", symbols, 1};
    an_err err = {0};
    assert_int_equal(an_dl_load(&err, "x.dat", &l, NULL, &table, NULL), AN_E_ENV);
    assert_string_equal(err.text, "x.dat: the library of cosines is not installed: install libcosine1");
    err = (an_err){0};
    an_dl_load(&err, "x.dat", &l, "take another file", &table, NULL);
    assert_contains(err.text, "install libcosine1, or take another file");
#ifdef __linux__
    void *lib;
    l.names = some;
    assert_int_equal(an_dl_load(NULL, "x.dat", &l, NULL, &table, &lib), AN_OK);
    assert_true(table.cosine(0) == 1);
    an_dl_close(lib);
    l.n_symbols = 2;
    err = (an_err){0};
    assert_int_equal(an_dl_load(&err, "x.dat", &l, NULL, &table, NULL), AN_E_ENV);
    assert_string_equal(err.text, "x.dat: libm.so.6 has no no_such_function: install a newer libcosine1");
#endif
}

static void pages_are_zeroed_aligned_and_given_back(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 4096, 4097, (2 << 20) - 1, 2 << 20, (2 << 20) + 1, 9 << 20};
    for (size_t i = 0; i < AN_COUNT(sizes); i++) {
        unsigned char *p = an_pages_alloc(sizes[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (sizes[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        for (size_t j = 0; j < sizes[i]; j += 511) assert_int_equal(p[j], 0);
        if (sizes[i] > 0) p[sizes[i] - 1] = 1;
        an_pages_free(p, sizes[i]);
    }
    an_pages_free(NULL, 5);
    assert_null(an_pages_alloc(SIZE_MAX));
    assert_null(an_pages_alloc(SIZE_MAX / 4));
}

static void memory_in_use_follows_what_is_touched(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    uint64_t before = an_rss_bytes();
    char *p = an_pages_alloc(BYTES);
    assert_non_null(p);
    memset(p, 1, BYTES);
    assert_true(an_rss_bytes() >= before + BYTES / 2);
    an_pages_free(p, BYTES);
    assert_true(an_rss_bytes() < before + BYTES / 2);
    assert_true(an_peak_rss_bytes() >= before + BYTES / 2);
    assert_true(an_memory_bytes() > BYTES && an_memory_bytes() < (uint64_t)1 << 50);
}

static void time_goes_forward(void **state)
{
    (void)state;
    double t = an_seconds();
    usleep(2000);
    assert_true(an_seconds() - t >= 0.0019 && an_seconds() - t < 30);
}

static void a_wait_clock_counts_only_the_time_that_was_watched(void **state)
{
    (void)state;
    an_wait_clock c = {0};
    assert_true(an_wait_clock_at(&c, 100) == 0);
    assert_true(an_wait_clock_at(&c, 100.25) == 0.25);
    assert_true(an_wait_clock_at(&c, 4000) == 0.25 + AN_WAIT_CLOCK_MOST); /* an hour asleep */
    assert_true(an_wait_clock_at(&c, 3999) == 0.25 + AN_WAIT_CLOCK_MOST);
    assert_true(an_wait_clock_at(&c, 3999.25) == 0.5 + AN_WAIT_CLOCK_MOST);
}

/* Reads a mapped file that another program has cut, as a program that asked for the sentence. */
static void read_cut_file(const char *path, int out)
{
    an_map_file m;
    an_guard_maps();
    dup2(out, STDERR_FILENO);
    if (an_file_map(NULL, path, &m) != AN_OK || truncate(path, 0) != 0) _exit(90);
    volatile char last = ((const char *)m.data)[m.bytes - 1];
    (void)last;
    _exit(91);
}

static void a_mapped_file_that_is_cut_ends_the_program_with_a_sentence(void **state)
{
    (void)state;
    static char data[20000];
    const char *path = test_path("cut");
    char said[400] = "";
    int fds[2], status;
    test_write_file(path, data, sizeof data);
    assert_int_equal(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) read_cut_file(path, fds[1]);
    close(fds[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(read(fds[0], said, sizeof said - 1) > 0);
    close(fds[0]);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_contains(said, path);
    assert_contains(said, "became shorter while it was read");
}

static void on_alarm(int number)
{
    (void)number;
    an_interrupt_children();
}

static void an_interrupted_program_ends_its_children_and_starts_no_more(void **state)
{
    (void)state;
    int status;
    const pid_t child = fork();
    if (child == 0) {
        char said[100];
        int code = 0;
        an_err err = {0};
        const double begin = an_seconds();
        signal(SIGALRM, on_alarm);
        alarm(1);
        an_spawn(&err, (const char *const[]){"/bin/sleep", "60", NULL}, 60, said, sizeof said, &code);
        const bool ended = an_seconds() - begin < 30 && code == 128 + SIGKILL;
        const an_status again = an_spawn(&err, (const char *const[]){"/bin/true", NULL}, 60, said, sizeof said, &code);
        _exit(ended && again == AN_E_ENV && strstr(err.text, "interrupted") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void a_file_in_a_folder_of_others_is_a_regular_file_with_one_name(void **state)
{
    (void)state;
    char place[1024], link_name[1100];
    int fd;
    snprintf(place, sizeof place, "%s", temp_text("place", "safe"));
    snprintf(link_name, sizeof link_name, "%s.link", place);
    an_err err = {0};
    assert_int_equal(symlink(place, link_name), 0);
    assert_int_equal(an_file_open(&err, link_name, O_RDWR | O_CREAT, &fd), AN_E_IO);
    assert_contains(err.text, "symbolic link");
    assert_int_equal(unlink(link_name), 0);
    assert_int_equal(an_file_open(NULL, link_name, O_RDONLY, &fd), AN_OK); /* there is none */
    assert_int_equal(fd, -1);
    assert_int_equal(link(place, link_name), 0);
    an_err_clear(&err);
    assert_int_equal(an_file_open(&err, link_name, O_RDWR | O_APPEND, &fd), AN_E_IO);
    assert_contains(err.text, "hard links");
    assert_int_equal(unlink(link_name), 0);
    assert_int_equal(mkfifo(link_name, 0600), 0);
    an_err_clear(&err);
    assert_int_equal(an_file_open(&err, link_name, O_RDONLY, &fd), AN_E_IO);
    assert_contains(err.text, "not a regular file");
    assert_text(place, "safe");
}

static void what_a_killed_save_left_is_swept_by_the_next(void **state)
{
    (void)state;
    char stale[1100], other[1100];
    const char *path = temp_text("swept", "old"), *slash = strrchr(path, '/');
    snprintf(stale, sizeof stale, "%.*s/.swept.0123456789abcdef.tmp", (int)(slash - path), path);
    snprintf(other, sizeof other, "%.*s/.swept.notes.tmp", (int)(slash - path), path);
    test_write_file(stale, "half", 4);
    test_write_file(other, "mine", 4);
    assert_int_equal(save(NULL, path, "new"), AN_OK);
    assert_int_equal(access(stale, F_OK), 0); /* young: its writer may live */
    const struct timespec then = {.tv_sec = time(NULL) - 120};
    assert_int_equal(utimensat(AT_FDCWD, stale, (struct timespec[]){then, then}, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, other, (struct timespec[]){then, then}, 0), 0);
    assert_int_equal(save(NULL, path, "newer"), AN_OK);
    assert_int_equal(access(stale, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    assert_int_equal(unlink(other), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_clock_counts_only_the_time_that_was_watched),
        cmocka_unit_test(a_file_is_read_whole_and_ends_with_nul),
        cmocka_unit_test(a_file_above_the_limit_is_refused_and_one_at_the_limit_is_not),
        cmocka_unit_test(an_unreadable_path_is_named_with_what_to_do),
        cmocka_unit_test(a_refused_allocation_while_reading_leaks_nothing),
        cmocka_unit_test(a_mapped_file_shows_its_bytes_and_an_empty_one_none),
        cmocka_unit_test(a_save_replaces_the_file_and_leaves_nothing_else),
        cmocka_unit_test(an_aborted_or_failed_save_leaves_the_old_file_and_no_other),
#ifdef __linux__
        cmocka_unit_test(a_full_disk_at_write_sync_close_or_rename_names_the_file_and_keeps_the_old_one),
        cmocka_unit_test(an_interrupted_or_partial_write_is_continued),
        cmocka_unit_test(a_folder_that_cannot_be_synced_is_said_and_the_new_file_is_in_place),
        cmocka_unit_test(after_a_failed_write_the_save_cannot_be_committed),
        cmocka_unit_test(a_killed_writer_leaves_the_old_or_the_new_file_whole),
#endif
        cmocka_unit_test(a_save_into_nowhere_is_refused_at_its_beginning),
        cmocka_unit_test(folders_are_made_with_all_above_them_and_may_exist),
        cmocka_unit_test(a_program_gives_its_output_and_its_exit_code),
        cmocka_unit_test(output_beyond_the_room_is_dropped_and_does_not_block_the_program),
        cmocka_unit_test(a_program_that_takes_too_long_is_killed_with_all_it_started),
        cmocka_unit_test(a_left_behind_grandchild_does_not_hold_the_call),
        cmocka_unit_test(several_programs_run_at_once_each_with_its_own_room),
        cmocka_unit_test(a_save_replaces_files_and_nothing_else),
        cmocka_unit_test(a_program_that_is_not_there_is_an_error_and_the_others_are_ended),
        cmocka_unit_test(a_refused_allocation_before_a_program_starts_is_reported),
        cmocka_unit_test(a_shared_object_is_loaded_by_name_or_its_absence_is_a_sentence),
        cmocka_unit_test(a_library_that_is_missing_or_too_old_is_a_sentence_with_what_to_do),
        cmocka_unit_test(pages_are_zeroed_aligned_and_given_back),
        cmocka_unit_test(memory_in_use_follows_what_is_touched),
        cmocka_unit_test(a_mapped_file_that_is_cut_ends_the_program_with_a_sentence),
        cmocka_unit_test(an_interrupted_program_ends_its_children_and_starts_no_more),
        cmocka_unit_test(a_file_in_a_folder_of_others_is_a_regular_file_with_one_name),
        cmocka_unit_test(what_a_killed_save_left_is_swept_by_the_next),
        cmocka_unit_test(time_goes_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
