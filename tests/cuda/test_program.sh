#!/bin/sh
# test_program.sh: the program on a GPU that is not there, too old, full, faulting, lost or hanging: one sentence that
# says what and what to do, the right exit code, and the last checkpoint whole, from which a run goes on. The driver is
# tests/cuda/fake_cuda.c: what is tested is the program, its errors and its files, not numbers.
plan=17
. "$(dirname "$0")/../cli/tap.sh"
unset ANNEAL_CUDA_LAUNCH ANNEAL_CUDA_TIMEOUT ANNEAL_EXACT ANNEAL_TF32

mkdir "$dir/cuda"
${CC:-cc} -std=gnu17 -O1 -fPIC -shared -fvisibility=hidden -o "$dir/cuda/libcuda.so.1" tests/cuda/fake_cuda.c -lpthread -ldl || exit 1
ln -s libcuda.so.1 "$dir/cuda/libnvrtc.so.13"
ln -s libcuda.so.1 "$dir/cuda/libcublasLt.so.13"
export ANNEAL_CUDA_PATH="$dir/cuda" FAKE_CUDA_LOG="$dir/misuse"
settings="$tiny max_iters=40 eval_interval=10 save_interval=5 log_interval=1 device=cuda cache_dir=$dir/cache"

# A run until it fails: fails NAME CODE WORDS [VARIABLE=VALUE...], into the folder $dir/NAME.
fails() {
    name=$1 want=$2 words=$3
    shift 3
    # shellcheck disable=SC2086  # a list of settings
    timeout 60 env "$@" ${WRAP:-} "$program" train macbook out="$dir/$name" $settings --quiet >"$dir/stdout" \
        2>"$dir/stderr" </dev/null
    code=$?
    code_is "$want"; one_line stderr; says stderr "$words"
}
# The last checkpoint of $dir/NAME can be loaded, has lost at most the 5 updates since it, and the run goes on to its
# end on a GPU that works: goes_on NAME LEAST
goes_on() {
    run inspect "$dir/$1" --json
    code_is 0
    step=$(value "$dir/stdout" step)
    { [ "${step:-0}" -ge "$2" ] && [ $((step % 5)) -eq 0 ]; } || fault "$1: the checkpoint is after ${step:-no} updates"
    done_before=$(grep -c '"step"' "$dir/$1/metrics.jsonl")
    [ $((done_before - step)) -le 5 ] || fault "$1: $done_before updates were done, $step are kept"
    if ls -a "$dir/$1" | grep -q '\.tmp$'; then fault "a temporary file is left: $(ls -a "$dir/$1")"; fi
    run resume "$dir/$1" --quiet
    code_is 0
    run inspect "$dir/$1" --json
    equal "$(value "$dir/stdout" step)" 40 "$1: updates in the end"
}

# ---- nothing there
fails absent 2 "libcuda.so.1 not found" ANNEAL_CUDA_PATH=/nonexistent
says stderr "driver"
[ ! -e "$dir/absent/last.safetensors" ] || fault "a run began"
ok "without a driver nothing begins, and what to install is said"

fails old 2 "the NVIDIA driver is for CUDA 11.4" FAKE_CUDA_VERSION=11040
fails ampere 2 "compute capability 7.5, less than 8.0" FAKE_CUDA_ARCH=75
fails gpu 2 "the driver finds no GPU" FAKE_CUDA_FAIL=cuInit:1+=100
ok "a driver or a GPU that is too old, or a driver without a GPU, is named"

mv "$dir/cuda/libnvrtc.so.13" "$dir/away"
fails nvrtc 2 "libnvrtc.so.13 not found"
mv "$dir/away" "$dir/cuda/libnvrtc.so.13"
ok "without NVRTC nothing begins, and what to install is said"

mv "$dir/cuda/libcublasLt.so.13" "$dir/away"
run doctor device=cuda cache_dir="$dir/cache" --json
code_is 0; says stdout "NVRTC 13.0, no cuBLASLt (GEMMs are slower without it), no cuDNN (convolutions are slower without it)"
mv "$dir/away" "$dir/cuda/libcublasLt.so.13"
run doctor device=cuda cache_dir="$dir/cache" --json
code_is 0; says stdout "Fake GPU, 4 GiB, sm_90, driver for CUDA 13.0, NVRTC 13.0, cuBLASLt"
ok "doctor says what there is, and that cuBLASLt is not"

fails launch 1 "ANNEAL_CUDA_LAUNCH is snyc; it may be graph (the default), chain, plain or sync" ANNEAL_CUDA_LAUNCH=snyc
fails timeout 1 "ANNEAL_CUDA_TIMEOUT is 10m; it is seconds" ANNEAL_CUDA_TIMEOUT=10m
fails exactly 1 "ANNEAL_EXACT is yes; it may be 1, or 0" ANNEAL_EXACT=yes
fails tensor 1 "ANNEAL_TF32 is on; it may be 1, or 0" ANNEAL_TF32=on
fails both 1 "exact and tf32 are both asked for" ANNEAL_EXACT=1 ANNEAL_TF32=1
ok "a variable that says nothing known is refused, and two that exclude each other"

# ---- precision
# shellcheck disable=SC2086
run train macbook out="$dir/f32" $settings max_iters=1
code_is 0; says stderr "mode    float32, fused"
# shellcheck disable=SC2086
run train macbook out="$dir/tf32" $settings max_iters=1 tf32=true
code_is 0; says stderr "mode    float32 with matmuls in tf32, fused"
# shellcheck disable=SC2086
ANNEAL_TF32=1 run train macbook out="$dir/variable" $settings max_iters=1
code_is 0; says stderr "mode    float32 with matmuls in tf32, fused"
for with in tf32=true tf32=false; do
    # shellcheck disable=SC2086
    run bench macbook $tiny device=cuda --steps 2 --warmup 1 $with
    code_is 0; mv "$dir/stdout" "$dir/steps"
    # shellcheck disable=SC2086
    run bench macbook $tiny device=cuda --steps 2 --warmup 1 $with --json
    code_is 0; equal "$(value "$dir/stdout" tf32)" "${with#*=}" "bench --json with $with"
    # shellcheck disable=SC2086
    run profile macbook $tiny device=cuda --steps 2 --warmup 1 $with
    code_is 0
    equal "$(cat "$dir/steps" "$dir/stdout" | grep -c 'with matmuls in tf32')" "$([ $with = tf32=true ] && echo 2 || echo 0)" "who says tf32 with $with"
done
ok "tf32 is never silent"

# shellcheck disable=SC2086
run train macbook out="$dir/exact" $settings max_iters=1 exact=true device=cpu
code_is 0; says stderr "mode    float32, exact, fused"
# shellcheck disable=SC2086
ANNEAL_EXACT=1 run train macbook out="$dir/exact2" $settings max_iters=1 # the stand-in cannot compute what it then checks
says stderr "mode    float32, exact, fused"
for with in dtype=float16 dtype=bfloat16 tf32=true; do
    # shellcheck disable=SC2086
    run train macbook out="$dir/exact3" $settings exact=true $with
    code_is 1; says stderr "exact=true is training in float32: $with is something else; leave one out"
done
ok "exact is on the mode line, and is float32"

# ---- memory
fails small 2 "the GPU's memory leaves" FAKE_CUDA_BYTES=34000000
says stderr "Smallest changes that fit: "
says stderr "on the GPU"; says stderr "beside it, the GPU's memory"
# shellcheck disable=SC2086
FAKE_CUDA_BYTES=150000000 run train macbook out="$dir/smaller" $settings max_iters=1 batch_size=8192
code_is 2; says stderr "the GPU's memory leaves"
change=$(sed -n 's/.*Smallest changes that fit: \(batch_size=[^(]*\) (.*/\1/p' "$dir/stderr" | sed 's/ (.*//')
[ -n "$change" ] || fault "no batch is named: $(cat "$dir/stderr")"
# shellcheck disable=SC2086
FAKE_CUDA_BYTES=150000000 run train macbook out="$dir/smaller" $settings max_iters=1 $change
code_is 0
unset FAKE_CUDA_BYTES
# shellcheck disable=SC2086
run plan macbook $settings
code_is 0; says stdout "GPU            3.8 GiB may be taken; driver, libraries and other programs hold 0 B"
FAKE_CUDA_BESIDE=500000000
export FAKE_CUDA_BESIDE
# shellcheck disable=SC2086
run plan macbook $settings
says stdout "hold 477 MiB"
# shellcheck disable=SC2086
run train macbook out="$dir/beside" $settings max_iters=1
code_is 0; says stderr "driver and libraries (and other programs) hold 477 MiB of the device"
run doctor device=cuda cache_dir="$dir/cache"
code_is 0; says stdout "memory 3.5 GiB for programs; beside that"; says stdout "hold 477 MiB"
unset FAKE_CUDA_BESIDE
ok "what does not fit the GPU is refused with what would; what the driver holds is told apart"

fails start 2 "out of memory" FAKE_CUDA_FAIL=cuMemAlloc_v2:2=2
says stderr "try a smaller batch"
fails mid 2 "out of memory" FAKE_CUDA_FAIL=cuGraphInstantiateWithFlags:2=2
goes_on mid 0
ok "no memory at the start, or for the first evaluation: said, and the run goes on later"

# ---- faults in mid-run
fails fault 2 "an illegal memory access was encountered" FAKE_CUDA_LOG="$dir/gone.log" FAKE_CUDA_FAIL=cuEventQuery:150+=700
says stderr "resume from the last checkpoint"
goes_on fault 5
ok "a kernel that faults ends the run, and the last checkpoint goes on"

fails named 2 "running step" FAKE_CUDA_LOG="$dir/gone.log" ANNEAL_CUDA_LAUNCH=sync FAKE_CUDA_FAIL=cuStreamSynchronize:3000+=700
goes_on named 0
ok "with ANNEAL_CUDA_LAUNCH=sync the kernel that faults is named"

fails lost 2 "CUDA_ERROR_214" FAKE_CUDA_LOG="$dir/gone.log" FAKE_CUDA_FAIL=cuGraphLaunch:30+=214
goes_on lost 5
ok "a device that is lost ends the run, and the last checkpoint goes on"

fails stream 2 "resume from the last checkpoint" FAKE_CUDA_LOG="$dir/gone.log" FAKE_CUDA_FAIL=cuStreamSynchronize:1+=700
ok "work that does not end well ends the run"

fails hang 2 "has not finished after" FAKE_CUDA_LOG="$dir/gone.log" ANNEAL_CUDA_TIMEOUT=0.3 FAKE_CUDA_FAIL=cuEventQuery:150+=600
says stderr "ANNEAL_CUDA_TIMEOUT"
goes_on hang 5
ok "a GPU that hangs is given up after the timeout, and the last checkpoint goes on"

# ---- the other commands
# shellcheck disable=SC2086
run profile macbook $tiny device=cuda cache_dir="$dir/cache" --warmup 1 --steps 2 --trace "$dir/trace"
code_is 0; says stdout "roof  launch"; says stdout "on cuda"
equal "$(tail -n 1 "$dir/trace")" "]}" "the end of the trace"
equal "$(grep -c '"cat":"product"' "$dir/trace")" "$((2 * $(grep -c 'matmul$' "$dir/stdout")))" "products in the trace of two steps"
# shellcheck disable=SC2086
run profile macbook $tiny device=cuda --data-only --steps 2
code_is 0
run sample "$dir/hang" --tokens 20 device=cuda
code_is 0
run eval "$dir/hang" device=cuda
code_is 0; says stdout loss
# shellcheck disable=SC2086
run train macbook out="$dir/half" $settings max_iters=1 dtype=bfloat16
run eval "$dir/half" device=cuda
code_is 0; says stderr "computes in float32; the run was trained in bfloat16"
run eval "$dir/half" device=cuda dtype=float32
code_is 0; silent stderr
run eval "$dir/half" device=cpu
code_is 0; silent stderr
run bench copy --n 1 --iters 2 device=cuda
code_is 0; says stdout GB/s
ok "profile, sample, eval and bench run on it"

# What a lost device held cannot be given back.
misuse=$(cat "$dir/misuse" "$dir/gone.log" 2>/dev/null | grep -v '^left behind' | sort | uniq -c | head -n 5)
[ -z "$misuse" ] || fault "the driver was misused: $misuse"
[ ! -s "$dir/misuse" ] || fault "left behind though the device was there: $(sort "$dir/misuse" | uniq -c | head -n 5)"
ok "in all of this the driver was used rightly"
# ---- what NVIDIA's management library says beside it
mkdir "$dir/nvml"
cat >"$dir/nvml.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = (unsigned)atoi(getenv("FAKE_GPUS")); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { static char one[2]; *d = &one[i]; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { (void)d; snprintf(s, n, "Stand-in"); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { (void)d; u[0] = 12; u[1] = 10; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { (void)d; m[0] = m[1] = m[2] = 1; return 0; }
int nvmlDeviceGetTemperature(void *d, int s, unsigned *t) { (void)d; *t = 91 + (unsigned)s; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *p) { (void)d; (void)p; return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *list) { (void)d; (void)list; *n = 2; return 7; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, unsigned long long *r) { (void)d; *r = 0x44; return 0; }
const char *nvmlErrorString(int e) { return e == 3 ? "Not Supported" : "?"; }
C
"${CC:-cc}" -shared -fPIC -o "$dir/nvml/libnvidia-ml.so.1" "$dir/nvml.c" || fault "the stand-in was not built"
for gpus in 1 2; do
    ANNEAL_NVML_PATH="$dir/nvml" FAKE_GPUS=$gpus "$program" train macbook out="$dir/gpu-$gpus" $settings max_iters=1000000 eval_interval=1000000 save_interval=0 \
        >"$dir/stdout" 2>"$dir/stderr" </dev/null &
    pid=$!
    for _ in $(seq 200); do
        sleep 0.1
        grep -q "slowed down for its heat" "$dir/gpu-$gpus/logbook.jsonl" 2>/dev/null && break
    done
    sleep 0.3
    kill -INT $pid
    wait $pid
    says gpu-$gpus/logbook.jsonl "2 programs compute on the GPU 0 (Stand-in)"
    equal "$(grep -c "the GPU 0 (Stand-in) was slowed down for its heat" "$dir/gpu-$gpus/logbook.jsonl")" 1 "how often its heat is told"
done
says gpu-1/metrics.jsonl '"gpu_busy":0.12,'; says gpu-1/metrics.jsonl '"gpu_temperature_c":91,'
head -n 1 "$dir/gpu-1/metrics.jsonl" | grep -q gpu_busy && fault "the first update, which compiles, is told as busy"
grep -q gpu_busy "$dir/gpu-2/metrics.jsonl" && fault "which of two GPUs is the run's is not known"
run diagnose "$dir/gpu-1"
says stdout "(gpu_is_shared)"; says stdout "(too_hot)"
ok "how busy and hot the GPU is, and who shares it, is the management library's word"

done_testing
