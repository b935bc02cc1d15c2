#!/bin/sh
# test_import.sh: a model that PyTorch exported goes through the commands: inspected, planned, trained from arrays and images, resumed
# without its archive, evaluated, used for predictions, exported; and what does not fit is refused before the first update.
plan=12
. "$(dirname "$0")/tap.sh"
from=tests/import/train
short="threads=1 max_iters=40 warmup_iters=4 lr_decay_iters=40 eval_interval=20 learning_rate=1e-2 batch_size=20"
mkdir "$dir/data"
cp "$from/rows.npy" "$from/labels.npy" "$dir/data/"
cp "$from/classes.pt2" "$dir/model.pt2"

run inspect "$dir/model.pt2"
code_is 0; says stdout "f.1.num_batches_tracked"; says stdout "aten.batch_norm.default"; says stdout "all are known"
run inspect "$dir/model.pt2" --json
code_is 0; one_line stdout; says stdout '"first_axis_free":true'; says stdout '"missing":null'
ok "inspect lists inputs, parameters, buffers and operations"

# shellcheck disable=SC2086  # settings are words
run plan "$dir/model.pt2" batch_size=20
code_is 0; says stdout weights
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/data" $short out="$dir/a" --json
code_is 0; has_keys "$dir/stdout" val_loss; says stderr "imported from"
loss=$(value "$dir/stdout" val_loss)
[ "$(printf '%s\n' "$loss" 0.9 | sort -g | head -n 1)" = "$loss" ] || fault "validation loss $loss after 40 updates"
ok "train learns from .npy files named as the inputs"

# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/data" $short out="$dir/b" max_iters=20 lr_decay_iters=40
rm "$dir/model.pt2"
run resume "$dir/b" max_iters=40
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/b")" "state after 40 updates, resumed after 20 without the archive"
run eval "$dir/a" --json
code_is 0; has_keys "$dir/stdout" samples loss accuracy
run eval "$dir/a" "$dir/data" --json
code_is 0
whole=$(cat "$dir/stdout")
run eval "$dir/a" data="$dir/data" --json
code_is 0; equal "$(cat "$dir/stdout")" "$whole" "an evaluation of data=DIR and of the word DIR"
run eval "$dir/a" "$dir/data" data="$dir/data"
code_is 1; says stderr "the data twice"
ok "a run goes on to the same bits without the archive"

hashes() { # the parameters of a run whose names match the pattern, with hashes of their elements
    run export "$dir/$1" out="$dir/h.safetensors"
    run inspect "$dir/h.safetensors"
    grep -e "$2" "$dir/stdout"
}
choice="freeze=f.0.*,f.1.* decay=f.4.weight optimizer=sgd momentum=0.9 nesterov=true weight_decay=0.5"
for step in "first $choice max_iters=1 learning_rate=1e-30 min_lr=1e-30 weight_decay=0" "whole $choice" "undecayed $choice decay=f.4.bias" "part $choice max_iters=20"; do
    # shellcheck disable=SC2086
    run train "$from/classes.pt2" data="$dir/data" $short out="$dir/${step%% *}" ${step#* }
    code_is 0
done
run resume "$dir/part" max_iters=40
code_is 0
equal "$(state_hash "$dir/part")" "$(state_hash "$dir/whole")" "state resumed with frozen parameters"
[ -n "$(hashes first 'f[.]1[.]bias')" ] || fault "no parameter f.1.bias"
equal "$(hashes whole 'f[.][01][.][wb]')" "$(hashes first 'f[.][01][.][wb]')" "frozen parameters after one update and after 40"
[ "$(hashes whole 'f[.]4[.]weight')" != "$(hashes first 'f[.]4[.]weight')" ] || fault "f.4.weight, which is not frozen, was not trained"
[ "$(hashes whole 'f[.]4[.]weight')" != "$(hashes undecayed 'f[.]4[.]weight')" ] || fault "decay= says nothing"
ok "freeze= and decay= name parameters of the archive, and a run resumed has them"

run predict "$dir/a" "$from/rows.npy"
code_is 0; equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 200 "rows predicted"
# 200 rows are six batches of 32 and a short one of 8: each row is what it is in one batch of all
for rows in 200 32; do
    run predict "$dir/a" "$from/rows.npy" batch_size=$rows out="$dir/$rows.npy"
    code_is 0
done
cmp -s "$dir/200.npy" "$dir/32.npy" || fault "predictions of a short batch"
run export "$dir/a" out="$dir/w.safetensors"
code_is 0
run inspect "$dir/w.safetensors"
code_is 0; says stdout "f.4.weight"; says stdout "int64"; says stdout "f.1.running_mean"
grep -q optimizer "$dir/stdout" && fault "moments in an export"
ok "predict and export: names and dtypes of state_dict"

run export "$dir/a" out="$dir/trained.pt2"
code_is 0
# shellcheck disable=SC2086
run train "$dir/trained.pt2" data="$dir/data" $short max_iters=1 learning_rate=1e-30 min_lr=1e-30 weight_decay=0 out="$dir/e"
code_is 0
run export "$dir/e" out="$dir/e.safetensors"
code_is 0
for file in w e; do
    run inspect "$dir/$file.safetensors"
    grep -e "f.[0-9].weight" -e "f.[0-9].bias" "$dir/stdout" >"$dir/$file.hashes"
done
equal "$(cat "$dir/e.hashes")" "$(cat "$dir/w.hashes")" "weights of the archive that was written"
ok "an archive of the trained model is trained on"

cp "$from/classes.pt2" "$dir/model.pt2"
mkdir "$dir/other"
cp "$from/rows.npy" "$dir/other/first.npy"
cp "$from/labels.npy" "$dir/other/second.npy"
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/other" $short out="$dir/c"
code_is 2; says stderr "the model reads rows"; says stderr "feed=rows:FILE"
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/other" feed=rows:first,labels:second $short out="$dir/c"
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/c")" "state with files of other names"
ok "feed= says which file is which array"

# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/other" feed=rows:second,labels:first $short out="$dir/d"
code_is 2; says stderr "rows of the model is [4]"
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/other" feed=lines:first $short out="$dir/d"
code_is 1; says stderr "none of the model's arrays"
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$dir/data" loss=output $short out="$dir/d"
code_is 1; says stderr "is no scalar"
run train "$from/refused.pt2" data="$dir/data" batch_size=8 max_iters=1 threads=1 out="$dir/refused"
code_is 1; says stderr "write into a clone()"
grep -q an_reshape "$dir/stderr" && fault "a refusal that names an operation of its own"
ok "what does not fit is refused before the first update"

for data in "$from/samples.npz" "$from/samples.safetensors" "$from/samples.csv label=kind"; do
    rm -rf "$dir/f"
    # shellcheck disable=SC2086
    run train "$dir/model.pt2" data=$data $short out="$dir/f"
    code_is 0
    equal "$(state_hash "$dir/f")" "$(state_hash "$dir/a")" "state with $data"
done
run predict "$dir/f" "$from/samples.csv"
code_is 0; equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 200 "rows predicted"
run eval "$dir/f" "$from/samples.csv" --json
code_is 0; says stdout '"samples":200'
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$from/samples.csv" label=c $short out="$dir/d"
code_is 2; says stderr "c: it holds floats, labels of the model are whole numbers"
# shellcheck disable=SC2086
run train "$dir/model.pt2" data="$from/samples.npz" label=kind $short out="$dir/d"
code_is 2; says stderr "the model reads labels: there is neither kind nor train_kind"
ok "a .npz, a .safetensors and columns of a .csv train to the same bits as .npy files"

run train "$from/images.pt2" data=shapes threads=1 max_iters=100 warmup_iters=4 lr_decay_iters=100 eval_interval=100 \
    batch_size=32 learning_rate=2e-2 pixel_mean=0.1 pixel_std=0.3 out="$dir/i"
code_is 0
run eval "$dir/i" --json
code_is 0; has_keys "$dir/stdout" accuracy top5
accuracy=$(value "$dir/stdout" accuracy)
[ "$(printf '%s\n' "$accuracy" 0.4 | sort -g | head -n 1)" = 0.4 ] || fault "accuracy $accuracy of four shapes"
run train "$from/images.pt2" data=shapes pixel_std=0 out="$dir/d"
code_is 1; says stderr "pixel_std=0"
ok "labelled images feed a model of one image; evaluation has top-5 accuracy"

i=0
while [ $i -lt 400 ]; do printf 'abcdefgh'; i=$((i + 1)); done >"$dir/letters.txt"
run train "$from/text.pt2" data="$dir/letters.txt" threads=1 max_iters=150 warmup_iters=4 lr_decay_iters=150 eval_interval=150 \
    batch_size=16 learning_rate=2e-2 out="$dir/t"
code_is 0
rm "$dir/letters.txt"
run sample "$dir/t" --prompt abc --tokens 37 --temperature 0.01 # more than the 16 tokens that the model reads
code_is 0; equal "$(cat "$dir/stdout")" abcdefghabcdefghabcdefghabcdefghabcdefgh "text behind abc"
run sample "$dir/a" --prompt abc
code_is 1; says stderr "it is asked with anneal predict RUN"
ok "sample writes text with a model of token ids"

head -c 3000 "$from/classes.pt2" >"$dir/cut.pt2"
run inspect "$dir/cut.pt2"
code_is 2; says stderr "cut.pt2"; one_line stderr
run train "$dir/missing.pt2" data="$dir/data"
code_is 2; says stderr "missing.pt2"
ok "a damaged or missing archive is a sentence"
done_testing
