#!/bin/sh
# test_doctor.sh: what doctor says about this machine, and that its exit code means it.
plan=7
. "$(dirname "$0")/tap.sh"

run doctor
code_is 0; silent stderr
for word in system processor memory "ulimit -v" compiler cache "cpu " GFLOP/s verdict; do says stdout "$word"; done
[ "$(awk '{ if (length > n) n = length } END { print n }' "$dir/stdout")" -le 80 ] || fault "a line is over 80 columns"
ok "doctor describes a machine that can train, in 80 columns"

run doctor --json measure=false
code_is 0; one_line stdout; silent stderr
has_keys "$dir/stdout" anneal usable_cores ram_bytes compiler devices faults hints
ok "doctor --json is one line with the same facts"

run doctor cc=/nonexistent/cc measure=false
code_is 2; says stdout "/nonexistent/cc"; says stdout "something is wrong"
ok "a compiler that is not there is a fault and exit code 2"

mkdir "$dir/open" && chmod 777 "$dir/open"
run doctor cache_dir="$dir/open" measure=false --json
code_is 2; says stdout "open to other users"
ok "a cache folder that others may write to is a fault and exit code 2"

run doctor device=nonsense
code_is 1; says stderr "nonsense"; one_line stderr
ok "a device that does not exist is a usage error"

mkdir -m 700 "$dir/cache"
echo x >"$dir/cache/0123456789abcdef.so"; echo y >"$dir/cache/mine.so"
run doctor --clean-cache cache_dir="$dir/cache"
code_is 0; says stdout "1 files removed"
equal "$(ls "$dir/cache")" mine.so "what is left"
ok "doctor --clean-cache removes compiled kernels and no other file"

(ulimit -n 40 && ${WRAP:-} "$program" doctor measure=false >"$dir/stdout" 2>"$dir/stderr")
code=$?
code_is 2; says stdout "ulimit -n is 40"
ok "a limit that is too low is named"
done_testing
