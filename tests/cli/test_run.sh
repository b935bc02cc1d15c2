#!/bin/sh
# test_run.sh: a tiny run from training to text: files, keys of JSON, equal bits.
plan=16
. "$(dirname "$0")/tap.sh"

# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook out="$dir/a" $tiny max_iters=12 eval_interval=4 log_interval=1 keep=2 seed=3 threads=2 --json
code_is 0; one_line stdout; has_keys "$dir/stdout" out step loss val_loss best_val_loss seconds interrupted
equal "$(value "$dir/stdout" step)" 12 "updates"
says stderr "memory"; says stderr "after 12 updates"
for f in metrics.jsonl logbook.jsonl last.safetensors best.safetensors step_8.safetensors step_12.safetensors; do is_file "$dir/a/$f"; done
[ ! -e "$dir/a/step_4.safetensors" ] || fault "step_4 was to be removed: keep=2"
ok "training writes metrics, a logbook, last, best and the newest numbered checkpoints"

equal "$(wc -l <"$dir/a/metrics.jsonl" | tr -d ' ')" 12 "lines of metrics"
has_keys "$dir/a/metrics.jsonl" step loss ms tokens_per_s data_wait_ms
equal "$(grep -c val_loss "$dir/a/metrics.jsonl")" 3 "lines with val_loss"
grep '"step":3,' "$dir/a/metrics.jsonl" | grep -q val_loss || fault "no val_loss after update 3"
if grep -q '\033' "$dir/stderr"; then fault "escape sequences although stderr is a file"; fi
ok "every logged update has its line, evaluations their val_loss"

run inspect "$dir/a/last.safetensors" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" state_hash name shape dtype hash
for name in transformer.wte.weight transformer.h.1.mlp.c_proj.weight optimizer.m.transformer.wpe.weight optimizer.v.transformer.ln_f.weight; do
    says stdout "\"name\":\"$name\""
done
if grep -q lm_head "$dir/stdout"; then fault "the tied head is stored twice"; fi
run inspect "$dir/a"
code_is 0; says stdout "transformer.h.0.attn.c_attn.weight"
ok "inspect lists nanoGPT's names, moments and one state hash"

# shellcheck disable=SC2086
run train macbook out="$dir/b" $tiny max_iters=12 eval_interval=4 seed=3 threads=1 workers=0 --quiet
code_is 0; silent stderr
equal "$(state_hash "$dir/b")" "$(state_hash "$dir/a")" "state hash with 1 and 2 threads"
# shellcheck disable=SC2086
run train macbook out="$dir/c" $tiny max_iters=12 eval_interval=4 seed=4 --quiet
[ "$(state_hash "$dir/c")" != "$(state_hash "$dir/a")" ] || fault "another seed gave the same bits"
ok "one and two threads give the same bits, another seed does not"

# shellcheck disable=SC2086
run train macbook out="$dir/d" $tiny max_iters=8 eval_interval=4 log_interval=1 seed=3 --quiet
run resume "$dir/d" max_iters=12 --quiet
code_is 0
equal "$(state_hash "$dir/d")" "$(state_hash "$dir/a")" "state hash of a resumed run"
for k in step loss val_loss lr; do
    equal "$(sed -n "s/.*\"$k\":\([^,}]*\).*/\1/p" "$dir/d/metrics.jsonl" | tr '\n' ' ')" \
        "$(sed -n "s/.*\"$k\":\([^,}]*\).*/\1/p" "$dir/a/metrics.jsonl" | tr '\n' ' ')" "metrics: $k"
done
ok "a resumed run has the bits and the metrics of one that never stopped"

run resume "$dir/d" n_layer=3
code_is 1; says stderr "n_layer"
ok "a resumed run refuses another shape"

# shellcheck disable=SC2086
run train macbook out="$dir/e" $tiny max_iters=6 batch_size=2 gradient_accumulation_steps=2 dropout=0 seed=3 --quiet
code_is 0
# shellcheck disable=SC2086
run train macbook out="$dir/f" $tiny max_iters=6 batch_size=4 gradient_accumulation_steps=1 dropout=0 seed=3 --quiet
e=$(sed -n 's/.*"loss":\([^,]*\).*/\1/p' "$dir/e/metrics.jsonl" | tail -n 1)
f=$(sed -n 's/.*"loss":\([^,]*\).*/\1/p' "$dir/f/metrics.jsonl" | tail -n 1)
awk -v a="$e" -v b="$f" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= 1e-4 * b) }' || fault "losses $e and $f"
ok "two micro-batches of two are one batch of four, up to rounding"

run sample "$dir/a" start=int tokens=40 seed=5
code_is 0; says stderr "tokens/s"; says stdout int
cp "$dir/stdout" "$dir/text"
[ "$(wc -c <"$dir/text")" -ge 40 ] || fault "only $(wc -c <"$dir/text") bytes of text"
run sample "$dir/a" start=int tokens=40 seed=5 threads=1 --quiet
cmp -s "$dir/stdout" "$dir/text" || fault "the same seed wrote another text"
silent stderr
run sample "$dir/a" start=int tokens=40 seed=6
if cmp -s "$dir/stdout" "$dir/text"; then fault "another seed wrote the same text"; fi
run sample "$dir/a" --best --temperature 0 --tokens 5
code_is 0
ok "sampling is a function of checkpoint, prompt and seed; it passes the end of the context"

run eval "$dir/a" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" loss tokens windows
loss=$(value "$dir/stdout" loss)
run eval "$dir/a" batch_size=3 --json
awk -v a="$loss" -v b="$(value "$dir/stdout" loss)" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d < 1e-5) }' ||
    fault "loss $loss, and $(value "$dir/stdout" loss) with another batch size"
ok "eval takes all windows, whatever the batch"

# 100 ids of two bytes: 99 / 16 = 6 windows of 16
i=0; while [ $i -lt 100 ]; do printf '\003\000\007\000' | dd bs=2 skip=$((i % 2)) count=1 2>/dev/null; i=$((i + 1)); done >"$dir/data.bin"
run eval "$dir/a" "$dir/data.bin" --json
code_is 0; equal "$(value "$dir/stdout" tokens)" 96 "tokens"; equal "$(value "$dir/stdout" windows)" 6 "windows"
printf '\377\000\001\000%0100d' 0 >"$dir/bad.bin"
run eval "$dir/a" "$dir/bad.bin" --json
code_is 2; says stderr "bad.bin"; silent stdout
ok "eval of a .bin file takes the whole file and names an id outside of the vocabulary"

# shellcheck disable=SC2086
run plan macbook $tiny --json
code_is 0; one_line stdout
has_keys "$dir/stdout" peak_bytes weight_bytes gradient_bytes moment_bytes activation_bytes scratch_bytes launches kernels flops bytes fallbacks syncs
equal "$(value "$dir/stdout" fallbacks)" 0 fallbacks
# shellcheck disable=SC2086
run plan macbook $tiny
code_is 0; says stdout "peak memory"
ok "plan prints the bill"

# shellcheck disable=SC2086
run bench macbook $tiny --dtype float32 --threads 2 --steps 3 --json
code_is 0; one_line stdout
has_keys "$dir/stdout" peer preset dtype compile threads ms min_ms cpu_ms first_s gflops peak_rss_mib fma_peak_gflops share_of_peak
equal "$(value "$dir/stdout" dtype)" float32 dtype
ok "bench prints one line of JSON with the peers' keys"

# shellcheck disable=SC2086
run train macbook out="$dir/a" $tiny max_iters=2 --quiet
code_is 0; is_file "$dir/a/previous/step_12.safetensors"; is_file "$dir/a/previous/metrics.jsonl"
[ ! -e "$dir/a/step_12.safetensors" ] || fault "a checkpoint of the old run is left"
equal "$(wc -l <"$dir/a/metrics.jsonl" | tr -d ' ')" 2 "lines of metrics"
ok "a new run in a used folder moves the old one aside"

# shellcheck disable=SC2086
run train macbook out="$dir/n" $tiny max_iters=30 learning_rate=100 min_lr=100 grad_clip=0 warmup_iters=0 decay_lr=false weight_decay=100 log_interval=1
code_is 3; says stderr "last.safetensors"
is_file "$dir/n/last.safetensors"
tail -n 1 "$dir/n/metrics.jsonl" | grep -q '"grad_norm":null' || fault "the update that failed has no line"
update=$(sed -n 's/.*\(update [0-9]*\): .*/\1/p' "$dir/stderr")
# shellcheck disable=SC2086
run train macbook out="$dir/n2" $tiny max_iters=30 learning_rate=100 min_lr=100 grad_clip=0 warmup_iters=0 decay_lr=false weight_decay=100 log_interval=1000
code_is 3; says stderr "$update: "
ok "a loss that is not finite is exit code 3 and leaves the last checkpoint"
# shellcheck disable=SC2086
{ ${WRAP:-} "$program" train macbook out="$dir/pipe" $tiny max_iters=30 log_interval=1 eval_interval=10 2>&1 >/dev/null </dev/null; echo $? >"$dir/code"; } | head -n 1 >/dev/null
equal "$(cat "$dir/code")" 0 "exit code of a run whose reader left"
grep -q '"event":"end"' "$dir/pipe/logbook.jsonl" || fault "the logbook has no end"
awk '/"evaluate_s":-/ { exit 1 }' "$dir"/*/logbook.jsonl || fault "an evaluation took less than no time"
ok "a run whose narration is no longer read goes on to its end"

# shellcheck disable=SC2086
${WRAP:-} "$program" train macbook out="$dir/hangup" $tiny max_iters=1000000 eval_interval=1000000 >"$dir/stdout" 2>"$dir/stderr" </dev/null &
pid=$!
i=0
while [ ! -s "$dir/hangup/metrics.jsonl" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
kill -HUP "$pid"
wait "$pid"
code=$?
code_is 130; is_file "$dir/hangup/last.safetensors"
grep -q '"event":"interrupted"' "$dir/hangup/logbook.jsonl" || fault "the logbook does not say that the run was interrupted"
ok "a terminal that is closed ends a run as Ctrl-C does: saved"
done_testing
