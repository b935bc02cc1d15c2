#!/bin/sh
# bigram.sh: what a small model learns of a collection of conversations, beside what counting pairs of tokens makes of them.
#
#     sh bench/trm/bigram.sh FORMAT FILE|FOLDER OUT [MAX_LENGTH [BATCH [EPOCHS]]]
#
# FORMAT is one of prepare chat's (sharegpt, alpaca, openassistant, chatterbot). Tokens are bytes, the split is prepare's. Prints the loss of
# both on the same test tokens, in nats; the exit code is 1 where the model's is not the lower one. ANNEAL is the program (build/anneal).
set -eu
[ $# -ge 3 ] || { sed -n 's/^#     //p' "$0" >&2; exit 2; }
format=$1 from=$2 length=${4:-128} batch=${5:-16} epochs=${6:-10}
program=${ANNEAL:-build/anneal}
anneal=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$3"
out=$(cd "$3" && pwd)

if [ -d "$from" ]; then # its files that have the format's endings, as a list with commas, which may not be long
    cd "$from"
    list=
    for file in *; do
        case $format:$file in
        chatterbot:*.yml | chatterbot:*.yaml | [sao]*:*.json | [sao]*:*.jsonl) list=$list${list:+,}$file ;;
        esac
    done
    from=$list
fi
[ -n "$from" ] || { echo "bigram.sh: the folder has no file of format $format" >&2; exit 2; }
"$anneal" prepare chat input_file="$from" format="$format" tokenizer=bytes max_length="$length" out="$out/data"
"$anneal" pretrain.py --config-name cfg_chat "data_paths=[$out/data]" global_batch_size="$batch" epochs="$epochs" lr=2e-3 out="$out/run" \
    device=cpu arch.forward_dtype=float32 arch.hidden_size=128 arch.num_heads=4 arch.L_layers=2 eval_epochs="$epochs" --quiet
pairs=$(python3 "$here/../../tools/bigram.py" "$out/data")
said=$("$anneal" eval "$out/run" device=cpu --json)
loss=$(printf '%s' "$said" | sed -n 's/.*"loss":\([0-9.]*\).*/\1/p')
echo "$pairs"
echo "model:  $loss nats a token"
awk -v a="$loss" -v b="$(printf '%s' "$pairs" | sed 's/bigram: \([0-9.]*\) .*/\1/')" 'BEGIN { exit !(a > 0 && a < b) }'
