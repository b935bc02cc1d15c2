#!/bin/sh
# test_one_hash.sh: parameters and moments after training have one hash, whatever the machine is asked to do: threads, cache,
# compiler or interpreter, fusion, recomputation, placement, instruction set, loader threads. AN_SOAK=1: a larger model too.
plan=3
. "$(dirname "$0")/tap.sh"
# wide enough that sums in another order have other bits
settings="$tiny block_size=64 batch_size=1 n_embd=128 n_head=4 seed=9 --quiet"
[ -z "${AN_SOAK:-}" ] || settings="eval_iters=2 dropout=0.2 seed=9 --quiet"
updates=6

# hash_of DTYPE SETTING...: trains and leaves the state hash in $hash.
hash_of() {
    rm -rf "$dir/run"
    # shellcheck disable=SC2086  # $settings is a list
    run train macbook out="$dir/run" $settings max_iters=$updates dtype="$@"
    code_is 0
    hash=$(state_hash "$dir/run")
}

for dtype in float32 bfloat16; do
    # in bfloat16 tile registers add in an order of their own, which is there in plain C too
    plain=portable
    if [ $dtype = bfloat16 ]; then
        run bench macbook isa=amx dtype=bfloat16 steps=1 warmup=0 --json
        [ "$code" -ne 0 ] || plain=amx_emulated
    fi
    hash_of $dtype threads=1
    want=$hash
    [ ${#want} -eq 32 ] || fault "no state hash: '$want'"
    for setting in threads=2 threads=3 workers=0 workers=3 cc=none compile=false recompute=on recompute=off place_apart=true \
        cache_dir="$dir/cache" cache_dir="$dir/cache" isa=$plain verify=true; do
        hash_of $dtype $setting
        equal "$hash" "$want" "state hash with $setting in $dtype"
    done
    hash_of $dtype cc=none compile=false threads=2 isa=$plain
    equal "$hash" "$want" "state hash of the portable interpreter, unfused, in $dtype"
    ok "$dtype: one state hash for threads, caches, compiler and interpreter, fusion, recomputation, placement and instruction set"
done

# What a run in bfloat16 began on is in its checkpoints: one that began on tile registers and is resumed without them says so, and
# one that began without them stays without.
hash_of bfloat16 threads=1
isa=$(grep -o '"isa":"[^"]*' "$dir/run/logbook.jsonl" | head -n 1 | sed 's/.*"//') # the device's; the setting comes behind
case $isa in
amx) other=portable says="goes on with its bits on avx512" ;;
?*) other=amx_emulated says="which this processor lacks" ;;
*) fault "the logbook names no instruction set" ;;
esac
hash_of bfloat16 threads=1 isa=$other
want=$hash
run resume "$dir/run" max_iters=$((updates + 1))
code_is 0
if grep -q "the run began on" "$dir/stderr"; then fault "isa= is given, and there is a note"; fi
hash_of bfloat16 threads=1 isa=$other
equal "$hash" "$want" "state hash with isa=$other again"
run resume "$dir/run" max_iters=$((updates + 1)) isa=
code_is 0; says stderr "isa=$other"; says stderr "$says"
ok "a run in bfloat16 stays with the bits of the instruction set that it began on, or says that it cannot"
done_testing
