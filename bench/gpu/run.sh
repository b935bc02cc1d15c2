#!/bin/sh
# run.sh: builds and runs attn_check, gemm_check, hopper_check, product_check and tf32_check; in the root of the source tree, on a machine with an NVIDIA driver and NVRTC.
set -e
out=${TMPDIR:-/tmp}
flags="-std=c17 -O2 -ffp-contract=off -D_GNU_SOURCE -DAN_ISA=portable -Isrc -Iinclude -Itests"
# shellcheck disable=SC2086  # flags is a list of words
${CC:-cc} $flags -o "$out/attn_check" bench/gpu/attn_check.c src/kernels/cpu/attn.c src/base/*.c -ldl -lm -lpthread
# shellcheck disable=SC2086
${CC:-cc} $flags -o "$out/gemm_check" bench/gpu/gemm_check.c src/base/*.c -ldl -lm -lpthread
# shellcheck disable=SC2086
${CC:-cc} $flags -o "$out/hopper_check" bench/gpu/hopper_check.c src/base/*.c -ldl -lm -lpthread
# shellcheck disable=SC2086
${CC:-cc} $flags -U_GNU_SOURCE -o "$out/product_check" bench/gpu/product_check.c src/device/cuda/driver.c src/base/*.c -ldl -lm -lpthread
# shellcheck disable=SC2086
${CC:-cc} $flags -o "$out/tf32_check" bench/gpu/tf32_check.c src/base/*.c -ldl -lm -lpthread
failed=0
"$out/attn_check" || failed=1
"$out/gemm_check" || failed=1
"$out/hopper_check" || failed=1
"$out/product_check" || failed=1
"$out/tf32_check" || failed=1
exit $failed
