#!/bin/sh
# test_disk_full.sh: a checkpoint that cannot be written ends the run with a sentence and exit code 2; the one before is whole,
# and the run goes on from it to the same bits. A file size limit stands in for the full disk.
plan=2
. "$(dirname "$0")/tap.sh"
settings="$tiny n_embd=64 eval_interval=4 seed=5 --quiet"

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings max_iters=12
code_is 0
# shellcheck disable=SC2086
run train macbook out="$dir/full" $settings max_iters=4
code_is 0
before=$(state_hash "$dir/full")
(
    ulimit -f 700 # blocks of 512 or 1024 bytes, as the shell has it; a checkpoint has 1.2 MiB
    # shellcheck disable=SC2086
    exec ${WRAP:-} "$program" resume "$dir/full" max_iters=12 --quiet
) >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
code_is 2; one_line stderr; says stderr "step_8.safetensors"
equal "$(state_hash "$dir/full")" "$before" "state hash of the last checkpoint"
[ ! -e "$dir/full/step_8.safetensors" ] || fault "half a checkpoint has its name"
ok "a checkpoint that does not fit is exit code 2 with a sentence, and the last one is whole"

run resume "$dir/full" max_iters=12 --quiet
code_is 0
equal "$(state_hash "$dir/full")" "$(state_hash "$dir/whole")" "state hash after resuming"
ok "with room again the run ends in the bits of one that was never short of it"
done_testing
