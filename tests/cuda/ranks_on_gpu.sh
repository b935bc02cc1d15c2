#!/bin/sh
# ranks_on_gpu.sh: one and several GPUs of one machine, run by hand there: TEXT=tinyshakespeare.txt sh tests/cuda/ranks_on_gpu.sh BUILD LOGS [N]
# BUILD has the program; LOGS gets the runs; N GPUs, 2 unless told. DEVICE=cpu tries the script itself where there is no GPU.
# SHARE=1: all ranks on GPU 0, as torchrun would start them. NCCL takes ranks of different hosts for different GPUs, so each
# gets a host of its own and they exchange through sockets: the calls, the order and the bits of NCCL, and no speed.
#
#     exact     state hashes of the CPU, one GPU and N GPUs, equal; with shard=moments and shard=weights too
#     float32   losses of one GPU and N, with N micro-batches, within 1e-5 relative
#     several   two micro-batches a rank, whose last is exchanged beside its backward pass: losses of one GPU, and overlap=false's bits
#     sums      doctor's curve of sums by the GPUs, each checked
#     killed    KILLS times (4) a rank is killed, while it starts or in training: exit code 2 within 15 s, a sentence, nothing left;
#               the run goes on with one GPU
#     speed     GPT-2 124M, bf16, 64 x 1024 tokens a GPU: tokens/s of one and of N, and the share of N times one; with
#               overlap=false, with two micro-batches a GPU and with shard=moments; memory of each setting. Not with SHARE
set -u
build=${1:?the folder of the program} logs=${2:?a folder for logs} n=${3:-2}
text=${TEXT:?a text file} device=${DEVICE:-cuda} share=${SHARE:-}
a=$(cd "$build" && pwd)/anneal
mkdir -p "$logs"
failures=0
say() { echo "$*" | tee -a "$logs/summary.txt"; }
check() { # NAME STATUS
    if [ "$2" -eq 0 ]; then say "ok     $1"; else say "FAILED $1"; failures=$((failures + 1)); fi
}
hash_of() { "$a" inspect "$1" --json 2>/dev/null | sed -n 's/.*"state_hash":"\([0-9a-f]*\)".*/\1/p'; }
# share_gpu COMMAND...: n ranks on one GPU; the exit code of rank 0. rank_pids: their processes.
share_gpu() {
    jobs=$((${jobs:-0} + 1)) rank_pids=
    r=0
    while [ $r -lt "$n" ]; do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + jobs)) CUDA_VISIBLE_DEVICES=0 \
            NCCL_HOSTID=rank$r NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 timeout 200 "$@" &
        rank_pids="$rank_pids $!"
        r=$((r + 1))
    done
    rank_code=0
    for pid in $rank_pids; do
        wait "$pid"
        last=$?
        [ "$rank_code" -ne 0 ] || rank_code=$last
    done
    return "$rank_code"
}
# ranks COMMAND...: over n GPUs
ranks() {
    if [ -n "$share" ]; then share_gpu "$@"; elif [ "$device" = cpu ]; then timeout 200 "$@" ranks="$n"; else timeout 200 "$@" devices="$n"; fi
}
# start LAUNCH NAME SETTING...: LAUNCH is `ranks` or `timeout 200`
start() {
    launch=$1 name=$2
    shift 2
    rm -rf "${logs:?}/$name"
    $launch "$a" train "$@" data="$text" out="$logs/$name" --quiet >"$logs/$name.out" 2>"$logs/$name.err"
    code=$?
    [ $code -eq 0 ] || say "       $name: exit code $code: $(tail -n 1 "$logs/$name.err")"
    return $code
}
train() { start "timeout 200" "$@"; } # one process
together() { start ranks "$@"; }      # n of them
numbers() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$logs/$1/metrics.jsonl"; }

small="macbook n_layer=2 batch_size=4 gradient_accumulation_steps=$n max_iters=20 eval_interval=10 eval_iters=8 log_interval=1"
# shellcheck disable=SC2086  # lists of settings
{
    train exact_cpu $small exact=true device=cpu
    train exact_1 $small exact=true device="$device"
    together exact_n $small exact=true device="$device"
    want=$(hash_of "$logs/exact_cpu")
    [ -n "$want" ] && [ "$want" = "$(hash_of "$logs/exact_1")" ] && [ "$want" = "$(hash_of "$logs/exact_n")" ]
    check "exact: the CPU, one GPU and $n GPUs have one hash ($want)" $?

    train f32_1 $small device="$device"
    together f32_n $small device="$device"
    together f32_again $small device="$device"
    numbers f32_1 loss >"$logs/a"
    numbers f32_n loss >"$logs/b"
    paste "$logs/a" "$logs/b" | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > w) w = d } END { print "       largest relative difference " w + 0; exit !NR || w > 1e-5 }' | tee -a "$logs/summary.txt"
    paste "$logs/a" "$logs/b" | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-5) bad = 1 } END { exit bad || !NR }'
    check "float32: losses of one GPU and $n" $?
    [ -n "$(hash_of "$logs/f32_n")" ] && [ "$(hash_of "$logs/f32_n")" = "$(hash_of "$logs/f32_again")" ]
    check "float32: $n GPUs twice have one hash" $?

    train several_1 $small gradient_accumulation_steps=$((2 * n)) device="$device"
    together several_n $small gradient_accumulation_steps=$((2 * n)) device="$device"
    together several_apart $small gradient_accumulation_steps=$((2 * n)) device="$device" overlap=false
    numbers several_1 loss >"$logs/a"
    numbers several_n loss >"$logs/b"
    paste "$logs/a" "$logs/b" | awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > 1e-5) bad = 1 } END { exit bad || !NR }'
    check "float32, two micro-batches a rank: losses of one GPU and $n" $?
    [ -n "$(hash_of "$logs/several_n")" ] && [ "$(hash_of "$logs/several_n")" = "$(hash_of "$logs/several_apart")" ]
    check "float32, two micro-batches a rank: overlap=false has the same hash" $?

    ranks "$a" doctor device="$device" >"$logs/sums" 2>"$logs/sums.err"
    code=$?
    tee -a "$logs/summary.txt" <"$logs/sums"
    check "sums: doctor measures $n ranks, each sum is right" $code
    "$a" doctor measure=false >"$logs/doctor"

    # Half of the kills while the ranks start and connect, at another moment each; the others in training.
    worst=0 bad=0 kills=0 steps=
    while [ $kills -lt "${KILLS:-4}" ]; do
        kills=$((kills + 1)) run=$logs/killed$kills
        moment=$(echo "$kills" | awk '{ print 0.5 + $1 * 37 % 28 / 10 }')
        rm -rf "$run"
        (ranks "$a" train $small max_iters=1000000 eval_interval=20 log_interval=10 device="$device" data="$text" out="$run" --quiet 2>"$run.err") &
        watcher=$!
        tries=0
        if [ $((kills % 2)) -eq 1 ]; then
            while [ ! -e "$run/last.safetensors" ] && [ $tries -lt 600 ]; do sleep 0.1 && tries=$((tries + 1)); done
        fi
        sleep "$moment"
        # A child of the watcher, which is the oldest; of ranks that were started here, the one that was told it is rank 1.
        ours="$a train .* out=$run --quiet.*" victim= place=0
        if [ -n "$share" ]; then
            for pid in $(pgrep -x -f "$ours"); do
                if tr '\0' '\n' <"/proc/$pid/environ" | grep -qx RANK=1; then victim=$pid; fi
            done
        else
            for pid in $(pgrep -P "$(pgrep -o -x -f "$ours")"); do
                [ $((place % n)) -ne $((kills / 2 % n)) ] || victim=$pid
                place=$((place + 1))
            done
        fi
        began=$(date +%s%N)
        if [ -z "$victim" ] || ! kill -9 "$victim"; then
            say "       kill $kills: nothing was running after $moment s" && bad=$((bad + 1))
        fi
        wait $watcher
        code=$?
        took=$((($(date +%s%N) - began) / 1000000))
        [ $took -le $worst ] || worst=$took
        say "       kill $kills after $moment s: exit code $code after $took ms: $(tail -n 1 "$run.err")"
        if [ $code -ne 2 ] || [ $took -gt 15000 ] || pgrep -x -f "$ours" >/dev/null; then bad=$((bad + 1)); fi
        [ -e "$run/last.safetensors" ] || continue # killed before the first checkpoint
        step=$("$a" inspect "$run" --json | sed -n '1s/.*"step":\([0-9]*\).*/\1/p')
        steps="$steps $step"
        "$a" resume "$run" max_iters=$((step + 5)) --quiet 2>>"$run.err" || bad=$((bad + 1))
    done
    [ $bad -eq 0 ] && [ -n "$steps" ]
    check "$kills killed ranks: all end within $worst ms, nothing is left, and one GPU goes on after$steps updates" $?

    together f32_apart $small device="$device" overlap=false
    [ -n "$(hash_of "$logs/f32_apart")" ] && [ "$(hash_of "$logs/f32_n")" = "$(hash_of "$logs/f32_apart")" ]
    check "float32: overlap=false has the same hash" $?
    together exact_moments $small exact=true device="$device" shard=moments
    [ -n "$want" ] && [ "$want" = "$(hash_of "$logs/exact_moments")" ]
    check "exact: shard=moments has the hash of the CPU" $?
    together exact_weights $small exact=true device="$device" shard=weights
    [ -n "$want" ] && [ "$want" = "$(hash_of "$logs/exact_weights")" ]
    check "exact: shard=weights has the hash of the CPU" $?
    together f32_weights $small device="$device" shard=weights
    [ -n "$(hash_of "$logs/f32_weights")" ] && [ "$(hash_of "$logs/f32_n")" = "$(hash_of "$logs/f32_weights")" ]
    check "float32: shard=weights has the same hash" $?
}
say "$failures failed"
[ -z "$share" ] || exit $((failures > 0))

# shellcheck disable=SC2086  # lists of settings
{
    speed="gpt2 vocab_size=50304 dtype=bfloat16 batch_size=${BATCH:-64} block_size=${BLOCK:-1024} max_iters=${UPDATES:-40} eval_interval=100000 eval_iters=1 log_interval=10 device=$device"
    train speed_1 $speed gradient_accumulation_steps=1
    together speed_n $speed gradient_accumulation_steps="$n"
    together speed_apart $speed gradient_accumulation_steps="$n" overlap=false
    together speed_several $speed gradient_accumulation_steps=$((2 * n))
    together speed_moments $speed gradient_accumulation_steps="$n" shard=moments
}
one=$(numbers speed_1 tokens_per_s | tail -n 2 | head -n 1)
all=$(numbers speed_n tokens_per_s | tail -n 2 | head -n 1)
say "speed  one GPU ${one:-?} tokens/s, $n GPUs ${all:-?}: $(echo "${one:-0} ${all:-0} $n" | awk '{ print ($1 > 0 ? 100 * $2 / ($1 * $3) : 0) }') % of $n times one"
memory() { sed -n 's/.*"peak_bytes":\([0-9]*\).*/\1/p' "$logs/$1/logbook.jsonl" | tail -n 1; }
for name in speed_1 speed_n speed_apart speed_several speed_moments; do
    rate=$(numbers $name tokens_per_s | tail -n 2 | head -n 1)
    say "       $name: ${rate:-?} tokens/s, $(echo "${one:-0} ${rate:-0} $n $name" | awk '{ k = $4 == "speed_1" ? 1 : $3; print ($1 > 0 ? 100 * $2 / ($1 * k) : 0) }') % of as many times one, bill $(memory $name) bytes a rank"
done
[ $failures -eq 0 ]
