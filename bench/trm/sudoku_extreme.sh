#!/bin/sh
# sudoku_extreme.sh: what TinyRecursiveModels' recipe learns from 1,000 hard Sudokus and 1,000 symmetry images of each, in parts that are
# short enough for a machine that is lent for minutes. Each part goes on where the last one stopped, with the same bits as a run in one.
#
#     sh bench/trm/sudoku_extreme.sh data FOLDER [LIST17 LISTHARD]   two lists of puzzles, half of the thousand from each; 2,000 others
#                                                                    of LIST17 for testing, and FOLDER-hard with 1,000 of LISTHARD for
#                                                                    testing. Without lists the puzzles are made: minimal ones
#     sh bench/trm/sudoku_extreme.sh part FOLDER RUN UPDATES SECONDS trains until RUN has UPDATES, or SECONDS are over
#     sh bench/trm/sudoku_extreme.sh eval FOLDER RUN                 exact answers to the test puzzles, 16 steps; of FOLDER-hard too
#     sh bench/trm/sudoku_extreme.sh loss RUN FIRST LAST             the mean of lm_loss over these updates
#
# No test puzzle is a symmetry image of a training puzzle: prepare compares canonical forms. ANNEAL is the program (build/anneal),
# SETTINGS further settings of the run, by default for one NVIDIA GPU with its batch in one piece: "device=cuda divide_batch=0".
set -u
anneal=${ANNEAL:-build/anneal} settings=${SETTINGS:-device=cuda divide_batch=0}
usage() { sed -n 's/^#     //p' "$0" >&2; exit 1; }
[ $# -ge 2 ] || usage
what=$1 folder=$2

case $what in
data)
    if [ $# -ge 4 ]; then
        "$anneal" prepare sudoku from="$3,$4" test="$3" subsample_size=1000 num_aug=1000 test_size=2000 out="$folder" || exit 1
        # the same seed takes the same thousand: only the test puzzles are others
        "$anneal" prepare sudoku from="$3,$4" test="$4" subsample_size=1000 test_size=1000 out="$folder-hard"
    else
        "$anneal" prepare sudoku generate=1000 num_aug=1000 test_size=2000 out="$folder"
    fi ;;
part)
    [ $# -ge 5 ] || usage
    run=$3 updates=$4 seconds=$5
    if [ -e "$run/last.safetensors" ]; then
        timeout -s INT "$seconds" "$anneal" resume "$run" max_iters="$updates"
    else
        # shellcheck disable=SC2086  # settings are words
        timeout -s INT "$seconds" "$anneal" train sudoku_mlp data="$folder" epochs=0 max_iters="$updates" lr_decay_iters=1000000 \
            warmup_iters=1999 eval_iters=1 eval_interval=1000 keep=0 log_interval=10 out="$run" $settings
    fi
    code=$?
    [ $code -eq 124 ] && code=0 # the time was over: the run saved itself
    exit $code ;;
eval)
    [ $# -ge 3 ] || usage
    "$anneal" eval "$3" --json || exit 1
    if [ -d "$folder-hard" ]; then "$anneal" eval "$3" "$folder-hard" --json; fi ;;
loss)
    [ $# -ge 4 ] || usage
    sed -n 's/.*"step": *\([0-9]*\),.*"lm_loss": *\([0-9.eE+-]*\).*/\1 \2/p' "$folder/metrics.jsonl" |
        awk -v a="$3" -v b="$4" '$1 >= a && $1 <= b { s += $2; n++ } END { if (!n) exit 1; printf "%.6f over %d lines\n", s / n, n }' ;;
*) usage ;;
esac
