#!/bin/sh
# test_flat.sh: resident memory of a training run does not grow: after the first evaluations and checkpoints, ten thousand
# updates (AN_SOAK=1; two thousand otherwise) with evaluations and checkpoints among them add less than a mebibyte.
plan=2
. "$(dirname "$0")/tap.sh"
updates=$([ -n "${AN_SOAK:-}" ] && echo 10000 || echo 2000)

# shellcheck disable=SC2086  # $tiny is a list of settings
"$program" train macbook out="$dir/flat" $tiny eval_interval=100 log_interval=1 max_iters=$((updates + 100000)) \
    >"$dir/stdout" 2>"$dir/stderr" </dev/null &
pid=$!
# Waits until so many updates are logged; prints the resident KiB then.
resident_after() {
    until [ -s "$dir/flat/metrics.jsonl" ] && [ "$(wc -l <"$dir/flat/metrics.jsonl")" -ge "$1" ]; do
        kill -0 "$pid" 2>/dev/null || return
        sleep 0.1
    done
    if [ -r "/proc/$pid/status" ]; then
        sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status" # a bare Debian has no ps
    else
        ps -o rss= -p "$pid" | tr -d ' '
    fi
}
early=$(resident_after 400)
late=$(resident_after $((400 + updates)))
kill -TERM "$pid"
wait "$pid"
code=$?
code_is 130
if [ -z "$early" ] || [ -z "$late" ]; then fault "no resident size: '$early', '$late'"; else
    [ $((late - early)) -lt 1024 ] || fault "$early KiB after 400 updates, $late KiB after $updates more"
fi
ok "resident memory after $updates more updates is what it was"

# 240 texts in batches of 32: 100 updates are more than ten epochs, here behind the first evaluation; the curve is metrics.jsonl's.
run train issues out="$dir/epochs" max_iters=120 eval_interval=20 log_interval=1 --quiet
code_is 0
growth=$(sed -n 's/.*"rss_bytes":\([0-9]*\).*/\1/p' "$dir/epochs/metrics.jsonl" | awk 'NR > 20 && NR <= 32 { a += $1 } NR > 108 { b += $1 } END { printf "%.2f", 100 * (b / a - 1) }')
awk -v g="$growth" 'BEGIN { exit !(g <= 1) }' || fault "resident memory grew by $growth % over ten epochs"
ok "over ten epochs the memory curve is flat, within 1 %"
done_testing
