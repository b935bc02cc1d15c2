#!/bin/sh
# test_ranks.sh: several processes train one model: their losses are those of one, in exact mode every bit; one that is killed
# ends all with a sentence; Ctrl-C saves once; any number of ranks goes on; torchrun's variables are understood.
plan=14
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_ID
more="$tiny seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 --quiet"

# train RUN SETTING...
train() {
    out=$dir/$1
    shift
    # shellcheck disable=SC2086  # $more is a list
    run train macbook out="$out" $more "$@"
}
# A number of each line of metrics.
numbers() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$dir/$1/metrics.jsonl"; }
# near A B TOLERANCE: column by column, relative
near() {
    printf '%s\n' "$1" >"$dir/a"
    printf '%s\n' "$2" >"$dir/b"
    paste "$dir/a" "$dir/b" | awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (NF != 2 || d > t * ($1 < 0 ? -$1 : $1)) bad = 1 } END { exit bad || !NR }'
}

for ranks in 1 2 4; do
    train f32_$ranks max_iters=20 ranks=$ranks
    code_is 0
    near "$(numbers f32_1 loss)" "$(numbers f32_$ranks loss)" 1e-6 || fault "losses of $ranks ranks differ from those of one"
    near "$(numbers f32_1 val_loss)" "$(numbers f32_$ranks val_loss)" 1e-6 || fault "val_loss of $ranks ranks differs"
    equal "$(numbers f32_$ranks loss | wc -l)" "$(numbers f32_1 loss | wc -l)" "lines of metrics"
done
train whole max_iters=20 batch_size=16 gradient_accumulation_steps=1
near "$(numbers whole loss)" "$(numbers f32_4 loss)" 1e-6 || fault "one batch of 16 and 4 ranks of 4 differ"
ok "f32: losses of 2 and 4 ranks are those of one, and of one large batch, within 1e-6"

for ranks in 2 4; do
    equal "$(wc -l <"$dir/f32_$ranks/ranks.jsonl")" $((ranks * $(numbers f32_1 loss | wc -l))) "lines of ranks.jsonl"
    equal "$(sed -n 's/.*"rank":\([0-9]*\).*/\1/p' "$dir/f32_$ranks/ranks.jsonl" | sort -u | tr '\n' ' ')" "$(seq 0 $((ranks - 1)) | tr '\n' ' ')" "ranks in ranks.jsonl"
    # what a rank waits is part of its exchanges, and these of its updates; the CPU does nothing else in them
    sed 's/.*"ms":\([^,]*\),"exchange_ms":\([^,]*\),"exposed_ms":\([^,]*\),"wait_ms":\([^,]*\),.*/\1 \2 \3 \4/' "$dir/f32_$ranks/ranks.jsonl" |
        awk '!($4 >= 0 && $4 <= $2 && $2 <= $1 && $2 > 0 && $3 == $2) { bad = 1 } END { exit bad || !NR }' || fault "$(cat "$dir/f32_$ranks/ranks.jsonl")"
    equal "$(numbers f32_$ranks exchange_share | awk '!($1 > 0 && $1 < 1)' | wc -l)" 0 "shares that are none"
done
[ ! -e "$dir/f32_1/ranks.jsonl" ] || fault "one process has metrics of ranks"
[ -z "$(numbers f32_1 exchange_share)" ] || fault "one process exchanges"
cp -r "$dir/f32_2" "$dir/longer"
run resume "$dir/longer" max_iters=30 ranks=4 --quiet
code_is 0
equal "$(sed -n 's/.*"step":2[0-9],"rank":\([0-9]\).*/\1/p' "$dir/longer/ranks.jsonl" | sort -u | tr -d '\n')" 0123 "ranks after the resume"
run train macbook out="$dir/told" $tiny device=cpu threads=1 gradient_accumulation_steps=2 ranks=2 max_iters=4 eval_interval=4
says stderr "exchange "
ok "each rank has lines of metrics: its updates, exchanges and waits; the progress line and metrics.jsonl have the share"

cp -r "$dir/f32_2" "$dir/reused"
train reused max_iters=2 ranks=2
code_is 0
equal "$(cat "$dir/reused/previous/ranks.jsonl")" "$(cat "$dir/f32_2/ranks.jsonl")" "lines of the earlier run"
equal "$(sed -n 's/.*"step":\([0-9]*\).*/\1/p' "$dir/reused/ranks.jsonl" | sort -un | tail -n 1)" 1 "the last line of the new run"
cp -r "$dir/f32_2" "$dir/rewound"
run resume "$dir/rewound/step_15.safetensors" max_iters=17 --quiet
code_is 0
equal "$(cat "$dir/rewound/previous/ranks.jsonl")" "$(cat "$dir/f32_2/ranks.jsonl")" "lines that resuming earlier drops"
ok "the lines of ranks of an earlier run, and those that resuming an older checkpoint drops, are kept in previous"

train again max_iters=20 ranks=2
equal "$(state_hash "$dir/again")" "$(state_hash "$dir/f32_2")" "the state of 2 ranks, twice"
ok "f32: two runs of 2 ranks have the same bits"

for ranks in 1 2 4; do
    train exact_$ranks max_iters=8 ranks=$ranks exact=true
    code_is 0
    equal "$(state_hash "$dir/exact_$ranks")" "$(state_hash "$dir/exact_1")" "exact: the state of $ranks ranks and of one"
    equal "$(numbers exact_$ranks loss)" "$(numbers exact_1 loss)" "exact: losses"
    equal "$(numbers exact_$ranks val_loss)" "$(numbers exact_1 val_loss)" "exact: val_loss"
done
ok "exact: 1, 2 and 4 ranks have the same bits"

for ranks in 4 1 2; do
    train cut_$ranks max_iters=4 ranks=2 exact=true
    run resume "$dir/cut_$ranks" max_iters=8 ranks=$ranks --quiet
    code_is 0
    equal "$(state_hash "$dir/cut_$ranks")" "$(state_hash "$dir/exact_1")" "a run of 2 ranks, resumed with $ranks"
done
ok "a run goes on with any number of ranks, in exact mode to the same bits"

train no ranks=3 max_iters=4
code_is 1
says stderr "gradient_accumulation_steps=4 does not divide by 3 ranks"
one_line stderr
train no ranks=2 devices=0,1,2
code_is 1
train no devices=0,x
code_is 1
says stderr "it is auto, a number of GPUs, or their numbers with commas between"
train no devices=1,0,01
code_is 1
says stderr "devices=1,0,01 names GPU 1 twice"
[ ! -e "$dir/no" ] || fault "a refused run has made its folder"
ok "micro-batches that do not divide, and devices that are none, are refused with a sentence"

# The ranks of the process that watches, rank 0 first: children in the order of their start.
ranks_of() { ps -o pid= --ppid "$1" 2>/dev/null | sort -n | tr -d ' '; }
# start RUN: in the background; waits for its first line of metrics. $watcher, $rank0, $rank1
start() {
    rm -rf "${dir:?}/$1"
    # shellcheck disable=SC2086  # $more is a list
    "$program" train macbook out="$dir/$1" $more max_iters=1000000 eval_interval=1000000 ranks=2 >"$dir/stdout" 2>"$dir/stderr" &
    watcher=$!
    for _ in $(seq 600); do [ -s "$dir/$1/metrics.jsonl" ] && break || sleep 0.1; done
    # shellcheck disable=SC2046  # two words
    set -- $(ranks_of $watcher)
    rank0=$1 rank1=$2
}
gone() {
    for _ in $(seq 100); do
        alive=
        for pid in "$@"; do
            state=$(ps -o stat= -p "$pid" 2>/dev/null)
            case $state in '' | Z*) ;; *) alive="$alive $pid" ;; esac
        done
        [ -z "$alive" ] && return
        sleep 0.1
    done
    fault "processes are left:$alive"
}
if ps -o pid= --ppid $$ >/dev/null 2>&1; then
    for victim in 1 0; do
        start killed
        if [ $victim = 1 ]; then kill -9 "$rank1"; else kill -9 "$rank0"; fi
        wait $watcher
        code=$?
        code_is 2
        says stderr "rank $victim was killed by signal 9"
        one_line stderr
        gone "$watcher" "$rank0" "$rank1"
    done
    start killed
    kill -9 "$watcher"
    wait $watcher 2>/dev/null
    gone "$watcher" "$rank0" "$rank1"
    ok "a rank that is killed ends all with one sentence; without the process that watches none is left"

    start stopped
    kill -INT $watcher
    wait $watcher
    code=$?
    code_is 130
    gone "$watcher" "$rank0" "$rank1"
    step=$("$program" inspect "$dir/stopped" --json | sed -n '1s/.*"step":\([0-9]*\).*/\1/p')
    [ "${step:-0}" -gt 0 ] || fault "nothing was saved: $step"
    run resume "$dir/stopped" max_iters=$((step + 2)) ranks=4 --quiet
    code_is 0
    ok "Ctrl-C finishes the update and saves once; the run goes on with 4 ranks"
else
    ok "a rank that is killed ends all with one sentence # SKIP ps lists no children here"
    ok "Ctrl-C finishes the update and saves once # SKIP ps lists no children here"
fi

export MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ WORLD_SIZE=2
# shellcheck disable=SC2086  # $more is a list
RANK=1 LOCAL_RANK=1 "$program" train macbook out="$dir/job" $more max_iters=20 >"$dir/other" 2>&1 &
other=$!
RANK=0 LOCAL_RANK=0 train job max_iters=20
code_is 0
wait $other
equal "$?" 0 "exit code of rank 1"
[ ! -s "$dir/other" ] || fault "rank 1 says $(cat "$dir/other")"
equal "$(state_hash "$dir/job")" "$(state_hash "$dir/f32_2")" "the state of 2 ranks that torchrun started, and of ranks=2"
unset WORLD_SIZE
WORLD_SIZE=2 train job max_iters=20
code_is 1
says stderr "unset WORLD_SIZE, or start the processes with torchrun"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 ANNEAL_COMM_TIMEOUT=6 train job max_iters=20
    code_is 2
    says stderr "rank $rank waits for rank $((1 - rank)): RANK=$rank and WORLD_SIZE=2 in the environment say"
    says stderr "unset both to train with this one alone"
    equal "$(grep -c ' waits for rank ' "$dir/stderr")" 1 "times that rank $rank says that it waits"
done
ok "torchrun's variables: the same bits as ranks=2; WORLD_SIZE without RANK is refused; a rank alone says what it waits for"

if unshare -rm sh -c 'mount -t tmpfs -o size=1m none /dev/shm' 2>/dev/null; then
    # shellcheck disable=SC2086
    run_in_little() { WORLD_SIZE=2 RANK=0 unshare -rm sh -c 'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' sh "$program" train macbook out="$dir/no" $more max_iters=2 >"$dir/stdout" 2>"$dir/stderr"; }
    run_in_little
    code=$?
    code_is 2
    says stderr "bytes of shared memory for the ranks of the job: No space left on device"
    one_line stderr
    ok "a /dev/shm without room for the ranks' memory is refused with a sentence"
else
    ok "a /dev/shm without room for the ranks' memory # SKIP no namespaces of mounts here"
fi

# Two hosts with folders of their own: the settings and the progress of the two runs are the same, their parameters are not.
mkdir "$dir/host_a" "$dir/host_b"
# shellcheck disable=SC2086
{
    run train macbook out="$dir/host_a/run" $more max_iters=5
    run train macbook out="$dir/host_b/run" $more max_iters=4 learning_rate=0.002
    run resume "$dir/host_b/run" max_iters=5 learning_rate=0.001 --quiet
}
# resume_two EXIT SETTING...: rank 0 in a, rank 1 in b, with these settings
resume_two() {
    want=$1
    shift
    (cd "$dir/host_b" && RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 exec "$program" resume run max_iters=7 gradient_accumulation_steps=2 --quiet "$@" >"$dir/other" 2>&1) &
    other=$!
    (cd "$dir/host_a" && RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 exec "$program" resume run max_iters=7 gradient_accumulation_steps=2 --quiet >"$dir/stdout" 2>"$dir/stderr")
    code=$?
    code_is "$want"
    wait $other
    equal "$?" "$want" "exit code of rank 1"
}
resume_two 2
says stderr "rank 1 has other parameters than rank 0 after 5 updates: the files that it reads are others"
one_line stderr
rm -r "$dir/host_b/run"
cp -r "$dir/host_a/run" "$dir/host_b/run"
resume_two 0 threads=2 workers=0 isa=portable
ok "ranks whose checkpoints differ do not begin; settings of a machine may differ"

for hidden in 0 -1 ""; do
    (export CUDA_VISIBLE_DEVICES=$hidden && train hidden max_iters=2 ranks=2 && code_is 0 && [ -z "$faults" ]) || fault "ranks on the CPU fail where CUDA_VISIBLE_DEVICES is '$hidden'"
done
RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2 train hidden
code_is 1
says stderr "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2 in the environment contradict each other"
if [ -w /dev/shm ]; then # what a killed job left goes with the next one; of a file that is new another rank may be about to take the lock
    old=/dev/shm/anneal-$(id -u)-0123456789abcdef new=/dev/shm/anneal-$(id -u)-0123456789abcdee
    : >"$old" && : >"$new" && touch -d '2 minutes ago' "$old"
    (RANK=1 LOCAL_RANK=1 WORLD_SIZE=2 MASTER_PORT=7009 train swept max_iters=1) &
    RANK=0 LOCAL_RANK=0 WORLD_SIZE=2 MASTER_PORT=7009 train swept max_iters=1
    code_is 0
    wait
    [ ! -e "$old" ] && [ -e "$new" ] || fault "what an earlier job left in /dev/shm is there, or a new file is not"
    rm -f "$old" "$new"
fi
ok "ranks on the CPU need no GPU of their number; a place that is none is refused"

# Ctrl-C at any time: exit code 130, no sentence that blames a rank, nothing left behind. Ctrl-Z pauses the ranks too.
left() { ps ax -o stat=,args= 2>/dev/null | grep -v '^Z' | grep -q "[o]ut=$dir/early"; }
for wait in 0.003 0.006 0.01 0.015 0.02 0.03 0.05 0.1 0.2 0.4; do
    # shellcheck disable=SC2086
    timeout --preserve-status --foreground -s INT -k 60 $wait "$program" train macbook out="$dir/early" $more max_iters=100000 ranks=2 >"$dir/stdout" 2>"$dir/stderr"
    code=$?
    code_is 130
    ! grep -q 'killed\|signal' "$dir/stderr" || fault "Ctrl-C after $wait s: $(cat "$dir/stderr")"
    for _ in $(seq 50); do left || break; sleep 0.1; done
    left && fault "Ctrl-C after $wait s leaves a rank"
done
# shellcheck disable=SC2086
"$program" train macbook out="$dir/early" $more max_iters=100000 log_interval=1 ranks=2 >"$dir/stdout" 2>"$dir/stderr" &
watcher=$!
lines() { wc -l <"$dir/early/metrics.jsonl" 2>/dev/null || echo 0; }
for _ in $(seq 100); do [ "$(lines)" -gt 2 ] && break; sleep 0.1; done
kill -TSTP $watcher
for _ in $(seq 100); do case $(ps -o stat= -p $watcher) in T*) break ;; esac; sleep 0.1; done # by then the ranks are, too
sleep 0.2
paused=$(lines)
sleep 0.5
equal "$(lines)" "$paused" "updates while all are paused"
kill -CONT $watcher
for _ in $(seq 100); do [ "$(lines)" -gt "$paused" ] && break; sleep 0.1; done
[ "$(lines)" -gt "$paused" ] || fault "the ranks do not go on"
kill -TERM $watcher
wait $watcher
code=$?
code_is 130
ok "Ctrl-C ends ranks that have just been started, and Ctrl-Z pauses all"
done_testing
