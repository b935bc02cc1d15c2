#!/bin/sh
# test_nanogpt.sh: a user who comes from nanoGPT: settings files, keys, log lines, evaluation, resuming, GPT-2's names.
plan=12
. "$(dirname "$0")/tap.sh"

# nanoGPT's config/train_shakespeare_char.py, said again with its own values
mkdir "$dir/config" "$dir/data"
cat >"$dir/config/train_shakespeare_char.py" <<'PY'
# a character-level model of Shakespeare
out_dir = 'out-shakespeare-char'
eval_interval = 250 # often, because it overfits
eval_iters = 200
log_interval = 10

always_save_checkpoint = False

wandb_log = False # override on the command line
wandb_project = 'shakespeare-char'
wandb_run_name = 'mini-gpt'

dataset = 'shakespeare_char'
gradient_accumulation_steps = 1
batch_size = 64
block_size = 256 # context of up to 256 previous characters

n_layer = 6
n_head = 6
n_embd = 384
dropout = 0.2

learning_rate = 1e-3
max_iters = 5000
lr_decay_iters = 5000
min_lr = 1e-4 # learning_rate / 10
beta2 = 0.99

warmup_iters = 100
PY
i=0
while [ $i -lt 400 ]; do echo "To be, or not to be, that is the question $i:"; i=$((i + 1)); done >"$dir/input.txt"
run prepare "$dir/input.txt" out="$dir/data/shakespeare_char"
code_is 0
cd "$dir" || exit 1

# what makes it a blink; the rest is the file's
small="--eval_iters=2 --batch_size=4 --block_size=16 --n_layer=2 --n_head=2 --n_embd=16 --max_iters=20 --eval_interval=10"
# shellcheck disable=SC2086  # a list of settings
run train config/train_shakespeare_char.py --device=cpu --compile=False $small --log_format=nanogpt
code_is 0
says stderr "one unfused kernel an operation"
grep -q '^step 0: train loss [0-9]\.[0-9]\{4\}, val loss [0-9]\.[0-9]\{4\}$' stdout || fault "no step line at 0: $(head -n 12 stdout)"
grep -q '^step 20: train loss' stdout || fault "no step line at 20"
grep -q '^iter 0: loss [0-9]\.[0-9]\{4\}, time [0-9]*\.[0-9][0-9]ms, mfu -100.00%$' stdout || fault "no iter line at 0: $(cat stdout)"
equal "$(grep -c '^iter ' stdout)" 2 "iter lines with log_interval=10"
says stdout "tokens per iteration will be: 64"
says stdout "num decayed parameter tensors: 10, with"
says stdout "saving checkpoint to out-shakespeare-char"
is_file out-shakespeare-char/last.safetensors
ok "nanoGPT's settings file and flags do what they say, and its lines come out letter for letter"

says out-shakespeare-char/config.yaml "dropout: 0.2"
says out-shakespeare-char/config.yaml "beta2: 0.99"
says out-shakespeare-char/config.yaml "n_layer: 2"
says out-shakespeare-char/logbook.jsonl '"wandb_run_name":"mini-gpt"'
ok "the file's values hold where the command line does not change them"

unfused=$(state_hash out-shakespeare-char)
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=fused --quiet
code_is 0; equal "$(state_hash fused)" "$unfused" "state hash fused and unfused"
run train fused/config.yaml --out=again --quiet
code_is 0; equal "$(state_hash again)" "$unfused" "state hash of the settings that the run left"
ok "compile=False has the same bits, and so has a run from the settings that another one left"

# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=whole --max_iters=30 --quiet
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=fused --init_from=resume --max_iters=30 --log_format=nanogpt
code_is 0; says stdout "Resuming training from fused"
equal "$(state_hash fused)" "$(state_hash whole)" "state hash of a run resumed nanoGPT's way"
run resume fused
code_is 0; says stderr "nothing to do"; says stderr "max_iters=N"
ok "init_from=resume goes on in out_dir to the same bits; past max_iters it says that there is nothing to do"

run train config/train_shakespeare_char.py --init_from=resume --out_dir=fused --eval_only=True --eval_iters=3 --json
code_is 0; says stderr "after 30 updates"; has_keys stdout val_loss train_loss
equal "$(state_hash fused)" "$(state_hash whole)" "state hash after eval_only"
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=nothing --eval_only --quiet
code_is 0; [ ! -e nothing ] || fault "eval_only made a folder"
ok "eval_only evaluates both splits and writes nothing"

printf 'import os\nos.system("touch harm")\n' >evil.py
run train evil.py
code_is 1; says stderr "evil.py:1"; silent stdout
printf 'max_iters = 3\nbatch_sise = 3\n' >typo.py
run train typo.py
code_is 1; says stderr "typo.py:2"; says stderr "did you mean batch_size?"
printf 'dataset = "nowhere"\n' >where.py
run train where.py
code_is 2; says stderr "data/nowhere"; says stderr "prepare"
[ ! -e harm ] || fault "the file was executed"
ok "a settings file is never executed; what is not an assignment is refused with its line"

# the 33 keys of train.py
for key in out_dir eval_interval log_interval eval_iters eval_only always_save_checkpoint init_from wandb_log wandb_project \
    wandb_run_name dataset gradient_accumulation_steps batch_size block_size n_layer n_head n_embd dropout bias learning_rate \
    max_iters weight_decay beta1 beta2 grad_clip decay_lr warmup_iters lr_decay_iters min_lr backend device dtype compile; do
    "$program" help train | grep -q "^  $key=" || fault "no key $key"
done
ok "help lists nanoGPT's 33 keys"

for name in gpt2-medium:353.77 gpt2-large:772.72 gpt2-xl:1555.97; do
    "$program" plan finetune_shakespeare init_from="${name%:*}" --json >stdout 2>stderr || fault "plan of $name: $(cat stderr)"
done
equal "$(value stdout parameters)" 1557611200 "parameters of gpt2-xl with OpenAI's biases and vocabulary"
says stderr "without the data"
run train finetune_shakespeare data="$dir/data/shakespeare_char"
code_is 2; says stderr "model.safetensors"; says stderr "init_from"
ok "GPT-2's sizes can be planned without their weights, and training says where the weights are looked for"

# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=best --always_save_checkpoint=True --keep=-1 --eval_interval=5 --quiet
equal "$(find best -name 'step_*.safetensors' | wc -l | tr -d ' ')" 4 "checkpoints with always_save_checkpoint"
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --out_dir=best --keep=-1 --eval_interval=5 --learning_rate=0 --min_lr=0 --eval_batches=fixed --quiet
equal "$(find best -maxdepth 1 -name 'step_*.safetensors' | wc -l | tr -d ' ')" 2 "checkpoints of a loss that does not move: first and last"
ok "always_save_checkpoint=False saves after an evaluation only when it was the best"

# what nanoGPT's users type: train.py and sample.py with a data set's name and flags alone
run train --dataset=nowhere
code_is 2; says stderr "data/nowhere"
# shellcheck disable=SC2086
run train --dataset=shakespeare_char $small --gradient_accumulation_steps=1 --warmup_iters=2 --log_interval=1 --max_iters=8 --out_dir=typed --log_format=nanogpt
code_is 0; says typed/config.yaml "learning_rate: 0.0006"
sed -n 's/^iter \([0-9]*\): .* mfu \(-*\).*/\1\2/p' stdout | tr '\n' ' ' >mfu
equal "$(cat mfu)" "0- 1- 2- 3- 4- 5 6 7 " "iterations without MFU"
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --log_interval=10 --out_dir=tens --log_format=nanogpt
grep -q '^iter 0: .*mfu -100.00%$' stdout && grep '^iter 10: ' stdout | grep -qv 'mfu -100' || fault "MFU from iteration 10 on: $(grep '^iter' stdout)"
ok "train --dataset=NAME alone has nanoGPT's defaults; MFU is shown from its fifth iteration on"

# all of its lines, in its order: numbers are N
# shellcheck disable=SC2086
run train config/train_shakespeare_char.py $small --compile=True --max_iters=10 --out_dir=lines --learning_rate=5e-5 --log_format=nanogpt \
    --weight_decay=1e-1 --eval_only=False --grad_clip=1.0
# configurator.py: a file with its text, then each setting with the value that Python reads
{
    printf 'Overriding config with config/train_shakespeare_char.py:\n'
    cat config/train_shakespeare_char.py
    echo
    for set in eval_iters=2 batch_size=4 block_size=16 n_layer=2 n_head=2 n_embd=16 max_iters=20 eval_interval=10 compile=True max_iters=10 \
        out_dir=lines learning_rate=5e-05 weight_decay=0.1 eval_only=False grad_clip=1.0; do
        echo "Overriding: ${set%%=*} = ${set#*=}"
    done
} >given.wanted
head -n "$(wc -l <given.wanted)" stdout >given.got
cmp -s given.got given.wanted || fault "$(diff given.wanted given.got)"
tail -n "+$(($(wc -l <given.wanted) + 1))" stdout |
    sed -e 's/[0-9]\(,\{0,1\}[0-9]\)*\(\.[0-9][0-9]*\)\{0,1\}/N/g' -e 's/mfu -N/mfu N/' >lines.got
cat >lines.wanted <<'EOF'
tokens per iteration will be: N
found vocab_size = N (inside data/shakespeare_char/meta.pkl)
Initializing a new model from scratch
number of parameters: NM
num decayed parameter tensors: N, with N parameters
num non-decayed parameter tensors: N, with N parameters
using fused AdamW: False
compiling the model... (takes a ~minute)
step N: train loss N, val loss N
iter N: loss N, time Nms, mfu N%
step N: train loss N, val loss N
saving checkpoint to lines
EOF
cmp -s lines.got lines.wanted || fault "$(diff lines.wanted lines.got)"
ok "the lines of a run are nanoGPT's, in its order"

run sample --out_dir=typed --start=To --num_samples=2 --max_new_tokens=5 --init_from=resume
code_is 0; equal "$(grep -c '^---------------$' stdout)" 2 "texts"; says stdout To
run sample typed --out_dir=typed
code_is 1; says stderr "leave one out"
run sample
code_is 1; says stderr "--out_dir=RUN"
ok "sample takes nanoGPT's out_dir, init_from, start, num_samples and max_new_tokens"
done_testing
