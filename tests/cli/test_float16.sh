#!/bin/sh
# test_float16.sh: training in float16 with its loss scale: near float32, resumed to the bit, from older checkpoints too;
# and what nan=stop does where updates are read only now and then.
plan=5
. "$(dirname "$0")/tap.sh"
settings="$tiny eval_interval=100 log_interval=4 seed=5 --quiet"

# shellcheck disable=SC2086  # a list of settings, here and below
run train macbook out="$dir/wide" $settings max_iters=24
code_is 0
# shellcheck disable=SC2086
run train macbook out="$dir/whole" $settings max_iters=24 dtype=float16
code_is 0
tail -n 1 "$dir/whole/metrics.jsonl" >"$dir/line"
tail -n 1 "$dir/wide/metrics.jsonl" >"$dir/wide.line"
has_keys "$dir/line" scale skipped
equal "$(value "$dir/line" skipped)" 0 "skipped updates"
awk -v a="$(value "$dir/line" loss)" -v b="$(value "$dir/wide.line" loss)" 'BEGIN { d = a - b; exit !(d < 0.01 && d > -0.01) }' ||
    fault "the loss is $(value "$dir/line" loss), in float32 $(value "$dir/wide.line" loss)"
ok "float16 learns what float32 does, and its lines have the scale and the skipped updates"

# shellcheck disable=SC2086
run train macbook out="$dir/parts" $settings max_iters=12 lr_decay_iters=24 dtype=float16
# shellcheck disable=SC2086
run train macbook out="$dir/straight" $settings max_iters=24 lr_decay_iters=24 dtype=float16
run resume "$dir/parts" max_iters=24 --quiet
code_is 0
equal "$(state_hash "$dir/parts")" "$(state_hash "$dir/straight")" "state hash after resuming"
run inspect "$dir/parts"
for name in scale good_updates skipped_updates mass1 mass2; do says stdout "optimizer.$name"; done
ok "a checkpoint holds the scale: a resumed run ends in the same bits"

# shellcheck disable=SC2086
run train macbook out="$dir/older" $settings max_iters=12 lr_decay_iters=24
run resume "$dir/older" max_iters=24 dtype=float16 --quiet
code_is 0
tail -n 1 "$dir/older/metrics.jsonl" >"$dir/line"
equal "$(value "$dir/line" scale)" 65536 "the scale of a run that had none"
run resume "$dir/older" max_iters=28 dtype=float32 --quiet
code_is 0
ok "a run goes on in float16 from a checkpoint without a scale, and back"

# shellcheck disable=SC2086
run train macbook out="$dir/sgd" $settings max_iters=4 dtype=float16 optimizer=sgd momentum=0.9 dampening=0.5
run resume "$dir/sgd" max_iters=8 --quiet
code_is 0
# shellcheck disable=SC2086
run train macbook out="$dir/straight_sgd" $settings max_iters=8 dtype=float16 optimizer=sgd momentum=0.9 dampening=0.5
equal "$(state_hash "$dir/sgd")" "$(state_hash "$dir/straight_sgd")" "state hash after resuming"
ok "sgd, which has no bias correction, is resumed in float16 too"

# Weights that grow ten thousand times in an update: gradients soon are not finite, and no loss is read before update 40.
# shellcheck disable=SC2086
run train macbook out="$dir/blind" $settings max_iters=400 log_interval=40 save_interval=400 learning_rate=100 weight_decay=100 decay_lr=false
[ "$code" -ne 0 ] || fault "a run with infinite weights went on"
says stderr "norm of the gradients"
tail -n 1 "$dir/blind/metrics.jsonl" >"$dir/line"
blind=$(value "$dir/line" step)
# shellcheck disable=SC2086
run train macbook out="$dir/seeing" $settings max_iters=400 log_interval=1 save_interval=400 learning_rate=100 weight_decay=100 decay_lr=false
tail -n 1 "$dir/seeing/metrics.jsonl" >"$dir/line"
equal "$blind" "$(value "$dir/line" step)" "the update that was bad"
ok "the update that was bad is named, however seldom its numbers are read"
