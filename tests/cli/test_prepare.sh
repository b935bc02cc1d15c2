#!/bin/sh
# test_prepare.sh: token folders from texts, weights from and for other programs. Nothing here needs a network: that downloads
# survive what networks do is tests/unit/test_download.c.
plan=17
. "$(dirname "$0")/tap.sh"

i=0
while [ $i -lt 400 ]; do echo "line $i: schöne Grüße"; i=$((i + 1)); done >"$dir/text.txt"

run prepare "$dir/text.txt" out="$dir/folder" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" vocab_size train_tokens val_tokens
vocab=$(value "$dir/stdout" vocab_size)
equal "$(wc -c <"$dir/folder/train.bin" | tr -d ' ')" "$((2 * $(value "$dir/stdout" train_tokens)))" "bytes of train.bin"
equal "$(wc -c <"$dir/folder/val.bin" | tr -d ' ')" "$((2 * $(value "$dir/stdout" val_tokens)))" "bytes of val.bin"
run prepare "$dir/text.txt" out="$dir/folder"
code_is 0; silent stderr; says stdout "tokens of $vocab kinds"
ok "a text becomes train.bin, val.bin and meta.json, and the same again"

# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook data="$dir/folder" out="$dir/run" $tiny max_iters=20 learning_rate=1e-2
code_is 0
run sample "$dir/run" start="Grüße" tokens=20
code_is 0; says stdout "Grüße"
ok "a prepared folder is trained on and sampled from without a word on its vocabulary"

printf 'abc\377defghijklmnopqrstuvwxyz' >"$dir/broken.txt"
run prepare "$dir/broken.txt" out="$dir/no"
code_is 2; one_line stderr; says stderr "broken.txt: byte 3: not UTF-8"; says stderr "errors=replace"
[ ! -e "$dir/no/train.bin" ] || fault "files of a text that was refused"
run prepare "$dir/broken.txt" out="$dir/yes" errors=replace
code_is 0; says stdout "1 places were no UTF-8"
ok "what is no UTF-8 is named with its byte, or replaced when asked"

printf 'abcdefghij' >"$dir/ten.txt"
run prepare "$dir/ten.txt" out="$dir/ten"
code_is 2; one_line stderr; says stderr "ten.txt: the validation part has 1 tokens"
[ ! -e "$dir/ten/train.bin" ] || fault "files of a text that is too short"
ok "a text without one token and its next in each part is refused"

run prepare shakespeare out="$dir/shakespeare" mirror=http://127.0.0.1:1 </dev/null
code_is 2; one_line stderr; says stderr "--from FILE"
run prepare shakespeare out="$dir/shakespeare" --from "$dir/text.txt"
code_is 2; says stderr "not tinyshakespeare (1115394 bytes, sha256 86c4e6aa"
run prepare "$dir/text.txt" tokenizer=gpt2 out="$dir/gpt2" mirror=http://127.0.0.1:1
code_is 2; says stderr "tokenizer=FOLDER"
run prepare "$dir/text.txt" tokenizer="$dir/folder" out="$dir/again"
code_is 0
equal "$(cksum <"$dir/again/train.bin")" "$(cksum <"$dir/folder/train.bin")" "tokens with the tokenizer of a folder"
ok "without a network the sentence says how to do without; a tokenizer can be a folder's"

run inspect tests/torch/nanogpt.pt
code_is 0; says stdout "model._orig_mod.transformer.wte.weight"; says stdout "optimizer.state.9.exp_avg"
run inspect tests/torch/hf/model.safetensors
code_is 0; says stdout "h.1.mlp.c_proj.bias"
ok "inspect reads nanoGPT's ckpt.pt and Hugging Face's weights"

# 33 different characters, as the checkpoint has
i=0
while [ $i -lt 60 ]; do echo "abcdefghijklmnopqrstuvwxyz,.;:!  the quick brown fox $i" | tr '0123456789' 'aaaaaaaaaa'; i=$((i + 1)); done >"$dir/33.txt"
run prepare "$dir/33.txt" out="$dir/33" --json
equal "$(value "$dir/stdout" vocab_size)" 33 "vocabulary"
run sample tests/torch/nanogpt.pt tokenizer="$dir/33" start=abc tokens=5
code_is 0; says stdout "abc"
for weights in nanogpt.pt hf/model.safetensors; do
    run eval "tests/torch/$weights" "$dir/33/val.bin" --json
    code_is 0; has_keys "$dir/stdout" loss
    run train macbook data="$dir/33" init_from="tests/torch/$weights" out="$dir/init" $tiny block_size=12 max_iters=1
    code_is 0
done
sed 's/quick/quick9/' "$dir/33.txt" >"$dir/34.txt"
run prepare "$dir/34.txt" out="$dir/34"
run eval tests/torch/nanogpt.pt "$dir/34/val.bin"
code_is 2; says stderr "the tokens are of 34 kinds, the model knows 33"
cp tests/torch/nanogpt.pt "$dir/ckpt.pt"
run resume "$dir/ckpt.pt" data="$dir/33" out="$dir/resumed" max_iters=5
code_is 0
equal "$(sed -n '1s/.*"step":\([0-9]*\).*/\1/p' "$dir/resumed/metrics.jsonl")" 3 "first update of a resumed ckpt.pt"
ok "sample, eval, train and resume take weights of nanoGPT and Hugging Face"

mkdir "$dir/hf"
run export tests/torch/nanogpt.pt out="$dir/hf/model.safetensors" layout=hf
code_is 0; silent stdout; is_file "$dir/hf/config.json"
run export "$dir/hf/model.safetensors" out="$dir/one.safetensors"
code_is 0
run export tests/torch/nanogpt.pt out="$dir/two.safetensors"
code_is 0
equal "$(state_hash "$dir/one.safetensors")" "$(state_hash "$dir/two.safetensors")" "weights by way of the other layout, and not"
run export "$dir/run" out="$dir/run.safetensors"
code_is 0
run sample "$dir/run.safetensors" start="Grüße" tokens=20
code_is 0
cp "$dir/stdout" "$dir/exported"
run sample "$dir/run" start="Grüße" tokens=20
cmp -s "$dir/exported" "$dir/stdout" || fault "an exported model writes another text"
ok "weights go out in each layout and back with the same bits; an exported run is sampled from"

# GPT-2's own GELU is a setting, and goes where the weights go.
for gelu in erf tanh; do
    run train macbook $tiny max_iters=2 eval_iters=1 gelu=$gelu out="$dir/$gelu" # shellcheck disable=SC2086
    code_is 0
done
[ "$(state_hash "$dir/erf")" != "$(state_hash "$dir/tanh")" ] || fault "gelu=tanh changes nothing"
run resume "$dir/tanh" gelu=erf max_iters=3
code_is 1; says stderr "gelu was settled when the run began"
run export "$dir/tanh" out="$dir/hf/model.safetensors" layout=hf
code_is 0
grep -q '"activation_function": "gelu_new"' "$dir/hf/config.json" || fault "config.json does not say gelu_new"
for from in tanh hf/model.safetensors; do
    run train macbook $tiny max_iters=1 eval_iters=1 init_from="$dir/$from" out="$dir/on"
    code_is 0
    grep -q '"\{0,1\}gelu"\{0,1\}: "tanh"' "$dir/on/config.yaml" || fault "init_from=$from forgets gelu=tanh: $(grep gelu "$dir/on/config.yaml")"
done
ok "gelu=tanh is kept by resume, export and init_from"

head -c 60000 tests/torch/nanogpt.pt >"$dir/cut.pt"
run sample "$dir/cut.pt"
code_is 2; one_line stderr; says stderr "cut.pt: byte "
printf 'PK\003\004' >"$dir/tiny.pt"
run export "$dir/tiny.pt" out="$dir/no.safetensors"
code_is 2; one_line stderr; says stderr "tiny.pt: byte 4: the zip archive has no end record"
# shellcheck disable=SC2086
run train macbook data="$dir/folder" out="$dir/from_cut" $tiny max_iters=1 init_from="$dir/cut.pt"
code_is 2; says stderr "cut.pt: byte "
ok "a checkpoint that was cut short is a sentence with file and byte"

(
    ulimit -f 8 # blocks of 512 or 1024 bytes; train.bin has some 17 KiB
    exec ${WRAP:-} "$program" prepare "$dir/text.txt" out="$dir/full"
) >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
code_is 2; one_line stderr; says stderr "full/"
[ ! -e "$dir/full/train.bin" ] && [ ! -e "$dir/full/meta.json" ] || fault "half a folder has its names"
ok "a full disk leaves no half folder"

if command -v python3 >/dev/null; then
    python3 - "$dir/folder/meta.pkl" "$vocab" <<'PY' >"$dir/log" 2>&1 || fault "$(cat "$dir/log")"
import pickle, sys
meta = pickle.load(open(sys.argv[1], "rb"))
assert sorted(meta) == ["itos", "stoi", "vocab_size"], meta
assert meta["vocab_size"] == int(sys.argv[2]) == len(meta["stoi"]) == len(meta["itos"]), meta["vocab_size"]
assert all(meta["stoi"][meta["itos"][i]] == i for i in range(meta["vocab_size"]))
assert "\u00fc" in meta["stoi"]
PY
    ok "meta.pkl is nanoGPT's, as Python reads it"
else
    tests=$((tests + 1))
    echo "ok $tests - meta.pkl is nanoGPT's, as Python reads it # SKIP no python3"
fi

run export "$dir/run" out="$dir/new/folder/run.safetensors"
code_is 0; says stderr "wrote   $dir/new/folder/run.safetensors"; is_file "$dir/new/folder/run.safetensors"
ok "export makes the folder and says the path"
# A collection of documents: JSON lines, plain and compressed, and folders of them or of texts.
i=0
while [ $i -lt 1500 ]; do printf '{"id": %s, "text": "document %s says \\"Gr\\u00fc\303\237e\\"\\nand ends"}\n' $i $i; i=$((i + 1)); done >"$dir/web.jsonl"
mkdir "$dir/web" "$dir/texts"
head -n 700 "$dir/web.jsonl" >"$dir/web/1.jsonl"
tail -n +701 "$dir/web.jsonl" >"$dir/web/2.jsonl"
run prepare openwebtext
code_is 1; one_line stderr; says stderr "openwebtext is not downloaded; name your copy with --from PATH"
run prepare openwebtext --from "$dir/web.jsonl" tokenizer=char out="$dir/plain" --json
code_is 0; equal "$(value "$dir/stdout" documents)" 1500 documents; equal "$(value "$dir/stdout" files)" 1 files
run prepare fineweb --from "$dir/web" tokenizer=char out="$dir/two" --json
code_is 0; equal "$(value "$dir/stdout" documents)" 1500 documents; equal "$(value "$dir/stdout" files)" 2 files
cmp -s "$dir/plain/train.bin" "$dir/two/train.bin" || fault "two files of lines have other tokens than one"
printf 'one text\nof two lines\n' >"$dir/texts/a.txt"
i=0
while [ $i -lt 500 ]; do echo "another text, line $i"; i=$((i + 1)); done >"$dir/texts/b.txt"
run prepare openwebtext --from "$dir/texts" tokenizer=char out="$dir/of_texts" --json
code_is 0; equal "$(value "$dir/stdout" documents)" 2 documents
ok "prepare openwebtext and fineweb take JSON lines and folders"

for packer in gzip zstd; do
    ending=.gz
    [ $packer = gzip ] || ending=.zst
    if ! command -v $packer >/dev/null; then
        tests=$((tests + 1))
        echo "ok $tests - JSON lines of $packer are taken, and refused where they are cut short # SKIP no $packer"
        continue
    fi
    $packer -c "$dir/web.jsonl" >"$dir/web.jsonl$ending"
    run prepare openwebtext --from "$dir/web.jsonl$ending" tokenizer=char out="$dir/packed"
    code_is 0; says stdout "in 1500 documents"
    cmp -s "$dir/plain/train.bin" "$dir/packed/train.bin" || fault "the file of $packer has other tokens"
    size=$(wc -c <"$dir/web.jsonl$ending")
    head -c $((size / 2)) "$dir/web.jsonl$ending" >"$dir/cut.jsonl$ending"
    run prepare openwebtext --from "$dir/cut.jsonl$ending" tokenizer=char out="$dir/nothing"
    code_is 2; one_line stderr; says stderr "cut.jsonl$ending: "; says stderr "cut short"
    [ ! -e "$dir/nothing/train.bin" ] || fault "files of a collection that was cut short"
    cp "$dir/web.jsonl$ending" "$dir/web.txt$ending"
    run prepare openwebtext --from "$dir/web.txt$ending" tokenizer=char out="$dir/nothing"
    code_is 2; one_line stderr; says stderr "only JSON lines"
    # where the library is missing: an empty file is found in its place (Linux; elsewhere the library is found)
    mkdir -p "$dir/lib"
    for name in libz.so.1 libz.so libzstd.so.1; do : >"$dir/lib/$name"; done
    if [ "$(uname)" = Linux ] && [ -z "${WRAP:-}" ] && ! ldd "$program" | grep -q 'libz[.s]'; then
        LD_LIBRARY_PATH=$dir/lib run prepare openwebtext --from "$dir/web.jsonl$ending" tokenizer=char out="$dir/nothing"
        code_is 2; one_line stderr; says stderr "web.jsonl$ending: the library that decompresses it is not installed"
    fi
    ok "JSON lines of $packer are taken, and refused where they are cut short"
done

sed '41s/}$//' "$dir/web.jsonl" >"$dir/damaged.jsonl"
run prepare openwebtext --from "$dir/damaged.jsonl" tokenizer=char out="$dir/nothing"
code_is 2; one_line stderr; says stderr "damaged.jsonl: line 41: "
sed '7s/text/words/' "$dir/web.jsonl" >"$dir/words.jsonl"
run prepare openwebtext --from "$dir/words.jsonl" tokenizer=char out="$dir/nothing"
code_is 2; one_line stderr; says stderr 'words.jsonl: line 7: an object with a "text" is needed'
printf 'PAR1' >"$dir/web.parquet"
for name in openwebtext fineweb; do
    run prepare $name --from "$dir/web.parquet" tokenizer=char out="$dir/nothing"
    code_is 2; one_line stderr; says stderr "web.parquet: Parquet is not read; convert it to JSON lines: python3 -c"
done
[ ! -e "$dir/nothing/train.bin" ] || fault "files of a collection that was refused"
ok "a damaged line is named with file and line; Parquet with the command that converts it"

done_testing
