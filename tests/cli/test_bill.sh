#!/bin/sh
# test_bill.sh: what a run will take, asked before it runs; and that it lives with as much as was said and no more.
plan=10
. "$(dirname "$0")/tap.sh"

# shellcheck disable=SC2086  # $tiny is a list of settings
run plan macbook $tiny --json
code_is 0; one_line stdout
has_keys "$dir/stdout" peak_bytes data_bytes worker_bytes host_bytes total_bytes process_bytes address_bytes name kind
sum=0
for k in peak data worker host; do sum=$((sum + $(value "$dir/stdout" ${k}_bytes))); done
equal "$(value "$dir/stdout" total_bytes)" "$sum" "total_bytes"
kinds=0
for k in weight gradient moment activation scratch state input; do kinds=$((kinds + $(value "$dir/stdout" ${k}_bytes))); done
equal "$(value "$dir/stdout" peak_bytes)" "$kinds" "peak_bytes"
run plan macbook
# Each kind is a line of the bill, under "peak memory"; none, data least of all, is beside or under the bytes that kernels move.
equal "$(sed -n '/^peak memory/,/^program/s/^  \([a-z]*\) .*/\1/p' "$dir/stdout" | tr '\n' ' ')" \
    "weights gradients moments activations scratch state inputs data workers host " "kinds of the bill"
equal "$(sed -n '/moved/,$p' "$dir/stdout" | grep -c 'data')" 0 "lines in which data are moved bytes"
ok "the kinds of the bill add up"

run plan macbook svg="$dir/memory.svg"
code_is 0; says stdout "largest"; says stdout "gpt"; says stdout "fallbacks"; says stdout "syncs"
says memory.svg "</svg>"; says memory.svg "activations"
run plan macbook show=memory
code_is 0; says stdout "lives on"
for f in stdout memory.svg; do [ "$(wc -c <"$dir/$f")" -gt 1000 ] || fault "$f is short"; done
awk 'length($0) > 79 { exit 1 }' "$dir/stdout" || fault "a line of show=memory is wider than 79 columns"
ok "memory over the step is drawn in text and as a picture"

run plan macbook --json
launches=$(value "$dir/stdout" launches)
run plan macbook --trace log_interval=7
code_is 0; silent stderr
for stage in batch move forward backward optimizer "loss read"; do grep -q "^[1-6] $stage " "$dir/stdout" || fault "no stage $stage"; done
equal "$(sed -n 's/.* \([0-9]*\) launch.*/\1/p' "$dir/stdout" | awk '{ n += $1 } END { print n }')" "$launches" "launches of the stages"
equal "$(grep -c 'waits  ' "$dir/stdout") $(grep -c 'may fail' "$dir/stdout")" "6 6" "answers"
says stdout "once in 7 updates"; says stdout "none, host and device are the same processor"
run plan gpt2 device=null:cuda data=corpus gradient_accumulation_steps=5 --trace
code_is 0; says stdout "host to null:cuda"; says stdout "5 batches in an update"; says stdout "hot path:   0"
run plan gpt2 device=null:cuda data=corpus gradient_accumulation_steps=5 --trace --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" deliberate_changes)" 6 "deliberate changes"
run plan macbook ranks=2 gradient_accumulation_steps=2 --json
launches=$(value "$dir/stdout" launches)
run plan macbook ranks=2 gradient_accumulation_steps=2 --trace
code_is 0; grep -q '^5 exchange  *on cpu, 2 ranks: ' "$dir/stdout" || fault "no exchange of two ranks: $(cat "$dir/stdout")"
equal "$(sed -n 's/.* \([0-9]*\) launch.*/\1/p' "$dir/stdout" | awk '{ n += $1 } END { print n }')" "$launches" "launches of a rank's stages"
run plan macbook link=pcie
code_is 1; says stderr "link= is what connects several devices: add devices=2"
run plan macbook link=pcie devices=2 gradient_accumulation_steps=2
code_is 1; says stderr "add update_ms="
ok "a step is told stage by stage, with its changes of backend"

run plan macbook threads=2 --what-if batch/2 --what-if seq/2 --what-if n_layer=8
code_is 0; says stdout "batch/2"; says stdout "seq/2"; says stdout "n_layer=8"
equal "$(grep -c 'activations' "$dir/stdout")" 4 "lines of activations"
grep -A5 '^batch/2' "$dir/stdout" | grep 'activations' | grep -q -- '-12.9 MiB' || fault "half the batch is not half the activations: $(cat "$dir/stdout")"
grep -A2 '^batch/2' "$dir/stdout" | grep 'weights' | grep -q '=$' || fault "the weights changed with the batch"
run plan macbook --what-if batch/2 --what-if seq/2 --json
code_is 0; one_line stdout; equal "$(grep -o '"change":' "$dir/stdout" | wc -l | tr -d ' ')" 2 "changes in JSON"
run plan macbook --what-if batch%2
code_is 1; says stderr "batch/2, seq*2"
run plan macbook --what-if dropout/2
code_is 1; says stderr "whole numbers"
# Above 1 GiB of activations recompute=auto is on, of the plan as of what is asked for.
run plan gpt2 device=null:cuda --what-if 'batch*1'
code_is 0; grep '^  all ' "$dir/stdout" | grep -q '=$' || fault "a change by nothing: $(cat "$dir/stdout")"
ok "what-if prints the change of each kind"

run plan macbook --fit 32MiB --json
code_is 0; batch=$(value "$dir/stdout" batch_size) recompute=$(value "$dir/stdout" recompute)
[ "$batch" -gt 1 ] || fault "batch_size $batch"
run plan macbook batch_size="$batch" recompute="$recompute" budget=0.03125
code_is 0
run plan macbook batch_size=$((batch + 1)) recompute="$recompute" budget=0.03125
code_is 2; says stderr "the budget is 32 MiB"
run plan macbook --fit 32MiB
code_is 0; says stdout "fits     batch_size=$batch recompute=$recompute"; says stdout "one more window"
run plan macbook --fit 1MiB
code_is 2; says stderr "no batch fits"
for size in some 0x10GiB -1GiB 99999999TiB 8388608TiB; do
    run plan macbook --fit $size
    code_is 1; says stderr "amount of memory"
done
run plan macbook --fit 1GiB
grep -q ' of 1\.0* GiB' "$dir/stdout" || fault "1 GiB is told as another amount: $(cat "$dir/stdout")"
if grep -q 'window: 1\.0* GiB' "$dir/stdout"; then fault "one more window looks as if it fitted"; fi
run plan gpt2 device=null:metal --fit 16GiB --json
code_is 0; [ "$(value "$dir/stdout" batch_size)" -ge 1 ] || fault "nothing of gpt2 fits 16 GiB"
# shellcheck disable=SC2086
run plan macbook block_size=1 n_layer=1 n_head=1 n_embd=1 workers=0 --fit 4096GiB
code_is 0; says stdout "fits     batch_size=1048576"; says stdout "no larger batch is tried"
for device in cuda cuda:0 metal mps null:cuda; do
    ANNEAL_CUDA_PATH=/nonexistent run plan macbook device=$device --json
    code_is 0; [ "$(value "$dir/stdout" launches)" -gt 10 ] || fault "no launches on $device"
    case $device in
    null:*) silent stderr ;;
    cuda*) says stderr "$device is not here"; says stderr "the plan is that of null:cuda" ;;
    esac
done
run plan macbook device=cuda:1
code_is 1; says stderr "a run uses one GPU"; says stderr "CUDA_VISIBLE_DEVICES"; silent stdout
run plan macbook device=mps:1
code_is 1; says stderr "a run uses one GPU, the first it sees: device=metal"; one_line stderr
# shellcheck disable=SC3045  # where there is no ulimit -v, it is planned all the same
(ulimit -v 2000000 2>/dev/null; run plan macbook batch_size=1048576 block_size=1024 device=null:cpu --json; exit "$code")
code=$?
code_is 0; [ "$(value "$dir/stdout" input_bytes)" -ge 8589934592 ] || fault "no bill of a batch that is larger than memory"
run plan macbook batch_size=1048576 block_size=1048576 device=null:cuda
code_is 1; says stderr "a batch has at most 2147483647 tokens"
run plan macbook device=null:cuda show=chips
code_is 1; says stderr "device=null:metal"; silent stdout
ok "fit names the largest batch and the recompute choice, of any device"

run train macbook out="$dir/no" threads=2 recompute=off budget=0.036
code_is 2; says stderr "the run needs"; says stderr "the budget is 36.9 MiB"; says stderr "Largest:"
says stderr "Smallest changes that fit: recompute=on"; one_line stderr
[ ! -e "$dir/no" ] || fault "a refused run made its folder"
# Batch, length, width and layers, in the keys that are typed, each once and with its bytes, which the same run then takes.
run train macbook out="$dir/no" threads=2 budget=0.03
code_is 2
sed 's/.*Smallest changes that fit: //; s/, or /\n/g' "$dir/stderr" >"$dir/offers"
for key in batch_size block_size n_embd n_layer; do
    equal "$(grep -c "\(^\| \)$key=" "$dir/offers")" 1 "offers of $key"
done
equal "$(sed 's/ (.*//' "$dir/offers" | sort | uniq -d)" "" "offers made twice"
equal "$(grep -cv ' ([0-9.]* MiB)$' "$dir/offers")" 0 "offers without their bytes"
while read -r offer; do
    # shellcheck disable=SC2086  # settings
    run plan macbook threads=2 budget=0.03 ${offer%% (*}
    code_is 0
done <"$dir/offers"
ok "what does not fit is refused before anything is written, with the smallest changes that would"

# address space: as much as was said, and a good deal less
# shellcheck disable=SC2086
settings="$tiny n_embd=64 n_layer=4 batch_size=64 block_size=64 max_iters=4 eval_interval=2 cc=none threads=2"
# shellcheck disable=SC2086
run plan macbook $settings --json
kib=$(($(value "$dir/stdout" address_bytes) / 1024)) total=$(($(value "$dir/stdout" total_bytes) / 1024))
limited() {
    limit=$1
    shift
    (ulimit -v "$limit" && exec "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null)
    code=$?
}
own=  # a sanitizer or valgrind takes memory of its own
if [ -n "${WRAP:-}" ] || nm "$program" 2>/dev/null | grep -q __asan_init; then own=1; fi
if [ -n "$own" ]; then
    tests=$((tests + 1))
    echo "ok $tests - a run under ulimit -v # SKIP a sanitizer or valgrind takes address space of its own"
else
    # shellcheck disable=SC2086
    limited "$kib" train macbook out="$dir/limited" $settings
    code_is 0; says stderr "after 4 updates"
    # shellcheck disable=SC2086
    limited $((kib - total / 2)) train macbook out="$dir/refused" $settings
    code_is 2; says stderr "ulimit -v leaves"; says stderr "Smallest changes that fit"
    echo "# $kib KiB of addresses were said to be enough, of which the run's own are $total KiB"
    ok "a run lives under ulimit -v with the addresses that were said, and is refused with less"
fi

# physical memory: a cgroup of its own
cgroup=/sys/fs/cgroup/memory/anneal-test-$$
if [ -n "$own" ] || ! mkdir "$cgroup" 2>/dev/null || [ ! -w "$cgroup/memory.limit_in_bytes" ]; then
    for name in "a run lives in a cgroup of the predicted size" "a run that a cgroup has no room for is refused"; do
        tests=$((tests + 1))
        echo "ok $tests - $name # SKIP a memory cgroup needs root and version 1"
    done
else
    trap 'rmdir "$cgroup"; rm -rf "$dir"' EXIT
    # shellcheck disable=SC2086
    run plan macbook $settings --json
    need=$(($(value "$dir/stdout" total_bytes) + $(value "$dir/stdout" process_bytes)))
    in_cgroup() {
        bytes=$1
        shift
        echo "$bytes" >"$cgroup/memory.limit_in_bytes"
        sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cgroup" "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
        code=$?
    }
    # shellcheck disable=SC2086
    in_cgroup "$need" train macbook out="$dir/cgroup" $settings
    code_is 0; says stderr "after 4 updates"
    echo "# $((need >> 20)) MiB were said; the cgroup's peak was $(($(cat "$cgroup/memory.max_usage_in_bytes") >> 20)) MiB, files in the page cache included"
    ok "a run lives in a cgroup of the predicted size"
    # shellcheck disable=SC2086
    in_cgroup $((need * 2 / 3)) train macbook out="$dir/small" $settings
    code_is 2; says stderr "the cgroup's limit leaves"
    ok "a run that a cgroup has no room for is refused"
fi

run plan gpt2 device=null:cuda --json
total=$(value "$dir/stdout" total_bytes)
run plan gpt2 device=null:cuda --what-if 'batch*1' --json
code_is 0
says stdout "\"total_bytes\":$total,\"flops\""
ok "a change that changes nothing has the bill as it is, recomputation included"
done_testing
