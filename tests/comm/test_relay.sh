#!/bin/sh
# test_relay.sh: two ranks over Open MPI's TCP, whose connections go through a relay (relay.c) that delays, stalls, stops one way, or resets them.
# Either the run goes on, to the bits of a good network, or both ranks end within the timeout and what ending takes, with a sentence that
# names rank and host, and the checkpoint is whole.
plan=4
. "$(dirname "$0")/../cli/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE PMI_FD SLURM_STEP_ID ANNEAL_MPI
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
why=
command -v mpirun.openmpi >/dev/null 2>&1 && command -v timeout >/dev/null 2>&1 || why="Open MPI's mpirun is not installed"
[ "$(uname)" = Linux ] && [ -z "${WRAP:-}" ] || why="it wants Linux and no wrapper"
! grep -q fsanitize "${AN_BUILD:-build}/flags" || why="a sanitizer must be the first library that is loaded"
if [ -n "$why" ]; then
    for name in "delay and jitter change no bit" "a stall is waited for" "a dead link ends all ranks" "resets end all ranks"; do skip "$name" "$why"; done
    done_testing
    exit
fi
cc="${CC:-cc} -std=gnu17 -O2 -Wall -Wextra -Werror"
$cc -o "$dir/relay" "$(dirname "$0")/relay.c" || exit 1
$cc -DSHIM -fPIC -shared -o "$dir/shim.so" "$(dirname "$0")/relay.c" -ldl || exit 1
settings="$tiny seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 save_interval=5 --quiet"

# bad_network RUN ITERATIONS: in the background; $relayed is its process, $dir/mode what the relay does
bad_network() {
    rm -f "$dir/port"
    "$dir/relay" "$dir/port" "$dir/mode" &
    relay=$!
    for _ in $(seq 100); do [ -s "$dir/port" ] && break; sleep 0.1; done
    # shellcheck disable=SC2086  # a list of settings
    RELAY_PORT=$(cat "$dir/port") RELAY_FIRST=46000 RELAY_LAST=46999 timeout -k 10 200 mpirun.openmpi --mca btl tcp,self --mca btl_tcp_if_include lo \
        --mca btl_tcp_port_min_v4 46000 --mca btl_tcp_port_range_v4 1000 -x LD_PRELOAD="$dir/shim.so" -x RELAY_PORT -x RELAY_FIRST -x RELAY_LAST \
        -x ANNEAL_COMM_TIMEOUT -n 2 "$program" train macbook out="$dir/$1" $settings max_iters="$2" transport=mpi >"$dir/stdout" 2>"$dir/stderr" </dev/null &
    relayed=$!
}
begun() { for _ in $(seq 600); do [ -f "$dir/$1/last.safetensors" ] && return; sleep 0.1; done; fault "no checkpoint of $1: $(head -n 3 "$dir/stderr")"; }
ended() {
    wait $relayed
    code=$?
    kill $relay 2>/dev/null
    wait $relay 2>/dev/null
}
left() { ps ax -o stat=,args= | grep -v '^Z' | awk -v p="$program" -v o="out=$dir/$1" '$2 == p && index($0, o " ")'; }
# dies MODE: both ranks end in bounded time
dies() {
    echo pass >"$dir/mode"
    bad_network "$1" 1000000
    begun "$1"
    began=$(date +%s)
    echo "$1" >"$dir/mode"
    ended
    lasted=$(($(date +%s) - began))
    [ "$code" -ne 0 ] && [ "$code" -ne 124 ] || fault "$1: code $code"
    [ $lasted -le 90 ] || fault "$1: it took $lasted s" # the timeout of 4 s, 20 s to bring the ranks together, 10 s for MPI_Abort, a busy machine
    grep -q "anneal: .*rank [01] on $(hostname)" "$dir/stderr" || fault "$1: no sentence names rank and host: $(head -n 3 "$dir/stderr")"
    [ -z "$(left "$1")" ] || fault "$1: ranks are left: $(left "$1")"
    [ -n "$(state_hash "$dir/$1")" ] || fault "$1: no whole checkpoint"
    ok "$2 ends both ranks with a sentence that names rank and host; the checkpoint is whole"
    echo "# $1: $lasted s with a timeout of $ANNEAL_COMM_TIMEOUT"
}

export ANNEAL_COMM_TIMEOUT=60
# shellcheck disable=SC2086
run train macbook out="$dir/good" $settings max_iters=6 ranks=2
good=$(state_hash "$dir/good")
[ -n "$good" ] || fault "no state hash"
echo "delay 5 20" >"$dir/mode"
bad_network slow 6
ended
code_is 0
equal "$(state_hash "$dir/slow")" "$good" "the state after delay and jitter"
echo pass >"$dir/mode"
# shellcheck disable=SC2086
run train macbook out="$dir/good.long" $settings max_iters=1000 ranks=2
bad_network stalled 1000
begun stalled
echo stall >"$dir/mode"
sleep 3
[ -n "$(left stalled)" ] || fault "the run was over before it stalled"
echo pass >"$dir/mode"
ended
code_is 0
equal "$(state_hash "$dir/stalled")" "$(state_hash "$dir/good.long")" "the state after a stall of 3 s"
ok "delay, jitter and a stall shorter than the timeout change no bit"

export ANNEAL_COMM_TIMEOUT=4
dies stall "a stall longer than the timeout"
dies half "a link that carries only one way"
dies reset "connections that are reset"
done_testing
