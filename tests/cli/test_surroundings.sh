#!/bin/sh
# test_surroundings.sh: what surrounds a run: a batch system's warnings, a small stack, folders of a user that are not there.
plan=3
. "$(dirname "$0")/tap.sh"

# ---- Slurm's --signal, -notify of others, and the soft limit of processor time, whose signal comes every second
settings="$tiny max_iters=60 eval_interval=30 save_interval=1000 log_interval=1 seed=5"
# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings
code_is 0
for signal in USR1 USR2 XCPU; do
    # shellcheck disable=SC2086
    ${WRAP:-} "$program" train macbook out="$dir/$signal" $settings max_iters=1000000000 >"$dir/stdout" 2>"$dir/stderr" </dev/null &
    pid=$! tries=0
    until [ "$(cat "$dir/$signal/metrics.jsonl" 2>/dev/null | wc -l)" -ge 3 ] || [ $tries -ge 1200 ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -s $signal $pid
    kill -s $signal $pid 2>/dev/null
    wait $pid
    code=$?
    code_is 130
    says stderr "resume"
    [ -n "$(state_hash "$dir/$signal")" ] || fault "no checkpoint after SIG$signal"
done
ok "a batch system's warning saves and ends a run, also when it comes twice"

# ---- a stack of 64 KiB, which the program may raise, and may not
(ulimit -S -s 64 && exec ${WRAP:-} "$program" plan demo >"$dir/stdout" 2>"$dir/stderr" </dev/null)
code=$?
code_is 0
(ulimit -s 128 && exec ${WRAP:-} "$program" plan demo >"$dir/stdout" 2>"$dir/stderr" </dev/null)
code=$?
code_is 2
says stderr "raise ulimit -s"
one_line stderr
ok "a small stack is raised, or refused with a sentence"

# ---- no folder of the user's (no compiler, which may have a cache of its own): no cache in the current folder, no list of runs, and a run all the same
mkdir "$dir/here"
# shellcheck disable=SC2086
(cd "$dir/here" && HOME=relative XDG_CACHE_HOME=relative XDG_STATE_HOME=relative && export HOME XDG_CACHE_HOME XDG_STATE_HOME && unset ANNEAL_CACHE &&
    exec ${WRAP:-} "$program" train macbook out=run $tiny max_iters=2 cc=none >"$dir/stdout" 2>"$dir/stderr" </dev/null)
code=$?
code_is 0
equal "$(ls "$dir/here")" run "what is in the folder"
ok "a relative HOME makes no folders where the program is called"

done_testing
