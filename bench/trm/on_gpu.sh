#!/bin/sh
# on_gpu.sh: TinyRecursiveModels' training step on a machine with an NVIDIA GPU: time and memory of both variants, and learning curves on
# Sudokus with many augmentations. Nothing is compiled there but kernels.
#
#     sh bench/trm/on_gpu.sh BUILD LOGS            step times and planned bytes of mixer and attention, B768 and 3 x 256; the 15
#                                                  launches that take most of a step of each, by name, with the share of the roof;
#                                                  then the table of operations against the oracle: about three minutes
#     DATA=FOLDER sh bench/trm/on_gpu.sh BUILD LOGS  also trains sudoku_mlp on that data set: UPDATES=3000 updates, and evaluates
#                                                  all test boards at 16 and at 128 steps
#     PEER=trm_torch.py                            also times that PyTorch program: --variant mlp|att --batch 768 --dtype bfloat16
#
# DATA is made by `anneal prepare sudoku`: 1,000 puzzles of 17 clues and of hard ones, 1,000 variants each, 2,000 others for testing.
set -u
build=${1:?the build folder} logs=${2:?a folder for logs}
anneal=$build/anneal updates=${UPDATES:-3000} seconds=${SECONDS_A_PART:-540}
mkdir -p "$logs" || exit 1
sizes="vocab_size=11 arch.seq_len=81 num_puzzle_identifiers=1"

for preset in sudoku_mlp sudoku_att; do
    for parts in "batch_size=768" "batch_size=256 gradient_accumulation_steps=3"; do
        name=$preset-$(echo "$parts" | tr -c '0-9\n' '_')
        # shellcheck disable=SC2086  # settings are words
        "$anneal" plan $preset $sizes $parts device=null:cuda --json >"$logs/$name.plan.json" 2>&1
        # shellcheck disable=SC2086
        "$anneal" bench $preset $sizes $parts device=cuda steps=20 warmup=3 --json >"$logs/$name.bench.json" 2>"$logs/$name.log"
        echo "$name: $(cat "$logs/$name.bench.json")"
    done
done
# Sums of a profile by launch and its operations (products of one layer share a name): milliseconds, times, mean share of the roof weighted by time.
for preset in sudoku_mlp sudoku_att; do
    # shellcheck disable=SC2086
    "$anneal" profile $preset $sizes batch_size=768 device=cuda >"$logs/$preset.profile.txt" 2>"$logs/$preset.profile.log"
    echo "$preset: ms, times, roof %, launch"
    awk '$1 + 0 > 0 && $6 ~ /%$/ { k = $7 ", " $3 " GFLOP"; ms[k] += $1 / 1000; n[k]++; roof[k] += $1 / 1000 * $6 }
        END { for (k in ms) printf "%8.2f %4d %4.0f  %s\n", ms[k], n[k], roof[k] / ms[k], k }' "$logs/$preset.profile.txt" |
        sort -rn | head -n 15
done
if [ -n "${PEER:-}" ]; then
    for variant in mlp att; do
        python3 "$PEER" --variant $variant --device cuda --dtype bfloat16 --compile 1 --batch 768 --steps 20 | tee "$logs/peer-$variant.json"
    done
fi
[ -x "$build/tests/ops/test_ops" ] && sh "$(dirname "$0")/../../tests/cuda/on_gpu.sh" "$build" "$logs/checks" table
if [ -n "${DATA:-}" ]; then
    run=$logs/sudoku_mlp
    settings="device=cuda data=$DATA epochs=0 lr_decay_iters=$updates warmup_iters=1999 eval_iters=1 eval_interval=500 log_interval=10"
    if [ -e "$run/last.safetensors" ]; then
        # shellcheck disable=SC2086
        timeout -s INT "$seconds" "$anneal" resume "$run" max_iters="$updates" >"$logs/resume.log" 2>&1
    else
        # shellcheck disable=SC2086
        timeout -s INT "$seconds" "$anneal" train sudoku_mlp $settings max_iters="$updates" out="$run" >"$logs/train.log" 2>&1
    fi
    "$anneal" eval "$run" device=cuda dtype=bfloat16 --json | tee "$logs/eval.json"
    "$anneal" eval "$run" device=cuda dtype=bfloat16 steps=128 --json | tee "$logs/eval128.json"
fi
