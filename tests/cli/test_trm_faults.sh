#!/bin/sh
# test_trm_faults.sh: what recursive models are given that cannot be right, or is not what its user thinks: another tokenizer, data without
# a label, numbers that are not finite, splits that do not agree, names with commas, a folder in the place of a file. Each is one
# sentence that names what it is about.
plan=6
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1
little="arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 arch.H_cycles=1 arch.L_cycles=1 arch.halt_max_steps=2 arch.forward_dtype=float32 device=cpu threads=1 log_interval=1"
chat() {
    # shellcheck disable=SC2086  # $little is a list of settings
    run pretrain.py --config-name cfg_chat $little "$@"
}

run prepare example-chat tokenizer=bytes
data=data/example-chat-dataset
chat data_paths=[$data] global_batch_size=4 epochs=1 out=run --quiet
run export run layout=torch out=theirs/step_1
run generate run --prompt hi --max-new-tokens 4 --temperature 0 --quiet
cp "$dir/stdout" "$dir/first"
run generate theirs/step_1 --prompt hi --max-new-tokens 4 --temperature 0 --quiet
code_is 0; cmp -s "$dir/stdout" "$dir/first" || fault "the tokenizer that all_config.yaml leads to gives another answer"
run generate run --tokenizer $data/tokenizer --prompt hi --max-new-tokens 4 --temperature 0 --quiet
code_is 0; cmp -s "$dir/stdout" "$dir/first" || fault "the same tokenizer gives another answer"
cp -R $data/tokenizer other
sed 's/<|sep|>/<|gap|>/g' $data/tokenizer/tokenizer.json >other/tokenizer.json
if cmp -s other/tokenizer.json $data/tokenizer/tokenizer.json; then fault "the other tokenizer is the same"; fi
run generate run --tokenizer other --prompt hi
code_is 1; says stderr "tokenizer=other is another one than that in run/last.safetensors"
chat data_paths=[$data] init_from=run tokenizer=other global_batch_size=4 epochs=1 out=no
code_is 1; says stderr "tokenizer=other is another one"
run generate run --tokenizer nowhere --prompt hi
code_is 2; says stderr "nowhere"
cp -R $data mixed; rm -r mixed/tokenizer; cp -R other mixed/tokenizer
chat "data_paths=[$data,mixed]" global_batch_size=4 epochs=1 out=no
code_is 2; says stderr "mixed/tokenizer: its tokens were made with another vocabulary"
rm -r mixed/tokenizer
chat data_paths=[mixed] global_batch_size=4 epochs=1 out=bare
code_is 0; says stderr "mixed has no folder tokenizer"
run generate bare --prompt hi
code_is 1; says stderr "(data=mixed): set --tokenizer"
run prepare chat input_file="$0" tokenizer=bytes out=data/no
code_is 2
ok "a tokenizer is found where all_config.yaml says, and another one is refused by name"

chat data_paths=[$data] global_batch_size=4 epochs=1 arch.seq_len=1000 out=long
code_is 0; says stderr "arch.seq_len=1000 is more than the 512 tokens"; says stderr "48.8 % of each sample is padding"
sed -i 's/"pad_id": *[0-9]*/"pad_id": 3/' mixed/test/dataset.json
chat data_paths=[mixed] global_batch_size=4 epochs=1 out=no
code_is 2; says stderr "mixed/test/dataset.json: \"pad_id\" is 3, in mixed/train/dataset.json"
cp -R $data silent
rows=$(($(wc -c <silent/train/all__labels.npy) - 128))
awk -v n=$((rows / 4)) 'BEGIN { for (i = 0; i < n; i++) printf "\\234\\377\\377\\377" }' >minus100
# shellcheck disable=SC2059  # the file is a format of octal bytes: -100 as i4
printf "$(cat minus100)" | dd of=silent/train/all__labels.npy bs=128 seek=1 conv=notrunc 2>/dev/null
chat data_paths=[silent] global_batch_size=4 epochs=1 out=no
code_is 2; says stderr "silent/train/all__labels.npy: no example has a label"
cp -R $data one # the first conversation alone is labelled: a batch of another teaches nothing, and the run goes on
# shellcheck disable=SC2059
printf "$(cat minus100)" | head -c $((rows / 4 * 3)) | dd of=one/train/all__labels.npy bs=1 seek=$((128 + rows / 4)) conv=notrunc 2>/dev/null
chat data_paths=[one] global_batch_size=1 epochs=1 arch.halt_max_steps=1 out=one_run --quiet
code_is 0; equal "$(grep -c '"loss":0,' one_run/metrics.jsonl)" 3 "updates without a label"
run prepare sudoku generate=40 size=4 out=four
cp -R four blank
head -c $(($(wc -c <blank/train/all__labels.npy) - 128)) /dev/zero | dd of=blank/train/all__labels.npy bs=128 seek=1 conv=notrunc 2>/dev/null
# shellcheck disable=SC2086
run pretrain.py data_paths=[blank] epochs=2 eval_interval=2 global_batch_size=20 $little out=no
code_is 2; says stderr "blank/train/all__labels.npy: no example has a label"
for sizes in "cfg_pretrain data=four max_iters=3 epochs=0" "cfg_pretrain data=four epochs=3 epochs_per_pass=3" "cfg_chat data=$data" sudoku_4x4 issues mlp "cfg_chat data=$data arch.seq_len=1048576"; do
    # shellcheck disable=SC2086
    run train $sizes batch_size=1048576 out=no
    code_is 2; says stderr "a batch of 1048576 is larger than the data"
done
chat data_paths=[$data] arch=trm out=no
code_is 1; says stderr "arch=trm is the architecture of cfg_pretrain, and cfg_chat has its own"
# shellcheck disable=SC2086
run pretrain.py arch=trm data_paths=[four] epochs=1 eval_interval=1 global_batch_size=20 $little out=trm --quiet
code_is 0
ok "data without labels, splits that do not agree and batches larger than the data are blamed, not memory or settings"

mkdir "it's, a"; cp -R $data/train $data/test $data/tokenizer "it's, a"
chat "data_paths=['it''s, a',$data]" global_batch_size=4 epochs=1 out=odd --quiet
code_is 0
equal "$(sed -n '/^data_paths:/,/^data_paths_test/p' odd/all_config.yaml | tr '\n' ' ')" "data_paths: - \"it's, a\" - \"$data\" data_paths_test: [] " "folders with commas and quotes"
mkdir config; cp odd/all_config.yaml config/odd.yaml
run pretrain.py --config-path config --config-name odd out=odd2 --quiet
code_is 0; equal "$(state_hash odd2)" "$(state_hash odd)" "a run of conversations by the all_config.yaml of another"
chat "data_paths='it''s,b" global_batch_size=4 epochs=1 out=no
code_is 1; says stderr "a quote has no end"
for null in null Null NULL '~' None; do
    chat data_paths=[$data] global_batch_size=4 epochs=1 run_name=$null project_name=$null grad_clip_norm=$null checkpoint_path=$null load_checkpoint=$null --quiet
    code_is 0
done
run export trm layout=torch out=theirs4/step_2
printf '1...............\n' >board
run solve theirs4/step_2 board
code_is 0; cp "$dir/stdout" answer
sed -i "/seq_len/d" theirs4/all_config.yaml # as TinyRecursiveModels writes it: the data say
run solve theirs4/step_2 board
code_is 0; cmp -s "$dir/stdout" answer || fault "another answer where the data say how long boards are"
rm theirs4/all_config.yaml
run solve theirs4/step_2 board
code_is 2; says stderr "how many cells a board has"
ok "lists with any names, words for none, and folders of TinyRecursiveModels' own are read as written"

cp run/last.safetensors nan.safetensors
size=$(wc -c <nan.safetensors)
printf '\000\000\300\177' | dd of=nan.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null
header=$(od -An -tu8 -N8 nan.safetensors | tr -d ' ')
at=$(head -c $((8 + header)) nan.safetensors | tail -c "$header" | sed 's/.*"ema\.embed_tokens[^}]*"data_offsets":\[\([0-9]*\),.*/\1/')
printf '\000\000\300\177' | dd of=nan.safetensors bs=1 seek=$((8 + header + at)) conv=notrunc 2>/dev/null
run eval nan.safetensors $data --json
code_is 3; says stderr "is nan: the model is not finite"
run generate nan.safetensors --prompt hi
code_is 3; says stderr "the model is not finite"
cp run/last.safetensors inf.safetensors
printf '\000\000\200\177' | dd of=inf.safetensors bs=1 seek=$((8 + header + at)) conv=notrunc 2>/dev/null
run eval inf.safetensors $data --json
[ "$code" -eq 3 ] || [ "$code" -eq 0 ] || fault "exit code $code of a model with an infinite weight"
run sample trm
code_is 1; says stderr "it is asked with anneal solve RUN FILE"
run predict trm board
code_is 1; says stderr "it is asked with anneal solve RUN FILE"
cp -R run received # its settings cannot be written: nothing is
rm received/all_config.yaml; mkdir received/all_config.yaml
before=$(cd received && find . -type f ! -name .lock -exec cksum {} + | sort)
run resume received epochs=3 --quiet
code_is 2; says stderr "received/all_config.yaml: is not a regular file"; says stderr "out="
equal "$(cd received && find . -type f ! -name .lock -exec cksum {} + | sort)" "$before" "the files of a run that cannot go on"
run resume run epochs=3 --quiet
code_is 0; equal "$(wc -l <run/metrics.jsonl | tr -d ' ')" 3 "updates of a run resumed with epochs=3"
ok "a model with NaN weights is refused by every command that asks it, and a run that cannot be written stays as it is"

npy() { # npy FILE DESCR SHAPE, the data on standard input
    header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    { printf '\223NUMPY\001\000v\000'; printf '%-117s\n' "$header"; cat; } >"$1"
}
mkdir table rows
awk 'BEGIN { for (i = 0; i < 100; i++) for (k = 0; k < 3; k++) printf (i == 37 && k == 2) ? "\\000\\000\\300\\177" : "\\000\\000\\200\\077" }' >x
awk 'BEGIN { for (i = 0; i < 100; i++) printf "\\%03o\\000\\000\\000", i % 2 }' >y
# shellcheck disable=SC2059
printf "$(cat x)" | npy table/x.npy '<f4' '100, 3'
# shellcheck disable=SC2059
printf "$(cat y)" | npy table/y.npy '<i4' '100,'
run train mlp data=table max_iters=30 eval_interval=10 device=cpu out=no1 --quiet
code_is 3; says stderr "table/x.npy: row 37: element 2 of inputs is nan"; says stderr "correct the data"
# shellcheck disable=SC2059
printf "$(cat x)" | npy vec.npy '<f4' '20, 5, 3'
awk 'BEGIN { for (i = 0; i < 20; i++) printf "\\%03o\\000\\000\\000", i % 2 }' >y
# shellcheck disable=SC2059
printf "$(cat y)" | npy vec.labels.npy '<i4' '20,'
run train issues data=vec.npy max_iters=30 eval_interval=10 device=cpu out=no2 --quiet
code_is 3; says stderr "vec.npy: row 7: element 8 of vectors is nan"
run train issues max_iters=2 eval_iters=1 device=cpu out=issues --quiet
run predict issues nosuchfile.csv
code_is 2; says stderr "nosuchfile.csv: no such file"
run predict issues ./none
code_is 2; says stderr "./none: no such file"
run predict issues "and/or"
code_is 0
# of the vectors behind the NaN above, one is asked about; the model was trained without it
awk 'BEGIN { for (i = 0; i < 100; i++) for (k = 0; k < 3; k++) printf "\\%03o\\000\\200\\077", (i + k) % 4 }' >x
# shellcheck disable=SC2059
printf "$(cat x)" | npy good.npy '<f4' '20, 5, 3'
cp vec.labels.npy good.labels.npy
run train issues data=good.npy max_iters=5 eval_iters=1 device=cpu out=vectors --quiet
code_is 0
run predict vectors vec.npy --json
code_is 2; says stderr "row 7 (from 0) is not a number"; says stdout '"class":null,"label":null'
{ echo text,label; for i in 1 2 3 4 5 6 7 8 9; do echo "docs $i,a"; echo "test $i,b"; done; echo "odd,rare"; } >k.csv
run train issues data=k.csv max_iters=1 eval_iters=1 device=cpu out=classes
code_is 0; says stderr "no text of the class rare is trained on"
ok "a NaN in the data is named with its file and row, and a file that is not there is no text"

# The rate at the end is a part of the peak that was asked for, constant unless something says otherwise.
run prepare sudoku generate=40 size=4 seed=1 out=four
rates() { # rates SETTING... of a run of 40 updates: the last
    # shellcheck disable=SC2086
    run pretrain.py data_paths=[four] epochs=8 eval_interval=8 global_batch_size=8 lr_warmup_steps=4 $little "$@" out=rate --quiet
    sed -n 's/.*"lr":\([^,]*\).*/\1/p' rate/metrics.jsonl | tail -n 1
}
equal "$(rates lr=3e-5)" 3e-05 "rate at the end of lr=3e-5"
equal "$(rates lr=3e-4)" 0.0003 "rate at the end of lr=3e-4"
equal "$(rates lr=3e-4 lr_min_ratio=0.1)" 3e-05 "rate at the end of lr_min_ratio=0.1"
equal "$(rates lr=3e-4 min_lr=1e-5)" 1e-05 "rate at the end of min_lr=1e-5"
for wrong in abc "" 0.1x 5 -3; do
    run train sudoku_4x4 lr_min_ratio="$wrong" max_iters=1 out=no device=cpu
    code_is 1; says stderr "lr_min_ratio="
done
run train sudoku_4x4 data_paths_test=[nowhere] max_iters=1 out=no device=cpu
code_is 1; says stderr "data_paths_test=nowhere"
run train sudoku_4x4 freeze_weights=True max_iters=1 out=no device=cpu
code_is 1; says stderr "arch.puzzle_emb_ndim="
run train sudoku_4x4 arch.expansion=0.001 max_iters=1 out=no device=cpu
code_is 1; says stderr "arch.expansion"
chat data_paths=[$data] global_batch_size=4 max_iters=30 out=short --quiet
equal "$(sed -n 's/.*"lr":\([^,]*\).*/\1/p' short/metrics.jsonl | tail -n 1)" 3e-05 "rate at the end of 30 updates"
run eval short --json
code_is 0; equal "$(tr , '\n' <"$dir/stdout" | grep -c '"tokens"')" 1 "counts of tokens"
ok "the learning rate ends where it is said to, and settings that cannot be are named"
done_testing
