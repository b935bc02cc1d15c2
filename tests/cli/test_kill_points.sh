#!/bin/sh
# test_kill_points.sh: kill -9 before each call that changes a folder, one after the other, where test_kill_writers.sh takes random moments.
# What is left is the old state or the new one, the command can be given again, and the next one removes what is temporary. Every
# seventh point in an ordinary run, all under AN_SOAK=1.
plan=3
. "$(dirname "$0")/tap.sh"
turn=$([ -n "${AN_SOAK:-}" ] && echo 1 || echo 7)
export XDG_STATE_HOME="$dir/state" TMPDIR="$dir/tmp" ANNEAL_CACHE="$dir/cache"
mkdir "$dir/tmp" "$dir/base"
collected="collect, killed at every point, leaves a run that resumes as it was or as it became; given again, it is done"
decided="decide, killed at every point, leaves nothing that the next one does not remove"
trained="train, killed at every point before its first update, leaves nothing temporary in the kernel cache or its store"
if [ -n "${WRAP:-}" ] || [ "$(uname)" != Linux ] || grep -q fsanitize "${AN_BUILD:-build}/flags" ||
    ! ${CC:-cc} -shared -fPIC -o "$dir/kill_at.so" tests/cli/kill_at.c -ldl 2>/dev/null; then
    for name in "$collected" "$decided" "$trained"; do skip "$name" "it preloads a library: that wants Linux, a C compiler, no wrapper, no sanitizer"; done
    done_testing
    exit
fi

# killed N COMMAND...: runs it; false when it came to its end before its Nth call.
killed() {
    at=$1
    shift
    (LD_PRELOAD="$dir/kill_at.so" KILL_AT=$at exec "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null) 2>/dev/null
    [ $? -eq 137 ]
}
# Temporary things are another's that lives until they are a minute old.
age() { find "$dir/cache" "$dir/tmp" "$dir/base" "$dir/kept" -name '.*' -exec touch -t 202001010000 {} + 2>/dev/null; }
clean() {
    left=$(find "$@" \( -name '.anneal-*' -o -name '*.tmp' -o -name '.speed*' \) 2>/dev/null | head -n 2)
    [ -z "$left" ] || fault "killed at $n: $left is left"
}
each_point() {
    n=$((1 + $(date +%s) % turn)) reached=0
    while point "$n"; do n=$((n + turn)) reached=$((reached + 1)); done
    [ "$reached" -gt 0 ] || fault "no point was reached"
}

# shellcheck disable=SC2086  # $tiny is a list of settings
set -- $tiny eval_interval=20 log_interval=1 threads=1
cat docs/guide.md >"$dir/text.txt"
run train demo "$@" data="$dir/text.txt" max_iters=20 out="$dir/home" --quiet
code_is 0
run pack "$dir/home" out="$dir/run.anneal"
run handoff "$dir/run.anneal" out="$dir/there" smoke=0
run resume "$dir/there" data="$dir/there/data/text.txt" max_iters=40 --quiet
code_is 0
run pack "$dir/there" out="$dir/back.anneal"
code_is 0
old=$(state_hash "$dir/home") new=$(state_hash "$dir/there")
point() {
    rm -rf "$dir/kept"
    cp -r "$dir/home" "$dir/kept"
    killed "$1" collect "$dir/back.anneal" "$dir/kept" || return 1
    state=$(state_hash "$dir/kept/last.safetensors")
    case $state in "$old" | "$new") ;; *) fault "killed at $n: last.safetensors is neither the old state nor the new one" ;; esac
    cp -r "$dir/kept" "$dir/resumed"
    run resume "$dir/resumed" data="$dir/text.txt" max_iters=41 --quiet
    code_is 0
    rm -rf "$dir/resumed"
    age
    run collect "$dir/back.anneal" "$dir/kept"
    [ "$state" = "$new" ] || code_is 0
    equal "$(state_hash "$dir/kept")" "$new" "killed at $n: the state after collect was given again"
    kept=no
    for place in "$dir"/kept/previous*; do [ "$(state_hash "$place/last.safetensors")" != "$old" ] || kept=yes; done
    equal $kept yes "killed at $n: the older state is kept"
    clean "$dir/kept"
}
each_point
ok "$collected"

point() {
    killed "$1" decide "$dir/run.anneal" "$dir/there" || return 1
    age
    "$program" decide "$dir/run.anneal" "$dir/there" >/dev/null 2>&1 </dev/null
    clean "$dir/tmp"
}
each_point
ok "$decided"

point() {
    rm -rf "$dir/kept"
    [ "$1" -le 40 ] || return 1 # what comes behind is test_kill_writers.sh's
    # shellcheck disable=SC2086
    killed "$1" train demo $tiny max_iters=1 out="$dir/kept" store="$dir/base" --quiet || return 1
    age
    # shellcheck disable=SC2086
    run train demo $tiny max_iters=1 out="$dir/kept" store="$dir/base" --quiet
    code_is 0
    clean "$dir/cache" "$dir/kept" "$dir/base"
}
each_point
ok "$trained"
done_testing
