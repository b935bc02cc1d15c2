#!/bin/sh
# test_tasks.sh: what every task owes, a row a task: one hash over threads and loader threads, kill -9 and resume to the same bits, and
# a bill that is met to the page, epochs as updates. A task of src/train/tasks without a row fails.
plan=8
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1
root=$OLDPWD

. "$root/tests/cli/tasks.sh"

for file in "$root"/src/train/tasks/*.c; do
    name=$(basename "$file" .c)
    grep -q "^$name " table || fault "src/train/tasks/$name.c has no row in tests/cli/tasks.sh"
done

# The state hash of a run of 12 updates with further settings, in $hash.
train() {
    rm -rf run
    # shellcheck disable=SC2086  # a list of settings
    run train "$what" $settings device=cpu max_iters=12 eval_interval=6 save_interval=2 seed=3 out=run --quiet "$@"
    code_is 0
    hash=$(state_hash run)
}

while IFS='|' read -r name what settings; do
    name=${name% } what=${what# } what=${what% }
    train threads=1 workers=0
    want=$hash
    [ ${#want} -eq 32 ] || fault "no state hash"
    train threads=2 workers=2
    equal "$hash" "$want" "state hash with two threads and two loader threads"

    rm -rf run # killed behind an early checkpoint, wherever it then is
    # shellcheck disable=SC2086
    "$program" train "$what" $settings device=cpu max_iters=12 eval_interval=6 save_interval=2 seed=3 out=run threads=1 --quiet >killed.out 2>&1 </dev/null &
    pid=$! tries=0
    until [ -f run/last.safetensors ] || [ $tries -ge 600 ]; do sleep 0.05; tries=$((tries + 1)); done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    run resume run --quiet
    code_is 0
    equal "$(state_hash run)" "$want" "state hash after kill -9 and resume"

    # shellcheck disable=SC2086
    run plan "$what" $settings device=cpu threads=1 workers=0 recompute=off --json
    code_is 0
    total=$(value "$dir/stdout" total_bytes)
    gib() { awk -v n="$1" 'BEGIN { printf "%.15g", n / 1073741824 }'; }
    train threads=1 workers=0 recompute=off budget="$(gib $((total + 4096)))"
    equal "$hash" "$want" "state hash within the bill"
    rm -rf run
    # shellcheck disable=SC2086
    run train "$what" $settings device=cpu max_iters=12 out=run threads=1 workers=0 recompute=off --quiet budget="$(gib $((total - 4096)))"
    code_is 2; says stderr "the budget is"

    # Epochs: twice as many are twice the updates, to the one that is rounded down, and max_iters behind them wins.
    updates() {
        # shellcheck disable=SC2086
        run plan "$what" $settings device=cpu --json "$@"
        value "$dir/stdout" updates
    }
    once=$(updates epochs=4) twice=$(updates epochs=8)
    [ "$once" -ge 1 ] && [ "$twice" -ge $((2 * once)) ] && [ "$twice" -le $((2 * once + 1)) ] || fault "4 epochs are $once updates, 8 are $twice"
    equal "$(updates epochs=4 max_iters=3)" 3 "updates where max_iters is said last"
    ok "$name ($(basename "$what")): one hash, kill -9 and resume, the bill, epochs"
done <table
done_testing
