#!/bin/sh
# test_host_mutants.sh: is tests/metal/test_host enough to find a mistake in the host's part of the Metal backend? Each line of mutants.list
# is one; the program is linked with the mistaken file in front of the library and must fail. An ordinary run takes every 35th,
# AN_SOAK=1 all, AN_MUTANT=n one; AN_MUTANTS=FILE is a list of one's own. A line that fits nowhere any more is named, and fails
# where all are asked for.
build=${AN_BUILD:-build}
list=${AN_MUTANTS:-tests/metal/mutants.list}
turn=35
echo 1..1
object=$build/tests/metal/test_host.o
if [ -n "${WRAP:-}" ] || ! command -v "${CXX:-c++}" >/dev/null || [ ! -f "$object" ] || [ "$(uname)" != Linux ]; then
    echo "ok 1 - # SKIP mutants want Linux, a C++ compiler, no wrapper and $object"
    exit 0
fi
out=$(mktemp -d "${TMPDIR:-/tmp}/anneal-mutants.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT
flags=$(grep -o -E -- '-(std=|I|D|fsanitize|fno-sanitize|pthread)[^ ]*' "$build/flags" | tr '\n' ' ')
wrap=$(for f in malloc calloc realloc aligned_alloc posix_memalign; do printf -- '-Wl,--wrap=%s ' "$f"; done)
libraries=$(pkg-config --libs jansson libxxhash nettle libpcre2-8 yaml-0.1 cmocka)
cc=${CC:-cc}

# The first place of $2 in file $1 becomes $3; fails where there is none.
plant() {
    FROM=$2 TO=$3 awk 'function lines(s) { gsub(/\\n/, "\n", s); return s }
        BEGIN { from = lines(ENVIRON["FROM"]); to = lines(ENVIRON["TO"]) }
        { text = text $0 "\n" }
        END { at = index(text, from); if (!at) exit 1
              printf "%s%s%s", substr(text, 1, at - 1), to, substr(text, at + length(from)) }' "$1"
}
# Builds and runs; 0: the program found something.
found() { # file
    # shellcheck disable=SC2086  # lists of words
    $cc $flags -O0 -w -I"$(dirname "$1")" -c -o "$out/mutant.o" "$out/mutant.c" 2>"$out/log" &&
        $cc $flags $wrap -o "$out/test_host" "$out/mutant.o" "$object" "$build"/tests/lib/*.o "$build/libcli.a" "$build/libanneal.a" \
            $libraries -lm -ldl -lpthread 2>"$out/log" || return 2
    while :; do
        { CMOCKA_MESSAGE_OUTPUT=STDOUT timeout "$most" stdbuf -oL "$out/test_host" 2>&1 </dev/null; echo $? >"$out/status"; } |
            awk '{ print } /  FAILED  /{ exit }' >"$out/said"
        is_slow || break
    done
    ! grep -q '  PASSED  ' "$out/said" || grep -q '  FAILED  ' "$out/said"
}
# A program that hangs is found too, one that is only slow is not: after the limit the program without a mistake is run again. Where it
# reaches the limit too the machine has become slower: the limit grows, and the mistake is tried again.
is_slow() {
    grew=false
    if [ "$(cat "$out/status")" = 124 ] && [ -x "$out/sound" ] && ! grep -q "  FAILED  " "$out/said"; then
        until timeout "$most" "$out/sound" >/dev/null 2>&1 </dev/null; do
            [ $? -eq 124 ] || break
            most=$((4 * most)) grew=true
        done
    fi
    $grew
}

: >"$out/mutant.c"
cp src/device/metal/objc.c "$out/mutant.c"
most=0 # no limit but the runner's: a busy machine takes minutes
began=$(date +%s)
if found src/device/metal/objc.c; then # the program as it is must pass, or nothing is shown
    echo "not ok 1 - every mistake planted in the host's part is found"
    sed 's/^/# without a mistake: /' "$out/log" "$out/said" | tail -n 20
    exit 1
fi
most=$((6 * ($(date +%s) - began) + 30))
mv "$out/test_host" "$out/sound"
number=0 tried=0 missed=0
tab=$(printf '\t')
grep -v '^#' "$list" >"$out/list"
while IFS=$tab read -r file from to; do
    number=$((number + 1))
    if [ -n "${AN_MUTANT:-}" ]; then
        [ "$AN_MUTANT" -eq "$number" ] || continue
    elif [ -z "${AN_SOAK:-}" ] && [ $((number % turn)) -ne 0 ]; then
        continue
    fi
    tried=$((tried + 1))
    if ! plant "$file" "$from" "$to" >"$out/mutant.c"; then
        echo "# mutant $number, $file: $from: does not fit any more: mend the list"
        [ -z "${AN_SOAK:-}${AN_MUTANT:-}" ] || missed=$((missed + 1))
        continue
    else
        found "$file"
        case $? in
        0) [ -z "${AN_MUTANT:-}" ] || sed 's/^/# /' "$out/said"; continue ;;
        1) why="was not found" ;;
        *) why="is no program: $(head -n 1 "$out/log")" ;;
        esac
    fi
    missed=$((missed + 1))
    echo "# mutant $number, $file: $from: $why"
done <"$out/list"
[ "$missed" -eq 0 ] || printf 'not '
echo "ok 1 - every mistake planted in the host's part is found"
echo "# $tried mistakes, $missed missed"
[ "$missed" -eq 0 ]
