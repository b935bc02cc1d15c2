#!/bin/sh
# test_diagnose_faults.sh: a run that really has four faults at once, put between the program and the system: a loader that is slow and
# gets slower, memory that is never given back, and a disk that takes long to save. Each is told; the same run without them is healthy.
plan=2
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
ok "a slow loader that gets slower, memory that is kept, and a slow disk are told"
done_testing
