#!/bin/sh
# test_ranks_tasks.sh: every task over several processes: in exact mode the bits of one, running statistics, carries and rows of
# puzzles among them; a run that is cut goes on with another number of ranks. A task of src/train/tasks without a row fails.
plan=10
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_STEP_ID
cd "$dir" || exit 1
root=$OLDPWD

. "$root/tests/cli/tasks.sh"
# running statistics; slots that go on for a random number of steps, and a row for each puzzle
cat >>table <<END
image_classes | resnet | batch_size=6 eval_iters=2 warmup_iters=2 lr_decay_iters=40
puzzle | sudoku_4x4 | arch.hidden_size=16 arch.halt_max_steps=3 arch.halt_exploration_prob=0.5 arch.puzzle_emb_ndim=16 num_puzzle_identifiers=5 batch_size=4 eval_iters=2 warmup_iters=2 lr_decay_iters=40
END

# train RUN SETTING...: updates of 4 micro-batches of whatever the row says
train() {
    out=$1
    shift
    rm -rf "$out"
    # shellcheck disable=SC2086  # a list of settings
    run train "$what" $settings device=cpu seed=3 threads=1 exact=true gradient_accumulation_steps=4 eval_interval=3 \
        out="$out" --quiet "$@"
    code_is 0
}
numbers() { sed 's/"ms".*//' "$1/metrics.jsonl"; }

while IFS='|' read -r name what settings; do
    name=${name% } what=${what# } what=${what% }
    if [ "$name" = samples ]; then # its archive keeps statistics, of which this program does not know what they mean
        # shellcheck disable=SC2086
        run train "$what" $settings ranks=2 gradient_accumulation_steps=4 max_iters=6 out=several
        code_is 1
        says stderr "keeps f.1.running_mean between batches, which several ranks cannot share: train it with one rank"
        ok "$name ($(basename "$what")): states of an archive are refused"
        continue
    fi
    [ "$name" != conversation ] || settings="$settings batch_size=1" # there are four examples
    train one max_iters=6
    want=$(state_hash one)
    [ ${#want} -eq 32 ] || fault "no state hash"
    for ranks in 2 4; do
        train several max_iters=6 ranks=$ranks
        equal "$(state_hash several)" "$want" "the state of $ranks ranks and of one"
        equal "$(numbers several)" "$(numbers one)" "the metrics of $ranks ranks and of one"
    done
    train several max_iters=6 ranks=4 shard=weights # where the model has enough of them
    equal "$(state_hash several)" "$want" "the state of 4 ranks with weights in parts, and of one"
    equal "$(numbers several)" "$(numbers one)" "the metrics of 4 ranks with weights in parts, and of one"
    for ranks in 4 1; do
        train several max_iters=3 ranks=2
        run resume several max_iters=6 ranks=$ranks --quiet
        code_is 0
        equal "$(state_hash several)" "$want" "the state of a run of 2 ranks that went on with $ranks"
    done
    ok "$name ($(basename "$what")): 1, 2 and 4 ranks have the same bits, also where a run is cut"
done <table
for file in "$root"/src/train/tasks/*.c; do
    grep -q "^$(basename "$file" .c) " table || fault "src/train/tasks/$(basename "$file") has no row in tests/cli/tasks.sh"
done
done_testing
