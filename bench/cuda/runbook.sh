#!/bin/sh
# runbook.sh: the runbook's commands on an NVIDIA GPU, about five minutes:
#     TEXT=tinyshakespeare.txt sh bench/cuda/runbook.sh BUILD LOGS
# 1. compare: 100 updates of macbook in float32 on the CPU and on the GPU pass the shipped tolerances; with exact=true the
#    two runs have the same bits; a run whose learning rate is 0.1 % higher fails.
# 2. sweep: macbook on the GPU in bfloat16 for two budgets; the points below and above the knee are in the table.
# 3. diagnose: a tiny model is called too small for the GPU, macbook with a large batch is not.
# 4. decide: the CPU and the GPU are lanes; diagnose beside a profile and the CPU's run.
# 5. report: report.html in LOGS, with the sweep.
# Exit code 1: a check failed; its line begins with FAIL.
build=${1:?the folder of the program} logs=${2:?a folder for the output}
mkdir -p "$logs" || exit 1
program=$build/anneal failed=0
[ -n "$TEXT" ] || { echo "TEXT= names a text to train on"; exit 1; }
check() { # NAME WANTED-CODE COMMAND...
    name=$1 want=$2
    shift 2
    "$@" >"$logs/$name.txt" 2>&1
    code=$?
    if [ "$code" -eq "$want" ]; then echo "ok   $name"; else echo "FAIL $name: exit code $code, not $want: $(tail -n 2 "$logs/$name.txt")" && failed=1; fi
}
train() { # NAME SETTINGS...
    name=$1
    shift
    check "train-$name" 0 "$program" train macbook data="$TEXT" max_iters=100 log_interval=1 eval_interval=50 eval_iters=5 dtype=float32 out="$logs/$name" "$@"
}
train cpu device=cpu
train gpu device=cuda
train gpu-exact device=cuda exact=true
train gpu-other device=cuda learning_rate=1.001e-3
check compare 0 "$program" compare "$logs/cpu" "$logs/gpu"
check compare-exact 0 "$program" compare "$logs/cpu" "$logs/gpu-exact" exact=true
check compare-wrong 3 "$program" compare "$logs/cpu" "$logs/gpu-other"
check sweep 0 "$program" sweep macbook data="$TEXT" device=cuda dtype=bfloat16 from=4 steps=40 minutes=2 --budget 4GiB --budget 16GiB out="$logs/sweep"
check tiny 0 "$program" train macbook data="$TEXT" device=cuda n_layer=1 n_head=1 n_embd=16 block_size=16 batch_size=1 max_iters=200000 log_interval=2000 eval_interval=200000 eval_iters=1 out="$logs/tiny-run"
check large 0 "$program" train macbook data="$TEXT" device=cuda dtype=bfloat16 batch_size=512 max_iters=2000 log_interval=20 eval_interval=2000 eval_iters=1 out="$logs/large-run"
check diagnose-tiny 0 sh -c '"$1" diagnose "$2" | grep device_is_idle' sh "$program" "$logs/tiny-run"
check diagnose-large 1 sh -c '"$1" diagnose "$2" | grep device_is_idle' sh "$program" "$logs/large-run"
check profile 0 sh -c '"$1" profile macbook device=cuda inputs=fixed --json >"$2/profile.json"' sh "$program" "$logs"
check diagnose-beside 0 "$program" diagnose "$logs/gpu" profile="$logs/profile.json" reference="$logs/cpu"
check decide 0 "$program" decide macbook data="$TEXT" dtype=float32 steps=60 growth=1000 out="$logs/decide"
check decide-gpu 0 test -s "$logs/decide/cuda/metrics.jsonl"
check report 0 "$program" report "$logs/gpu" "$logs/cpu" --sweep "$logs/sweep" profile="$logs/profile.json" out="$logs/report.html"
cat "$logs/compare.txt" "$logs/sweep.txt"
exit $failed
