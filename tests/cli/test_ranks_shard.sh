#!/bin/sh
# test_ranks_shard.sh: ranks that keep a part of the optimizer's moments each: the bits are those of ranks that keep all, the bill is
# smaller, checkpoints are whole and go on with any number of ranks.
plan=9
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_ID
more="$tiny n_embd=32 seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 --quiet"

# train RUN SETTING...
train() {
    out=$dir/$1
    shift
    # shellcheck disable=SC2086  # $more is a list
    run train macbook out="$out" $more "$@"
    code_is 0
}
numbers() { sed -n "s/.*\"$2\":\([-0-9.e+]*\).*/\1/p" "$dir/$1/metrics.jsonl"; }
same() {
    equal "$(state_hash "$dir/$1")" "$(state_hash "$dir/$2")" "the states of $1 and $2"
    equal "$(numbers "$1" loss)" "$(numbers "$2" loss)" "the losses of $1 and $2"
    equal "$(numbers "$1" grad_norm)" "$(numbers "$2" grad_norm)" "the norms of $1 and $2"
}

for ranks in 2 4; do
    train all_$ranks max_iters=10 ranks=$ranks grad_clip=0.3
    train part_$ranks max_iters=10 ranks=$ranks grad_clip=0.3 shard=moments
    same part_$ranks all_$ranks
done
train all_4_of_8 max_iters=6 ranks=4 gradient_accumulation_steps=8
train part_4_of_8 max_iters=6 ranks=4 gradient_accumulation_steps=8 shard=moments
same part_4_of_8 all_4_of_8
ok "shard=moments: 2 and 4 ranks have the bits that they have without, clipped gradients among them"

train exact max_iters=8 exact=true
for shard in moments gradients weights; do
    for ranks in 2 4; do
        train exact_$shard$ranks max_iters=8 ranks=$ranks exact=true shard=$shard
        same exact_$shard$ranks exact
    done
done
for shard in gradients weights; do
    train ${shard}_4 max_iters=10 ranks=4 grad_clip=0.3 shard=$shard
    same ${shard}_4 all_4
done
# shellcheck disable=SC2086  # a list of settings
run train macbook $tiny device=cpu max_iters=2 shard=weights out="$dir/alone"
code_is 0
says stderr "shard=weights divides nothing: this is one process"
ok "exact, or one micro-batch a rank: shard=gradients and weights have these bits too, in exact mode those of one process"

for settings in optimizer=sgd,momentum=0.9,nesterov=true optimizer=sgd optimizer=adam,weight_decay=0.1 optimizer=adam_atan2 ema=true dtype=bfloat16 dtype=float16 \
    grad_clip=0 freeze=transformer.h.0.* decay=all compile=false; do
    list=$(echo $settings | tr ',' ' ')
    # shellcheck disable=SC2086  # a list of settings
    train all max_iters=5 ranks=2 gradient_accumulation_steps=2 $list
    for shard in moments weights; do
        # shellcheck disable=SC2086
        train part max_iters=5 ranks=2 gradient_accumulation_steps=2 shard=$shard $list
        same part all
        rm -rf "$dir/part"
    done
    rm -rf "$dir/all"
done
ok "every optimizer, averages, 16-bit numbers, frozen parameters: the same bits"

for ranks in 4 2 1; do
    train cut max_iters=4 ranks=2 exact=true shard=moments
    for shard in moments weights none; do
        rm -rf "$dir/cut_$ranks$shard"
        cp -r "$dir/cut" "$dir/cut_$ranks$shard"
        run resume "$dir/cut_$ranks$shard" max_iters=8 ranks=$ranks shard=$shard --quiet
        code_is 0
        equal "$(state_hash "$dir/cut_$ranks$shard")" "$(state_hash "$dir/exact")" "resumed with $ranks ranks and shard=$shard"
    done
    rm -rf "$dir/cut"
done
ok "checkpoints are whole: a run goes on with any number of ranks, in parts or not, to the same bits"

# The bill of a rank: moments an N-th of those of one (and of what makes the parts equal), nothing is copied.
bill() { sed -n "s/.*\"$2\":\([0-9]*\).*/\1/p" "$dir/$1/logbook.jsonl" | tail -n 1; }
big="n_embd=128 max_iters=1"
# shellcheck disable=SC2086
for ranks in 2 4; do
    train whole $big ranks=$ranks
    train parts $big ranks=$ranks shard=moments
    whole=$(bill whole moment_bytes) part=$(bill parts moment_bytes)
    [ "${part:-0}" -gt 0 ] || fault "no moments in the logbook"
    [ $((part * ranks)) -lt $((whole + ranks * 100000)) ] || fault "$ranks ranks: $part bytes of moments, of $whole"
    a=$(bill whole peak_bytes) b=$(bill parts peak_bytes)
    # With several micro-batches a rank an update also holds the sum that it exchanges: a small batch, or activations hide it.
    for case in shard=none shard=moments shard=gradients shard=weights exchange_dtype=bf16 exact=true; do
        for micros in $ranks $((2 * ranks)) $((3 * ranks)); do
            train run $big batch_size=1 ranks=$ranks $case gradient_accumulation_steps=$micros
            run plan macbook $more $big batch_size=1 devices=$ranks $case gradient_accumulation_steps=$micros --json
            code_is 0
            # of several plans the parts are those of the one that holds most, or of the last: only the sum is compared
            for key in peak_bytes moment_bytes weight_bytes $([ $micros -gt $ranks ] || echo gradient_bytes); do
                equal "$(value "$dir/stdout" $key)" "$(bill run $key)" "$key of $ranks ranks, $case, $micros micro-batches: planned and run"
            done
            live=$(sed -n 's/.*"live_bytes":\([0-9]*\).*/\1/p' "$dir/run/ranks.jsonl" | sort -u)
            equal "$live" "$(bill run peak_bytes)" "bytes of $ranks ranks, $case, $micros micro-batches: run and the bill"
            equal "$(numbers run reserved_bytes | sort -u)" "$live" "the largest plan of $ranks ranks, $case, $micros micro-batches"
            rm -rf "$dir/run"
        done
    done
    [ "${b:-0}" -lt "${a:-0}" ] || fault "$ranks ranks: $b bytes in all, $a without"
    rm -rf "$dir/whole" "$dir/parts"
done
run plan macbook $more devices=4 link=pcie update_ms=20 --json
code_is 0
says stdout '"link":"pcie","scaling":[{"devices":2,"exchange_ms":'
told=$(grep -o -e '"peak_bytes":[0-9]*' -e '"scaling":.*' "$dir/stdout")
run plan macbook $more ranks=4 link=pcie update_ms=20 --json
equal "$(grep -o -e '"peak_bytes":[0-9]*' -e '"scaling":.*' "$dir/stdout")" "$told" "the plan of ranks=4 and of devices=4"
run plan macbook $more ranks=2 devices=4
code_is 1
says stderr "each device is a rank"
run plan macbook $more gradient_accumulation_steps=4 ranks=2 what_if=accum=1
code_is 1
says stderr "does not divide by 2 ranks"
run plan macbook $more gradient_accumulation_steps=64 devices=100 update_ms=20
code_is 1
says stderr "does not divide by 100 ranks"
run plan macbook $more gradient_accumulation_steps=100 devices=100 update_ms=20
code_is 0
run plan macbook $more gradient_accumulation_steps=4 ranks=2 trace=true --json
says stdout '"micro_batches":2'
says stdout "for what the other ranks have computed"
run plan macbook $more gradient_accumulation_steps=4 ranks=2 fit=64MiB what_if=accum=8
code_is 1
says stderr "leave what_if= out"
run plan demo device=cpu threads=2 ranks=2 gradient_accumulation_steps=2 batch_size=12 recompute=off budget=36MiB
code_is 2
says stderr "batch_size=6 gradient_accumulation_steps=4"
run plan macbook $more devices=4 link=pcie update_ms=20
says stdout "of as many times one"
says stdout "after the backward pass"
for more_settings in gradient_accumulation_steps=4 gradient_accumulation_steps=8 "gradient_accumulation_steps=4 overlap=false" "gradient_accumulation_steps=4 shard=moments"; do
    # shellcheck disable=SC2086
    run plan macbook $more $more_settings device=null:cuda devices=4 update_ms=20
    code_is 0
    if [ "$more_settings" = "${more_settings% *}" ]; then says stdout "beside the backward pass"; else says stdout "after the backward pass"; fi
done
run plan macbook $more update_ms=20
code_is 1
fits=
for shard in none moments weights; do
    # shellcheck disable=SC2086
    run plan macbook $more n_embd=128 batch_size=1 gradient_accumulation_steps=4 devices=4 shard=$shard --fit 10MiB --json
    code_is 0
    fits="$fits $(value "$dir/stdout" batch_size)"
done
echo "$fits" | awk '{ exit !($1 > 0 && $2 > $1 && $3 > $2) }' || fault "--fit: sequences that fit with all moments, and with a quarter: $fits"
run plan macbook $more devices=3
code_is 1
says stderr "does not divide by 3 ranks"
ok "the bill of a rank has its part of the moments, is what it takes, and is what plan devices=N says; plan predicts how several devices do together"

if ps -o pid= --ppid $$ >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    "$program" train macbook out="$dir/killed" $more max_iters=1000000 eval_interval=20 ranks=2 shard=moments exact=true >"$dir/stdout" 2>"$dir/stderr" &
    watcher=$!
    for _ in $(seq 600); do [ -e "$dir/killed/step_20.safetensors" ] && break || sleep 0.1; done
    kill -9 "$(ps -o pid= --ppid $watcher | sort -n | sed -n 2p | tr -d ' ')"
    wait $watcher
    code=$?
    code_is 2
    says stderr "rank 1 was killed by signal 9"
    step=$("$program" inspect "$dir/killed" --json | sed -n '1s/.*"step":\([0-9]*\).*/\1/p')
    run resume "$dir/killed" max_iters=$((step + 3)) ranks=1 --quiet
    code_is 0
    train straight max_iters=$((step + 3)) eval_interval=20 exact=true
    same killed straight
    ok "a rank that is killed ends all; the last checkpoint is whole, and one process goes on"
else
    ok "a rank that is killed ends all # SKIP ps lists no children here"
fi

run train macbook out="$dir/no" $more ranks=2 shard=activations
code_is 1
says stderr "shard"
[ ! -e "$dir/no" ] || fault "a refused run has made its folder"
ok "what shard= does not know is refused"

# More batches than ranks divide, and fewer than ranks: every rank runs every graph.
train whole_evaluation max_iters=5 ranks=4 eval_iters=5 shard=gradients
train part_evaluation max_iters=5 ranks=4 eval_iters=5 shard=weights
same part_evaluation whole_evaluation
equal "$(numbers part_evaluation val_loss)" "$(numbers whole_evaluation val_loss)" "validation losses of weights in parts"
train cut max_iters=4 ranks=2 exact=true shard=weights eval_iters=1
run resume "$dir/cut" max_iters=8 ranks=4 shard=gradients eval_iters=2 --quiet
code_is 0
equal "$(state_hash "$dir/cut")" "$(state_hash "$dir/exact")" "weights in parts, resumed on 4 ranks that have all of them"
ok "weights in parts: evaluations that ranks do not divide are those of whole weights; a checkpoint goes on with whole ones"

train wide max_iters=40 ranks=2
train narrow max_iters=40 ranks=2 exchange_dtype=bf16
train narrow_again max_iters=40 ranks=2 exchange_dtype=bf16
train narrow_part max_iters=40 ranks=2 exchange_dtype=bf16 shard=moments
same narrow_again narrow
same narrow_part narrow
[ "$(state_hash "$dir/narrow")" != "$(state_hash "$dir/wide")" ] || fault "gradients in bfloat16 leave the bits of float32"
away=$(paste -d' ' "$dir/wide/metrics.jsonl" "$dir/narrow/metrics.jsonl" | sed -n 's/.*"loss":\([0-9.e+-]*\).*"loss":\([0-9.e+-]*\).*/\1 \2/p' |
    awk '{ d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > most) most = d } END { print ((NR > 3 && most < 2e-3) ? "near" : most " of " NR) }')
equal "$away" near "losses with gradients in bfloat16, beside float32"
train alone max_iters=6
train alone_narrow max_iters=6 exchange_dtype=bf16
same alone_narrow alone
for said in "exact=true exchange_dtype=bf16" exchange_dtype=float16; do
    # shellcheck disable=SC2086
    run train macbook out="$dir/no" $more max_iters=4 ranks=2 $said
    code_is 1
    says stderr exchange_dtype
    one_line stderr
done
# shellcheck disable=SC2086
run plan gpt2 vocab_size=50304 dtype=bfloat16 batch_size=4 gradient_accumulation_steps=8 device=null:cuda devices=8 link=10gbe update_ms=108 --json
wide=$(sed -n 's/.*"devices":8,"exchange_ms":\([0-9]*\).*/\1/p' "$dir/stdout")
run plan gpt2 vocab_size=50304 dtype=bfloat16 batch_size=4 gradient_accumulation_steps=8 device=null:cuda devices=8 link=10gbe update_ms=108 exchange_dtype=bf16 --json
narrow=$(sed -n 's/.*"devices":8,"exchange_ms":\([0-9]*\).*/\1/p' "$dir/stdout")
[ -n "$wide" ] && [ -n "$narrow" ] && [ $((2 * narrow)) -lt $((wide + 20)) ] || fault "an exchange of $narrow ms in bfloat16, $wide in float32"
ok "exchange_dtype=bf16: near the losses of float32, the same bits again and in parts; nothing for one process; refused in exact mode"
done_testing
