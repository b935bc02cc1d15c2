#!/bin/sh
# on_gpu.sh: what can only be shown on an NVIDIA GPU, a line a check: "ok" or "NOT OK", what it is, its figures, seconds.
#
#     sh tests/cuda/on_gpu.sh BUILD LOGS [CHECK...]       needs BUILD/anneal, BUILD/tests/cuda/test_gpu and test_memory
#
# Without names all checks but `seeds` and `table` run, two minutes on an H200; what programs print goes to LOGS, a file a
# check. TEXT names a training text for `seeds`, which trains shakespeare_char three times; `table` needs
# BUILD/tests/ops/test_ops.
build=$1 logs=$2
[ -x "$build/anneal" ] && [ -n "$logs" ] || { sed -n 2,9p "$0" >&2; exit 2; }
shift 2
anneal=$(cd "$build" && pwd)/anneal
mkdir -p "$logs" && logs=$(cd "$logs" && pwd)
work=$(mktemp -d) failed=0
trap 'rm -rf "$work"' EXIT
export ANNEAL_CACHE="$work/cache"
mkdir -m 700 "$ANNEAL_CACHE"
here=$(dirname "$0")

# check NAME WORDS: runs the function NAME, whose output is the log and whose last "# " line is the figure.
check() {
    began=$(date +%s%N)
    if "$1" >"$logs/$1" 2>&1; then verdict="ok    "; else verdict="NOT OK" failed=$((failed + 1)); fi
    took=$((($(date +%s%N) - began) / 100000000))
    echo "$verdict $1: $2: $(sed -n 's/^# //p' "$logs/$1" | tail -n 1) ($((took / 10)).$((took % 10)) s)"
    [ "$verdict" = "ok    " ] || tail -n 5 "$logs/$1" | cut -c1-300 | sed 's/^/       /'
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
    losses "$1" >"$work/a" && losses "$2" >"$work/b"
    awk -v from="$3" -v most="$4" 'NR == FNR { a[$1] = $2; next }
        $1 >= from && $1 in a { d = a[$1] - $2; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
        END { printf "# %d losses, the largest difference %.2g\n", n, worst; exit !(n > 20 && worst <= most) }' "$work/a" "$work/b"
}
small="macbook log_interval=1 eval_iters=5 dropout=0.1"

doctor() { "$anneal" doctor device=cuda && echo "# $("$anneal" doctor device=cuda --json | sed -n 's/.*\("device_bytes":[0-9]*,"driver_bytes":[0-9]*\).*/\1/p')"; }

selftest() {
    for settings in "macbook dropout=0.1" "char steps=0 size=0" "char tf32=true steps=0 size=0"; do
        # shellcheck disable=SC2086  # settings are words
        "$anneal" selftest $settings device=cuda || return 1
    done
    sed -n 's/^\(.* on cuda: .*\)$/\1/p' "$logs/selftest" | awk '{ n += $4; e += $6 } END { print "# " n " kernels, " e " elements, none is wrong" }'
}

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
    products=$(grep 'libcublasLt\.so' "$work/libraries" | head -n 1)
    [ -f "$build/proxy/libcuda.so.1" ] && cp "$build/proxy/libcuda.so.1" "$work/proxy" ||
        ${CC:-cc} -std=gnu17 -O1 -Isrc -Iinclude -fPIC -shared -fvisibility=hidden -o "$work/proxy/libcuda.so.1" \
            "$here/proxy_cuda.c" -ldl || return 1
    export PROXY_DRIVER="$driver"
    export ANNEAL_CUDA_PATH="$work/proxy:$(dirname "$compiler"):$(dirname "$products")"
    echo "driver $driver, $compiler, $products"
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
        for run in a b; do
            # shellcheck disable=SC2086
            "$anneal" train $small dtype=$dtype device=cuda out="$work/$dtype-$run" max_iters=200 eval_interval=100 --quiet || return 1
        done
        # shellcheck disable=SC2086
        ANNEAL_CUDA_LAUNCH=plain "$anneal" train $small dtype=$dtype device=cuda out="$work/$dtype-plain" max_iters=200 eval_interval=100 \
            --quiet || return 1
        same "$dtype, 200 updates, two runs and plain launches" "$work/$dtype-a" "$work/$dtype-b" "$work/$dtype-plain" || return 1
    done
}

killed() {
    settings="$small dtype=bfloat16 device=cuda max_iters=3000 eval_interval=500 save_interval=50 --quiet"
    # shellcheck disable=SC2086
    "$anneal" train $settings out="$work/whole" || return 1
    for after in 400 1700; do
        rm -rf "$work/killed"
        # shellcheck disable=SC2086
        "$anneal" train $settings out="$work/killed" &
        until [ "$(losses "$work/killed" 2>/dev/null | wc -l)" -ge $after ]; do sleep 0.02; done
        kill -9 $!
        wait $! 2>/dev/null
        kept=$("$anneal" inspect "$work/killed" --json | sed -n 's/.*"step":\([0-9]*\).*/\1/p')
        "$anneal" resume "$work/killed" --quiet || return 1
        same "kill -9 after $after of 3000 updates, $kept kept, resume" "$work/whole" "$work/killed" || return 1
        [ "$kept" -lt 3000 ] || return 1
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

commands() {
    cd "$work" || return 1
    "$anneal" plan char dtype=bfloat16 device=cuda && "$anneal" train demo device=cuda dtype=bfloat16 out="$work/demo" max_iters=300 &&
        "$anneal" sample "$work/demo" device=cuda --tokens 200 && "$anneal" eval "$work/demo" device=cuda &&
        "$anneal" resume "$work/demo" max_iters=400 && "$anneal" bench matmul --n 4096 --iters 20 device=cuda dtype=bfloat16 &&
        "$anneal" bench copy --n 256 --iters 20 device=cuda && "$anneal" bench char device=cuda dtype=bfloat16 && echo "# see $logs/commands"
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

# A small char step under compute-sanitizer's four tools, values apart; side by side. In bf16 cuBLASLt takes NVIDIA's own
# kernels (nvjet_...), in which racecheck sees hazards: they are counted apart, in ours there may be none.
sanitizer() {
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
    [ -n "$tool" ] || { echo "# NOT RUN: no compute-sanitizer here"; return 1; }
    shape="char n_layer=1 block_size=64 batch_size=2 max_iters=3 eval_iters=1 log_interval=1 place_apart=true device=cuda --quiet"
    precisions="dtype=bfloat16 dtype=float32 tf32=true exact=true"
    for precision in $precisions; do # fills the cache
        # shellcheck disable=SC2086
        "$anneal" train $shape $precision out="$work/warm" || return 1
    done
    for check in memcheck racecheck initcheck synccheck; do
        for precision in $precisions; do
            # shellcheck disable=SC2086
            (ANNEAL_CUDA_TIMEOUT=300 timeout "${SANITIZER_S:-240}" "$tool" --tool $check --print-limit 100000 --error-exitcode 9 "$anneal" \
                train $shape $precision out="$work/$check-$precision" >"$logs/sanitizer-$check-$precision" 2>&1
                echo "exit code $?" >>"$logs/sanitizer-$check-$precision") &
        done
    done
    wait
    clean=0 bad=0 theirs=0
    for log in "$logs"/sanitizer-*; do
        ours=$(grep 'Race reported\|Write access\|Read access' "$log" | grep -c -v ' nvjet_')
        vendor=$(grep -c 'Race reported.* nvjet_' "$log")
        theirs=$((theirs + vendor))
        echo "$(basename "$log"): $(grep SUMMARY "$log" | tail -n 1 | tr -d =), $(tail -n 1 "$log"); $vendor hazards in nvjet_ kernels"
        if [ "$ours" -eq 0 ] && grep -q SUMMARY "$log" && { [ "$vendor" -gt 0 ] || grep -q '^exit code 0' "$log"; }; then
            clean=$((clean + 1))
        else
            bad=1
        fi
    done
    echo "# $clean of 16 runs (4 tools, bf16, f32, tf32, exact) without an error of ours; racecheck names $theirs hazards in NVIDIA's nvjet_ kernels"
    return $bad
}

# The table of operations, in exact mode: the CPU's bits.
table() {
    [ -x "$build/tests/ops/test_ops" ] || { echo "# NOT RUN: $build/tests/ops/test_ops is not built"; return 1; }
    AN_LAB_DEVICE=cuda ANNEAL_EXACT=1 "$build/tests/ops/test_ops"
    code=$?
    echo "# $(grep -c '  OK ' "$logs/table") tests, exit code $code"
    return $code
}

# The whole shakespeare_char run, three seeds.
seeds() {
    [ -f "${TEXT:-}" ] || { echo "# NOT RUN: TEXT=FILE names the text"; return 1; }
    for seed in 1337 1338 1339; do
        "$anneal" train char data="$TEXT" dtype=bfloat16 device=cuda seed=$seed out="$work/seed$seed" >"$logs/seed$seed" 2>&1 || return 1
        grep 'after\|^time\|updates; best' "$logs/seed$seed"
        echo "# seed $seed: $(sed -n 's/^time *\([^:]*\(:[0-9]*\)\?\): .*/\1/p' "$logs/seed$seed" | head -n 1), $(grep -o 'best val loss [0-9.]* after [0-9]*' "$logs/seed$seed")," \
            "end $(grep -o 'after 5000 updates: .*' "$logs/seed$seed")"
    done
}

[ $# -gt 0 ] || set -- doctor selftest tests bytes bits exact crossing killed fault hang memory_full commands profile sanitizer
for name; do
    case $name in
    doctor) check doctor "doctor measures the GPU" ;;
    selftest) check selftest "every kernel of a step against the oracle" ;;
    tests) check tests "attention, exact mode, guards, memory beside the bill" ;;
    bytes) check bytes "requested bytes are the bill's" ;;
    bits) check bits "the same bits" ;;
    exact) check exact "cuda has the CPU's bits" ;;
    crossing) check crossing "a run goes on on another device, 100 updates" ;;
    killed) check killed "kill -9 and resume" ;;
    fault) check fault "a kernel that faults" ;;
    hang) check hang "a step beyond the timeout" ;;
    memory_full) check memory_full "a step the GPU has no room for" ;;
    commands) check commands "plan, train, sample, eval, resume, bench" ;;
    profile) check profile "profile and its trace" ;;
    sanitizer) check sanitizer "compute-sanitizer" ;;
    table) check table "every operation, dtype and shape" ;;
    seeds) check seeds "shakespeare_char, three seeds" ;;
    *) echo "there is no check $name" >&2; exit 2 ;;
    esac
done
[ "$failed" -eq 0 ] || { echo "$failed checks failed"; exit 1; }
