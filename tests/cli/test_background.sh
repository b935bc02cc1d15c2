#!/bin/sh
# test_background.sh: runs in the background: started, listed, followed, stopped, taken up again to the same bits.
plan=5
. "$(dirname "$0")/tap.sh"
trap '"$program" stop "$dir/long" >/dev/null 2>&1; rm -rf "$dir"' EXIT
export XDG_STATE_HOME="$dir/state"
# shellcheck disable=SC2086
set -- $tiny eval_interval=50 log_interval=10 warmup_iters=2 lr_decay_iters=2000000 threads=1

run ps
code_is 0; silent stdout; says stderr "no run trains in the background"
run train demo "$@" max_iters=2000000 out="$dir/long" --detach
code_is 0; silent stdout; says stderr "trains in the background"
run ps
code_is 0; one_line stdout; says stdout running; says stdout "of 2000000"; says stdout "$dir/long"
run train demo "$@" max_iters=20 out="$dir/long" --detach
code_is 2; says stderr "another process trains here"; one_line stderr
ok "a run in the background is listed, and has its folder for itself"

case $(uname) in Linux) equal "$(stat -c %a "$dir/long/train.log")" 600 "rights of the log, in which a page's token is" ;; esac
# The reader follows until the run ends.
"$program" logs "$dir/long" -f >"$dir/followed" 2>&1 </dev/null &
reader=$!
for _ in $(seq 200); do
    [ -s "$dir/long/last.safetensors" ] && break
    sleep 0.05
done
run stop "$dir/long"
code_is 0; says stderr "stopped and saved"
wait $reader || fault "logs -f ended with $?"
says followed "interrupt"
grep -q '"event":"interrupted"' "$dir/long/logbook.jsonl" || fault "the logbook does not say that it was interrupted"
[ ! -e "$dir/long/.stop" ] || fault "the request to stop is still there"
run logs "$dir/long"
code_is 0; cmp -s "$dir/stdout" "$dir/followed" || fault "logs and logs -f differ"
run ps
code_is 0; says stdout interrupted
run ps
silent stdout
run stop "$dir/long"
code_is 2; says stderr "no process trains here"
ok "it is followed, stopped with its state saved, and told once more by ps"

# Stopped and resumed in the background, it has the bits of one that ran through.
steps=$(($(tail -n 1 "$dir/long/metrics.jsonl" | sed 's/{"step":\([0-9]*\).*/\1/') + 60))
run resume "$dir/long" max_iters=$steps --detach --json
code_is 0; one_line stdout; has_keys "$dir/stdout" out pid
"$program" logs "$dir/long" --follow >/dev/null
run train demo "$@" max_iters=$steps out="$dir/through" --quiet
code_is 0; equal "$(state_hash "$dir/long")" "$(state_hash "$dir/through")" "state of a run that was stopped"
ok "stopped and resumed, it ends with the same bits as a run that went through"

run train demo "$@" data="$dir/nowhere.txt" out="$dir/fails" --detach
code_is 2; says stderr "nowhere.txt"
run train demo learning_rate=x out="$dir/fails" --detach
code_is 1; says stderr "learning_rate"
run ps --json
code_is 0; one_line stdout; says stdout '"runs":'
if grep -q fails "$dir/stdout"; then fault "a run that never began is listed"; fi
ok "a run that cannot begin is its own sentence and exit code"

# What is not a run's, and folders that were prepared to mislead.
run logs "$dir/through"
code_is 2; says stderr "not"
mkdir "$dir/trap"
ln -s /etc/passwd "$dir/trap/train.log"
run logs "$dir/trap"
[ "$code" -ne 0 ] || fault "a link was followed"
silent stdout
run stop "$dir/trap"
code_is 2
echo "$dir/gone" >"$dir/state/anneal/runs/00"
run ps
code_is 0; silent stdout; says stderr "leaves the list"
ok "links, folders without a run and entries that lead nowhere are a sentence"
done_testing
