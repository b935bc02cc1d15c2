#!/bin/sh
# build.sh DIR [PROCESSOR]: DIR/libmetal_standin.so from the sources beside this file; nothing is done when it is newer than all of
# them. PROCESSOR, aarch64 or x86_64, may be another than this machine's: for programs that run under qemu.
# Environment: CC, and what compiles kernels at run time: STANDIN_CC, STANDIN_CXX. Several programs may ask at once: the finished
# library is renamed into place.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1/libmetal_standin.so
processor=${2:-$(uname -m)}
mkdir -p "$1"
if [ -f "$out" ] && [ -z "$(find "$here" -maxdepth 1 \( -name '*.[ch]' -o -name '*.def' -o -name build.sh \) -newer "$out")" ]; then
    exit 0
fi
cc=${CC:-cc} kernel_cc=${STANDIN_CC:-cc} kernel_cxx=${STANDIN_CXX:-c++}
if [ "$processor" != "$(uname -m)" ]; then
    cc=$processor-linux-gnu-gcc kernel_cc=$cc kernel_cxx="clang++ --target=$processor-linux-gnu"
fi
# shellcheck disable=SC2086  # words
$cc -std=c17 -O2 -g -Wall -Wextra -Wpedantic -Werror -fPIC -fvisibility=hidden -fno-omit-frame-pointer -shared \
    ${STANDIN_CFLAGS:-} -DSTANDIN_DIR="\"$here\"" -DSTANDIN_CC="\"$kernel_cc\"" -DSTANDIN_CXX="\"$kernel_cxx\"" -I"$here" \
    -o "$out.$$" "$here"/*.c -ldl -lpthread -lm
mv "$out.$$" "$out"
