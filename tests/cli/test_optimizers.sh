#!/bin/sh
# test_optimizers.sh: the settings optimizer=, decay=, freeze= and ema=: they train, resume to the same bits, are refused in a
# sentence; a run's averages are what is evaluated, sampled and exported.
plan=5
. "$(dirname "$0")/tap.sh"
settings="$tiny max_iters=12 eval_interval=6 save_interval=6 seed=3 --quiet"

# shellcheck disable=SC2086  # lists of settings
same_bits() {
    name=$1
    shift
    run train macbook out="$dir/$name.whole" $settings "$@"
    code_is 0
    run train macbook out="$dir/$name.half" $settings "$@" max_iters=6
    code_is 0
    run resume "$dir/$name.half" max_iters=12 --quiet
    code_is 0
    equal "$(state_hash "$dir/$name.half")" "$(state_hash "$dir/$name.whole")" "state hash of $name, resumed"
}
last() { printf '%s/last.safetensors' "$1"; }
tensors() { ${WRAP:-} "$program" inspect "$1" --json 2>/dev/null; }

same_bits sgd optimizer=sgd momentum=0.9 nesterov=true learning_rate=0.1
same_bits adam optimizer=adam
same_bits atan2 optimizer=adam_atan2 decay=all
[ "$(state_hash "$dir/adam.whole")" != "$(state_hash "$dir/atan2.whole")" ] || fault "adam and adam_atan2 give one state"
ok "each optimizer trains, and a resumed run has the same bits"

same_bits ema ema=true ema_rate=0.9
tensors "$dir/ema.whole" | grep -q '"ema.wte.weight"\|"ema.transformer.wte.weight"' || fault "no averages in the checkpoint"
run train macbook out="$dir/plain" $settings
code_is 0
run eval "$dir/ema.whole" --json; averaged=$(value "$dir/stdout" loss)
run eval "$dir/plain" --json; plain=$(value "$dir/stdout" loss)
[ -n "$averaged" ] && [ "$averaged" != "$plain" ] || fault "the loss with averages is $averaged, without $plain"
run export "$dir/ema.whole" out="$dir/ema.safetensors"; code_is 0
run export "$dir/plain" out="$dir/plain.safetensors"; code_is 0
tensors "$dir/ema.safetensors" | grep -q '"ema\.' && fault "averages are exported beside the parameters"
cmp -s "$dir/ema.safetensors" "$dir/plain.safetensors" && fault "the export is not of the averages"
run sample "$dir/ema.whole" tokens=4 --quiet; code_is 0
ok "averages are in checkpoints, resumed to the same bits, and what eval, sample and export use"

# shellcheck disable=SC2086
run train macbook out="$dir/short" $tiny max_iters=12 eval_interval=12 ema=true
code_is 0; says stderr "max_iters=12 is under 5/(1-ema_rate) = 5000 updates"
# shellcheck disable=SC2086
run resume "$dir/plain" ema=true max_iters=14 --quiet
code_is 0
tensors "$dir/plain" | grep -q '"ema\.' || fault "averages that a resumed run asks for are missing"
ok "a run too short for its averages says so; a resumed run may begin them"

# shellcheck disable=SC2086
run train macbook out="$dir/frozen" $settings freeze='*wte*,*wpe*'
code_is 0
tensors "$dir/frozen" | grep -q 'optimizer.m.[a-z.]*wte' && fault "a frozen parameter has moments"
for key in 'freeze=nothing.*' 'decay=nothing'; do
    # shellcheck disable=SC2086
    run train macbook out="$dir/x" $settings "$key"
    code_is 1; one_line stderr; says stderr "no parameter of the model"
done
ok "freeze= and decay= take names, and a pattern that names nothing is refused"

for pair in "momentum=0.9|of optimizer=sgd" "nesterov=true|of optimizer=sgd" "optimizer=lion|adamw" "optimizer=sgd nesterov=true|momentum= above 0" \
    "optimizer=sgd dampening=0.5|momentum"; do
    # shellcheck disable=SC2086
    run train macbook out="$dir/x" $settings ${pair%|*}
    code_is 1; one_line stderr; says stderr "${pair#*|}"
done
ok "settings of another optimizer, and unknown ones, are a sentence"
done_testing
