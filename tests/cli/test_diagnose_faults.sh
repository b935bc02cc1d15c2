#!/bin/sh
# test_diagnose_faults.sh: runs that really have faults, put between the program and the system: four at once (a loader that is slow and
# gets slower, memory that is never given back, a disk that takes long to save), and a processor that is slowed down for its heat. Each
# is told; the same run without them is healthy.
plan=3
. "$(dirname "$0")/tap.sh"
skip_all() {
    while [ "$tests" -lt "$plan" ]; do tests=$((tests + 1)); echo "ok $tests - a run with faults is told them # SKIP $1"; done
    done_testing
    exit
}
[ "$(uname)" = Linux ] || skip_all "LD_PRELOAD is Linux'"
[ -z "${WRAP:-}" ] || skip_all "the program is wrapped"
cat >"$dir/faults.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Each image that is opened takes 25 ms, from the 240th on 70, and half a mebibyte for ever; each file that is made safe 0.15 s. */
int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...), count;
    va_list more;
    va_start(more, flags);
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "open");
    if (strstr(path, ".png")) {
        usleep(__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) < 240 ? 25000 : 70000);
        static char *volatile lost;
        lost = malloc(1 << 19);
        if (lost) memset(lost, 1, 1 << 19);
    }
    return real(path, flags, mode);
}
int fsync(int fd)
{
    static int (*real)(int);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    usleep(150000);
    return real(fd);
}
C
"${CC:-cc}" -shared -fPIC -O1 -o "$dir/faults.so" "$dir/faults.c" -ldl 2>"$dir/log" || skip_all "no compiler"
for class in one two; do
    mkdir -p "$dir/images/$class"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf '\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\002\010\002\000\000\000\375\324\232\163\000\000\000\022\111\104\101\124\170\234\143\370\317\300\300\000\302\014\377\201\000\000\037\356\005\373\013\331\150\213\000\000\000\000\111\105\116\104\256\102\140\202' >"$dir/images/$class/$i.png"
    done
done
train="train cnn data=$dir/images height=16 width=16 channels=3 batch_size=4 workers=1 max_iters=84 log_interval=1 eval_interval=14 eval_iters=1"

# shellcheck disable=SC2086
run $train out="$dir/healthy"
grep -q "is not installed" "$dir/stderr" && skip_all "the library that reads PNG is not there"
code_is 0
run diagnose "$dir/healthy"
code_is 0; says stdout "nothing was found by"
ok "without the faults nothing is found"

# shellcheck disable=SC2086
LD_PRELOAD="$dir/faults.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0:detect_leaks=0" "$program" $train out="$dir/faulty" >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
code_is 0; says stderr "found   "
run diagnose "$dir/faulty" --json
for rule in waits_for_data slows_down memory_grows slow_saves; do
    grep -q "\"rule\":\"$rule\"" "$dir/stdout" || fault "$rule is not told: $(cat "$dir/stdout")"
done
# The sanitizers have a heap of their own, which the C library does not count.
grep -q heap_bytes "$dir/faulty/metrics.jsonl" && says stdout "the C library's heap: "
ok "a slow loader that gets slower, memory that is kept and whose it is, and a slow disk are told"

cat >"$dir/heat.c" <<'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
/* A processor that is throttled from the 160th image on: what the main thread does between two looks at the clock takes three times as
 * long, and Linux' count of throttling is no longer 0. The clock runs 40 times as fast, so that the machine is looked at again soon. */
static int images;
int open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    va_list more;
    va_start(more, flags);
    const int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "open");
    if (strstr(path, ".png")) __atomic_fetch_add(&images, 1, __ATOMIC_RELAXED);
    return real(path, flags, mode);
}
FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*real)(const char *, const char *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!strstr(path, "package_throttle_count")) return real(path, mode);
    return images < 160 ? fmemopen("0\n", 2, "r") : fmemopen("12\n", 3, "r");
}
int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    static long long begin;
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    if (clock != CLOCK_MONOTONIC) return real(clock, t);
    if (gettid() == getpid() && images) usleep(images < 160 ? 700 : 2100);
    real(clock, t);
    long long now = t->tv_sec * 1000000000ll + t->tv_nsec;
    if (!begin) begin = now;
    now = begin + 40 * (now - begin);
    t->tv_sec = now / 1000000000ll;
    t->tv_nsec = now % 1000000000ll;
    return 0;
}
C
"${CC:-cc}" -shared -fPIC -O1 -o "$dir/heat.so" "$dir/heat.c" -ldl 2>"$dir/log" || fault "$(head -c 300 "$dir/log")"
# shellcheck disable=SC2086
LD_PRELOAD="$dir/heat.so" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0:detect_leaks=0" "$program" $train out="$dir/hot" >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
code_is 0; says stderr "the processor was slowed down for its heat"
says hot/metrics.jsonl '"thermal":"nominal"'; says hot/metrics.jsonl '"thermal":"throttled 12 times"'
run diagnose "$dir/hot"
says stdout "(slows_down)"; says stdout "the machine's log says: heat"
ok "a processor that is slowed down for its heat is told apart from other load"
done_testing
