#!/bin/sh
# test_mlp.sh: the second model through the same commands as the first: trains, resumes, evaluates, predicts, plans, is exported,
# timed and checked; and what belongs to one model is refused by the other.
plan=9
. "$(dirname "$0")/tap.sh"
short="threads=1 max_iters=60 eval_interval=20 hidden=16"

# A .npy of bytes: FILE SHAPE OCTALS. The header is padded to 118 bytes, so that it ends at byte 128.
npy() { { printf '\223NUMPY\001\000\166\000'; printf '%-117s\n' "{'descr': '|u1', 'fortran_order': False, 'shape': $2, }"
          printf "$3"; } >"$1"; }

# shellcheck disable=SC2086  # settings are words
run train mlp $short out="$dir/a" --json
code_is 0; has_keys "$dir/stdout" val_loss; says stderr "hidden layers"; says stderr "examples/s"; says stderr "accuracy"
grep -q '"unit":"example","units_per_s":' "$dir/a/metrics.jsonl" || fault "no unit in metrics.jsonl"
grep -q '"val_accuracy":' "$dir/a/metrics.jsonl" || fault "no val_accuracy in metrics.jsonl"
grep -q tokens "$dir/a/metrics.jsonl" && fault "tokens in metrics.jsonl"
ok "train mlp learns the built-in points, and counts examples"

# shellcheck disable=SC2086
run train mlp $short out="$dir/b" max_iters=20
cp -r "$dir/b" "$dir/c"
run resume "$dir/b" max_iters=60 threads=2
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/b")" "state after 60 updates, resumed after 20"
# shellcheck disable=SC2086
run train mlp $short out="$dir/d" gradient_accumulation_steps=4 batch_size=16 workers=3
code_is 0; says stderr accuracy
run resume "$dir/c" hidden=8
code_is 1; says stderr "hidden was settled"
ok "a resumed run ends in the same bits; what shaped it is settled"

run eval "$dir/a" --json
code_is 0; has_keys "$dir/stdout" examples loss accuracy
equal "$(value "$dir/stdout" examples)" 300 "examples evaluated"
run eval "$dir/a" halt=true
code_is 1; says stderr "halt=true: a model of kind mlp has no such setting"
run eval "$dir/a" interval=3 # eval_interval is of the run, not of a model
code_is 1; says stderr "unknown setting interval"
ok "eval gives the model's numbers and refuses another model's settings"

mkdir "$dir/data"
rows= labels=
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    rows="$rows\\00$((i % 2))\\00$((i % 2))\\00$((i % 4))" labels="$labels\\00$((i % 2))"
done
npy "$dir/data/x.npy" "(20, 3)" "$rows"
npy "$dir/data/y.npy" "(20,)" "$labels"
# shellcheck disable=SC2086
run train mlp $short data="$dir/data" batch_size=8 out="$dir/own"
code_is 0; says stderr "18 examples to train on, 2 to validate"
run predict "$dir/own" "$dir/data/x.npy"
code_is 0; silent stderr
equal "$(cut -c1 "$dir/stdout" | tr -d '\n')" 01010101010101010101 "classes of the rows"
cp "$dir/stdout" "$dir/text"
"$program" predict "$dir/own" - --json <"$dir/data/x.npy" >"$dir/stdout" 2>"$dir/stderr"
equal "$(grep -o '"class":' "$dir/stdout" | wc -l | tr -d ' ')" 20 "rows in JSON"
run predict "$dir/own" "$dir/data/x.npy" out="$dir/p.npy"
code_is 0; says stderr "20 rows of 2 outputs"
equal "$(wc -c <"$dir/p.npy" | tr -d ' ')" $((128 + 20 * 2 * 4)) "bytes of p.npy"
ok "own .npy files are learnt, and predicted as text, JSON and .npy"

npy "$dir/wide.npy" "(1, 4)" '\001\001\001\001'
run predict "$dir/own" "$dir/wide.npy"
code_is 1; says stderr "rows of 4 numbers, the mlp reads 3"
head -c 140 "$dir/data/x.npy" >"$dir/cut.npy"
run predict "$dir/own" "$dir/cut.npy"
code_is 2; says stderr "where the shape makes 60"
run train mlp data="$dir/data" loss=mse out="$dir/no"
code_is 2; says stderr "its labels are classes, the model wants values"
run train mlp data=/nowhere out="$dir/no"
code_is 2; says stderr "no folder with x.npy and y.npy"
run sample "$dir/a"
code_is 1; says stderr "it is asked with anneal predict RUN FILE.npy"
ok "what does not fit the model is a sentence"

run train mlp n_layer=2 out="$dir/no"
code_is 1; says stderr "n_layer is no setting of model mlp"
run train demo hiden=8
code_is 1; says stderr "did you mean hidden?"
run train demo hidden=8 out="$dir/no"
code_is 1; says stderr "hidden is no setting of model gpt"
run train mlp learning_rat=1
code_is 1; says stderr "did you mean learning_rate?"
printf 'model: mpl\n' >"$dir/m.yaml"
run train "$dir/m.yaml"
code_is 1; says stderr "did you mean mlp?"
run train "$dir/a/config.yaml" out="$dir/again" threads=1
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/again")" "state of the run and of its config.yaml's"
ok "each model has its own settings, in files too"

run plan mlp --json
code_is 0; has_keys "$dir/stdout" parameters peak_bytes
run plan mlp what_if=batch/2 --json
code_is 0; says stdout batch/2
run plan mlp what_if=batch*9223372036854775807
code_is 1; says stderr "the product is too large"
run plan mlp --fit 1MiB
code_is 0; says stdout "fits     batch_size="
ok "plan tells the bill, other batches and the largest that fits"

run export "$dir/a" out="$dir/w.safetensors"
code_is 0; is_file "$dir/w.safetensors"
run inspect "$dir/w.safetensors"
says stdout "layers.0.weight"; grep -q optimizer "$dir/stdout" && fault "moments were exported"
# shellcheck disable=SC2086
run train mlp $short init_from="$dir/w.safetensors" out="$dir/warm" max_iters=1
code_is 0
run export "$dir/a" layout=hf out="$dir/w2.safetensors"
code_is 1; says stderr "has one layout"
run train demo init_from="$dir/w.safetensors" out="$dir/no"
code_is 1; says stderr "of model mlp, the run is of model gpt"
ok "weights are exported under their names, and a run begins from them"

run bench mlp steps=3 warmup=1 threads=1
code_is 0; says stdout "a step"
run profile mlp --steps 2 --warmup 1 threads=1
code_is 0; says stdout "examples/s"
run selftest mlp batch_size=8 threads=1
code_is 0; says stdout "all as the oracle has them"
ok "bench, profile and selftest know it by its row"
done_testing
