#!/bin/sh
# test_install: `make install` into a staging folder, then a user's program compiled with nothing but pkg-config, against the shared
# and against the static library, and run. Prints TAP. Environment: AN_BUILD, CC.
set -u
build=${AN_BUILD:-build}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
PKG_CONFIG_PATH=$stage/lib/pkgconfig
export PKG_CONFIG_PATH
n=0 bad=0
log=$stage/log

# A step's output is shown when it fails.
it() {
    name=$1
    shift
    n=$((n + 1))
    if "$@" >"$log" 2>&1; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        tail -n 15 "$log" | sed 's/^/# /'
        bad=$((bad + 1))
    fi
}

compile() { # OUTPUT pkg-config-options...
    out=$1
    shift
    # shellcheck disable=SC2046  # flags are words
    ${CC:-cc} -std=c17 -Wall -Wextra -Wpedantic -Werror tests/install/train.c -o "$out" $(pkg-config --cflags --libs "$@" anneal)
}

only_static() {
    mkdir "$stage/static" && mv "$stage"/lib/libanneal.so* "$stage"/lib/libanneal*.dylib "$stage/static" 2>/dev/null
    [ -f "$stage/lib/libanneal.a" ] && compile "$stage/train_static" --static
}

# What the shared library exports is what the public headers declare, no more and no less.
exports_match() {
    lib=$(find "$stage/lib" -name 'libanneal.so.*' -o -name 'libanneal.*.dylib' | head -n 1)
    { case $lib in *.dylib) nm -gU "$lib" ;; *) nm -D --defined-only "$lib" ;; esac } |
        awk '{ print $3 }' | sed 's/^_an_/an_/' | sort -u >"$stage/exported"
    for header in "$stage"/include/*.h; do printf '#include <%s>\n' "${header##*/}"; done |
        ${CC:-cc} -std=c17 -I"$stage/include" -E -P - | tr '\n' ' ' | tr ';' '\n' |
        sed -n 's/.*__attribute__((visibility("default"))) \([^(]*\)(.*/\1/p' | grep -oE 'an_[a-z0-9_]+$' | sort -u >"$stage/declared"
    comm -3 "$stage/declared" "$stage/exported" | sed 's/^\t/exported, not declared: /; t; s/^/declared, not exported: /' | tee "$stage/difference"
    [ -s "$stage/declared" ] && [ ! -s "$stage/difference" ]
}

echo 1..6
it "make install fills a staging folder" make --no-print-directory BUILD="$build" PREFIX="$stage" DESTDIR= install
[ "$bad" -eq 0 ] || exit 1 # nothing to try
it "the shared library exports what the public headers declare" exports_match
it "a program compiles against the shared library with pkg-config alone" compile "$stage/train"
it "the program trains with the shared library" env LD_LIBRARY_PATH="$stage/lib" DYLD_LIBRARY_PATH="$stage/lib" "$stage/train"
it "a program compiles against the static library with pkg-config --static" only_static
it "the program trains with the static library" "$stage/train_static"
[ "$bad" -eq 0 ]
