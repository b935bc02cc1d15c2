#!/bin/sh
# test_faults.sh: what goes wrong outside of the program: a full disk while a checkpoint is written, compilers and kernel
# caches that do not work. A sentence, the right exit code, nothing lost, and the same bits as an undisturbed run.
plan=7
. "$(dirname "$0")/tap.sh"
settings="$tiny max_iters=20 eval_interval=10 save_interval=5 log_interval=1 seed=5"

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings
code_is 0
whole=$(state_hash "$dir/whole")
[ -n "$whole" ] || fault "the undisturbed run has no state hash"
checkpoint_bytes=$(wc -c <"$dir/whole/last.safetensors" | tr -d ' ')

no_temporary_files() { if ls -a "$1" | grep -q '\.tmp$'; then fault "a temporary file is left: $(ls -a "$1")"; fi; }

# train_with NAME WORDS [SETTING...]: a run disturbed by the settings says WORDS and ends in the same bits.
train_with() {
    name=$1 words=$2
    shift 2
    # shellcheck disable=SC2086
    run train macbook out="$dir/$name" $settings "$@"
    code_is 0
    says stderr "$words"
    equal "$(state_hash "$dir/$name")" "$whole" "state hash ($name)"
}
compiler() { printf '#!/bin/sh\n%s\n' "$2" >"$dir/$1" && chmod +x "$dir/$1"; }

# ---- a full disk. Files are limited to half a checkpoint, with the signal ignored (an error at a write) and not (the
# system ends the program).
# shellcheck disable=SC2086
run train macbook out="$dir/full" $settings max_iters=10
code_is 0
before=$(state_hash "$dir/full")
blocks=$((checkpoint_bytes / 1024)) # of 512 bytes
(trap '' XFSZ && ulimit -f "$blocks" && exec ${WRAP:-} "$program" resume "$dir/full" max_iters=20 >"$dir/stdout" 2>"$dir/stderr" </dev/null)
code=$?
code_is 2
says stderr "full/"
equal "$(state_hash "$dir/full")" "$before" "the checkpoint before the disk was full"
no_temporary_files "$dir/full"
run resume "$dir/full" max_iters=20
code_is 0
equal "$(state_hash "$dir/full")" "$whole" "state hash after the disk had room again"
ok "a checkpoint that does not fit the disk leaves the one before, and the run resumes to the same bits"

mkdir "$dir/small"
if mount -t tmpfs -o size=$((checkpoint_bytes * 5 / 2)) tmpfs "$dir/small" 2>/dev/null; then
    trap 'umount "$dir/small"; rm -rf "$dir"' EXIT
    # shellcheck disable=SC2086
    run train macbook out="$dir/small/run" $settings keep=-1
    code_is 2
    says stderr "No space left on device"
    says stderr "small/run/"
    no_temporary_files "$dir/small/run"
    kept=$(ls "$dir/small/run"/step_*.safetensors | sort | tail -n 1)
    [ -n "$(state_hash "$kept")" ] || fault "$kept cannot be read"
    mount -o remount,size=$((checkpoint_bytes * 20)) "$dir/small" || fault "the small disk cannot grow"
    run resume "$dir/small/run"
    code_is 0
    equal "$(state_hash "$dir/small/run")" "$whole" "state hash after the disk had grown"
    umount "$dir/small"
    trap 'rm -rf "$dir"' EXIT
    ok "a disk that is truly full is named, keeps the checkpoints it has, and the run resumes when it has grown"
else
    tests=$((tests + 1))
    echo "ok $tests - a disk that is truly full # SKIP mounting a small one needs root"
fi

# ---- compilers
compiler failing 'echo cc: internal error >&2; exit 1'
compiler slow 'sleep 600'
compiler killed 'kill -9 $$'
train_with cc_missing "/nonexistent/cc" cc=/nonexistent/cc cache_dir="$dir/c1"
says stderr "interpreted"
train_with cc_failing "cc: internal error" cc="$dir/failing" cache_dir="$dir/c2"
train_with cc_killed "killed by signal 9" cc="$dir/killed" cache_dir="$dir/c3"
export ANNEAL_CC_TIMEOUT=0.5
train_with cc_slow "did not finish" cc="$dir/slow" cache_dir="$dir/c4"
unset ANNEAL_CC_TIMEOUT
ok "without a working compiler a run says so, interprets its programs and ends in the same bits"

# ---- one interruption is enough, while a compiler hangs as well
compiler hanging 'sleep 611'
# shellcheck disable=SC2086
"$program" train macbook out="$dir/hang" $settings cc="$dir/hanging" cache_dir="$dir/c5" >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
n=0
while ! ls "$dir/c5"/.anneal-scratch-* >/dev/null 2>&1 && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
sleep 0.5
kill -TERM $running
wait $running
code=$?
code_is 130; says stderr "interrupted after"
if ps ax 2>/dev/null | grep -q '[s]leep 611'; then fault "the compiler's child goes on"; fi
if ls "$dir/c5"/.anneal-scratch-* >/dev/null 2>&1; then fault "the folder it compiled in is left"; fi
run resume "$dir/hang" --quiet
code_is 0; equal "$(state_hash "$dir/hang")" "$whole" "state hash of the interrupted run"
ok "one SIGTERM ends a run whose compiler hangs, with its children, and it resumes to the same bits"

# ---- a file of data that becomes shorter
awk 'BEGIN { for (i = 0; i < 60000; i++) printf "line %d\n", i }' >"$dir/text"
# shellcheck disable=SC2086
run prepare "$dir/text" out="$dir/tokens"
code_is 0
# shellcheck disable=SC2086
"$program" train macbook data="$dir/tokens" out="$dir/cut" $settings max_iters=100000000 lr_decay_iters=100000000 --quiet >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
n=0
while [ ! -s "$dir/cut/metrics.jsonl" ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
for f in train.bin val.bin; do cp "$dir/tokens/$f" "$dir/$f" && : >"$dir/tokens/$f"; done
wait $running
code=$?
code_is 2; says stderr "became shorter while it was read"; one_line stderr
[ -n "$(state_hash "$dir/cut")" ] || fault "the checkpoint is not whole"
ok "data that becomes shorter while it is read: a sentence, exit 2, a whole checkpoint"

# ---- caches
mkdir "$dir/open" && chmod 777 "$dir/open"
train_with cache_open "is open to other users" cache_dir="$dir/open"
[ -z "$(ls "$dir/open")" ] || fault "something was written to the open folder"
echo precious >"$dir/file"
train_with cache_file "is not a directory" cache_dir="$dir/file"
equal "$(cat "$dir/file")" precious "the file in the cache's place"
train_with cache_good " 0 from the cache" cache_dir="$dir/good"
for f in "$dir/good"/*.so; do head -c 2000 "$f" >"$f.half" && cat "$f.half" >"$f" && rm "$f.half"; done
train_with cache_spoilt ", 0 from the cache" cache_dir="$dir/good"
train_with cache_mended "compile 0 kernels" cache_dir="$dir/good"
ok "a cache that is unsafe or damaged is not loaded from, and a run ends in the same bits"

# shellcheck disable=SC2086
run train macbook out="$dir/budget" $settings budget=0.0001
code_is 2
says stderr "the budget is"
says stderr "Largest:"
ok "a step beyond the memory budget is refused with its bill"
done_testing
