#!/bin/sh
# test_hanging_read.sh: a loader thread hangs in a read that nothing ends, as on a network file system that has gone: the first Ctrl-C
# saves and ends the run within a bounded time, and the run goes on when the files are back.
plan=1
. "$(dirname "$0")/tap.sh"
name="Ctrl-C ends a run whose loader thread hangs in a read, with a checkpoint"
if [ -n "${WRAP:-}" ] || [ "$(uname)" != Linux ] || grep -q fsanitize "${AN_BUILD:-build}/flags" ||
    ! ${CC:-cc} -shared -fPIC -o "$dir/stall_at.so" tests/cli/stall_at.c -ldl 2>/dev/null; then
    skip "$name" "it preloads a library: that wants Linux, a C compiler, no wrapper, no sanitizer"
    done_testing
    exit
fi

png() { printf 'iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAE0lEQVR42m%s' "$1" | base64 -d >"$2"; }
upper='M4AQUMeBhyUICHAQCKExzBI0XDgAAAAABJRU5ErkJggg==' lower='OQgwIGPIwoKMDDAACVVw8BygafSgAAAABJRU5ErkJggg=='
for split in train val; do
    mkdir -p "$dir/files/$split/dark_below" "$dir/files/$split/dark_above"
    for i in 1 2; do png $upper "$dir/files/$split/dark_below/$i.png"; png $lower "$dir/files/$split/dark_above/$i.png"; done
done
of="channels=1 height=8 width=8 batch_size=4 warmup_iters=0 filters=4 hidden=8 threads=1 eval_interval=1000000"
# shellcheck disable=SC2086  # settings are words
run train cnn data="$dir/files" $of max_iters=2 out="$dir/first"
if [ "$code" != 0 ] && grep -q "libpng" "$dir/stderr"; then
    skip "$name" "there is no libpng"
    done_testing
    exit
fi

# shellcheck disable=SC2086
LD_PRELOAD="$dir/stall_at.so" STALL_AT=dark_above/1.png STALL_FLAG="$dir/gone" "$program" train cnn data="$dir/files" $of save_interval=5 log_interval=1 \
    max_iters=1000000000 workers=2 out="$dir/run" --quiet >"$dir/stdout" 2>"$dir/stderr" </dev/null &
pid=$! tries=0
until [ "$(cat "$dir/run/metrics.jsonl" 2>/dev/null | wc -l)" -ge 5 ] || [ $tries -ge 1200 ]; do sleep 0.05; tries=$((tries + 1)); done
: >"$dir/gone"
lines=-1 now=0 # until no further update is logged
while [ "$lines" -ne "$now" ]; do lines=$now; sleep 2; now=$(wc -l <"$dir/run/metrics.jsonl"); done
kill -INT $pid
tries=0
while kill -0 $pid 2>/dev/null && [ $tries -lt 600 ]; do sleep 0.1; tries=$((tries + 1)); done
[ $tries -lt 600 ] || { fault "it still runs a minute after Ctrl-C"; kill -9 $pid; }
wait $pid
code=$?
code_is 130
rm "$dir/gone"
run inspect "$dir/run" --json
code_is 0
step=$(value "$dir/stdout" step)
equal "$step" "$now" "updates of the checkpoint that Ctrl-C saved, and lines of metrics"
run resume "$dir/run" max_iters=$((step + 2)) --quiet
code_is 0
ok "$name"
done_testing
