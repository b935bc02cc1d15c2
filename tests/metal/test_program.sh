#!/bin/sh
# test_program.sh: the program on the Metal stand-in, as a person on a Mac meets it: every command that takes a device, several processes of
# one job, heat and low-power mode in doctor, log and logbook, SIGTERM. At the end of each command no object is alive and no error unread.
if ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP no C++ compiler: kernels cannot run on the stand-in\n'
    exit 0
fi
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
plan=13
. "$(dirname "$0")/../cli/tap.sh"
build=$(cd "$build" && pwd)
mac="gpu=apple8,kernels=fast,end=check,cache=$build/standin-cache"
export ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_STANDIN="$mac"
tiny="$tiny n_layer=1 device=metal max_iters=6 eval_interval=3"

# shellcheck disable=SC2086  # $tiny is a list of words
run train demo $tiny out="$dir/run" --json
code_is 0; says stderr "device  metal: Apple M2"; says stderr "GPU "
equal "$(value "$dir/stdout" step)" 6 step
has_keys "$dir/run/metrics.jsonl" gpu_busy
run resume "$dir/run" max_iters=9 --json
code_is 0; equal "$(value "$dir/stdout" step)" 9 step
ok "train and resume on the GPU, which says how busy it was"

# shellcheck disable=SC2086
run train demo $tiny device=cpu out="$dir/cpu" --json
code_is 0
run resume "$dir/cpu" max_iters=9 device=metal --json
code_is 0; equal "$(value "$dir/stdout" step)" 9 step
ok "a run of the CPU goes on on the GPU"

echo "To be, or not to be, that is the question: whether it is nobler in the mind to suffer the slings and arrows" >"$dir/text"
run eval "$dir/run" "$dir/text" device=metal --json
code_is 0; gpu=$(value "$dir/stdout" loss)
run eval "$dir/run" "$dir/text" device=cpu --json
code_is 0; equal "$(printf %.3f "$gpu")" "$(printf %.3f "$(value "$dir/stdout" loss)")" loss
ok "eval measures the same loss on both"

run sample "$dir/run" device=metal seed=3 max_new_tokens=12 num_samples=1
code_is 0; cp "$dir/stdout" "$dir/gpu"
run sample "$dir/run" device=cpu seed=3 max_new_tokens=12 num_samples=1
code_is 0; cmp -s "$dir/stdout" "$dir/gpu" || fault "another text than on the CPU"
ok "sample writes the same text on both"

# shellcheck disable=SC2086
run bench demo $tiny steps=2 warmup=0 --json
code_is 0; says stdout metal
ok "bench times it"

# Both time a product and a copy, and here a launch takes a thousand times as long as on a GPU.
WRAP="timeout 300"
# shellcheck disable=SC2086
run profile demo $tiny steps=2 warmup=1 --json
code_is 0; has_keys "$dir/stdout" peak_gflops peak_gbytes
run doctor --json
code_is 0; grep -q '"name":"metal".*"gemm_side":[1-9]' "$dir/stdout" || fault "doctor timed nothing on metal"
WRAP=
ok "profile and doctor find a size that a slow device can be timed with"

# shellcheck disable=SC2086
run train demo $tiny ranks=2 gradient_accumulation_steps=2 --quiet out="$dir/ddp"
code_is 1; says stderr "metal: one process trains on it. Start one"; says stderr "device=cpu"; one_line stderr
[ ! -e "$dir/ddp" ] || fault "a folder was made"
WORLD_SIZE=2 run resume "$dir/run" max_iters=12
code_is 1; says stderr "WORLD_SIZE=2"
# shellcheck disable=SC2086
WORLD_SIZE=1 RANK=0 run train demo $tiny max_iters=1 out="$dir/one"
code_is 0
ok "one of several processes of a job is refused, with what to do; one of one is not"

export ANNEAL_STANDIN="$mac,thermal=2,low_power=1"
run doctor measure=false
code_is 0; says stdout "temperature serious"; says stdout "low-power mode on"; says stdout "hint"
# shellcheck disable=SC2086
run train demo $tiny max_iters=2 out="$dir/hot"
code_is 0; says stderr "this Mac does not go to sleep while the run goes on"; says stderr "thermal state serious"; says stderr "low-power mode is on"
equal "$(grep -c '"event":"machine"' "$dir/hot/logbook.jsonl")" 1 "events about the machine"
equal "$(grep 'thermal state' "$dir/stderr" | grep -vc diagnose)" 1 "sentences about heat" # a diagnosis at the end may quote it
run diagnose "$dir/hot" --json
code_is 0; says stdout '"rule":"too_hot"'; says stdout '"rule":"saves_power"'
ok "heat and low-power mode are in doctor, on the log, in the logbook once, and in the diagnosis"
export ANNEAL_STANDIN="$mac"

# tanh(a(rows)) minus its mean, computed in float64, then b: two linear layers of 4, 12 and 3 that torch.export wrote.
mkdir "$dir/rows"
cp tests/import/train/rows.npy tests/import/train/labels.npy "$dir/rows"
double="tests/import/train/double.pt2 data=$dir/rows batch_size=20 max_iters=25 eval_interval=25 log_interval=1 device=metal"
# shellcheck disable=SC2086
run train $double out="$dir/none"
code_is 1; says stderr "uses float64, which Apple GPUs do not have"; says stderr "fallback=cpu"
# shellcheck disable=SC2086
run train $double fallback=cpu out="$dir/fallback"
code_is 0; says stderr "of which on the CPU "; says stderr "found   operations run on the CPU instead of the GPU"
run diagnose "$dir/fallback" --json
code_is 0; says stdout '"rule":"falls_back"'
# shellcheck disable=SC2086
run train $double fallback=cpu device=cpu out="$dir/native"
run diagnose "$dir/native" --json
code_is 0; ! grep -q '"rule":"falls_back"' "$dir/stdout" || fault "a run of the CPU falls back"
ok "a run that falls back to the CPU, as it was allowed to, is told so; without it float64 is refused"

# shellcheck disable=SC2086
run train demo $tiny max_iters=2 eval_interval=2 device=metal place=optimizer:cpu,gpt.h.0.*:cpu out="$dir/placed"
code_is 0; says stderr "of which on the CPU "; says stderr " (place=), on "; says stderr "the GPU waits for them "
grep -q '"event":"plan".*"fallbacks":\([0-9]*\),.*"placed":\1,"cpu_turns":[1-9]' "$dir/placed/logbook.jsonl" ||
    fault "the logbook: $(grep '"event":"plan"' "$dir/placed/logbook.jsonl")"
run diagnose "$dir/placed" --json
code_is 0; ! grep -q '"rule":"falls_back"' "$dir/stdout" || fault "what was placed on the CPU is told as a fallback"
# The run goes on, draws and is measured on devices that place nothing.
run sample "$dir/placed" device=cpu max_new_tokens=3 num_samples=1
code_is 0
run eval "$dir/placed" "$dir/text" device=cpu --json
code_is 0
run resume "$dir/placed" device=cpu max_iters=3
code_is 0; says stderr "no launch is moved to the CPU (place=): that is for an Apple GPU alone"
run resume "$dir/placed" device=metal place=optimizer:cpu max_iters=4
code_is 0; says stderr " (place=), on "
run plan demo device=null:metal place=optimizer:cpu show=chips
code_is 0; says stdout "Not in these times: the 3 launches that the CPU runs"
run plan demo device=null:metal place=optimizer:cpu
code_is 0; says stdout " 0 fallbacks,"; says stdout "on the CPU     3 (place=), on "; says stdout "the GPU waits for them 2 times a step"
# shellcheck disable=SC2086
run train $double max_iters=2 fallback=cpu place=optimizer:cpu out="$dir/both"
code_is 0; says stderr " by place=, "; says stderr " by fallback=cpu)"
run diagnose "$dir/both" --json
code_is 0; says stdout '"rule":"falls_back"'; says stdout "beside those of place="
for place in gpt.x:cpu optimizer:cpu,gpt.x:cpu; do
    # shellcheck disable=SC2086
    run train demo $tiny max_iters=2 device=metal place=$place out="$dir/nowhere"
    code_is 1; says stderr 'no launch of an update has the scope "gpt.x"'; one_line stderr
done
# shellcheck disable=SC2086
run train $double fallback=cpu place=gpt.x:cpu out="$dir/nowhere"
code_is 1; says stderr 'no launch of an update has the scope "gpt.x"'
for place in optimizer optimizer:gpu :cpu , "a
b"; do
    # shellcheck disable=SC2086
    run train demo $tiny max_iters=2 device=metal place="$place" out="$dir/nowhere"
    code_is 1; says stderr "it is GLOB:cpu"; one_line stderr
done
ok "place=SCOPE:cpu moves launches to the CPU, priced, logged and without a diagnosis; the run goes on elsewhere; what it cannot mean is a sentence"

# shellcheck disable=SC2086
"$program" train demo $tiny max_iters=100000 eval_interval=100000 out="$dir/term" >"$dir/stdout" 2>"$dir/stderr" </dev/null &
job=$!
waited=0
until [ -s "$dir/term/metrics.jsonl" ] || [ "$waited" -ge 300 ]; do
    sleep 0.1
    waited=$((waited + 1))
done
kill -TERM "$job"
wait "$job"
code=$?
code_is 130; says stderr "anneal resume"; is_file "$dir/term/last.safetensors"
ok "SIGTERM saves, and leaves no object of Metal's behind"

export ANNEAL_STANDIN="$mac,memory=64m,working_set=1m"
# shellcheck disable=SC2086
run train demo $tiny batch_size=64 out="$dir/large"
code_is 2; says stderr "what macOS recommends for the GPU"; says stderr "batch_size="; one_line stderr
ok "a run that is larger than macOS recommends is refused with what would fit"
export ANNEAL_STANDIN="$mac"

export ANNEAL_STANDIN="gpu=amd,end=check"
# shellcheck disable=SC2086
run train demo $tiny out="$dir/amd"
code_is 2; says stderr "AMD"; says stderr "device=cpu"
export ANNEAL_STANDIN="gpu=intel,end=check"
# shellcheck disable=SC2086
run train demo $tiny out="$dir/intel"
code_is 2; says stderr "Intel"; says stderr "device=cpu"
ok "GPUs that are refused are refused with what to do"
run plan macbook device=null:metal show=chips
code_is 0; says stdout ESTIMATES; says stdout "M4 Max"; says stdout "Apple's specifications"; says stdout "2000 updates of 1 such steps"
awk '$1 ~ /^M[1-4]$/ && $2 ~ /^[0-9]/ { n++; if ($5 < 1 || $5 * $6 < 3.2e6 || $5 * $6 > 4e6) bad = 1 } END { exit n != 4 || bad }' \
    "$dir/stdout" || fault "milliseconds and steps an hour do not agree: $(cat "$dir/stdout")"
ok "plan show=chips estimates a step's time, and says that it is an estimate and of what"
done_testing
