#!/bin/sh
# test_decide.sh: where to train, decided live from runs that were trained here, and what cannot be decided.
plan=4
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=40 eval_interval=40 log_interval=1"

# shellcheck disable=SC2086
run $train out="$dir/one" threads=1
# The same, by portable code: other bits, and slower.
# shellcheck disable=SC2086
run $train out="$dir/portable" threads=1 isa=portable compile=false
run decide "$dir/one"
code_is 0; says stdout "verdict   train on lane 1 (cpu)"; says stdout "another lane"
run decide "$dir/one" "$dir/portable" growth=1000
code_is 0; silent stderr; says stdout "lane 2"; says stdout "drift: losses differ by"; says stdout "verdict   train on lane"; says stdout changes
run decide "$dir/one" "$dir/portable" growth=1000 --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" verdict)" train verdict; has_keys "$dir/stdout" ms first_step last_step rule found limit
ok "runs of one processor are decided by their time, with the window of each figure"

# shellcheck disable=SC2086
run $train out="$dir/drifts" threads=1 dtype=bfloat16
run decide "$dir/one" "$dir/drifts" growth=1000
code_is 0; says stdout "FIRES   drift"; says stdout "holds   memory"
run compare "$dir/one" "$dir/drifts" --accept "me,bfloat16 is what we want"
run decide "$dir/one" "$dir/drifts" growth=1000
code_is 0; says stdout "holds   drift"; says stdout "signed and accepted"
ok "a drift fires until it is signed"

# Live: each device of this machine; here only the processor runs, and the others say why not.
# shellcheck disable=SC2086
run decide demo $tiny steps=24 out="$dir/live" threads=1 growth=1000
code_is 0; says stderr "lane cpu: 24 updates"; says stdout "lane 1    $dir/live/cpu"; says stdout "verdict   train on lane 1 (cpu)"; says stdout "left out  cuda: "; says stdout "left out  mlx: "
[ ! -e "$dir/live/cpu/last.safetensors" ] || fault "weights are kept"
# shellcheck disable=SC2086
run decide demo $tiny steps=24 out="$dir/live" threads=1 growth=1000 --json
code_is 0; silent stderr; one_line stdout; has_keys "$dir/stdout" verdict left_out why # not trained again
# shellcheck disable=SC2086
run decide demo $tiny steps=22 out="$dir/live" threads=1 growth=1000 dropout=0
code_is 0; says stderr "lane cpu: 22 updates"
# A lane that another machine packed: the run by portable code, and its folder is gone.
run pack "$dir/portable" out="$dir/theirs.anneal" owner=them
rm -r "$dir/portable"
run decide "$dir/one" "$dir/theirs.anneal" growth=1000
code_is 0; says stdout "lane 2    $dir/theirs.anneal"; says stdout "drift: losses differ by"
[ -z "$(ls -d "${TMPDIR:-/tmp}"/anneal-lane.* 2>/dev/null)" ] || fault "a folder was left behind"
ok "a preset is decided live on each device here, and a pack of another machine is a lane"

# shellcheck disable=SC2086
run $train out="$dir/other" threads=1 batch_size=2
run decide "$dir/one" "$dir/other"
code_is 1; says stderr "one input bucket"; says stderr "batch_size"; one_line stderr
run decide "$dir/none"
code_is 2; says stderr "no run's folder"
run decide "$dir/one" gain=2
code_is 1
run decide "$dir/one" batch_size=2
code_is 1; says stderr "trained already"; one_line stderr
run decide nosuch
code_is 1; says stderr "preset"
run decide demo device=cpu
code_is 1; says stderr "own"; one_line stderr
printf 'PK\003\004 no pack' >"$dir/rubbish.anneal"
run decide "$dir/one" "$dir/rubbish.anneal"
code_is 2; one_line stderr
head -c 2000 /dev/urandom >"$dir/other/metrics.jsonl"
run decide "$dir/other"
code_is 2; says stderr "lines of metrics"
ok "another bucket, no run and rubbish are a sentence"
done_testing
