#!/bin/sh
# test_progress.sh: on a terminal a long command says how far it is and how much time is left, on a line that is gone when it ends; in a
# pipe, with --json and with --quiet it says nothing of that.
plan=2
. "$(dirname "$0")/tap.sh"
# shellcheck disable=SC2086
run train demo $tiny max_iters=4 eval_interval=4 out="$dir/run"
code_is 0
for i in $(seq 1000); do echo "line $i of a text that takes a while to read, to encode and to evaluate: to be, or not to be"; done >"$dir/text"

# A command that is done within a second draws nothing: the text and the number of steps are doubled until each takes three on this machine.
takes_three() { began=$(date +%s); "$program" "$@" >/dev/null 2>&1 </dev/null; [ $(($(date +%s) - began)) -ge 3 ]; }
doublings=0
until takes_three eval "$dir/run" "$dir/text" || [ $doublings -ge 12 ]; do
    cat "$dir/text" "$dir/text" >"$dir/twice" && mv "$dir/twice" "$dir/text"
    doublings=$((doublings + 1))
done
steps=25
# shellcheck disable=SC2086
until takes_three bench demo $tiny n_layer=8 n_embd=128 block_size=128 steps=$steps warmup=1 || [ $steps -ge 100000 ]; do steps=$((2 * steps)); done
mazes=4000
until takes_three prepare maze generate=$mazes out="$dir/mazes" || [ $mazes -ge 500000 ]; do mazes=$((2 * mazes)); done

name="on a terminal bench, eval, sweep, profile and prepare show how far they are and what is left"
if script -qec "echo works" /dev/null </dev/null 2>/dev/null | grep -q works; then
    shown() { # WHAT UNIT COMMAND...: its line was drawn, and at the end taken away
        what=$1 unit=$2
        shift 2
        script -qec "$program $*" /dev/null </dev/null >"$dir/shown" 2>&1
        grep -qE "$what.* of .*$unit, [0-9]+ %, .* left" "$dir/shown" || fault "$*: no line of progress: $(tail -c 300 "$dir/shown")"
        tail -n 1 "$dir/shown" | tr "\r" "\n" | tail -n 1 | grep -q " left" && fault "$*: the line stayed"
    }
    # shellcheck disable=SC2086
    shown bench steps bench demo $tiny n_layer=8 n_embd=128 block_size=128 steps=$steps warmup=1
    shown eval batches eval "$dir/run" "$dir/text"
    shown "batch 4:" updates sweep demo n_layer=2 n_head=2 from=4 steps=400 minutes=0.05 budget=8MiB block_size=64 n_embd=64 out="$dir/sweep"
    # shellcheck disable=SC2086
    shown profile steps profile demo $tiny n_layer=8 n_embd=128 block_size=128 --steps $steps --warmup 1
    shown prepare mazes prepare maze generate=$mazes out="$dir/mazes"
    ok "$name"
else
    skip "$name" "no script of util-linux gives a terminal here"
fi

run eval "$dir/run" "$dir/text"
code_is 0; silent stderr
run eval "$dir/run" "$dir/text" --json
code_is 0; silent stderr; one_line stdout
# shellcheck disable=SC2086
run bench demo $tiny n_layer=8 n_embd=128 block_size=128 steps=4 warmup=1 --json
code_is 0; one_line stdout
grep -q "$(printf '\r')" "$dir/stderr" && fault "a line of progress in a file"
ok "without a terminal, and with --json, there is none"
done_testing
