#!/bin/sh
# test_trm_snippets.sh: every command line of the code blocks of docs/trm.md, in its order, in one folder (those of docs/vision.md: test_lesson.sh). RUN is the folder
# of the last run before the line. A line that trains for longer than a test may is planned as it stands, at its full size, and then runs with small sizes
# behind it; these lines are printed. Bytes stand for GPT-2's tokens, which are a download, and the ARC files are a puzzle a subset.
plan=3
. "$(dirname "$0")/tap.sh"
doc=$(cd "$(dirname "$0")/../../docs" && pwd)/trm.md
cd "$dir" || exit 1

mkdir bin kaggle kaggle/combined
cat >bin/anneal <<END
#!/bin/sh
planned() { # the line as it stands, by the planner: WHAT SETTINGS
    printf '%s\n' "\$*" >>"$dir/planned"
    "$program" plan "\$@" device=null:cpu --json >"$dir/plan.json" || exit
    grep -q '"peak_bytes"' "$dir/plan.json" || { echo "plan \$*: no bytes" >&2; exit 9; }
}
small="device=cpu log_interval=1 arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 warmup_iters=1 --quiet"
case "\$*" in
"train sudoku_4x4"*) shift; planned "\$@"; exec ${WRAP:-} "$program" train "\$@" \$small max_iters=2 lr_decay_iters=2 eval_interval=2 eval_iters=1 batch_size=8 ;;
"train arc1"*) shift; planned "\$@"
    exec ${WRAP:-} "$program" train "\$@" \$small out=arc dtype=float32 epochs=0 max_iters=2 lr_decay_iters=2 eval_interval=2 eval_iters=1 batch_size=2 \
        arch.H_cycles=1 arch.L_cycles=1 arch.halt_max_steps=2 ;;
"pretrain.py --config-name cfg_chat"*) shift 3; planned cfg_chat "\$@"
    exec ${WRAP:-} "$program" pretrain.py --config-name cfg_chat "\$@" \$small out=chat arch.forward_dtype=float32 arch.seq_len=48 epochs=1 eval_epochs=1 ;;
"eval arc"*) exec ${WRAP:-} "$program" "\$@" batch_size=256 ;;
"prepare example-chat"*) exec ${WRAP:-} "$program" "\$@" tokenizer=bytes ;;
"generate.py"*) exec ${WRAP:-} "$program" "\$@" --max-new-tokens 3 ;;
esac
exec ${WRAP:-} "$program" "\$@"
END
chmod +x bin/anneal
PATH=$dir/bin:$PATH

for subset in training evaluation concept; do
    n=$((n + 1))
    printf '{"p%d":{"train":[{"input":[[%d,2],[0,1]],"output":[[1,2],[%d,0]]}],"test":[{"input":[[%d,5]]}]}}' $n $n $n $n \
        >"kaggle/combined/arc-agi_${subset}_challenges.json"
    printf '{"p%d":[[[5,%d]]]}' $n $n >"kaggle/combined/arc-agi_${subset}_solutions.json"
done

sed -n '/^```/,/^```$/p' "$doc" | grep -v '^```' >lines
last=run ran=0
while IFS= read -r line; do
    case $line in
    *"train arc1"*) next=arc ;;
    *"pretrain.py"*) next=chat ;;
    *) next=$last ;;
    esac
    # a comment behind a command is the shell's to leave out
    echo quit | sh -c "$(printf '%s' "$line" | sed "s/\bRUN\b/$last/g")" >stdout 2>stderr || fault "$line: $(tail -n 3 stderr)"
    case $line in *"solve run -"*) grep -q '^step  *4 ' stdout || fault "no trace: $(cat stdout)" ;; esac
    last=$next ran=$((ran + 1))
done <lines
[ "$ran" -ge 12 ] || fault "only $ran lines were found in $doc"
equal "$(grep -cv '[^ ]*anneal ' lines)" 0 "lines that are no command of ours"
ok "every command of docs/trm.md is taken and ends well"

sed 's/^/# planned at its full size and run small: /' planned
equal "$(wc -l <planned | tr -d ' ')" 3 "lines that are planned"
ok "the lines that train for long are planned at their full size"

is_file run/last.safetensors; is_file arc/submission.json; is_file checkpoints/P/r/step_1000; is_file checkpoints/P/r/all_config.yaml; is_file model.safetensors
is_file data/example-chat-dataset/train/dataset.json
ok "the files that docs/trm.md speaks of are there"
done_testing
