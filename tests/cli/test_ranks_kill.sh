#!/bin/sh
# test_ranks_kill.sh: kill -9 of a rank, or of the process that watches them, at random moments; each time the run goes on with
# another number of ranks: the same bits as a run of one process that was never killed, in exact mode. No process, socket or shared
# file is left. A few moments as a test, forty under AN_SOAK=1 (AN_KILLS=N).
plan=1
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_ID
kills=${AN_KILLS:-$([ -n "${AN_SOAK:-}" ] && echo 40 || echo 6)}
settings="$tiny max_iters=60 eval_interval=20 save_interval=5 log_interval=1 seed=11 exact=true gradient_accumulation_steps=4 device=cpu threads=1 --quiet"

if [ ! -d /proc/self/fd ] || ! ps -o pid= --ppid $$ >/dev/null 2>&1; then
    ok "ranks killed at random moments # SKIP ps lists no children here"
    done_testing
    exit
fi
# A number below $1 from the clock, the process and the round: the moments differ from day to day.
random() { awk -v seed="$(date +%s)$$$2" -v n="$1" 'BEGIN { srand(seed % 2147483647); print rand() * n }'; }
# Ranks whose watcher is killed save and end: an evaluation that this cut short gets a line of its own, later.
losses() { sed -n 's/.*\("step":[0-9]*,"loss":[-0-9][-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }
ranks_of() { ps -o pid= --ppid "$1" 2>/dev/null | sort -n | tr -d ' '; }
shared_files() { ls /dev/shm 2>/dev/null | grep "^anneal-$(id -u)-"; }
gone() {
    for _ in $(seq 300); do
        alive=
        for pid in "$@"; do
            case $(ps -o stat= -p "$pid" 2>/dev/null) in '' | Z*) ;; *) alive="$alive $pid" ;; esac
        done
        [ -z "$alive" ] && return
        sleep 0.1
    done
    fault "processes are left:$alive"
}

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings
code_is 0
whole=$(state_hash "$dir/whole")
[ -n "$whole" ] || fault "the undisturbed run has no state hash"
# shellcheck disable=SC2086
began=$(date +%s%N) && run train macbook out="$dir/timed" $settings ranks=2
lasts=$(awk -v ns=$(($(date +%s%N) - began)) 'BEGIN { print ns / 1e9 }')
before=$(shared_files | tr '\n' ' ')

killed=0 rounds=0 hit0=0 hit1=0 watcher_hit=0
while [ "$killed" -lt "$kills" ] && [ "$rounds" -lt $((10 * kills)) ]; do
    rm -rf "$dir/k"
    rounds=$((rounds + 1)) begun= ranks=2
    while :; do
        if [ -n "$begun" ] && [ -f "$dir/k/last.safetensors" ]; then
            "$program" resume "$dir/k" ranks=$ranks --quiet >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        else
            rm -rf "$dir/k"
            # shellcheck disable=SC2086
            "$program" train macbook out="$dir/k" $settings ranks=$ranks >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        fi
        pid=$! begun=1 victim=
        if [ "$killed" -lt "$kills" ]; then
            sleep "$(random "$lasts" "$killed.$rounds")"
            children=$(ranks_of $pid)
            for child in $children; do
                if ls -l "/proc/$child/fd" 2>/dev/null | grep -q 'socket:'; then fault "rank $child has a socket"; fi
            done
            # each of the ranks in turn, then the process that watches
            case $((killed % 3)) in
            0) victim=$(echo "$children" | head -n 1) ;;
            1) victim=$(echo "$children" | tail -n 1) ;;
            2) victim=$pid ;;
            esac
            [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null || victim=
        fi
        wait "$pid" 2>/dev/null
        code=$?
        # shellcheck disable=SC2086
        [ -z "$victim" ] || gone $children $pid
        if [ "$code" -eq 0 ]; then break; fi
        [ -n "$victim" ] || { fault "exit code $code: $(cat "$dir/stderr")"; break 2; }
        case $((killed % 3)) in 0) hit0=$((hit0 + 1)) ;; 1) hit1=$((hit1 + 1)) ;; *) watcher_hit=$((watcher_hit + 1)) ;; esac
        case $victim in
        "$pid") ;;
        *)
            code_is 2
            says stderr "was killed by signal 9"
            one_line stderr
            ;;
        esac
        killed=$((killed + 1))
        case $ranks in 2) ranks=4 ;; 4) ranks=1 ;; *) ranks=2 ;; esac
        [ $ranks -gt 1 ] || [ "$killed" -ge "$kills" ] || ranks=2
    done
    equal "$(state_hash "$dir/k")" "$whole" "state hash after $killed kills"
    equal "$(losses "$dir/k" | cksum)" "$(losses "$dir/whole" | cksum)" "losses of all updates"
    if ls "$dir/k"/.*.tmp >/dev/null 2>&1; then fault "a temporary file is left: $(ls -a "$dir/k")"; fi
done
[ "$killed" -ge "$kills" ] || fault "only $killed of $kills kills hit a running program"
# Other programs' files come and go meanwhile: one that is left stays.
for _ in $(seq 300); do
    left=
    for file in $(shared_files); do
        case " $before " in *" $file "*) ;; *) left="$left $file" ;; esac
    done
    [ -n "$left" ] || break
    sleep 0.1
done
equal "$left" "" "files left in /dev/shm"
ok "rank 0 killed $hit0 times, the last rank $hit1 times, their watcher $watcher_hit times: the run ends in the bits of one process"
done_testing
