#!/bin/sh
# test_imported.sh: models of PyTorch (a CNN, a transformer with grouped heads, an LSTM: tests/import/train/three) train on the Metal
# stand-in: with exact=true with the bits of the CPU, without it to the CPU's loss, and no operation falls back.
if ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP no C++ compiler: kernels cannot run on the stand-in\n'
    exit 0
fi
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
plan=3
. "$(dirname "$0")/../cli/tap.sh"
build=$(cd "$build" && pwd)
export ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_STANDIN="gpu=apple8,kernels=fast,end=check,cache=$build/standin-cache"
models=tests/import/train/three
cp -R $models "$dir/three"

train() { # train NAME DEVICE EXACT
    # shellcheck disable=SC2086  # WRAP is a command with arguments
    ${WRAP:-} "$program" train "$dir/three/$1.pt2" data="$dir/three/$1" loss=cross_entropy batch_size=8 max_iters=3 warmup_iters=0 eval_interval=3 \
        eval_iters=2 log_interval=1 seed=1 exact="$3" device="$2" out="$dir/$1.$2.$3" --quiet </dev/null >/dev/null 2>"$dir/$1.$2.$3.stderr" ||
        head -c 300 "$dir/$1.$2.$3.stderr"
}
for name in cnn transformer lstm; do # all at once: nearly all of their time is that of the compiler of the stand-in's kernels
    for exact in true false; do
        { train $name cpu $exact; train $name metal $exact; } >"$dir/$name.$exact.words" &
    done
done
wait
loss() {
    sed -n 's/.*"loss":\([^,]*\).*/\1/p' "$dir/$1/metrics.jsonl" | tail -n 1
}
for name in cnn transformer lstm; do
    [ ! -s "$dir/$name.true.words" ] && [ ! -s "$dir/$name.false.words" ] || fault "$(cat "$dir/$name.true.words" "$dir/$name.false.words")"
    equal "$(state_hash "$dir/$name.metal.true")" "$(state_hash "$dir/$name.cpu.true")" "state hash on the stand-in"
    awk -v a="$(loss $name.metal.false)" -v b="$(loss $name.cpu.false)" 'BEGIN { exit !(a > 0 && (a - b) * (a - b) < 1e-10) }' ||
        fault "loss $(loss $name.metal.false) on the stand-in, $(loss $name.cpu.false) on the CPU"
    grep -q '"event":"plan".*"fallbacks":0' "$dir/$name.metal.false/logbook.jsonl" || fault "fallbacks: $(grep '"event":"plan"' "$dir/$name.metal.false/logbook.jsonl")"
    ok "$name of PyTorch: the CPU's bits with exact=true, its loss without, and no fallback"
done
done_testing
