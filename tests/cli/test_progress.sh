#!/bin/sh
# test_progress.sh: on a terminal a long command says how far it is and how much time is left, on a line that is gone when it ends; in a
# pipe, with --json and with --quiet it says nothing of that.
plan=3
. "$(dirname "$0")/tap.sh"
# shellcheck disable=SC2086
run train demo $tiny max_iters=4 eval_interval=4 out="$dir/run"
code_is 0
for i in $(seq 1000); do echo "line $i of a text that takes a while to read, to encode and to evaluate: to be, or not to be"; done >"$dir/text"

run eval "$dir/run" "$dir/text"
code_is 0; silent stderr
run eval "$dir/run" "$dir/text" --json
code_is 0; silent stderr; one_line stdout
# shellcheck disable=SC2086
run bench demo $tiny n_layer=8 n_embd=128 block_size=128 steps=4 warmup=1 --json
code_is 0; one_line stdout
grep -q "$(printf '\r')" "$dir/stderr" && fault "a line of progress in a file"
ok "without a terminal, and with --json, there is none"

if ! script -qec "echo works" /dev/null </dev/null 2>/dev/null | grep -q works; then
    for name in "bench, eval, sweep, profile and selftest" "prepare, predict and solve"; do skip "on a terminal $name show how far they are" "no script of util-linux gives a terminal here"; done
    done_testing
    exit
fi

# A command that is done within a second draws nothing: its work is doubled until it draws, which it must by the time it takes five seconds.
double() { cat "$dir/$1" "$dir/$1" >"$dir/twice" && mv "$dir/twice" "$dir/$1"; }
shown() { # WHAT UNIT GROW COMMAND: COMMAND's line was drawn, and at its end taken away. GROW and COMMAND are words for the shell.
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do
        began=$(date +%s)
        eval "set -- \"\$1\" \"\$2\" \"\$3\" \"\$4\" \"$4\""
        script -qec "$program $5" /dev/null </dev/null >"$dir/shown" 2>&1 || { # more work would not help
            fault "$5: it ended with $?: $(tail -c 300 "$dir/shown")"
            return
        }
        grep -qE "$1.* of .*$2, [0-9]+ %, .* left" "$dir/shown" && break
        [ $(($(date +%s) - began)) -ge 5 ] && break
        eval "$3"
    done
    grep -qE "$1.* of .*$2, [0-9]+ %, .* left" "$dir/shown" || fault "$5: no line of progress: $(tail -c 300 "$dir/shown")"
    tail -n 1 "$dir/shown" | tr "\r" "\n" | tail -n 1 | grep -q " left" && fault "$5: the line stayed"
}
steps=25
wide="$tiny n_layer=8 n_embd=128 block_size=128"
shown bench steps 'steps=$((2 * steps))' 'bench demo $wide steps=$steps warmup=1'
shown eval batches 'double text' 'eval $dir/run $dir/text'
sweeps=200
shown "batch 4:" updates 'sweeps=$((2 * sweeps))' 'sweep demo n_layer=2 n_head=2 from=4 steps=$sweeps minutes=0.05 budget=8MiB block_size=64 n_embd=64 out=$dir/sweep'
shown profile steps 'steps=$((2 * steps))' 'profile demo $wide --steps $steps --warmup 1'
layers=4
shown selftest launches 'layers=$((2 * layers))' 'selftest demo $wide n_layer=$layers cc=none threads=1'
ok "on a terminal bench, eval, sweep, profile and selftest show how far they are and what is left"

mazes=4000
shown prepare mazes 'mazes=$((2 * mazes))' 'prepare maze generate=$mazes out=$dir/mazes'
run train issues max_iters=2 length=16 width=16 eval_interval=2 out="$dir/texts"
code_is 0
cp "$dir/text" "$dir/rows"
shown predict rows 'double rows' 'predict $dir/texts $dir/rows out=$dir/rows.npy'
run train sudoku_4x4 threads=1 cc=none batch_size=8 arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 arch.expansion=1 arch.halt_max_steps=3 \
    max_iters=2 eval_interval=2 eval_iters=1 out="$dir/puzzles"
code_is 0
for i in $(seq 200); do echo "12...4....4...21"; done >"$dir/boards"
shown solve boards 'double boards' 'solve $dir/puzzles $dir/boards'
for i in $(seq 500); do echo "{\"id\":\"$i\",\"conversations\":[{\"from\":\"human\",\"value\":\"question $i?\"},{\"from\":\"gpt\",\"value\":\"answer $i.\"}]}"; done >"$dir/talks.jsonl"
shown prepare conversations 'double talks.jsonl' 'prepare chat input_file=$dir/talks.jsonl tokenizer=bytes out=$dir/chat'
grid='[[1,2,3,4,5,6],[6,5,4,3,2,1],[1,1,2,2,3,3]]'
for set in training evaluation; do
    printf '{"%s1":{"train":[{"input":%s,"output":%s}],"test":[{"input":%s}]},"%s2":{"train":[{"input":%s,"output":%s}],"test":[{"input":%s}]}}' \
        $set "$grid" "$grid" "$grid" $set "$grid" "$grid" "$grid" >"$dir/arc_${set}_challenges.json"
    printf '{"%s1":[%s],"%s2":[%s]}' $set "$grid" $set "$grid" >"$dir/arc_${set}_solutions.json"
done
images=500
shown prepare puzzles 'images=$((2 * images))' 'prepare arc from=$dir/arc subsets=training,evaluation test_set_name=evaluation num_aug=$images out=$dir/arcs'
ok "on a terminal prepare, predict and solve show how far they are and what is left"
done_testing
