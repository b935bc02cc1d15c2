#!/bin/sh
# exact_bits.sh: builds exact_bits.c with every compiler, level and instruction set at hand and runs a GPU's text of exact.h with and
# without flushing of subnormal numbers, a CPU's text with it. Every run must give the pinned hashes. Exits with 1 when one does not; what is not at hand is named.
#     tests/unknowns/exact_bits.sh [BUILD-FOLDER]
cd "$(dirname "$0")/../.." || exit 2
out=${1:-build/exact_bits}
mkdir -p "$out"
failed=0
loops='-fno-math-errno -fno-trapping-math'

try() { # NAME RUNNER COMPILER FLAGS...
    name=$1 runner=$2
    shift 2
    bin=$out/$(printf %s "$name" | tr -c 'a-zA-Z0-9\n' _)
    for keeps in 0 1; do
        if ! "$@" -std=c17 -Isrc -DAN_KEEPS_SUBNORMALS=$keeps -o "$bin" tests/unknowns/exact_bits.c -lm 2>"$bin.log"; then
            echo "FAILED  $name: does not build: $bin.log"
            failed=1
            return
        fi
        for mode in keep flush; do
            [ "$keeps$mode" != 1keep ] || continue
            if $runner "$bin" $mode >"$bin.$keeps.$mode.txt" 2>&1; then
                echo "equal   $name, $mode, text $keeps"
            else
                echo "DIFFERS $name, $mode, text $keeps: $bin.$keeps.$mode.txt"
                failed=1
            fi
        done
    done
}

runs_here() { grep -qw "$1" /proc/cpuinfo 2>/dev/null; }

for cc in gcc clang; do
    command -v $cc >/dev/null || { echo "absent  $cc"; continue; }
    for level in -O0 -O2 -O3; do try "$cc $level" "" $cc $level; done
    try "$cc -O3 contracted" "" $cc -O3 -march=native -ffp-contract=fast $loops
    [ "$(uname -m)" = x86_64 ] || continue
    if runs_here fma; then try "$cc -O3 AVX2" "" $cc -O3 -mavx2 -mfma $loops; else echo "absent  AVX2"; fi
    if runs_here avx512f; then
        try "$cc -O3 AVX-512" "" $cc -O3 -march=native -mprefer-vector-width=512 $loops
    else
        echo "absent  AVX-512"
    fi
    try "$cc -O3 scalar" "" $cc -O3 -fno-tree-vectorize -march=native
done

arm=aarch64-linux-gnu-gcc
if [ "$(uname -m)" = aarch64 ]; then
    echo "present arm64: this machine"
elif command -v $arm >/dev/null && command -v qemu-aarch64-static >/dev/null; then
    for level in -O0 -O2 -O3; do try "arm64 $level" "qemu-aarch64-static -L /usr/aarch64-linux-gnu" $arm $level $loops; done
else
    echo "absent  arm64: $arm or qemu-aarch64-static"
fi
if command -v nvcc >/dev/null; then
    for flags in "" "-ftz=true -prec-div=false -prec-sqrt=false -fmad=true" "-fmad=false"; do
        # shellcheck disable=SC2086  # several options
        nvcc -arch=sm_90 $flags -I src -o "$out/cuda" tests/unknowns/exact_bits.cu || { echo "FAILED  cuda $flags: does not build"; failed=1; continue; }
        "$out/cuda" >"$out/cuda.txt" 2>&1
        case $? in
        0) echo "equal   cuda $flags" ;;
        2) echo "absent  cuda $flags: built, not run: $(tail -1 "$out/cuda.txt")" ;;
        *) echo "DIFFERS cuda $flags: $out/cuda.txt"; failed=1 ;;
        esac
    done
else
    echo "absent  cuda: nvcc"
fi
exit $failed
