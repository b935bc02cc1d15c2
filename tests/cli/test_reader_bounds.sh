#!/bin/sh
# test_reader_bounds.sh: what a reader takes at most (docs/reliability.md) is enforced: a file of one byte more is refused in one
# sentence before memory is taken, by each command that reads it. The files are sparse, so that none takes room. Bounds of numbers
# inside files are those of the units' tests.
plan=6
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1

# Runs with 3 GiB of address space at most (sanitizers want more): a reader that took a file beyond its bound would fail otherwise.
limited() {
    # shellcheck disable=SC2086  # WRAP is a command with arguments
    (grep -q fsanitize "$build/flags" || ulimit -v 3145728; exec timeout 60 ${WRAP:-} "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null)
    code=$?
}
build=$(dirname "$program")
# over FILE BYTES COMMAND...: with one byte more than BYTES, the command refuses the file.
over() {
    file=$1 bytes=$2
    shift 2
    mkdir -p "$(dirname "$file")"
    : >"$file"
    truncate -s $((bytes + 1)) "$file"
    limited "$@"
    [ "$code" -eq 2 ] || [ "$code" -eq 1 ] || fault "$* with $file of $bytes bytes and one: exit code $code: $(head -c 300 "$dir/stderr")"
    grep -qF "$file: larger than $bytes bytes" "$dir/stderr" || fault "$*: no '$file: larger than $bytes bytes' in: $(head -c 300 "$dir/stderr")"
    one_line stderr
    rm -f "$file"
}
# said WORDS COMMAND...: refused, with these words.
said() {
    words=$1
    shift
    limited "$@"
    [ "$code" -eq 2 ] || [ "$code" -eq 1 ] || fault "$*: exit code $code"
    grep -qF -- "$words" "$dir/stderr" || fault "$*: no '$words' in: $(head -c 300 "$dir/stderr")"
    one_line stderr
}
mib=1048576

over big.yaml $mib train big.yaml
over big.py $mib train big.py
over all/all_config.yaml $mib pretrain.py --config-path "$dir/all" --config-name all_config
ok "settings of more than 1 MiB are refused"

run train macbook out=run $tiny max_iters=2 --quiet
code_is 0
echo "a text" >text.txt
over big.json $((64 * mib)) prepare text.txt tokenizer=big.json out=tokens
mkdir tokens half
echo '#version: 0.2' >half/vocab.bpe
over half/encoder.json $((64 * mib)) prepare text.txt tokenizer=half out=tokens
printf '\001\000\002\000\003\000\004\000' | tee tokens/train.bin >tokens/val.bin
over tokens/meta.json $((64 * mib)) train macbook data=tokens $tiny max_iters=1 out=other
over tokens/meta.pkl $((16 * mib)) train macbook data=tokens $tiny max_iters=1 out=other
over prompt.txt $((64 * mib)) sample run --prompt FILE:prompt.txt
ok "tokenizers, the description of tokens and prompts have a bound in bytes"

over big.csv $((1024 * mib)) train issues data=big.csv
over puzzles/train/dataset.json $mib train sudoku_4x4 data=puzzles
for place in train/a train/b val/a val/b; do
    mkdir -p "pictures/$place"
    truncate -s $((256 * mib + 1)) "pictures/$place/x.png"
done
over pictures/train/a/x.png $((256 * mib)) train cnn data=pictures height=28 width=28
ok "records, puzzles and images have a bound in bytes"

over profile.json $((64 * mib)) diagnose run profile=profile.json
over profile.json $((64 * mib)) report run profile=profile.json out=page.html
over profile.json $((64 * mib)) profile diff profile.json profile.json
over sweep/sweep.json $((4 * mib)) report run sweep=sweep out=page.html
ok "profiles and sweeps have a bound in bytes"

# A line of 257 MiB in some hundred kilobytes, plain and compressed.
over=$((257 * mib))
if command -v gzip >/dev/null; then
    head -c $over /dev/zero | tr '\0' x | gzip -1 >bomb.jsonl.gz
    said "bomb.jsonl.gz: line 1 has more than 256 MiB" prepare openwebtext from=bomb.jsonl.gz tokenizer=char out=bombed
fi
truncate -s $over talk.json
said "talk.json: line 1 has more than 256 MiB" prepare chat input_file=talk.json tokenizer=bytes out=chat
ok "a line that does not end is refused, compressed too"

truncate -s $((1024 * mib + 1)) talk.json
said "talk.json: larger than 1024 MiB" prepare chat input_file=talk.json tokenizer=bytes out=chat
rm -f talk.json
truncate -s $((64 * mib + 1)) x_old_challenges.json
said "x_old_challenges.json: larger than 64 MiB" prepare arc from="$dir/x" subsets=old test_set_name=old out=arc
rm -f x_old_challenges.json
if [ -n "${AN_SOAK:-}" ]; then # gigabytes of memory
    awk 'BEGIN { for (i = 0; i <= 16777216; i++) print "1..............." }' | gzip -1 >many.txt.gz
    "$program" prepare sudoku from=many.txt.gz out=many >stdout 2>stderr && fault "2^24 Sudokus and one are taken"
    says stderr "many.txt.gz:16777217: more than 16777216 puzzles; split the file"
    awk 'BEGIN { for (i = 0; i <= 4194304; i++) { s = "SG"; n = i
            for (k = 0; k < 23; k++) { s = s (n % 2 ? "#" : " "); n = int(n / 2) }
            print "a," s "," s ",1" } }' | gzip -1 >mazes.csv.gz
    "$program" prepare maze from=mazes.csv.gz out=many >stdout 2>stderr && fault "2^22 mazes and one are taken"
    says stderr "mazes.csv.gz: more than 4194304 mazes; split the file"
fi
ok "conversations, puzzles and tasks have a bound"
done_testing
