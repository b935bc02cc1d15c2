#!/bin/sh
# test_sweep.sh: a sweep over batch sizes: points, files, budgets, axes, going on after an interruption.
plan=7
. "$(dirname "$0")/tap.sh"
model="block_size=16 n_layer=2 n_head=2 n_embd=16 dropout=0 threads=2" # a thread more is memory more

# shellcheck disable=SC2086
run sweep demo $model steps=5 minutes=3 budget=3MiB out="$dir/s" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" arithmetic_ms bandwidth_ms preset device points answers batch_size units_per_s ms predicted_bytes measured_bytes data_wait_share limited_by largest_fit
grep -q '"limited_by":"\(arithmetic\|bandwidth\|data\)"' "$dir/stdout" || fault "it does not say whether arithmetic or bandwidth limits"
is_file "$dir/s/sweep.json"; is_file "$dir/s/sweep.svg"; is_file "$dir/s/batch-1/metrics.jsonl"; is_file "$dir/s/batch-2/logbook.jsonl"
[ ! -e "$dir/s/batch-1/last.safetensors" ] || fault "a point's weights were kept"
cmp -s "$dir/stdout" "$dir/s/sweep.json" || [ "$(cat "$dir/stdout")" = "$(cat "$dir/s/sweep.json")" ] || fault "sweep.json is not what was printed"
# Bytes planned are bytes requested, at every point.
grep -o '"predicted_bytes":[0-9.e+]*,"measured_bytes":[0-9.e+]*' "$dir/s/sweep.json" | sed 's/"[a-z_]*"://g; s/,/ /' >"$dir/bytes"
[ "$(wc -l <"$dir/bytes")" -ge 2 ] || fault "fewer than two points"
while read -r a b; do equal "$a" "$b" "bytes planned and requested"; done <"$dir/bytes"
ok "a sweep leaves points, JSON and a picture, and every point requested the bytes that were planned"

largest=$(value "$dir/s/sweep.json" largest_fit)
# shellcheck disable=SC2086
run plan demo $model batch_size=1 --fit 3MiB --json
[ "$(value "$dir/stdout" batch_size_off)" = "$largest" ] || fault "the sweep says $largest fit, plan --fit $(value "$dir/stdout" batch_size_off)"
for batch in $(grep -o '"batch_size":[0-9]*' "$dir/s/sweep.json" | sed 's/.*://'); do
    [ "$batch" -le "$largest" ] || fault "batch $batch was run, and $largest fit"
done
ok "the largest batch that fits is the planner's, and none above it is run"

before=$(cksum "$dir/s/batch-1/metrics.jsonl")
# shellcheck disable=SC2086
run sweep demo $model steps=5 minutes=3 budget=3MiB out="$dir/s"
code_is 0; says stdout "the largest that fits by the plan: $largest"
equal "$(cksum "$dir/s/batch-1/metrics.jsonl")" "$before" "a point that was there"
# shellcheck disable=SC2086
run sweep demo $model steps=6 minutes=3 budget=3000KiB out="$dir/s" --quiet
[ "$(cksum "$dir/s/batch-1/metrics.jsonl")" != "$before" ] || fault "a point of other settings was taken for this one's"
ok "the same command goes on with the points that are there, another one does not take them"

# Other load during one point, as its metrics would tell: updates that take longer than those of any larger batch.
slow() { sed 's/"ms":[0-9.]*/"ms":5000/; s/"\(units\|tokens\)_per_s":[0-9.]*/"\1_per_s":0.5/g' "$1" >"$dir/slow"; cat "$dir/slow" >"$1"; }
# shellcheck disable=SC2086
run sweep demo $model steps=5 minutes=3 budget=3MiB out="$dir/load" --quiet
rm -rf "$dir/load/"*-again
slow "$dir/load/batch-1/metrics.jsonl"
# shellcheck disable=SC2086
run sweep demo $model steps=5 minutes=3 budget=3MiB out="$dir/load"
code_is 0; says stderr "batch 1 again: a larger one took less time an update"
is_file "$dir/load/batch-1-again/metrics.jsonl"; says load/sweep.json '"batch_size":1,"ran":true,"unit":"token","again":true'
! grep -q '"ms":5000' "$dir/load/sweep.json" || fault "the slower of two measurements was taken"
slow "$dir/load/batch-1-again/metrics.jsonl"
# shellcheck disable=SC2086
run sweep demo $model steps=5 minutes=3 budget=3MiB out="$dir/load"
code_is 0; says stdout "measured twice"; says stdout "not certain: with batch_size=1 an update takes longer than with"
ok "a point that a larger batch contradicts is measured again, the faster counts, and it is told when it stays"

# shellcheck disable=SC2086
run sweep demo $model steps=4 from=4 minutes=3 --budget 2500KiB --budget 3MiB --over dtype=float32,bfloat16 --over recompute=off,on out="$dir/axes" --json
code_is 0
equal "$(grep -o '"budget_bytes":' "$dir/stdout" | wc -l | tr -d ' ')" 8 "answers of four combinations and two budgets"
is_file "$dir/axes/dtype-bfloat16-recompute-on-batch-4/metrics.jsonl"
grep -q '"dtype":"\(bf16\|bfloat16\)"' "$dir/axes/dtype-bfloat16-recompute-on-batch-4/logbook.jsonl" || fault "the axis was not trained with"
ok "axes multiply, and each budget has an answer"

run sweep mlp steps=4 from=256 minutes=1 budget=1MiB out="$dir/mlp" --json
code_is 0; has_keys "$dir/stdout" points largest_fit
run sweep issues steps=4 from=4 minutes=1 budget=8MiB out="$dir/issues" --json
code_is 0; has_keys "$dir/stdout" points largest_fit
ok "a model of another task than text is swept too"

run sweep demo batch_size=4
code_is 1; says stderr "the sweep's own"
run sweep demo over=dtype
code_is 1; says stderr "over=dtype"
run sweep demo over=dtyp=float32
code_is 1; says stderr "dtyp"
run sweep demo over=dtype=float32,,bfloat16
code_is 1; says stderr "missing at a comma"
run sweep demo "over=dtype=float32 x"
code_is 1; says stderr "a value cannot have a blank"
run sweep demo over=dtype=float31 out="$dir/none"
code_is 1
run sweep demo budget=much
code_is 1; says stderr "much"
for amount in 5 0.5; do
    run sweep demo budget=$amount out="$dir/none"
    code_is 1; one_line stderr; says stderr "budget=$amount: of what?"
done
# shellcheck disable=SC2086
run sweep demo $model budget=1KiB out="$dir/tiny"
code_is 0; says stdout "not one sample fits"
[ ! -e "$dir/none" ] || fault "a folder was made"
ok "wrong settings are sentences before anything runs"
done_testing
