#!/bin/sh
# on_gpu.sh: what can only be shown on an NVIDIA GPU, a line a check: "ok" or "NOT OK", what it is, its figures, seconds.
#
#     sh tests/cuda/on_gpu.sh BUILD LOGS [CHECK...]       CHECK: a name below, `alone`, `beside`; none: both of these
#
# What is timed, or asks the GPU how much memory is free, runs alone (`alone`); the rest side by side (`beside`), so its
# seconds are those of a busy machine. Either fits a call of two minutes on an H200 with 16 cores. What programs print goes
# to LOGS, a file a check. TEXT names tinyshakespeare for `curve` and `seeds` (shakespeare_char trained to the end, with one
# seed and with two more). In no list, for they take minutes: `seeds`, `sanitizer_wide`; nor `arrays`, which wants PyTorch with CUDA (PYTHON=). Needs BUILD/anneal and of
# BUILD/tests cuda/test_gpu, cuda/test_memory, cuda/test_bind, cuda/test_cudnn, ops/test_ops; BUILD/proxy/libcuda.so.1 where there is no compiler
# (make on-gpu).
alone="doctor tests bytes steps profile commands curve"
beside="sanitizer table convs bind selftest selftest_char selftest_tf32 selftest_half selftest_gpt2s selftest_gpt2 selftest_bias selftest_odd bits exact crossing tasks killed fault hang memory_full scaled"
others="arrays seeds sanitizer_wide"
build=$1 logs=$2
[ -x "$build/anneal" ] && [ -n "$logs" ] || { sed -n 2,13p "$0" >&2; exit 2; }
shift 2
build=$(cd "$build" && pwd)
anneal=$build/anneal
mkdir -p "$logs" && logs=$(cd "$logs" && pwd)
all=$(mktemp -d)
trap 'rm -rf "$all"' EXIT
[ -z "${TEXT:-}" ] || TEXT=$(cd "$(dirname "$TEXT")" && pwd)/$(basename "$TEXT")
cd "$(dirname "$0")/../.." || exit 2
export ANNEAL_CACHE="$all/cache"
mkdir -m 700 "$ANNEAL_CACHE"

# run CHECK: the function of that name, in a folder of its own; its output is the log, its last "# " line the figure.
run() {
    began=$(date +%s%N)
    work=$all/$1
    mkdir -p "$work"
    if "$1" >"$logs/$1" 2>&1; then verdict="ok    "; else verdict="NOT OK"; fi
    took=$((($(date +%s%N) - began) / 100000000))
    echo "$verdict $1: $(about "$1"): $(sed -n 's/^# //p' "$logs/$1" | tail -n 1) ($((took / 10)).$((took % 10)) s)" >"$all/$1.line"
    [ "$verdict" = "ok    " ] || tail -n 5 "$logs/$1" | cut -c1-300 | sed 's/^/       /' >>"$all/$1.line"
}
hash_of() { "$anneal" inspect "$1" --json | sed -n 's/.*"state_hash":"\([0-9a-f]*\)".*/\1/p'; }
# same NAME FOLDER FOLDER...: one state hash for all.
same() {
    first=$(hash_of "$2") what=$1
    [ -n "$first" ] || return 1
    shift
    for run; do
        [ "$(hash_of "$run")" = "$first" ] || { echo "# $run has other bits than $1"; return 1; }
    done
    echo "# $what: $first"
}
# The losses of metrics.jsonl, a line an update.
losses() { sed -n 's/.*"step":\([0-9]*\),.*"loss":\([-0-9.e]*\).*/\1 \2/p' "$1/metrics.jsonl"; }
# The largest difference of two runs' losses from update $3 on, at most $4.
near() {
    losses "$1" >"$work/losses" && losses "$2" >"$work/others"
    awk -v from="$3" -v most="$4" 'NR == FNR { a[$1] = $2; next }
        $1 >= from && $1 in a { d = a[$1] - $2; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
        END { printf "# %d losses, the largest difference %.2g\n", n, worst; exit !(n > 20 && worst <= most) }' "$work/losses" "$work/others"
}
# The median of the milliseconds an update took, of the second half of a run's lines.
median_ms() {
    sed -n 's/.*"ms":\([0-9.e-]*\),.*/\1/p' "$1/metrics.jsonl" | awk '{ v[NR] = $1 } END { for (i = int(NR / 2) + 1; i <= NR; i++) print v[i] }' |
        sort -g | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'
}
small="macbook log_interval=1 eval_iters=5 dropout=0.1"
hopper="n_embd=256 n_head=4 batch_size=24" # 96 heads of 64: attention as larger models have it there

doctor() { "$anneal" doctor device=cuda && echo "# $("$anneal" doctor device=cuda --json | sed -n 's/.*\("device_bytes":[0-9]*,"driver_bytes":[0-9]*\).*/\1/p')"; }

# Every kernel of a model's steps against the oracle, and updates beside the CPU's: judged TITLE SETTINGS...
judged() {
    log=$logs/$1
    shift
    "$anneal" selftest "$@" device=cuda || return 1
    sed -n 's/^\(.* on cuda: .*\)$/\1/p' "$log" | awk '{ n += $4; e += $6 } END { print "# " n " kernels, " e " elements, none is wrong" }'
}
selftest() { judged selftest macbook dropout=0.1; }
selftest_char() { judged selftest_char char steps=0 size=0; }
selftest_tf32() { judged selftest_tf32 char n_layer=1 tf32=true steps=0 size=0; }
selftest_half() { judged selftest_half char n_layer=1 dtype=float16 steps=0 size=0; }
selftest_gpt2s() { judged selftest_gpt2s gpt2s n_layer=2 steps=0 size=0; }
selftest_gpt2() { judged selftest_gpt2 gpt2 n_layer=1 batch_size=2 gradient_accumulation_steps=1 steps=0 size=0; }
# Large enough for products whose end is their bias.
selftest_bias() { judged selftest_bias gpt2 bias=true n_layer=1 vocab_size=1024 batch_size=8 gradient_accumulation_steps=1 dtype=bfloat16 steps=0 size=0; }
# Width, heads and vocabulary that are multiples of nothing.
selftest_odd() { judged selftest_odd gpt2 dtype=bfloat16 n_layer=1 batch_size=2 block_size=100 n_head=9 n_embd=585 vocab_size=50257 bias=true dropout=0.1 gradient_accumulation_steps=1 steps=0 size=0; }

tests() {
    "$build/tests/cuda/test_gpu" || return 1
    ! grep -q SKIPPED "$logs/tests" && grep -c '  OK ' "$logs/tests" | sed 's/.*/# & tests/'
}

# The driver's libraries as the program finds them, and a library in front of the driver that counts.
proxy() {
    mkdir -p "$work/proxy"
    LD_DEBUG=files "$anneal" doctor device=cuda measure=false 2>&1 | sed -n 's/.*calling init: \(.*\)/\1/p' >"$work/libraries"
    driver=$(grep 'libcuda\.so' "$work/libraries" | head -n 1)
    compiler=$(grep 'libnvrtc\.so' "$work/libraries" | head -n 1)
    cublaslt=$(grep 'libcublasLt\.so' "$work/libraries" | head -n 1)
    [ -f "$build/proxy/libcuda.so.1" ] && cp "$build/proxy/libcuda.so.1" "$work/proxy" ||
        ${CC:-cc} -std=gnu17 -O1 -Isrc -Iinclude -fPIC -shared -fvisibility=hidden -o "$work/proxy/libcuda.so.1" \
            tests/cuda/proxy_cuda.c -ldl || return 1
    export PROXY_DRIVER="$driver"
    export ANNEAL_CUDA_PATH="$work/proxy:$(dirname "$compiler"):$(dirname "$cublaslt")"
    echo "driver $driver, $compiler, $cublaslt"
}
unproxy() { unset PROXY_DRIVER PROXY_FAULT ANNEAL_CUDA_PATH AN_CUDA_PROXY; }

bytes() {
    proxy || return 1
    AN_CUDA_PROXY=1 "$build/tests/cuda/test_memory"
    code=$?
    unproxy
    echo "# $(grep -c 'bytes: ' "$logs/bytes") configurations, each exact"
    [ $code -eq 0 ] && [ "$(grep -c 'bytes: ' "$logs/bytes")" -eq 10 ]
}

# One fault for real: a kernel reads where nothing is. The checkpoint before it is whole, and the run goes on.
fault() {
    proxy || return 1
    # shellcheck disable=SC2086
    ANNEAL_CUDA_LAUNCH=plain PROXY_FAULT=6000 timeout 60 "$anneal" train $small device=cuda out="$work/fault" max_iters=200 \
        save_interval=5 eval_interval=100 --quiet 2>"$work/said"
    code=$?
    unproxy
    cat "$work/said"
    [ $code -eq 2 ] && grep -q 'resume from the last checkpoint' "$work/said" || return 1
    kept=$("$anneal" inspect "$work/fault" --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
    updates=$(losses "$work/fault" | wc -l)
    "$anneal" resume "$work/fault" --quiet || return 1
    # shellcheck disable=SC2086
    "$anneal" train $small device=cuda out="$work/unharmed" max_iters=200 save_interval=5 eval_interval=100 --quiet || return 1
    same "resumed after $kept of $updates updates: the bits of an undisturbed run" "$work/unharmed" "$work/fault" &&
        [ "$kept" -gt 0 ] && [ $((updates - kept)) -le 5 ]
}

# A step that takes longer than is allowed is a sentence, as a GPU that hangs would be.
hang() {
    ANNEAL_CUDA_TIMEOUT=0.0005 timeout 60 "$anneal" train char dtype=float32 device=cuda out="$work/hang" max_iters=20 --quiet 2>"$work/said"
    code=$?
    cat "$work/said"
    echo "# exit code $code: $(cut -c1-100 "$work/said")"
    [ $code -eq 2 ] && grep -q 'has not finished after' "$work/said"
}

memory_full() {
    "$anneal" train gpt2 data=corpus dtype=bfloat16 device=cuda batch_size=4096 out="$work/full" --quiet 2>"$work/said"
    code=$?
    cat "$work/said"
    echo "# $(cut -c1-160 "$work/said")"
    [ $code -eq 2 ] && grep -q 'Smallest changes that fit' "$work/said"
}

bits() {
    for dtype in float32 bfloat16; do
        for how in graph again plain chain; do
            # shellcheck disable=SC2086
            ANNEAL_CUDA_LAUNCH=$(echo $how | sed s/again/graph/) "$anneal" train $small $hopper dtype=$dtype device=cuda \
                out="$work/$dtype-$how" max_iters=200 eval_interval=100 --quiet || return 1
        done
        same "$dtype, 200 updates, two runs, plain launches and one behind the other" "$work/$dtype-graph" "$work/$dtype-again" \
            "$work/$dtype-plain" "$work/$dtype-chain" || return 1
    done
}

killed() {
    settings="$small $hopper dtype=bfloat16 device=cuda max_iters=1500 eval_interval=500 save_interval=50 --quiet"
    # shellcheck disable=SC2086
    "$anneal" train $settings out="$work/whole" || return 1
    for after in 300 900; do
        rm -rf "$work/killed"
        # shellcheck disable=SC2086
        "$anneal" train $settings out="$work/killed" &
        until [ "$(losses "$work/killed" 2>/dev/null | wc -l)" -ge $after ]; do sleep 0.02; done
        kill -9 $!
        wait $! 2>/dev/null
        kept=$("$anneal" inspect "$work/killed" --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
        "$anneal" resume "$work/killed" --quiet || return 1
        same "kill -9 after $after of 1500 updates, $kept kept, resume" "$work/whole" "$work/killed" || return 1
        [ "$kept" -lt 1500 ] || return 1
    done
}

exact() {
    settings="$small exact=true max_iters=100 eval_interval=50 --quiet"
    # shellcheck disable=SC2086
    "$anneal" train $settings device=cpu out="$work/ecpu" && "$anneal" train $settings device=cuda out="$work/ecuda" &&
        "$anneal" train $settings device=cpu max_iters=50 out="$work/emixed" &&
        "$anneal" resume "$work/emixed" device=cuda max_iters=100 --quiet &&
        same "exact, 100 updates: cpu, cuda, and half of each" "$work/ecpu" "$work/ecuda" "$work/emixed"
}

crossing() {
    settings="$small dtype=float32 eval_interval=50 --quiet"
    # shellcheck disable=SC2086
    "$anneal" train $settings device=cpu max_iters=200 out="$work/straight" &&
        "$anneal" train $settings device=cpu max_iters=100 out="$work/there" &&
        "$anneal" resume "$work/there" device=cuda max_iters=200 --quiet &&
        "$anneal" train $settings device=cuda max_iters=100 out="$work/back" &&
        "$anneal" resume "$work/back" device=cpu max_iters=200 --quiet &&
        near "$work/straight" "$work/there" 100 1e-3 && near "$work/straight" "$work/back" 100 1e-3
}

# Every task of tests/cli/tasks.sh: half of a run on the CPU and half on the GPU, in exact mode, has the bits of a run on the CPU.
tasks() {
    root=$PWD program=$anneal tiny="block_size=16 n_layer=1 n_head=2 n_embd=16 batch_size=4 eval_iters=2 workers=0"
    cd "$work" || return 1
    # shellcheck source=tests/cli/tasks.sh
    . "$root/tests/cli/tasks.sh"
    ran=0
    while IFS='|' read -r task trained settings; do
        task=${task% } trained=${trained# } trained=${trained% }
        # shellcheck disable=SC2086  # $settings is a list
        set -- "$trained" $settings exact=true eval_iters=1 seed=3 --quiet
        "$anneal" train "$@" device=cpu max_iters=4 eval_interval=4 out="$task.cpu" </dev/null &&
            "$anneal" train "$@" device=cpu max_iters=2 eval_interval=2 out="$task.both" </dev/null &&
            "$anneal" resume "$task.both" device=cuda max_iters=4 --quiet </dev/null &&
            same "$task" "$task.cpu" "$task.both" || return 1
        ran=$((ran + 1))
    done <table
    echo "# $ran tasks, half of each on the CPU"
    [ "$ran" -eq "$(wc -l <table)" ]
}

# What a user types first; device=auto takes the GPU and says why.
commands() {
    cd "$work" || return 1
    "$anneal" plan char dtype=bfloat16 device=cuda && "$anneal" train demo dtype=bfloat16 out=demo max_iters=300 2>said || { cat said; return 1; }
    cat said
    grep -q '^device  cuda: ' said && "$anneal" sample demo --tokens 200 && "$anneal" eval demo &&
        "$anneal" resume demo max_iters=350 device=cpu && "$anneal" resume demo max_iters=400 device=auto &&
        "$anneal" bench matmul --n 4096 --iters 20 device=cuda dtype=bfloat16 &&
        "$anneal" bench copy --n 256 --iters 20 device=cuda && "$anneal" bench char device=cuda dtype=bfloat16 &&
        echo "# auto: $(sed -n 's/^device  \(.\{60\}\).*/\1/p' said)..."
}

# Updates whose results are not read are not waited for: milliseconds an update, waits and stalls by log_interval; and a step in float16.
steps() {
    said=
    for settings in "dtype=bfloat16 log_interval=1" "dtype=bfloat16 log_interval=10" "dtype=bfloat16 log_interval=100" \
        "dtype=float16 log_interval=10"; do
        # shellcheck disable=SC2086
        "$anneal" train char $settings ${TEXT:+data="$TEXT"} device=cuda out="$work/run" max_iters=300 eval_interval=300 eval_iters=5 \
            --quiet --json >"$work/json" || return 1
        said="$said; $settings: $(median_ms "$work/run") ms, $(sed -n 's/.*"waits":\([0-9]*\),"stalls":\([0-9]*\).*/\1 waits, \2 stalls/p' "$work/json")"
        cat "$work/json"
        [ "$settings" != "dtype=float16 log_interval=10" ] || mv "$work/run" "$all/float16" # for `scaled`
    done
    echo "# char, 300 updates$said" | sed 's/dtype=//g; s/updates;/updates:/'
}

# float16 with its loss scale: the losses of float32, one hash of two runs, and of one that was killed.
scaled() {
    settings="char device=cuda eval_interval=300 eval_iters=5 --quiet"
    [ -d "$all/float16" ] && cp -r "$all/float16" "$work/a" || # shellcheck disable=SC2086
        "$anneal" train $settings ${TEXT:+data="$TEXT"} dtype=float16 out="$work/a" max_iters=300 || return 1
    # shellcheck disable=SC2086
    "$anneal" train $settings ${TEXT:+data="$TEXT"} dtype=float32 out="$work/f32" max_iters=300 &
    # shellcheck disable=SC2086
    "$anneal" train $settings ${TEXT:+data="$TEXT"} dtype=bfloat16 out="$work/bf16" max_iters=300 &
    # shellcheck disable=SC2086
    "$anneal" train $settings ${TEXT:+data="$TEXT"} dtype=float16 out="$work/b" max_iters=300 save_interval=20 &
    until [ "$(losses "$work/b" 2>/dev/null | wc -l)" -ge 15 ]; do sleep 0.02; kill -0 $! || return 1; done
    kill -9 $!
    wait
    kept=$("$anneal" inspect "$work/b" --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
    "$anneal" resume "$work/b" --quiet || return 1
    scales=$(sed -n 's/.*"scale":\([0-9.e+]*\),"skipped":\([0-9]*\).*/scale \1, \2 skipped/p' "$work/a/metrics.jsonl" | tail -n 1)
    echo "of update 300 $scales"
    near "$work/f32" "$work/bf16" 0 0.05 || return 1
    far=$(near "$work/f32" "$work/a" 0 0.05) || { echo "$far"; return 1; }
    echo "$far from float16"
    same "killed with $kept of 300 kept, resumed; $scales; beside float32 ${far#\# }; bits" "$work/a" "$work/b" && [ "$kept" -lt 300 ]
}

profile() {
    for settings in "char dtype=bfloat16 device=cuda --top 15" "char tf32=true device=cuda --top 10" \
        "char dtype=bfloat16 device=cuda --forward-only --top 5" "char device=cuda --data-only" "macbook device=cpu --top 5"; do
        echo "== $settings"
        # shellcheck disable=SC2086
        "$anneal" profile $settings --warmup 5 --steps 10 --trace "$work/trace.json" || return 1
        cp "$work/trace.json" "$logs/trace-$(echo "$settings" | tr -c 'a-z0-9\n' _).json"
        python3 -c 'import json, sys
ends = {}
n = 0
for e in json.load(open(sys.argv[1]))["traceEvents"]:
    if e["ph"] != "X": continue
    assert e["ts"] >= ends.get(e["tid"], 0) - 1e-6 and e["dur"] >= 0, e
    ends[e["tid"]] = e["ts"] + e["dur"]
    n += 1
print("#", n, "events in the last trace, none over another")' "$work/trace.json" || return 1
    done
}

# Small char steps under compute-sanitizer's four tools, values apart; side by side. In bf16 with 96 heads, as attention of
# its own wants them on Hopper. In bf16 cuBLASLt takes NVIDIA's own kernels (nvjet_...), in which racecheck sees hazards:
# they are counted apart, in ours there may be none. sanitized SECONDS SETTINGS+SETTINGS...
sanitized() {
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$tool" ] || { echo "# NOT RUN: no compute-sanitizer here"; return 1; }
    shape="char n_layer=1 n_embd=128 n_head=2 block_size=64 batch_size=2 max_iters=2 eval_iters=1 log_interval=1 place_apart=true device=cuda --quiet"
    limit=$1 name=${work##*/}
    shift
    for settings; do # fills the cache
        # shellcheck disable=SC2046,SC2086
        "$anneal" train $shape $(echo "$settings" | tr + ' ') out="$work/warm" || return 1
    done
    for check in memcheck racecheck initcheck synccheck; do
        for settings; do
            # shellcheck disable=SC2046,SC2086
            (ANNEAL_CUDA_TIMEOUT=300 timeout "$limit" "$tool" --tool $check --print-limit 100000 --error-exitcode 9 "$anneal" \
                train $shape $(echo "$settings" | tr + ' ') out="$work/$check-$settings" >"$logs/$name-$check-$settings" 2>&1
                echo "exit code $?, $(($(date +%s) - began / 1000000000)) s" >>"$logs/$name-$check-$settings") &
        done
    done
    wait
    clean=0 bad=0 theirs=0 runs=0
    for log in "$logs/$name"-*; do
        ours=$(grep 'Race reported\|Write access\|Read access' "$log" | grep -c -v ' nvjet_')
        vendor=$(grep -c 'Race reported.* nvjet_' "$log")
        theirs=$((theirs + vendor)) runs=$((runs + 1))
        echo "$(basename "$log"): $(grep SUMMARY "$log" | tail -n 1 | tr -d =), $(tail -n 1 "$log"); $vendor hazards in nvjet_ kernels"
        if [ "$ours" -eq 0 ] && grep -q SUMMARY "$log" && { [ "$vendor" -gt 0 ] || grep -q '^exit code 0' "$log"; }; then
            clean=$((clean + 1))
        else
            bad=1
        fi
    done
    echo "# $clean of $runs runs (4 tools; $*) without an error of ours; racecheck names $theirs hazards in NVIDIA's nvjet_ kernels"
    return $bad
}
sanitizer() { sanitized "${SANITIZER_S:-120}" dtype=bfloat16+batch_size=32 dtype=float16 dtype=float32 tf32=true exact=true; }
# So many tokens that GELU is fused into the GEMM before it.
sanitizer_wide() { sanitized "${SANITIZER_S:-480}" dtype=bfloat16+batch_size=272; }

# The table of operations: in exact mode the CPU's bits (GEMMs in bf16 are refused there, float64 is compared with the
# oracle); then GEMMs of every dtype by libraries and tensor cores, and convolutions by cuDNN, and by our own kernels. In parts
# that run at the same time.
table() {
    [ -x "$build/tests/ops/test_ops" ] || { echo "# NOT RUN: $build/tests/ops/test_ops is not built"; return 1; }
    for part in 0 1 2 3 4 5; do
        AN_LAB_PART=$part/6 AN_LAB_DEVICE=cuda ANNEAL_EXACT=1 "$build/tests/ops/test_ops" >"$work/exact.$part" 2>&1 &
    done
    for cudnn in 0 1; do
        AN_LAB_DEVICE=cuda ANNEAL_CUDNN=$cudnn "$build/tests/ops/test_ops" >"$work/fast.$cudnn" 2>&1 &
    done
    wait
    cat "$work"/exact.* "$work"/fast.*
    cases=$(cat "$work"/exact.* "$work"/fast.* | sed -n 's/^# \([0-9]*\) cases.*/\1/p' | awk '{ n += $1 } END { print n }')
    tests=$(cat "$work"/exact.* "$work"/fast.* | sed -n 's/.*Running \([0-9]*\) test.*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
    good=$(cat "$work"/exact.* "$work"/fast.* | grep -c '  OK ')
    echo "# $good of $tests tests, $cases cases, five ways each"
    [ "$tests" -gt 0 ] && [ "$good" -eq "$tests" ] && [ "$(cat "$work"/exact.* "$work"/fast.* | grep -c ' PASSED ')" -eq 8 ]
}

# cuDNN itself: all forms of convolutions beside the CPU, and our own kernels where it is kept out.
convs() {
    [ -x "$build/tests/cuda/test_cudnn" ] || { echo "# NOT RUN: $build/tests/cuda/test_cudnn is not built"; return 1; }
    AN_CUDA_PROXY=1 "$build/tests/cuda/test_cudnn" || return 1
    grep -q 'OK.*they_are_those_of_the_cpu' "$logs/convs" && echo "# all forms and shapes are the CPU's; what counts calls needs the stand-in"
}

bind() {
    proxy || return 1
    AN_CUDA_PROXY=1 "$build/tests/cuda/test_bind"
    code=$?
    unproxy
    echo "# states over device memory of the caller's"
    return $code
}

arrays() {
    PYTHONPATH=python ANNEAL_LIBRARY=$(ls "$build"/libanneal.so.*) "${PYTHON:-python3}" -W ignore tests/cuda/bind_on_gpu.py
}

# What a whole shakespeare_char run said: trained SEED FOLDER. nanoGPT's best validation loss is near 1.47 (at most 1.49 is
# asked); then the model learns the text by heart, and ends near 1.71.
trained() {
    grep 'after\|^time\|updates; best' "$logs/seed$1"
    best=$(sed -n 's/.*best val loss \([0-9.]*\) after .*/\1/p' "$logs/seed$1")
    end=$(sed -n 's/^after 5000 updates: .*val loss \([0-9.]*\).*/\1/p' "$logs/seed$1")
    echo "# seed $1: $(sed -n 's/^time *\([^:]*\(:[0-9]*\)\?\): .*/\1/p' "$logs/seed$1" | head -n 1)," \
        "$(grep -o 'best val loss [0-9.]* after [0-9]*' "$logs/seed$1"), at the end $end"
    awk -v best="$best" -v end="$end" 'BEGIN { exit !(best > 1.4 && best <= 1.49 && end > 1.61 && end < 1.81) }'
}
whole() {
    "$anneal" train char data="$TEXT" dtype=bfloat16 device=cuda seed="$1" eval_first=true out="$work/$1" >"$logs/seed$1" 2>&1
}
# The whole run, alone on the GPU: its first losses, its best and its last.
curve() {
    [ -f "${TEXT:-}" ] || { echo "# NOT RUN: TEXT=FILE names the text"; return 1; }
    whole 1337 && sh tools/first_losses "$work/1337/metrics.jsonl" && trained 1337
}
seeds() {
    [ -f "${TEXT:-}" ] || { echo "# NOT RUN: TEXT=FILE names the text"; return 1; }
    whole 1338 &
    whole 1339 && wait $! && trained 1338 && trained 1339
}

about() {
    case $1 in
    doctor) echo "doctor measures the GPU" ;;
    selftest*) echo "every kernel against the oracle" ;;
    tests) echo "attention, exact mode, guards, memory beside the bill" ;;
    bytes) echo "requested bytes are the bill's" ;;
    bits) echo "the same bits" ;;
    exact) echo "cuda has the CPU's bits" ;;
    crossing) echo "a run goes on on another device, 100 updates" ;;
    tasks) echo "every task goes on from the CPU to the GPU with its bits" ;;
    killed) echo "kill -9 and resume" ;;
    fault) echo "a kernel that faults" ;;
    hang) echo "a step beyond the timeout" ;;
    memory_full) echo "a step the GPU has no room for" ;;
    commands) echo "plan, train, sample, eval, resume, bench" ;;
    steps) echo "updates under way" ;;
    scaled) echo "float16" ;;
    profile) echo "profile and its trace" ;;
    sanitizer*) echo "compute-sanitizer" ;;
    convs) echo "convolutions by cuDNN" ;;
    bind) echo "memory of the caller's" ;;
    arrays) echo "models over arrays of PyTorch on the GPU" ;;
    table) echo "every operation, dtype and shape" ;;
    curve) echo "a whole run of shakespeare_char" ;;
    seeds) echo "two more" ;;
    *) return 1 ;;
    esac
}

[ $# -gt 0 ] || set -- alone beside
began=$(date +%s)
names=
for name; do
    case $name in
    alone) names="$names $alone" ;;
    beside) names="$names $beside" ;;
    *) about "$name" >/dev/null || { echo "there is no check $name" >&2; exit 2; }
        names="$names $name" ;;
    esac
done
for name in $names; do # alone first, each in its turn; then the others together
    case " $beside $others " in *" $name "*) continue ;; esac
    (run "$name")
    cat "$all/$name.line"
done
for name in $names; do
    case " $beside $others " in *" $name "*) (run "$name"; cat "$all/$name.line") & ;; esac
done
wait
failed=$(cat "$all"/*.line | grep -c '^NOT OK')
echo "$(echo "$names" | wc -w) checks in $(($(date +%s) - began)) s, $failed failed"
[ "$failed" -eq 0 ]
