#!/bin/sh
# test_diagnose.sh: what is wrong with a run, on runs that went wrong here; healthy runs are silent.
plan=8
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=60 eval_interval=30 log_interval=1 dropout=0"

quiet_runs=0
for settings in seed=1 seed=2 threads=1 dtype=bfloat16 recompute=off compile=false batch_size=8 n_layer=1 \
    gradient_accumulation_steps=2 optimizer=sgd; do
    # shellcheck disable=SC2086
    run $train $settings out="$dir/healthy"
    code_is 0
    grep -q '^found' "$dir/stderr" && fault "$settings: train found $(grep '^found' "$dir/stderr")"
    run diagnose "$dir/healthy"
    code_is 0; says stdout "nothing was found by"
    quiet_runs=$((quiet_runs + 1))
done
equal "$quiet_runs" 10 "healthy runs"
run diagnose "$dir/healthy" --json
for rule in $(sed 's/.*"rules":\[\(.*\)\].*/\1/; s/[",]/ /g' "$dir/stdout"); do
    grep -q "^| .*\`$rule\`" docs/runbook.md || fault "docs/runbook.md lacks $rule"
done
ok "ten healthy runs are silent, and the runbook has every rule"

# Other tasks: images, texts, puzzles, rows of a table, and a model of PyTorch's.
mkdir "$dir/rows"
cp tests/import/train/rows.npy tests/import/train/labels.npy "$dir/rows"
while read -r name settings; do
    # shellcheck disable=SC2086
    run train $settings log_interval=1 out="$dir/$name"
    code_is 0
    grep -q '^found' "$dir/stderr" && fault "$name: train found $(grep '^found' "$dir/stderr")"
    run diagnose "$dir/$name"
    code_is 0; says stdout "nothing was found by"
done <<TASKS
images cnn batch_size=4 max_iters=60 eval_interval=30 eval_iters=2
texts issues max_iters=100 eval_interval=20
puzzles sudoku_4x4 batch_size=8 max_iters=60 --eval_interval=30 eval_iters=2 arch.hidden_size=32
table mlp max_iters=200 eval_interval=50
imported tests/import/train/double.pt2 data=$dir/rows batch_size=20 max_iters=150 eval_interval=50
TASKS
ok "healthy runs of other tasks are silent too"

# shellcheck disable=SC2086
run $train out="$dir/nan" learning_rate=100 grad_clip=0 warmup_iters=0
code_is 3; says stderr "; it arises in "
run diagnose "$dir/nan"
code_is 0; says stdout "; it arises in "; says stdout "(not_finite)"; says stdout "learning_rate=50"; says stdout "first fix"
run diagnose "$dir/nan" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" rule symptom evidence hypothesis fix
grep "\"event\":\"not_finite\"" "$dir/nan/logbook.jsonl" >"$dir/origin"; one_line origin; has_keys "$dir/origin" update micro kernel launch element value
ok "a run that met a NaN is told so, with the update and a smaller learning rate"

# Killed in the middle: first while it runs, then after.
# shellcheck disable=SC2086
"$program" $train max_iters=2000000 lr_decay_iters=2000000 out="$dir/killed" >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do
    [ -s "$dir/killed/metrics.jsonl" ] && break
    sleep 0.1
done
run diagnose "$dir/killed" --json
code_is 0; ! grep -q '"rule":"killed"' "$dir/stdout" || fault "a run that goes on is called killed"
kill -9 $pid
wait $pid 2>/dev/null
run diagnose "$dir/killed"
code_is 0; says stdout "(killed)"; says stdout "anneal resume $dir/killed"
ok "a killed run is told so, but not while it runs"

# The fix is a command that works.
run resume "$dir/killed" max_iters="$(($(tail -n 1 "$dir/killed/metrics.jsonl" | sed 's/{"step":\([0-9]*\).*/\1/') + 50))"
code_is 0
run diagnose "$dir/killed" --json
! grep -q '"rule":"killed"' "$dir/stdout" || fault "killed still"
ok "its first fix mends it"

# A slow disk for checkpoints: the numbers of the logbook, as a run there writes them.
cp -r "$dir/healthy" "$dir/slow"
sed -i 's/"seconds":[0-9.]*/"seconds":100/; s/"save_s":[0-9.e-]*/"save_s":60/' "$dir/slow/logbook.jsonl"
run diagnose "$dir/slow"
code_is 0; says stdout "(slow_saves)"; says stdout "60 of 100 s"
ok "checkpoints that take long are told with their share"

# shellcheck disable=SC2086
run profile demo $tiny inputs=fixed --steps 2 --warmup 1 --json
cp "$dir/stdout" "$dir/profile.json"
sed 's/"kind":"[a-z]*"/"kind":"copy"/g' "$dir/profile.json" >"$dir/copies.json" # on a busy machine any launch may take longest
run diagnose "$dir/healthy" profile="$dir/copies.json"
code_is 0; says stdout "(moves_dominate)"; says stdout "anneal profile $dir/healthy/config.yaml"
run diagnose "$dir/healthy" profile="$dir/nothing.json"
code_is 2; one_line stderr
run diagnose "$dir/healthy" profile="$dir/healthy/config.yaml"
code_is 2; one_line stderr
run diagnose "$dir/healthy" reference="$dir/nothing"
code_is 2; says stderr "no run's folder"
ok "a profile beside the run is judged too, and what is none is a sentence"

run diagnose "$dir/nothing"
code_is 2; says stderr "no run's folder"; one_line stderr
mkdir "$dir/links"
ln -s /etc/passwd "$dir/links/metrics.jsonl"
run diagnose "$dir/links"
code_is 2; silent stdout
head -c 3000 /dev/urandom >"$dir/slow/metrics.jsonl"
printf '\n{"step":0,"ms":1e999}\n{"step":{},"ms":[]}\n{"step":5,"ms":null,"loss":null}' >>"$dir/slow/metrics.jsonl"
run diagnose "$dir/slow"
code_is 0
ok "no run, links and rubbish are a sentence, or left out"
done_testing
