#!/bin/sh
# test_weights_dtype.sh: a run whose matrices are kept in bfloat16 (weights_dtype=): what says so, what is resumed, ranked, sampled,
# exported and begun from it, that a float32 run can be its beginning, and what plan offers. Threads, kill -9 and the bill's bytes of
# such a run: test_tasks.sh; other devices: tests/metal/test_tasks_exact.sh.
plan=7
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_ID

narrow="weights_dtype=bfloat16 moments_dtype=bfloat16 eval_interval=10 seed=5 device=cpu"
dtypes() { "$program" inspect "$1" | sed -n "s/^[0-9a-f]* *\([a-z0-9]*\) .*[] ]$2\$/\1/p"; }

# shellcheck disable=SC2086  # lists of settings
run train macbook out="$dir/a" $tiny $narrow max_iters=20
code_is 0
says stderr "matrices kept in bfloat16 (norms and biases in float32), moments in bfloat16"
equal "$(dtypes "$dir/a" transformer.h.0.mlp.c_fc.weight)" bfloat16 "a matrix in the checkpoint"
equal "$(dtypes "$dir/a" transformer.h.0.ln_1.weight)" float32 "a norm in the checkpoint"
grep -q '"weights":"bfloat16","moments":"bfloat16"' "$dir/a/logbook.jsonl" || fault "the logbook does not say so"
# shellcheck disable=SC2086
run plan macbook $tiny $narrow
says stdout "matrices in bfloat16, norms and biases in float32"
# shellcheck disable=SC2086
run train macbook out="$dir/b" $tiny $narrow max_iters=10 --quiet
run resume "$dir/b" max_iters=20 --quiet
code_is 0
[ -n "$(state_hash "$dir/a")" ] || fault "no state hash"
equal "$(state_hash "$dir/b")" "$(state_hash "$dir/a")" "state of a resumed run and of one in one piece"
ok "log, bill, logbook and checkpoint say what is narrow; a resumed run has the bits of a run in one piece"

# Gradients of several micro-batches are rounded at random, too: in exact mode the draws do not depend on who adds.
for ranks in 1 2; do
    for shard in none gradients weights; do
        # shellcheck disable=SC2086
        run train macbook out="$dir/$ranks$shard" $tiny $narrow n_embd=64 max_iters=4 gradient_accumulation_steps=4 exact=true ranks=$ranks \
            shard=$shard --quiet
        code_is 0
        equal "$(state_hash "$dir/$ranks$shard")" "$(state_hash "$dir/1none")" "state of $ranks ranks, shard=$shard"
    done
done
ok "exact=true: any number of ranks, and of parts of the weights, has the bits of one"

run eval "$dir/a"
code_is 0
for layout in nanogpt hf; do
    run export "$dir/a" layout=$layout out="$dir/$layout.safetensors"
    code_is 0
    "$program" inspect "$dir/$layout.safetensors" >"$dir/stdout"
    grep -q bfloat16 "$dir/stdout" && fault "$layout: other programs are given bfloat16"
done
run sample "$dir/a" --prompt "a" temperature=0 tokens=20 --quiet
cp "$dir/stdout" "$dir/text"
run sample "$dir/hf.safetensors" --prompt "a" temperature=0 tokens=20 --quiet
code_is 0
cmp -s "$dir/stdout" "$dir/text" || fault "the exported weights write another text"
ok "it is sampled, evaluated, and exported in float32 without a change"

# shellcheck disable=SC2086
run train macbook out="$dir/d" $tiny max_iters=2 eval_interval=2 init_from="$dir/a"
code_is 0; says stderr "weights of the file are bfloat16 and are kept in float32 (weights_dtype=)"
equal "$(dtypes "$dir/d" transformer.h.0.mlp.c_fc.weight)" float32 "a matrix of the float32 run"
# shellcheck disable=SC2086
run train macbook out="$dir/e" $tiny $narrow max_iters=2 init_from="$dir/d"
code_is 0; says stderr "weights of the file are float32 and are kept in bfloat16 (weights_dtype=), rounded to the nearest"
run resume "$dir/d" max_iters=4 weights_dtype=bfloat16
code_is 0; says stderr "weights of the file are float32 and are kept in bfloat16"
ok "it begins a float32 run, a float32 run begins it or goes on as one, each said in a line"

fails() { # SENTENCE SETTING...
    sentence=$1
    shift
    # shellcheck disable=SC2086
    run train macbook out="$dir/f" $tiny "$@"
    code_is 1; says stderr "$sentence"; one_line stderr
}
fails "weights are kept in float32 or bfloat16" weights_dtype=float16
fails "bfloat16's steps are too coarse for an average" weights_dtype=bfloat16 ema=true
fails "take dtype=bfloat16, or keep weights in float32" weights_dtype=bfloat16 dtype=float16
[ ! -e "$dir/f" ] || fault "a refused run left a folder"
ok "another dtype, averages and float16 products are refused with a sentence"

xl="gpt2-xl device=null:cuda dtype=bfloat16 gradient_accumulation_steps=1"
# shellcheck disable=SC2086
run plan $xl batch_size=4 weights_dtype=bfloat16 moments_dtype=bfloat16 --json
code_is 0
bytes=$(value "$dir/stdout" peak_bytes)
[ "${bytes:-0}" -gt 0 ] && [ "$bytes" -le 20000000000 ] || fault "GPT-2 XL at a batch of 4 needs $bytes bytes"
ok "GPT-2 XL at a batch of 4 is planned with no more than 20 GB of the GPU"

# shellcheck disable=SC2086
run plan $xl --fit 20GiB
code_is 2; says stderr "no batch fits without the last line's settings"
says stdout "weights_dtype=bfloat16 moments_dtype=bfloat16 (other losses): "
fits=$(sed -n 's/^fits *batch_size=\([0-9]*\) recompute=on weights_dtype=.*/\1/p' "$dir/stdout")
for batch in "$fits" $((fits + 1)); do
    # shellcheck disable=SC2086
    run plan $xl batch_size=$batch budget=20 recompute=on weights_dtype=bfloat16 moments_dtype=bfloat16 --json
    code_is $((batch == fits ? 0 : 2))
done
# shellcheck disable=SC2086
run plan $xl batch_size=4 budget=20
says stderr "or recompute=on n_embd=800"; says stderr "recompute=on weights_dtype=bfloat16 moments_dtype=bfloat16 ("
run plan macbook weights_dtype=bfloat16 moments_dtype=bfloat16 --fit 64MiB
says stdout "fits"; grep -q "other losses" "$dir/stdout" && fault "what is set already is offered"
ok "plan --fit and a refused budget offer narrow weights and moments, and what is offered fits"
done_testing
