#!/bin/sh
# test_text.sh: a classifier of texts: the built-in ones and a CSV file, vectors made elsewhere, resuming, asking, and what
# is refused.
plan=6
. "$(dirname "$0")/tap.sh"
short="threads=1 width=64 length=32 max_iters=40 eval_interval=20"

# shellcheck disable=SC2086  # settings are words
run train issues $short out="$dir/a" --json
code_is 0; has_keys "$dir/stdout" val_loss; says stderr "texts/s"; says stderr accuracy; says stderr "240 texts to train on, 60 to validate"
grep -q '"unit":"text"' "$dir/a/metrics.jsonl" || fault "no unit in metrics.jsonl"
run predict "$dir/a" "please add a unit test to the suite"
code_is 0; one_line stdout; says stdout needs_test
printf 'who can approve the pull request?\r\n\nthe manual should explain it\n' >"$dir/lines.txt"
run predict "$dir/a" "$dir/lines.txt" --json
code_is 0; equal "$(grep -o '"label":' "$dir/stdout" | wc -l | tr -d ' ')" 2 "answers"
"$program" predict "$dir/a" - <"$dir/lines.txt" >"$dir/stdout" 2>"$dir/stderr"
equal "$(cut -d' ' -f1 "$dir/stdout" | tr '\n' ' ')" "needs_review needs_docs " "labels of standard input"
ok "train issues learns the built-in texts, predict answers for a text, a file and standard input"

# shellcheck disable=SC2086
run train issues $short out="$dir/b" max_iters=20
run resume "$dir/b" max_iters=40 threads=2
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/b")" "state after 40 updates, resumed after 20"
run resume "$dir/b" fold=1
code_is 1; says stderr "fold was settled"
ok "a resumed run ends in the same bits, over one thread or two"

{
    echo 'label,text'
    for i in 1 2 3 4 5 6 7 8 9 10; do
        printf 'sea,"the boat number %s sails, and the ""wave"" breaks\non the beach"\r\nland,the tractor %s ploughs a field\r\nair,a plane %s takes off from the runway\r\n' $i $i $i
    done
} >"$dir/own.csv"
# shellcheck disable=SC2086
run train issues $short data="$dir/own.csv" out="$dir/own" folds=10 fold=3
code_is 0; says stderr "27 texts to train on, 3 to validate"
run predict "$dir/own" "a boat on the beach"
says stdout "sea  sea"
run eval "$dir/own" "$dir/own.csv" --json
code_is 0; equal "$(value "$dir/stdout" texts)" 30 "texts evaluated"
run predict "$dir/own" "$dir/own.csv"
code_is 0; equal "$(grep -c . "$dir/stdout")" 30 "answers to a CSV file"
run export "$dir/own" out="$dir/w.safetensors"
run predict "$dir/w.safetensors" "a plane on the runway"
code_is 0; says stdout "air  air"
ok "a CSV file of other classes is learnt, evaluated and exported with its words and classes"

npy() { { printf '\223NUMPY\001\000\166\000'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $2, }"
          printf "$3"; } >"$1"; }
rows='' labels=''
for i in 0 1 2 3 4 5 6 7 8 9; do rows="$rows\\00$((i % 2))\\001\\001\\00$((i % 2))\\000\\001" labels="$labels\\00$((i % 2))"; done
npy "$dir/v.npy" "(10, 2, 3)" "$rows"
run train issues data="$dir/v.npy" out="$dir/v"
code_is 2; says stderr "v.labels.npy is not there: the classes of"
npy "$dir/v.labels.npy" "(10,)" "$labels"
run train issues data="$dir/v.npy" batch_size=4 max_iters=100 threads=1 out="$dir/v"
code_is 0; says stderr "8 texts to train on, 2 to validate"; says stderr "mean of 2 vectors of 3 numbers"
run predict "$dir/v" "$dir/v.npy"
code_is 0; equal "$(cut -c1 "$dir/stdout" | tr -d '\n')" 0101010101 "classes of the vectors"
ok "vectors of a .npy file train the head alone"

run plan issues --json
code_is 0; says stdout '"bytes":12582912'
run plan issues batch_size=16 --json
says stdout '"bytes":6291456'
run plan issues length=64 --json
says stdout '"bytes":6291456'
ok "plan shows a batch's 12 MiB, and half of it at half the batch or length"

printf 'text,label\n"never closed,x\n' >"$dir/bad.csv"
run train issues data="$dir/bad.csv" out="$dir/no"
code_is 2; says stderr "bad.csv: line 2: the quote that opens a field here is never closed"
printf 'text,label\na,x\nb,x\n' >"$dir/few.csv"
run train issues data="$dir/few.csv" out="$dir/no" fold=4
code_is 2; says stderr "the validation split has no texts"
printf 'a swan,lake\n' >"$dir/other.csv"
run eval "$dir/own" "$dir/other.csv"
code_is 2; says stderr "line 1: the label lake is none that the weights know: air, land, sea"
run train issues data=/nowhere.csv out="$dir/no"
code_is 2; says stderr "/nowhere.csv"
run train issues fold=7 out="$dir/no"
code_is 1; says stderr "folds 0 to 4"
run predict "$dir/a" /dev/null
code_is 2
run train issues data="$dir/own.csv" folds=10 batch_size=7 gradient_accumulation_steps=5 out="$dir/no"
code_is 2; says stderr "own.csv: a batch of 35 is larger than the data, 27 texts to train on: set batch_size=5"
run train issues data="$dir/v.npy" batch_size=1000 out="$dir/no"
code_is 2; says stderr "larger than the data, 8 texts"
run train issues tokenizer=/nowhere out="$dir/no"
code_is 2; says stderr /nowhere
ok "what is no data set is a sentence"
done_testing
