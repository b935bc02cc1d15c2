/* platform.h: what the project uses of the operating system: files, time, memory maps, processes, page allocation.
 * Code that differs between Linux and macOS is behind this header only. */
#ifndef AN_PLATFORM_PLATFORM_H
#define AN_PLATFORM_PLATFORM_H

#include "base/base.h"

typedef struct an_map_file {
    const void *data; /* NULL for an empty file */
    size_t bytes;
} an_map_file;

double an_seconds(void); /* monotonic */

/* Time spent waiting, as far as this process could watch it: sleep of the machine, SIGSTOP and a debugger do not count.
 * Each ask adds the time since the one before, at most AN_WAIT_CLOCK_MOST seconds. {0} is a new clock. */
typedef struct an_wait_clock {
    double last, waited;
} an_wait_clock;
#define AN_WAIT_CLOCK_MOST 0.5
double an_wait_clock_at(an_wait_clock *c, double now); /* for a time that is known */
double an_wait_clock_ask(an_wait_clock *c);

/* Opens `path` in a folder that others may have filled: relative to the folder's descriptor, never through a link in its
 * last part, a regular file only, never waiting; for writing (O_RDWR, O_APPEND, O_CREAT) a file with one name only.
 * *out is -1 with AN_OK when there is no such file and `flags` lack O_CREAT. */
an_status an_file_open(an_err *err, const char *path, int flags, int *out);

/* 16 hexadecimal digits that cannot be guessed, for names of temporary files. */
enum { AN_RANDOM_NAME_BYTES = 17 };
void an_random_name(char out[AN_RANDOM_NAME_BYTES]);

/* The whole file, a regular one, with a NUL added, to be released with free(). Above max_bytes (0: no limit) it is
 * refused. */
an_status an_file_read(an_err *err, const char *path, size_t max_bytes, char **out, size_t *out_bytes);
an_status an_file_map(an_err *err, const char *path, an_map_file *out); /* a regular file, read-only */
void an_file_unmap(an_map_file *m);

/* Crash-safe, atomic replacement of a file (atomic_save.c): begin opens DIR/.NAME.RANDOM.tmp, write appends, commit
 * does fsync, rename and fsync of the folder (all of it relative to the folder's descriptor; a link in the file's place
 * is replaced, not followed), abort removes the temporary file. After a failed write or commit the old file is
 * untouched and the temporary one is gone (when only the fsync of the folder fails, the new file is in place and the
 * sentence says what is not sure). abort after commit, or after a failure, does nothing. */
typedef struct an_save {
    int fd, dir;
    char path[1024], temp[300]; /* temp: a name in `dir` */
    const char *name;           /* the last part of `path`: the struct is not copied */
    uint64_t bytes;
    bool losable; /* an_file_write_losable */
} an_save;
an_status an_save_begin(an_err *err, const char *path, an_save *out);
an_status an_save_write(an_err *err, an_save *s, const void *data, size_t bytes);
an_status an_save_commit(an_err *err, an_save *s);
void an_save_abort(an_save *s);
an_status an_file_write(an_err *err, const char *path, const void *data, size_t bytes); /* begin, write, commit */
/* The same for what can be made again and is checked when it is read, as an entry of a cache: it does not wait for the medium, and leaves what
 * killed writers left to who keeps the folder (an_cache_trim), for to look for it is to read the whole folder. */
an_status an_file_write_losable(an_err *err, const char *path, const void *data, size_t bytes);
/* Removes from folder `dir` the temporary files that killed writers left, for files whose name (the first n characters of
 * `name`) `takes` accepts. Those of living writers stay. (begin removes those of its own file.) */
typedef bool (*an_save_sweep_fn)(const char *name, size_t n, const void *arg);
void an_save_sweep(const char *dir, an_save_sweep_fn takes, const void *arg);

an_status an_make_dirs(an_err *err, const char *path, unsigned mode); /* like mkdir -p; existing folders are fine */

/* For programs (guard.c): from here on a mapped file that becomes shorter while it is read ends the process with a
 * sentence and exit code 2, where the system would end it by SIGBUS. */
void an_guard_maps(void);
/* For a program's signal handler: kills the children of all an_spawn calls; later ones fail. */
void an_interrupt_children(void);
/* Said by a device whose work will never end (an exchange with a rank that is gone, a kernel that hangs): exit() would wait
 * for it in the driver's exit handlers. */
void an_guard_exit_hangs(void);
/* For the end of main: returns code, or, where exit() would hang, writes what stdio holds and ends the process here. */
int an_guard_exit(int code);
/* What files.c and process.c report to guard.c. False: the process was interrupted, and the child must go. */
void an_guard_map(const void *data, size_t bytes, const char *path);
void an_guard_unmap(const void *data);
bool an_guard_child(int pid);
void an_guard_reaped(int pid);

/* Runs argv[0] with argv (no shell), stdin from /dev/null, output (stdout and stderr together, at most `cap` bytes
 * kept, NUL added) in `output`; kills it after timeout_s. *exit_code is the code, 128+n for a signal, -1 for a
 * timeout. */
an_status an_spawn(an_err *err, const char *const *argv, double timeout_s, char *output, size_t cap, int *exit_code);
/* The same for several at once: all are started, then waited for. Program i has the `cap` bytes at output + i*cap. A
 * program that cannot be started is AN_E_ENV (and the others are killed); one that fails is an exit code. */
an_status an_spawn_many(an_err *err, const char *const *const *argvs, int n, double timeout_s, char *output, size_t cap,
                        int *exit_codes);

/* Page-aligned memory, in huge pages where the system grants them on request; NULL when there is none. Zeroed. */
void *an_pages_alloc(size_t bytes);
void an_pages_free(void *p, size_t bytes);

uint64_t an_rss_bytes(void);      /* resident now */
uint64_t an_peak_rss_bytes(void); /* highest so far */
/* Of it: what the C library's heap has handed out, and pages of files that are mapped (data, libraries), which the
 * system takes back when memory is short. 0: not told. */
void an_rss_parts(uint64_t *heap, uint64_t *mapped);
/* How long the calling thread has waited for a processor that others used, since it began; NaN: not told (Linux tells). */
double an_cpu_wait_seconds(void);
uint64_t an_memory_bytes(void);           /* what this process may use: the lower of RAM and the cgroup limit */
uint64_t an_cgroup_limits(double *cores); /* memory and processors a cgroup leaves us; 0: no limit */

#endif
