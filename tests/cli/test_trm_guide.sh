#!/bin/sh
# test_trm_guide.sh: the commands of the guide to TinyRecursiveModels on Macs, as its readers type them, `python` being `anneal`. Models
# and epochs are smaller here than in the guide (settings behind each command), or nothing but smoke would come out of a test.
plan=9
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1

small="device=cpu arch.forward_dtype=float32 arch.num_heads=2 log_interval=1"
pretrain() { run pretrain.py --config-name cfg_chat "$@"; }

run examples/prepare_example_chat_dataset.sh tokenizer=bytes
code_is 0; says stdout "train: 4 conversations"; says stdout "Dataset saved to data/example-chat-dataset"
is_file data/example-chat-dataset/tokenizer/tokenizer.json
run prepare example-chat tokenizer=data/example-chat-dataset/tokenizer out=data/again --json
equal "$(value "$dir/stdout" vocab_size) $(value "$dir/stdout" train) $(value "$dir/stdout" test)" "266 4 1" "the tokenizer's folder"
cmp -s data/again/train/all__inputs.npy data/example-chat-dataset/train/all__inputs.npy || fault "the tokenizer read back makes other ids"
ok "the example is prepared by the guide's script, and its tokenizer is read back"

cat >data/conversations.json <<'END'
[{"conversations":[{"from":"human","value":"Hi <|endoftext|>"},{"from":"gpt","value":"Hello"}]},
 {"conversations":[{"from":"human","value":"One"},{"from":"gpt","value":"Two"},{"from":"human","value":"Three"},{"from":"gpt","value":"Four"}]}]
END
run -m dataset.build_chat_dataset --input-file data/conversations.json --output-dir data/chat-mps --tokenizer bytes --max-length 1024 --subsample-size 10000 --train-split 0.5
code_is 0; says stdout "train: 1 conversations"; says stdout "Vocabulary size: 266"
run -m dataset.build_chat_dataset --max-length 512
code_is 1; says stderr "--input-file"
run -m dataset.build_nothing
code_is 1; says stderr "dataset.build_chat_dataset"
printf '[{"conversations":[{"from":"human","value":"a"},{"from":"gpt","value":"b"}]}]' >data/one.json
run prepare chat input_file=data/one.json tokenizer=bytes out=data/no
code_is 2; says stderr "both need one"
ok "conversations are prepared by the guide's module, and what is missing is said"

# shellcheck disable=SC2086  # $small is a list of settings
pretrain 'data_paths=[data/example-chat-dataset]' global_batch_size=4 epochs=10 out=run arch.hidden_size=16 arch.L_layers=1 $small --quiet
code_is 0; is_file run/step_10.safetensors
grep -q '"steps": *10\|"step":9' run/metrics.jsonl || fault "not ten updates: $(tail -n 1 run/metrics.jsonl)"
# shellcheck disable=SC2086
pretrain data_paths=data/example-chat-dataset global_batch_size=4 epochs=1 out=bare arch.hidden_size=16 arch.L_layers=1 $small
code_is 0; says stderr "5/(1-ema_rate)"
ok "cfg_chat trains on lists with brackets and without, for as many epochs as asked"

# shellcheck disable=SC2086
pretrain 'data_paths=[data/example-chat-dataset]' global_batch_size=2 " " arch.seq_len=64 arch.hidden_size=20 arch.L_layers=2 epochs=1 out=two $small
code_is 0; says stderr "an argument of blanks is passed over"
# shellcheck disable=SC2086
pretrain 'data_paths=["data/example-chat-dataset/"]' global_batch_size=4 epochs=1 arch.seq_len=32 arch.hidden_size=16 arch.L_layers=1 $small --quiet
code_is 0
case $(echo checkpoints/*) in *" "*) fault "several folders" ;; checkpoints/Example-chat-dataset-ACT-torch) ;; *) fault "$(echo checkpoints/*)" ;; esac
is_file checkpoints/Example-chat-dataset-ACT-torch/trm_chat-*/step_1.safetensors
DISABLE_COMPILE=1 "$program" pretrain.py --config-name cfg_chat 'data_paths=[data/example-chat-dataset]' global_batch_size=4 epochs=1 \
    +run_name=x lr=3e-4 ema=True arch.seq_len=32 arch.hidden_size=24 arch.L_layers=1 out=plain device=cpu arch.forward_dtype=float32 >"$dir/stdout" 2>"$dir/stderr"
code=$?
code_is 0; grep -q "compile: false" plain/config.yaml || fault "DISABLE_COMPILE has no effect"
for bs in 2 4; do
    # shellcheck disable=SC2086
    pretrain 'data_paths=[data/example-chat-dataset]' global_batch_size=$bs epochs=1 arch.seq_len=32 arch.hidden_size=16 arch.L_layers=1 out=bs$bs $small --quiet || break
    code_is 0
done
ok "sizes, blanks behind a backslash, +keys and DISABLE_COMPILE are taken as the guide writes them"

pretrain 'data_paths=[data/example-chat-dataset]' global_batch_size=32 out=no device=cpu arch.hidden_size=24
code_is 2; says stderr "a batch of 32 is larger than the data"
pretrain 'data_paths=[data/nowhere]' out=no device=cpu
code_is 2; says stderr "data/nowhere/train/dataset.json"
cp -R data/example-chat-dataset data/unshifted
cp data/unshifted/train/all__inputs.npy data/unshifted/train/all__labels.npy
pretrain 'data_paths=[data/unshifted]' global_batch_size=4 out=no device=cpu arch.hidden_size=24
code_is 2; says stderr "data/unshifted: every label is the token of its own position"; says stderr "prepare the data again"
pretrain hiden_size=3
code_is 1; says stderr "hiden_size"
pretrain arch=hrm
code_is 1; says stderr "arch=hrm"
pretrain arch.mlp_t=true 'data_paths=[data/example-chat-dataset]' global_batch_size=4 out=no device=cpu
[ "$code" -ne 0 ] || fault "mlp_t with causal was taken"
run torchrun --nproc-per-node 2 pretrain.py
code_is 2; says stderr "devices=0,1"; says stderr "ranks=2"
run pretrain --config-name cfg_other
code_is 1; says stderr "cfg_chat"
ok "what cannot be is a sentence that names the remedy"

run generate.py --checkpoint run/step_10 --prompt "Hello!" --max-new-tokens 5
code_is 0; says stdout "Prompt: Hello!"; says stdout "Response: "
run generate.py --checkpoint run --prompt "Hello!" --temperature 0 --max-new-tokens 5 --quiet
code_is 0; cp "$dir/stdout" "$dir/first"
run generate --checkpoint run/step_10.safetensors --prompt "Hello!" --temperature 0 --max-new-tokens 5 --quiet --seed 7
cmp -s "$dir/stdout" "$dir/first" || fault "temperature 0 depends on the seed"
run export run layout=torch_compiled out=checkpoints/Example/theirs/step_10 # causal, with the Q head that its modules have
run generate.py --checkpoint checkpoints/Example/theirs/step_10 --tokenizer data/example-chat-dataset/tokenizer --prompt "Hello!" --temperature 0 --max-new-tokens 5 --quiet
code_is 0; cmp -s "$dir/stdout" "$dir/first" || fault "the state dict of torch.save has another answer"
run generate.py --checkpoint run/step_10 --device cpu
code_is 1; says stderr "--prompt TEXT or --interactive is needed"
run generate.py --checkpoint run/step_10 --prompt "$(head -c 2000 /dev/zero | tr '\0' a)"
code_is 1; says stderr "the prompt has 2004 tokens with its markers; the model sees 512"
run generate.py --checkpoint run/step_11 --prompt x
code_is 2
printf 'Hello!\n\nAgain\nquit\n' >"$dir/talk"
"$program" generate.py --checkpoint run/step_10 --interactive --max-new-tokens 4 <"$dir/talk" >"$dir/stdout" 2>"$dir/stderr"
code=$?
code_is 0; equal "$(grep -c "Assistant: " "$dir/stdout")" 2 "answers"
ok "generate.py answers a prompt and talks"

mkdir -p config/arch
cat >config/cfg_mine.yaml <<'END'
defaults:
  - arch: trm_chat
  - _self_
hydra:
  output_subdir: null
data_paths: ['data/example-chat-dataset']
evaluators:
  - name: arc@ARC
eval_save_outputs: [preds]
global_batch_size: 4
epochs: 2
eval_interval: 1
lr: 1e-3
lr_min_ratio: 0.5
lr_warmup_steps: 0
beta1: 0.9
seed: 0
END
cat >config/arch/trm_chat.yaml <<'END'
name: recursive_reasoning.trm:TinyRecursiveReasoningModel_ACTV1
loss: {name: "losses:ACTLossHead", loss_type: softmax_cross_entropy}
causal: true
hidden_size: 16
num_heads: 2
L_layers: 1
puzzle_emb_ndim: 0
puzzle_emb_len: 0
forward_dtype: float32
END
run pretrain.py --config-path config --config-name cfg_mine out=mine device=cpu arch.seq_len=32
code_is 0; says stderr "eval_save_outputs means nothing here"
if grep -q "arch.loss.name\|evaluators" "$dir/stderr"; then fault "a note about what every such file has"; fi
grep -q "arch.hidden_size: 16" mine/config.yaml || fault "the group's file was not read"
equal "$(sed -n 's/^max_iters: //p' mine/config.yaml) $(sed -n 's/^min_lr: //p' mine/config.yaml)" "2 0.0005" "updates and least rate"
printf 'run_name: named in the file\n' >>config/cfg_mine.yaml
run pretrain.py --config-path config --config-name cfg_mine device=cpu arch.seq_len=32
code_is 0; is_file checkpoints/Example-chat-dataset-ACT-torch/named-in-the-file/last.safetensors
sed 's/hidden_size: 16/hidden_size: 24/' config/arch/trm_chat.yaml >config/arch/trm_wide.yaml
sed 's/hidden_size: 16/hidden_size: 32/' config/arch/trm_chat.yaml >config/arch/trm_wider.yaml
sed 's/reasoning.trm:/reasoning.trm_singlez:/' config/arch/trm_chat.yaml >config/arch/trm_other.yaml
printf 'defaults: [cfg_mine, {override /arch: trm_wide}, _self_]\nlr: 2e-3\n' >config/cfg_wide.yaml
printf 'defaults: [_self_, {arch: trm_chat}]\ndata_paths: [data/example-chat-dataset]\nglobal_batch_size: 4\nepochs: 1\neval_interval: 1\narch: {hidden_size: 64}\n' >config/cfg_first.yaml
printf 'defaults: [cfg_wide, {arch: trm_chat}]\nlr: 3e-3\n' >config/cfg_after.yaml # what a file overrides ends with it
for case in cfg_wide::24 cfg_wide:arch=trm_wider:32 cfg_mine:arch=trm_wide:24 cfg_mine:+arch=trm_wide:24 cfg_first::16 cfg_after::16; do
    choice=${case#*:}
    # shellcheck disable=SC2086
    run pretrain.py --config-path config --config-name "${case%%:*}" ${choice%:*} out=wide device=cpu arch.seq_len=16 --quiet
    code_is 0; equal "$(sed -n 's/^arch.hidden_size: //p' wide/config.yaml)" "${case##*:}" "the width of $case"
    rm -rf wide
done
run pretrain.py --config-path config --config-name cfg_mine arch=trm_none out=no
code_is 2; says stderr "config/arch/trm_none.yaml"
run pretrain.py --config-path config --config-name cfg_mine arch=trm_other out=no
code_is 1; says stderr "arch.name=recursive_reasoning.trm_singlez"
pretrain arch=trm_small
code_is 1; says stderr "--config-path DIR takes DIR/arch/trm_small.yaml"
printf 'defaults:\n- cfg_loop\n' >config/cfg_loop.yaml
run pretrain.py --config-path config --config-name cfg_loop out=no
code_is 1; says stderr "without end"
printf 'lr: [\n' >config/cfg_bad.yaml
run pretrain.py --config-path config --config-name cfg_bad out=no
code_is 1; says stderr "cfg_bad.yaml:"
printf 'lr: 1\n---\nlr: 2\n' >config/cfg_two.yaml
run pretrain.py --config-path config --config-name cfg_two out=no
code_is 1; says stderr "cfg_two.yaml:2: more than one document"
ok "TinyRecursiveModels' own settings files are read, groups and all"

# shellcheck disable=SC2086
run train cfg_chat data=data/example-chat-dataset batch_size=4 max_iters=6 out=whole arch.seq_len=48 arch.hidden_size=16 arch.L_layers=1 $small --quiet
whole=$(state_hash whole)
# shellcheck disable=SC2086
run train cfg_chat data=data/example-chat-dataset batch_size=4 max_iters=3 lr_decay_iters=6 warmup_iters=0 out=part arch.seq_len=48 arch.hidden_size=16 arch.L_layers=1 $small --quiet
code_is 0
[ -n "$whole" ] || fault "no state hash"
# shellcheck disable=SC2086
run train cfg_chat data=data/example-chat-dataset batch_size=2 gradient_accumulation_steps=2 max_iters=6 out=micro arch.seq_len=48 arch.hidden_size=16 arch.L_layers=1 $small --quiet
code_is 0
ok "train takes the built-in configuration too, in micro-batches as well"

# 58.3, 105.5, 180.0 and 257.1 million parameters of four bytes
for preset in chat_tiny:222 chat_small:402 chat_medium:687 chat_large:981; do
    run plan ${preset%:*} data=data/example-chat-dataset vocab_size=50266 batch_size=1 arch.seq_len=64 device=null:cpu
    code_is 0; says stdout "weights      ${preset#*:} MiB"
done
ok "the four sizes have the parameters that the guide's table should have had"
done_testing
