#!/bin/sh
# test_runbook.sh: every command of docs/runbook.md runs as it is written, on tiny runs.
plan=2
. "$(dirname "$0")/tap.sh"
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
cd "$dir" || exit 1
export XDG_STATE_HOME="$dir/state"
trap '"$program" stop RUN >/dev/null 2>&1; rm -rf "$dir"' EXIT

# What the placeholders are: PRESET is a file of settings, the runs are there, so are two profiles and a sweep.
# shellcheck disable=SC2086
run train demo $tiny max_iters=30 eval_interval=30 log_interval=1 dropout=0 threads=1 out=RUN_A --quiet
cp RUN_A/config.yaml tiny.yaml
cp -r RUN_A RUN_B
cp -r RUN_A RUN
for f in BEFORE AFTER; do "$program" profile tiny.yaml inputs=fixed --steps 2 --warmup 1 --json >$f.json; done

# A page wants a free port, and a library that may be missing.
page=dashboard=$((20000 + $$ % 20000))
run train tiny.yaml max_iters=1 out=PAGE "$page" --quiet
[ "$code" -eq 0 ] || page=
# Shorter than they are written, where that is all that differs; a GPU is a processor here.
shorter() {
    sed -e 's/PRESET/tiny.yaml/; s/device=cuda/device=cpu/; s/--warmup 5 --steps 10/--warmup 1 --steps 2/' -e "s/dashboard=8080/$page/" \
        -e '/^anneal sweep/s/$/ minutes=0.05 steps=4 out=FOLDER/' -e '/train .*--detach/s/$/ max_iters=2000000 lr_decay_iters=2000000/' \
        -e '/--budget/s/out=FOLDER/out=FOLDER2/' -e '/^anneal decide PRESET\|^anneal decide tiny/s/steps=200/steps=20 growth=1000/' -e '/^anneal handoff.*out=/s/$/ tolerance=1e6/'
}
sed -n '/^```$/,/^```$/p' "$docs/runbook.md" | grep '^anneal ' | shorter >lines
while IFS= read -r line; do
    case $line in
    *" logs "*) eval "\"$program\" ${line#anneal }" >followed 2>&1 </dev/null & continue ;;
    *" pack RUN "*) "$program" stop RUN >/dev/null 2>&1 ;;
    *" pack TAKEN "*) "$program" resume TAKEN max_iters=$(($(sed -n '$s/.*"step":\([0-9]*\).*/\1/p' TAKEN/metrics.jsonl) + 3)) --quiet ;;
    esac
    eval "\"$program\" ${line#anneal }" >stdout 2>stderr </dev/null || fault "$line: $? $(tail -c 300 stderr)"
done <lines
equal "$(wc -l <lines)" "$(grep -c '^anneal ' "$docs/runbook.md")" "commands that ran, and those of the runbook"
wait
ok "the runbook's commands run"

for c in $("$program" help | sed -n 's/^  anneal \([a-z]*\).*/\1/p'); do
    case $c in
    plan | profile | sweep | diagnose | compare | decide | note | pack | handoff | collect | report | ps | top | stop | logs)
        grep -q "^anneal $c" "$docs/runbook.md" || fault "the runbook has no anneal $c" ;;
    esac
done
ok "it has each of the commands that it is about"
done_testing
