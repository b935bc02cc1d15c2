#!/bin/sh
# test_trm.sh: the recursive model through the program: trains on boards made here, stopped and resumed to the same bits, on any number
# of threads; micro-batches; solves; is exported under TinyRecursiveModels' names and read back; what does not fit is a sentence.
plan=10
. "$(dirname "$0")/tap.sh"
small="threads=1 cc=none batch_size=8 arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 arch.expansion=1 arch.H_cycles=2 arch.L_cycles=1
       arch.halt_max_steps=3 max_iters=12 lr_decay_iters=12 warmup_iters=2 eval_interval=6 eval_iters=2 log_interval=1 arch.puzzle_emb_ndim=16 arch.puzzle_emb_len=1 arch.mlp_t=false arch.pos_encodings=rope"

# shellcheck disable=SC2086  # settings are words
run train sudoku_4x4 $small out="$dir/a" --json
code_is 0; has_keys "$dir/stdout" val_loss; says stderr "8,192 puzzles to train on, 1,024 to validate"; says stderr "exact_accuracy"
for key in accuracy exact_accuracy q_halt_accuracy steps val_exact_accuracy unit units_per_s; do
    grep -q "\"$key\":" "$dir/a/metrics.jsonl" || fault "no $key in metrics.jsonl"
done
grep -q '"unit":"puzzle"' "$dir/a/metrics.jsonl" || fault "the unit is not puzzle"
ok "train counts puzzles and reports cells, boards, halting and steps"

# shellcheck disable=SC2086
run train sudoku_4x4 $small out="$dir/b" max_iters=5
run resume "$dir/b" max_iters=12 threads=2
code_is 0
[ -n "$(state_hash "$dir/a")" ] || fault "no state hash"
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/b")" "state after 12 updates, resumed after 5 in the middle of a carry"
# shellcheck disable=SC2086
"$program" train sudoku_4x4 $small ema=false out="$dir/k" max_iters=4000 lr_decay_iters=12 save_interval=4 >/dev/null 2>&1 &
victim=$!
n=0; while [ ! -e "$dir/k/step_8.safetensors" ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n + 1)); done
kill -9 $victim; wait $victim 2>/dev/null
run inspect "$dir/k" --json
step=$(value "$dir/stdout" step)
# shellcheck disable=SC2086
run train sudoku_4x4 $small ema=false out="$dir/k2" max_iters="${step:-1}" lr_decay_iters=12 save_interval=4
equal "$(state_hash "$dir/k")" "$(state_hash "$dir/k2")" "state of a killed run after $step updates"
ok "a killed and a resumed run have the bits of one that never stopped, on one thread or two"

# shellcheck disable=SC2086
run train sudoku_4x4 $small out="$dir/m" batch_size=4 gradient_accumulation_steps=2
code_is 0
run inspect "$dir/m"
says stdout "carry.1.z_H"
whole=$(sed -n 's/.*"step":11,"loss":\([0-9.]*\),.*/\1/p' "$dir/a/metrics.jsonl") parts=$(sed -n 's/.*"step":11,"loss":\([0-9.]*\),.*/\1/p' "$dir/m/metrics.jsonl")
awk "BEGIN { d = $whole - $parts; exit !(d < 1e-3 && d > -1e-3) }" || fault "loss $whole in one batch, $parts in two"
ok "micro-batches carry their own slots and train alike"

printf '12...4....4...21\n' >"$dir/boards"
run solve "$dir/a" "$dir/boards"
code_is 0; equal "$(head -n 1 "$dir/stdout" | tr -d '1234.?\n' | wc -c | tr -d ' ')" 0 "characters that are no digits"
run solve "$dir/a" "$dir/boards" --json trace=true
code_is 0; has_keys "$dir/stdout" board answer steps sure holds; says stdout '"step":3'
printf '1..4..2..3..4..5\n' >"$dir/wrong"
run solve "$dir/a" "$dir/wrong"
code_is 2; says stderr "wrong:1: 5 is no cell of a Sudoku of 4x4"
printf '1..4\n' >"$dir/short"
run solve "$dir/a" "$dir/short"
code_is 2; says stderr "a board has 16 cells"
ok "solve answers a board, shows its steps, and says which cell is wrong"

run eval "$dir/a" --json
code_is 0; has_keys "$dir/stdout" puzzles accuracy exact_accuracy steps
equal "$(value "$dir/stdout" puzzles)" 1024 "puzzles evaluated"; equal "$(value "$dir/stdout" steps)" 3 "steps"
run eval "$dir/a" --steps 2 --halt --ids=blank --json
code_is 0; grep -q '"steps":3' "$dir/stdout" && fault "more steps than were asked for"
run eval "$dir/a" ids=none
code_is 1; says stderr "puzzle|blank"
ok "eval takes every board through all steps, or those asked for"

run export "$dir/a" layout=trm out="$dir/w.safetensors"
code_is 0
run inspect "$dir/w.safetensors"
says stdout "model.inner.L_level.layers.0.self_attn.qkv_proj.weight"
printf 'arch:\n  H_cycles: 2\n  L_cycles: 1\n  num_heads: 2\n  halt_max_steps: 3\n  puzzle_emb_len: 1\n  expansion: 1\n' >"$dir/all_config.yaml"
# shellcheck disable=SC2086
run train sudoku_4x4 $small init_from="$dir/w.safetensors" out="$dir/w" max_iters=1
code_is 0
run export "$dir/a" out="$dir/own.safetensors"
code_is 0
run solve "$dir/own.safetensors" "$dir/boards"
code_is 0; cp "$dir/stdout" "$dir/own.answers"
for layout in torch torch_compiled; do # all_config.yaml has what shapes do not say
    run export "$dir/a" layout=$layout out="$dir/checkpoints/Sudoku-ACT-torch/trm/step_9"
    code_is 0; is_file "$dir/checkpoints/Sudoku-ACT-torch/trm/all_config.yaml"
    cmp -s "$dir/a/all_config.yaml" "$dir/checkpoints/Sudoku-ACT-torch/trm/all_config.yaml" || fault "the run's own all_config.yaml is another"
    run solve "$dir/checkpoints/Sudoku-ACT-torch/trm/step_9" "$dir/boards"
    code_is 0; cmp -s "$dir/stdout" "$dir/own.answers" || fault "layout=$layout has other answers"
    cp "$dir/checkpoints/Sudoku-ACT-torch/trm/step_9" "$dir/checkpoints/Sudoku-ACT-torch/trm/step_10"
    run solve "$dir/checkpoints/Sudoku-ACT-torch/trm" "$dir/boards"
    code_is 0; cmp -s "$dir/stdout" "$dir/own.answers" || fault "layout=$layout: the folder has other answers"
    printf damage >"$dir/checkpoints/Sudoku-ACT-torch/trm/step_10"
    run solve "$dir/checkpoints/Sudoku-ACT-torch/trm" "$dir/boards"
    says stderr "trm/step_10"
    rm "$dir/checkpoints/Sudoku-ACT-torch/trm/step_10"
done
run inspect "$dir/checkpoints/Sudoku-ACT-torch/trm/step_9"
says stdout "_orig_mod.model.inner.q_head.bias"
run export "$dir/a" layout=torch
code_is 1; says stderr "out=RUN/step_1000"
ok "weights are exported under TinyRecursiveModels' names and taken from such files"

run plan sudoku_mlp device=null:cpu --json
code_is 0; equal "$(value "$dir/stdout" parameters)" 5028866 "parameters of sudoku_mlp"
run plan maze device=null:cpu --json gradient_accumulation_steps=12 batch_size=64
code_is 0; equal "$(value "$dir/stdout" parameters)" 6822914 "parameters of maze"
ok "the published recipes are presets with the published numbers of parameters"

for limit in sudoku_mlp:10000000000 sudoku_att:9000000000; do
    run plan ${limit%:*} batch_size=768 data=/nowhere device=null:cuda --json
    code_is 0; says stderr "gradient_accumulation_steps="
    [ "$(value "$dir/stdout" total_bytes)" -le ${limit#*:} ] || fault "${limit%:*} needs $(value "$dir/stdout" total_bytes) bytes"
done
run plan sudoku_4x4 arch.H_cycles=1 batch_size=64 device=cpu --json; whole=$(value "$dir/stdout" total_bytes)
run plan sudoku_4x4 arch.H_cycles=1 batch_size=16 gradient_accumulation_steps=4 device=cpu --json; quarter=$(value "$dir/stdout" total_bytes)
[ "$quarter" -lt "$whole" ] || fault "micro-batches save nothing"
few="arch.H_cycles=1 max_iters=3 eval_iters=1 device=cpu --quiet"
# shellcheck disable=SC2086
run train sudoku_4x4 $few batch_size=64 divide_batch="${quarter}B" out="$dir/divided"
code_is 0; says stderr "batch_size=16 gradient_accumulation_steps=4"
# shellcheck disable=SC2086
run train sudoku_4x4 $few batch_size=16 gradient_accumulation_steps=4 out="$dir/typed"
code_is 0; equal "$(state_hash "$dir/divided")" "$(state_hash "$dir/typed")" "divided and typed micro-batches"
run resume "$dir/divided" max_iters=5 --quiet
code_is 0; silent stderr
run plan sudoku_4x4 divide_batch=64KiB
code_is 2; says stderr "in micro-batches of one sample"
run plan sudoku_4x4 eval_interval=5
code_is 0; says stderr "eval_interval=5 is TinyRecursiveModels' here: epochs_per_pass, in epochs; --eval_interval=5 counts updates"
run plan sudoku_4x4 --eval_interval=5
code_is 0; silent stderr
ok "a batch of too many bytes is divided into as few micro-batches as fit"

run train sudoku_4x4 arch.hidden_siz=8
code_is 1; says stderr "did you mean arch.hidden_size?"
run train sudoku_4x4 arch.mlp_t=true arch.causal=true out="$dir/no"
code_is 1; says stderr "mlp_t=false"
run train sudoku_4x4 arch.mlp_t=false arch.pos_encodings=rope arch.num_heads=5 arch.hidden_size=15 out="$dir/no"
code_is 1; says stderr "even head size"
run train sudoku_4x4 batch_size=8193 out="$dir/no"
code_is 2; says stderr "a batch of 8193 is larger than the data, 8192 puzzles to train on: set batch_size=8192"
run train sudoku_4x4 data=/nowhere out="$dir/no"
code_is 2; says stderr "/nowhere"
ok "what does not fit is a sentence"
# The rate of update $2 (from 1) of run $1.
rate() { sed -n "s/.*\"step\":$(($2 - 1)),.*\"lr\":\([^,}]*\).*/\1/p" "$1/metrics.jsonl"; }
cd "$dir" || exit 1
little="arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 arch.H_cycles=1 arch.L_cycles=1 arch.halt_max_steps=2 arch.forward_dtype=float32 device=cpu threads=1 log_interval=1"
for seed in 1 2; do run prepare sudoku generate=40 size=4 seed=$seed out=four$seed; done
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1]' evaluators=[] epochs=20 eval_interval=10 global_batch_size=20 lr_warmup_steps=8 lr_min_ratio=0.1 $little out=schedule
code_is 0
equal "$(wc -l <schedule/metrics.jsonl | tr -d ' ')" 40 "updates of 20 epochs"
equal "$(echo schedule/step_*.safetensors)" "schedule/step_20.safetensors schedule/step_40.safetensors" "an evaluation every ten epochs"
equal "$(rate schedule 1) $(rate schedule 8) $(rate schedule 40)" "1.25e-05 0.0001 1e-05" "the rates of updates 1, 8 and 40"
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1]' epochs=40 eval_interval=10 min_eval_interval=2 global_batch_size=20 $little data_paths_test=[four2] out=late
code_is 0; equal "$(echo late/step_*.safetensors)" "late/step_60.safetensors late/step_80.safetensors" "evaluations from the third interval on"
equal "$(grep -c val_loss late/metrics.jsonl)" 2 "evaluations from the third interval on"
equal "$(grep -A 1 '^data_paths_test:' late/all_config.yaml | tr '\n' ' ')$(grep '_interval' late/all_config.yaml | sort | tr '\n' ' ')" \
    'data_paths_test: - "four2" eval_interval: 10 min_eval_interval: 2 ' "folders and intervals in all_config.yaml"
mkdir config; cp late/all_config.yaml config/late.yaml
run pretrain.py --config-path config --config-name late out=again
code_is 0; equal "$(state_hash again)" "$(state_hash late)" "a run by the all_config.yaml of another"
# shellcheck disable=SC2086
run train cfg_pretrain data=four1 batch_size=20 epochs=0 max_iters=31 --eval_interval=10 lr_decay_iters=31 $little out=P/r
code_is 0
equal "$(grep '^epochs\|^run_name\|^project_name\|^dataset_type\|^eval_interval' P/r/all_config.yaml | tr '\n' ' ')" \
    'run_name: "r" project_name: "P" dataset_type: "puzzle" epochs: 16 eval_interval: null ' "names and length of a run that updates ended"
cp P/r/all_config.yaml config/ended.yaml
run pretrain.py --config-path config --config-name ended out=ended
code_is 0; is_file ended/step_32.safetensors # 16 epochs of 40 boards
if grep -q "means nothing" "$dir/stderr"; then fault "a note about our own file"; fi
run export P/r layout=torch out=theirs/step_31
code_is 0; cmp -s theirs/all_config.yaml P/r/all_config.yaml || fault "the exported settings are others"
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1]' eval_interval=null epochs=20 global_batch_size=20 $little run_name= project_name=null
code_is 0; equal "$(echo checkpoints/Four1-ACT-torch/trm-*/step_*.safetensors | sed 's/trm-[^/]*/trm/')" checkpoints/Four1-ACT-torch/trm/step_40.safetensors "one interval, and names that are not given"
printf 'data_paths: [four1]\nepochs: 20\neval_interval: null\nglobal_batch_size: 20\n' >config/whole.yaml
# shellcheck disable=SC2086
run pretrain.py --config-path config --config-name whole $little out=whole
code_is 0; equal "$(echo whole/step_*.safetensors)" whole/step_40.safetensors "one interval by a file's null"
run pretrain.py 'data_paths=[four1]' epochs=3 eval_interval=2 global_batch_size=20
code_is 1; says stderr "take a divisor of the epochs, 3 for one pass"
# shellcheck disable=SC2086
run plan sudoku_4x4 data=four1 batch_size=20 epochs=1000000000000 epochs_per_pass=1 eval_epochs=1000000000000 $little
code_is 0
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1,four2]' epochs=20 eval_interval=20 global_batch_size=20 $little +project_name='My project' run_name=.. --quiet
code_is 0; is_file checkpoints/My-project/-./step_80.safetensors
run export checkpoints/My-project/-. layout=torch out=theirs/step_80
code_is 0; equal "$(grep -A 2 '^data_paths:' theirs/all_config.yaml | tr '\n' ' ')" 'data_paths: - "four1" - "four2" ' "the folders in all_config.yaml"
run export schedule layout=torch out=theirs/step_40
code_is 0; equal "$(grep '^lr_warmup_steps' theirs/all_config.yaml)" "lr_warmup_steps: 8" "the warm-up in all_config.yaml"
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1]' epochs=20 eval_interval=20 global_batch_size=20 $little freeze_weights=True out=frozen --quiet
code_is 0
[ "$(sed -n 's/.*"step":0,"loss":\([^,]*\).*/\1/p' frozen/metrics.jsonl)" != "$(sed -n 's/.*"step":39,"loss":\([^,]*\).*/\1/p' frozen/metrics.jsonl)" ] ||
    fault "the puzzle table is not trained"
grep -q "puzzle_emb.weights" frozen/last.safetensors || fault "no puzzle table"
if grep -q "optimizer.m" frozen/last.safetensors; then fault "frozen parameters have moments"; fi
# shellcheck disable=SC2086
run pretrain.py 'data_paths=[four1]' epochs=20 eval_interval=20 global_batch_size=20 $little freeze_weights=True arch.puzzle_emb_ndim=0 out=nothing
code_is 1; says stderr "arch.puzzle_emb_ndim="
for setting in freeze_weights=perhaps lr_warmup_steps=-9223372036854775808; do
    run pretrain.py 'data_paths=[four1]' $setting out=nothing
    code_is 1; says stderr "${setting#*=}: "
done
cp -R four1 half
cp -R four1 twice # boards 3 and 4 of the test split: without labels, and as boards 1 and 2
dd if=/dev/zero of=half/test/all__labels.npy bs=16 seek=10 count=2 conv=notrunc 2>/dev/null
for what in inputs labels; do
    dd if=four1/test/all__$what.npy of=twice/test/all__$what.npy bs=16 skip=8 seek=10 count=2 conv=notrunc 2>/dev/null
done
for boards in half twice; do
    run eval schedule $boards --json device=cpu threads=1
    code_is 0; sed 's/,"steps".*//' "$dir/stdout" >$boards.json
done
equal "$(cat half.json)" "$(cat twice.json)" "an evaluation where half of the boards have no label"
run prepare example-chat tokenizer=bytes
# shellcheck disable=SC2086
run pretrain.py --config-name cfg_chat data_paths=data/example-chat-dataset global_batch_size=1 epochs=5 lr_warmup_steps=8 arch.seq_len=16 $little out=talk
code_is 0; equal "$(rate talk 1) $(rate talk 8) $(rate talk 20)" "3.75e-05 0.0003 3e-05" "the rates of updates 1, 8 and 20"
# shellcheck disable=SC2086
run pretrain.py --config-name cfg_chat data_paths=data/example-chat-dataset global_batch_size=1 epochs=5 arch.seq_len=16 $little out=brief
code_is 0; says stderr "the warm-up is a tenth of the run, 2 of 20 updates"
cp -R data/example-chat-dataset other-chat
# shellcheck disable=SC2086
run pretrain.py --config-name cfg_chat 'data_paths=[data/example-chat-dataset,other-chat]' global_batch_size=3 epochs=5 arch.seq_len=16 $little out=both
code_is 0; equal "$(wc -l <both/metrics.jsonl | tr -d ' ')" 10 "updates of two folders of four conversations: one of three in each, and its rest left out"
# shellcheck disable=SC2086
run train cfg_chat data=data/example-chat-dataset batch_size=1 epochs=5 warmup_iters=8 arch.seq_len=16 arch.loss.loss_type=softmax_cross_entropy $little out=ours
code_is 0; equal "$(rate ours 8) $(rate ours 9)" "0.000266666667 0.0003" "warmup_iters is ours"
ok "epochs, evaluations, warm-up, least rate and folder of pretrain are TinyRecursiveModels'"
done_testing
