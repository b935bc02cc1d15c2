#!/bin/sh
# test_kill_resume.sh: kill -9 at random moments, resume, until done: the same bits as a run that was never killed. A few
# moments as a test, a hundred under AN_SOAK=1.
plan=3
. "$(dirname "$0")/tap.sh"
kills=${AN_KILLS:-$([ -n "${AN_SOAK:-}" ] && echo 100 || echo 4)}
settings="$tiny max_iters=40 eval_interval=10 save_interval=5 log_interval=1 seed=11 --quiet"

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings
code_is 0
whole=$(state_hash "$dir/whole")
[ -n "$whole" ] || fault "the undisturbed run has no state hash"

# A number below $1 from the seconds, the process and the round: the moments differ from day to day.
random() { awk -v seed="$(date +%s)$$$2" -v n="$1" 'BEGIN { srand(seed % 2147483647); print rand() * n }'; }

# How long an undisturbed run takes decides when to kill; a resumed run is killed as well until the kills are spent.
began=$(date +%s%N)
# shellcheck disable=SC2086
run train macbook out="$dir/timed" $settings
lasts=$(awk -v ns=$(($(date +%s%N) - began)) 'BEGIN { print ns / 1e9 }')
killed=0 rounds=0
while [ "$killed" -lt "$kills" ] && [ "$rounds" -lt $((4 * kills)) ]; do
    rm -rf "$dir/k"
    rounds=$((rounds + 1)) begun=
    while :; do
        if [ -n "$begun" ] && [ -f "$dir/k/last.safetensors" ]; then
            ${WRAP:-} "$program" resume "$dir/k" --quiet >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        else
            # shellcheck disable=SC2086
            ${WRAP:-} "$program" train macbook out="$dir/k" $settings >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        fi
        pid=$! begun=1
        [ "$killed" -ge "$kills" ] || { sleep "$(random "$lasts" "$killed.$rounds")"; kill -9 "$pid" 2>/dev/null; }
        wait "$pid" 2>/dev/null
        code=$?
        [ "$code" -eq 137 ] || break
        killed=$((killed + 1))
    done
    code_is 0
    equal "$(state_hash "$dir/k")" "$whole" "state hash after $killed kills"
    equal "$(state_hash "$dir/k/best.safetensors")" "$(state_hash "$dir/whole/best.safetensors")" "the best checkpoint after $killed kills"
    equal "$(sed 's/"ms".*//' "$dir/k/metrics.jsonl" | cksum)" "$(sed 's/"ms".*//' "$dir/whole/metrics.jsonl" | cksum)" "metrics"
    if ls "$dir/k"/.*.tmp >/dev/null 2>&1; then fault "a temporary file is left: $(ls -a "$dir/k")"; fi
done
[ "$killed" -ge "$kills" ] || fault "only $killed of $kills kills hit a running program"
ok "killed $killed times at random moments and resumed, a run ends in the same bits"

# shellcheck disable=SC2086
"$program" train macbook out="$dir/term" $settings max_iters=100000 >"$dir/stdout" 2>"$dir/stderr" </dev/null &
pid=$!
tries=0
until [ -s "$dir/term/metrics.jsonl" ] || [ $tries -ge 200 ]; do sleep 0.05; tries=$((tries + 1)); done
mv "$dir/stderr" "$dir/stderr.first"
# shellcheck disable=SC2086
run train macbook out="$dir/term" $settings
code_is 2; says stderr "another process trains here"
run resume "$dir/term" --quiet
code_is 2; says stderr "another process trains here"
touch "$dir/whole/.loss.svg.0123456789abcdef.tmp" # as a run killed while it drew its last curve leaves it
run resume "$dir/whole"
code_is 0; says stderr "nothing to do"
if [ -e "$dir/whole/.loss.svg.0123456789abcdef.tmp" ]; then fault "a finished run's folder keeps what a killed writer left"; fi
ok "a folder in which a run is going on takes no second one"

kill -TERM "$pid"
wait "$pid"
code=$?
code_is 130
lines=$(wc -l <"$dir/term/metrics.jsonl" | tr -d ' ')
step=$("$program" inspect "$dir/term" --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
equal "$step" "$lines" "updates in last.safetensors, and logged"
ok "SIGTERM finishes the update, saves and is exit code 130"
done_testing
