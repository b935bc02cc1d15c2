#!/bin/sh
# test_tensorboard.sh: the events of a run are what TensorBoard's own reader finds in metrics.jsonl; folders stay one run's.
plan=2
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=40 eval_interval=20 log_interval=5"

# shellcheck disable=SC2086
run $train out="$dir/run" tensorboard=true
code_is 0
equal "$(find "$dir/run" -name 'events.out.tfevents.*' | wc -l | tr -d ' ')" 1 "files of events"
# shellcheck disable=SC2086
run $train out="$dir/run" tensorboard=true
code_is 0; equal "$(find "$dir/run" -maxdepth 1 -name 'events.out.tfevents.*' | wc -l | tr -d ' ')" 1 "files of the second run"
equal "$(find "$dir/run/previous" -name 'events.out.tfevents.*' | wc -l | tr -d ' ')" 1 "files of the first"
run resume "$dir/run" max_iters=50 tensorboard=true
code_is 0; equal "$(find "$dir/run" -maxdepth 1 -name 'events.out.tfevents.*' | wc -l | tr -d ' ')" 2 "files after a resume"
# shellcheck disable=SC2086
run $train out="$dir/none"
equal "$(find "$dir/none" -name 'events*' | wc -l | tr -d ' ')" 0 "files where none were asked for"
ok "a run has events where they are asked for, and a new run none of an earlier one"

if "${PYTHON:-python3}" -c 'import tensorboard' 2>/dev/null; then
    "${PYTHON:-python3}" - "$dir/run" >"$dir/log" 2>&1 <<'PY' || fault "$(tail -c 300 "$dir/log")"
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
lines = {m["step"]: m for m in map(json.loads, open(sys.argv[1] + "/metrics.jsonl"))}
for tag in "loss", "lr", "grad_norm", "val_loss":
    found = {e.step: e.value for e in events.Scalars(tag)}
    wanted = {s: m[tag] for s, m in lines.items() if tag in m}
    assert set(found) == set(wanted), (tag, found, wanted)
    assert all(abs(found[s] - wanted[s]) <= 1e-6 * abs(wanted[s]) for s in wanted), tag
PY
    ok "TensorBoard's own reader finds the numbers of metrics.jsonl"
else
    tests=$((tests + 1))
    echo "ok $tests - TensorBoard's own reader finds the numbers of metrics.jsonl # SKIP there is no python3 with tensorboard"
fi
done_testing
