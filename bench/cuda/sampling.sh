#!/bin/sh
# sampling.sh: what a drawn token takes on an NVIDIA GPU, about a minute a program:
#     sh bench/cuda/sampling.sh NEW [OLD]      folders of builds; OLD, to compare with, is run in turn with NEW, three times
# ANNEAL_CUDA_DECODE=0, ANNEAL_CUDA_FOLLOW=0 and ANNEAL_CUDA_ROWS=0 in the environment leave out what man anneal says of them.
# For `char` and `gpt2` in bfloat16: tokens a second, times of a token, the first one cold and warm. With NEW also: greedy text of a
# float32 and of an exact run on the CPU and on the GPU, which are the same text where rounding does not decide; and the draws of
# one seed twice, which must be equal. Exit code 1: they are not.
new=${1:?the folder of a build} old=$2 failed=0
for round in 1 2 3; do
    for build in $old "$new"; do
        for preset in char gpt2; do
            printf '%s round %s ' "$build" "$round"
            "$build/anneal" bench sample "$preset" device=cuda dtype=bfloat16 tokens=200 --json || failed=1
        done
    done
    [ -n "$old" ] || break
done
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
"$new/anneal" train demo device=cuda max_iters=200 eval_interval=200 out="$dir/run" --quiet || exit 1
for device in cpu cuda; do
    "$new/anneal" sample "$dir/run" device=$device dtype=float32 tokens=300 temperature=0 >"$dir/$device" || failed=1
done
cmp -s "$dir/cpu" "$dir/cuda" && echo "greedy text: the CPU's" || echo "greedy text: not the CPU's"
for i in 1 2; do
    "$new/anneal" sample "$dir/run" device=cuda tokens=300 seed=7 top_p=0.9 >"$dir/again$i" || failed=1
done
if cmp -s "$dir/again1" "$dir/again2"; then echo "ok   one seed, one text"; else echo "FAIL one seed, two texts" && failed=1; fi
exit $failed
