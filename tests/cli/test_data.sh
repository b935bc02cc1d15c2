#!/bin/sh
# test_data.sh: where tokens and weights may come from: a text, token files, another run, a YAML file.
plan=9
. "$(dirname "$0")/tap.sh"

i=0
while [ $i -lt 300 ]; do echo "schöne Grüße aus Nürnberg, zum $i. Mal"; i=$((i + 1)); done >"$dir/text.txt"
# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook data="$dir/text.txt" out="$dir/text" $tiny max_iters=30 learning_rate=1e-2
code_is 0; says stderr "text.txt"
run sample "$dir/text" start="Grüße" tokens=20
code_is 0; says stdout "Grüße"
run sample "$dir/text" start="x"
code_is 2; says stderr "x"
ok "a UTF-8 text is its own vocabulary; a prompt outside of it is named"

# 0 1 2 ... 31, again and again, as 16-bit ids
i=0
while [ $i -lt 32 ]; do printf '%b\000' "\\0$(printf %o $i)"; i=$((i + 1)); done >"$dir/period"
mkdir "$dir/ids"
for n in 1 2 3 4 5 6 7 8 9 10; do cat "$dir/period"; done >"$dir/ids/val.bin"
for n in 1 2 3 4 5 6 7 8 9 10; do cat "$dir/ids/val.bin"; done >"$dir/ids/train.bin"
# shellcheck disable=SC2086
run train macbook data="$dir/ids" out="$dir/no" $tiny max_iters=2
code_is 1; says stderr "vocab_size"
# shellcheck disable=SC2086
run train macbook data="$dir/ids" vocab_size=32 out="$dir/bin" $tiny max_iters=120 dropout=0 learning_rate=2e-2 lr_decay_iters=120 --json
code_is 0
awk -v v="$(value "$dir/stdout" val_loss)" 'BEGIN { exit !(v > 0 && v < 1.5) }' || fault "val loss $(value "$dir/stdout" val_loss): counting was not learnt"
run sample "$dir/bin"
code_is 1; says stderr "tokenizer="
ok "token files are learnt; without a tokenizer there is nothing to sample"

run eval "$dir/bin" "$dir/ids/val.bin" --json
all=$(value "$dir/stdout" loss)
run eval "$dir/bin" --json
equal "$(value "$dir/stdout" loss)" "$all" "loss of the validation split, and of its file"
ok "eval of a run's own split is eval of its file"

# shellcheck disable=SC2086
run train macbook data="$dir/ids" vocab_size=32 init_from="$dir/bin" out="$dir/more" $tiny max_iters=1 learning_rate=0 min_lr=0 --json
code_is 0
# shellcheck disable=SC2086
run eval "$dir/more" "$dir/ids/val.bin" --json
equal "$(value "$dir/stdout" loss)" "$all" "loss of a run that began with another's weights and did not move"
# shellcheck disable=SC2086
run train macbook data="$dir/ids" vocab_size=32 init_from="$dir/bin" out="$dir/more" $tiny n_layer=3 max_iters=1
code_is 1; says stderr "n_layer=3"
# shellcheck disable=SC2086
run train demo data="$dir/ids" vocab_size=32 init_from="$dir/bin" out="$dir/more" block_size=16 max_iters=1 eval_iters=1 --json
code_is 0; says stderr "2 layers"
ok "init_from takes another run's weights and shape, and refuses another one on the command line"

run resume "$dir/bin" data="$dir/text.txt" max_iters=130
[ "$code" -ne 0 ] || fault "resumed on other data"
says stderr "text.txt"
ok "a resumed run refuses other data"

# The same number of characters, other ones: their ids would mean something else without anybody noticing.
for case in upper lower; do
    tr '[:lower:][:upper:]' "[:$case:][:$case:]" <"$dir/text.txt" | tr -cd '[:lower:][:upper:]\n' | head -c 9000 >"$dir/$case.txt"
    run prepare "$dir/$case.txt" out="$dir/$case"
    code_is 0
done
# shellcheck disable=SC2086
run train macbook data="$dir/upper" out="$dir/capitals" $tiny max_iters=2
code_is 0
# shellcheck disable=SC2086
run train macbook data="$dir/lower" init_from="$dir/capitals" out="$dir/no" $tiny max_iters=2
code_is 2; says stderr "id 1 is U+0061 'a' there and U+0041 'A' in the model"
run resume "$dir/capitals" data="$dir/lower" max_iters=3
code_is 2; says stderr "another vocabulary"
run eval "$dir/capitals" "$dir/lower/val.bin"
code_is 2; says stderr "another vocabulary"
run eval "$dir/capitals" "$dir/upper/val.bin"
code_is 0
ok "tokens of another vocabulary are refused, with the first character that differs"

# Edited in place: as many characters, other ones.
head -c 9000 "$dir/upper.txt" >"$dir/edited.txt"
# shellcheck disable=SC2086
run train macbook data="$dir/edited.txt" out="$dir/edited" $tiny max_iters=2
code_is 0
has_keys "$dir/edited/logbook.jsonl" train_xxh3 val_xxh3
[ "$(value "$dir/edited/logbook.jsonl" train_xxh3)" != "$(value "$dir/edited/logbook.jsonl" val_xxh3)" ] || fault "both splits have one hash"
cp "$dir/edited.txt" "$dir/before.txt"
sed '$s/G/U/' "$dir/before.txt" >"$dir/edited.txt"
if cmp -s "$dir/before.txt" "$dir/edited.txt"; then fault "nothing was edited"; fi
run resume "$dir/edited" max_iters=3
code_is 2; says stderr "as many tokens as the run began with, but other ones"
cp "$dir/before.txt" "$dir/edited.txt"
run resume "$dir/edited" max_iters=3
code_is 0
ok "a run does not go on with data that were edited, be it one character near the end"

head -c 300 "$dir/upper.txt" >"$dir/few.txt"
# shellcheck disable=SC2086
run train macbook data="$dir/few.txt" out="$dir/edited" $tiny block_size=32 max_iters=2
code_is 2; says stderr "the validation split has 30 tokens"; is_file "$dir/edited/last.safetensors"
ok "a validation split without one sample is refused before anything begins"

printf 'batch_size: 4\nblock_size: 16\nn_layer: 1\nn_head: 2\nn_embd: 16\nmax_iters: 3\nwarmup_iters: 1\nlr_decay_iters: 3\neval_iters: 1\n' >"$dir/own.yaml"
run train "$dir/own.yaml" out="$dir/yaml" max_iters=2
code_is 0
equal "$(wc -l <"$dir/yaml/metrics.jsonl" | tr -d ' ')" 2 "updates"
ok "a YAML file takes a preset's place, the command line wins"
done_testing
