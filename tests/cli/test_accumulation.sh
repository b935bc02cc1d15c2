#!/bin/sh
# test_accumulation.sh: an update of several micro-batches has one array of gradients, as an update of one has; what was planned is what the
# run takes; and the sums have the same bits however they are computed.
plan=4
. "$(dirname "$0")/tap.sh"
settings="$tiny n_embd=64 seed=5 device=cpu max_iters=3 log_interval=1 eval_interval=100 --quiet"

# bills NAME SETTING...: plans and runs them in $dir/NAME; the run holds the bytes that were planned, and the plan's kinds add up.
bills() {
    name=$1 preset=$2
    shift 2
    run plan "$preset" "$@" --json
    code_is 0
    planned=$(value "$dir/stdout" peak_bytes) gradients=$(value "$dir/stdout" gradient_bytes) kinds=0
    for k in weight gradient moment activation scratch state input; do kinds=$((kinds + $(value "$dir/stdout" ${k}_bytes))); done
    equal "$kinds" "$planned" "the kinds of $name"
    run train "$preset" "$@" out="$dir/$name"
    code_is 0
    equal "$(sed -n 's/.*"reserved_bytes":\([0-9]*\).*/\1/p' "$dir/$name/metrics.jsonl" | sort -u)" "$planned" "bytes of $name: run and planned"
}

for case in dtype=float32 dtype=bfloat16 dtype=float16 recompute=on grad_clip=0 optimizer=sgd,momentum=0.9 ema=true freeze=transformer.h.0.* \
    weights_dtype=bfloat16,moments_dtype=bfloat16,dtype=bfloat16 exact=true vocab_size=211; do
    list=$(echo $case | tr ',' ' ')
    # shellcheck disable=SC2086  # lists of settings
    bills one macbook $settings $list threads=1
    alone=$gradients
    for micros in 2 3; do
        # shellcheck disable=SC2086
        bills some macbook $settings $list threads=1 gradient_accumulation_steps=$micros
        # those of the gains lie in a block of their own, which an update of one micro-batch may not hold when it holds most
        [ "$gradients" -le $((alone + alone / 50)) ] || fault "$gradients bytes of gradients, $case, $micros micro-batches; $alone with one"
        rm -rf "$dir/some"
    done
    rm -rf "$dir/one"
done
ok "GPT: as many bytes of gradients with several micro-batches as with one, and the run holds what was planned"

for preset in sudoku_4x4 issues; do
    size=batch_size=4
    [ $preset != sudoku_4x4 ] || size="batch_size=4 arch.hidden_size=32 arch.L_layers=1"
    # shellcheck disable=SC2086
    bills $preset $preset $size device=cpu threads=1 gradient_accumulation_steps=3 max_iters=3 log_interval=1 eval_interval=100 --quiet
done
ok "puzzles and texts: the run holds what was planned"

# shellcheck disable=SC2086
for how in threads=1 threads=2 compile=false recompute=on; do
    run train macbook $settings gradient_accumulation_steps=3 out="$dir/$how" $how
    code_is 0
    equal "$(state_hash "$dir/$how")" "$(state_hash "$dir/threads=1")" "the state with $how"
done
ok "the sums have the same bits with any number of threads, interpreted, and recomputed"

if ! metal_standin; then
    skip "a GPU" "no C++ compiler: kernels cannot run on the stand-in"
    done_testing
    exit
fi
small="$tiny n_layer=1 n_head=1 block_size=8 batch_size=2 seed=5 exact=true gradient_accumulation_steps=3 max_iters=2 eval_interval=100"
for device in cpu metal; do
    # shellcheck disable=SC2086
    run train macbook $small device=$device out="$dir/on-$device" --quiet
    code_is 0
done
equal "$(state_hash "$dir/on-metal")" "$(state_hash "$dir/on-cpu")" "the state in exact mode on Metal's stand-in"
ok "the sums have the same bits on a GPU"
done_testing
