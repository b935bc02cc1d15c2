#!/bin/sh
# build.sh DIR: DIR/libmetal_standin.so from the sources beside this file; nothing is done when it is newer than all of them.
# Environment: CC (cc). Several programs may ask at once: the finished library is renamed into place.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1/libmetal_standin.so
mkdir -p "$1"
if [ -f "$out" ] && [ -z "$(find "$here" -maxdepth 1 -name '*.[chs]' -newer "$out" -o -maxdepth 1 -name '*.def' -newer "$out")" ]; then
    exit 0
fi
# shellcheck disable=SC2086  # flags are a list of words
${CC:-cc} -std=c17 -O1 -g -Wall -Wextra -Wpedantic -Werror -fPIC -fvisibility=hidden -fno-omit-frame-pointer -shared \
    ${STANDIN_CFLAGS:-} -DSTANDIN_DIR="\"$here\"" -I"$here" -o "$out.$$" "$here"/*.c -ldl -lpthread -lm
mv "$out.$$" "$out"
