#!/bin/sh
# run.sh: builds and runs the checks of the GPU kernels on a machine with an NVIDIA driver, NVRTC and a C compiler; in the root of the
# source tree. Each check compares a template with double precision, and with itself on other grids bit for bit, then times it.
set -e
out=${TMPDIR:-/tmp}
flags="-std=c17 -O2 -ffp-contract=off -D_GNU_SOURCE -DAN_ISA=portable -Isrc -Iinclude -Itests"
failed=0
check() { # NAME SOURCES...
    name=$1
    shift
    # shellcheck disable=SC2086  # flags is a list of words
    ${CC:-cc} $flags -o "$out/$name" "tests/gpu/$name.c" "$@" src/base/*.c src/platform/*.c -ldl -lm -lpthread
    "$out/$name" || failed=1
}
check attn_check src/kernels/cpu/attn.c
check gemm_check
check attn_hopper_check
check gemm_hopper_check -U_GNU_SOURCE src/device/cuda/driver.c
check gemm_plain_check -U_GNU_SOURCE src/device/cuda/driver.c
check gemm_tf32_check
exit $failed
