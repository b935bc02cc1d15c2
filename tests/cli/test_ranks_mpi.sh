#!/bin/sh
# test_ranks_mpi.sh: ranks over MPI, by Open MPI's and MPICH's launchers, each with its own library: the bits of ranks that share memory; a
# killed rank and ranks with other settings end all; what cannot run is a sentence.
plan=9
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE PMI_FD PMI_PORT PMI_ID SLURM_STEP_ID ANNEAL_MPI
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
settings="$tiny seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 --quiet"

# mpi LAUNCHER ARGUMENT...: as `run`, through a launcher
mpi() {
    launcher=$1
    shift
    timeout 200 "$launcher" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
}
gone() {
    for _ in $(seq 200); do
        ps ax -o stat=,args= 2>/dev/null | grep -v '^Z' | grep -q "[o]ut=$1 " || return 0
        sleep 0.1
    done
    fault "processes of $1 are left"
}
# its own sentences, without the launcher's
sentences() { grep -c "^$program: " "$dir/stderr"; }

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/shared" $settings max_iters=20 ranks=2
code_is 0
whole=$(state_hash "$dir/shared")
[ -n "$whole" ] || fault "ranks that share memory have no state hash"
# shellcheck disable=SC2086
run train macbook out="$dir/exact" $settings max_iters=8 exact=true
exact=$(state_hash "$dir/exact")

for launcher in mpirun.openmpi mpirun.mpich; do
    if ! command -v $launcher >/dev/null 2>&1 || ! command -v timeout >/dev/null 2>&1; then
        skip "$launcher: the bits of shared memory" "$launcher is not installed"
        skip "$launcher: other settings and a killed rank end all" "$launcher is not installed"
        skip "$launcher: a job with another program in it ends" "$launcher is not installed"
        skip "$launcher: another library than the launcher's is a sentence" "$launcher is not installed"
        continue
    fi
    # shellcheck disable=SC2086
    mpi $launcher -n 2 "$program" train macbook out="$dir/$launcher" $settings max_iters=20 transport=mpi
    code_is 0
    equal "$(state_hash "$dir/$launcher")" "$whole" "the state of 2 ranks over MPI and through shared memory"
    # shellcheck disable=SC2086
    mpi $launcher -n 2 "$program" train macbook out="$dir/$launcher.exact" $settings max_iters=8 exact=true transport=mpi
    equal "$(state_hash "$dir/$launcher.exact")" "$exact" "exact: the state of 2 ranks over MPI and of one process"
    ok "$launcher: two ranks have the bits of shared memory, in exact mode those of one process"

    # shellcheck disable=SC2086
    mpi $launcher -n 1 "$program" train macbook out="$dir/no" $settings max_iters=20 transport=mpi : \
        -n 1 "$program" train macbook out="$dir/no" $settings max_iters=21 transport=mpi
    [ "$code" -ne 0 ] || fault "ranks with other settings end with 0"
    says stderr "rank 1 on $(hostname) has other settings than rank 0"
    equal "$(sentences)" 1 "sentences"
    gone "$dir/no"
    # shellcheck disable=SC2086
    mpi $launcher -n 2 "$program" train macbook out="$dir/killed" $settings max_iters=1000000 save_interval=5 transport=mpi &
    watcher=$!
    for _ in $(seq 300); do [ -f "$dir/killed/last.safetensors" ] && break; sleep 0.1; done
    victim=$(ps ax -o pid=,args= | awk -v p="$program" -v o="out=$dir/killed" '$2 == p && index($0, o " ") { print $1 }' | tail -n 1)
    [ -n "$victim" ] && kill -9 "$victim" || fault "no rank to kill"
    wait $watcher
    gone "$dir/killed"
    [ -n "$(state_hash "$dir/killed")" ] || fault "no whole checkpoint after a kill"
    rm -rf "$dir/killed"
    ok "$launcher: ranks with other settings end with one sentence that names the host; a killed rank ends all, the checkpoint is whole"

    # MPI's first call waits for every process of the job, and one of these never comes
    began=$(date +%s)
    ANNEAL_COMM_TIMEOUT=1 mpi $launcher -n 1 "$program" train macbook out="$dir/mixed" $settings max_iters=20 transport=mpi : -n 1 sleep 100
    { [ "$code" -ne 0 ] && [ "$code" -ne 124 ] && [ $(($(date +%s) - began)) -lt 60 ]; } || fault "code $code after $(($(date +%s) - began)) s"
    grep -q "rank 0.* has waited 21 s " "$dir/stderr" || fault "$(cat "$dir/stderr")"
    ok "$launcher: a job with another program in it ends in time, with a sentence"

    other=libmpich.so.12
    [ $launcher = mpirun.openmpi ] || other=libmpi.so.40
    # shellcheck disable=SC2086
    ANNEAL_MPI=$other mpi $launcher -n 2 "$program" train macbook out="$dir/no" $settings max_iters=4 transport=mpi
    [ "$code" -ne 0 ] || fault "another library trains"
    grep -q -e "counts 1: name the library" -e "cannot be loaded" "$dir/stderr" || fault "$(cat "$dir/stderr")"
    ok "$launcher: another library than the launcher's is a sentence"
done

run train macbook out="$dir/no" transport=mpi
code_is 1
says stderr "mpirun -n 2"
one_line stderr
run train macbook out="$dir/no" ranks=2 transport=mpi
code_is 1
says stderr "leave ranks= and devices= out"
one_line stderr
RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 run train macbook out="$dir/no" gradient_accumulation_steps=4
[ "$code" -ne 0 ] || fault "torchrun's ranks on two hosts train"
says stderr "mpirun -n 4 --host"
one_line stderr
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMI_FD=0 PMI_RANK=1 PMI_SIZE=2 run train macbook out="$dir/no" gradient_accumulation_steps=4
code_is 1
says stderr "contradict each other"
one_line stderr
PMI_PORT=host:1 PMI_ID=1 PMI_SIZE=1 run train macbook out="$dir/no" gradient_accumulation_steps=4
code_is 1
says stderr "leave -pmi-port out"
one_line stderr
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 ANNEAL_MPI=/nonexistent/libmpi.so run train macbook out="$dir/no"
code_is 2
says stderr "/nonexistent/libmpi.so: cannot be loaded"
one_line stderr
ok "without a launcher of MPI's, or without its library, the way to start is said"
done_testing
