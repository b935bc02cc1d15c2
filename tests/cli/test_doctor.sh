#!/bin/sh
# test_doctor.sh: what doctor says about this machine, and that its exit code means it.
plan=9
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

run doctor ranks=3
code_is 0; silent stderr; says stdout "3 ranks over shared memory"; says stdout "GB/s"
equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 7 "lines of the curve"
run doctor ranks=2 --json
code_is 0; one_line stdout; has_keys "$dir/stdout" ranks carrier sums bytes ms gbytes
run doctor ranks=65
code_is 1; one_line stderr
ok "doctor ranks=N measures how long N processes take to add arrays of growing size"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
if command -v mpirun.openmpi >/dev/null 2>&1 && [ -z "${WRAP:-}" ]; then
    mpirun.openmpi -n 2 "$program" doctor transport=mpi >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
    code_is 0; says stdout "2 ranks over Open MPI v"; says stdout "GB/s"
    run doctor measure=false
    says stdout "Open MPI v"
    run doctor measure=false --json
    case $(value "$dir/stdout" mpi) in "Open MPI v"*) ;; *) fault "mpi is $(value "$dir/stdout" mpi)" ;; esac
    ok "under mpirun it measures MPI, and without it names the library"
else
    skip "under mpirun it measures MPI, and without it names the library" "Open MPI's mpirun is not installed"
fi
done_testing
