#!/bin/sh
# test_tools.sh: bench, profile and selftest from the outside: what they print, and their exit codes.
plan=15
. "$(dirname "$0")/tap.sh"
small="block_size=16 n_layer=1 n_head=2 n_embd=32 batch_size=2 threads=1"

run bench matmul --n 100 --iters 5 --device cpu,cpu
code_is 0; silent stderr; says stdout "matmul 100x100 float32"; says stdout GFLOP/s; says stdout "times as fast as cpu"
ok "bench matmul times a product on each device and compares them"

run bench copy --n 4 --iters 3 --json
code_is 0; one_line stdout; has_keys "$dir/stdout" operation device ms gbytes speed_up
run bench conv --n 4 --iters 2
code_is 0; says stdout "conv 8x56x56x4"
run bench read --n 4 --iters 2
code_is 0; says stdout "read 4 MiB float32"
ok "bench copy, read and conv are timed, in JSON too"

# shellcheck disable=SC2086
run bench sample demo $small dtype=bfloat16 prompt=4 tokens=8
code_is 0; silent stderr; says stdout "tokens/s; a token p50"; says stdout "at which 1 MiB are read again and again here"
# shellcheck disable=SC2086
run bench sample demo $small device=cpu prompt=4 tokens=8 --json
code_is 0; equal "$(value "$dir/stdout" device)" cpu "the device that was named"
# shellcheck disable=SC2086
run bench sample demo $small prompt=4 tokens=8 --json
code_is 0; one_line stdout; has_keys "$dir/stdout" sample device dtype tokens tokens_per_s p50_ms p95_ms p99_ms first_ms cold_s gbytes read_gbytes read_bytes
equal "$(value "$dir/stdout" tokens)" 7 "tokens timed: all but the first"
for wrong in "demo block_size=16 prompt=10 tokens=7:do not fit the context of 16" "demo tokens=1:at least 2" "mlp:generates no text" ":name a preset or a run"; do
    # shellcheck disable=SC2086
    run bench sample ${wrong%%:*}
    code_is 1; says stderr "${wrong#*:}"
done
run bench demo twice
code_is 1; says stderr "twice follows demo"
ok "bench sample times the tokens of a text, and says what it cannot time"

# shellcheck disable=SC2086  # settings are words
run bench demo $small steps=3 warmup=1 compile=False
code_is 0; says stdout unfused; says stdout "demo fused"; says stdout "launches instead of"; says stdout MFU
ok "bench of a preset with compile=False shows the fused step beside it"

run bench demo device=cpu, steps=1
code_is 1; says stderr "a name is missing"
run bench matmul device=null:cuda
code_is 1; says stderr "does not run"
run bench nothing
code_is 1; says stderr "unknown preset"
ok "what cannot be timed is said"

# shellcheck disable=SC2086
run profile demo $small --warmup 1 --steps 2 --trace "$dir/trace.json"
code_is 0; silent stderr; says stdout "roof  launch"; says stdout tokens/s; says stdout "GB/s of"
is_file "$dir/trace.json"
[ "$(awk '{ if (length > n) n = length } END { print n }' "$dir/stdout")" -le 80 ] || fault "a line is over 80 columns"
# shellcheck disable=SC2086
run profile demo $small --steps 1 --json
launches=$(grep -o '"kernel":' "$dir/stdout" | wc -l)
# shellcheck disable=SC2086
run plan demo $small --json
equal "$launches" "$(value "$dir/stdout" launches)" "launches profiled and planned"
ok "profile shows every launch of the plan and writes a trace"

# shellcheck disable=SC2086
run profile demo $small --data-only --steps 2
code_is 0; says stdout "data "
# shellcheck disable=SC2086
run profile demo $small --forward-only --steps 2 --top 3
code_is 0
equal "$(grep -c % "$dir/stdout")" 3 "launches shown"
run profile demo --data-only --forward-only
code_is 1; says stderr "exclude each other"
ok "profile can leave the rest of a step out"

# A batch by stage: of tokens, which are copied from a mapped file, and of image files, here 2 x 2 pixels each.
# shellcheck disable=SC2086
run profile demo $small --data-only --steps 3 --json
code_is 0; equal "$(value "$dir/stdout" read_ms) $(value "$dir/stdout" decode_ms) $(value "$dir/stdout" copies)" "0 0 2" "reading, decoding and copies of tokens"
awk -v m="$(value "$dir/stdout" collate_ms)" 'BEGIN { exit !(m > 0) }' || fault "tokens are collated in no time"
for class in one two; do
    mkdir -p "$dir/images/$class"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        printf '\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000\000\000\002\010\002\000\000\000\375\324\232\163\000\000\000\022\111\104\101\124\170\234\143\370\317\300\300\000\302\014\377\201\000\000\037\356\005\373\013\331\150\213\000\000\000\000\111\105\116\104\256\102\140\202' >"$dir/images/$class/$i.png"
    done
done
run profile cnn data="$dir/images" height=16 width=16 channels=3 batch_size=4 --data-only --steps 3 --json
if grep -q "is not installed" "$dir/stderr"; then
    echo "# image files are left out: $(cat "$dir/stderr")"
else
    code_is 0; equal "$(value "$dir/stdout" copies)" 10 "copies of four files: read and decoded each; pixels and labels"
    awk -v r="$(value "$dir/stdout" read_ms)" -v d="$(value "$dir/stdout" decode_ms)" -v a="$(value "$dir/stdout" augment_ms)" \
        'BEGIN { exit !(r > 0 && d > 0 && a > 0) }' || fault "a stage took no time: $(cat "$dir/stdout")"
    run profile cnn data="$dir/images" height=16 width=16 channels=3 batch_size=4 --data-only --steps 3
    says stdout "batch     read"; says stdout "10 copies of"
fi
run profile demo --data-only --steps 0
code_is 1
ok "profile tells the stages of a batch apart, and counts its copies"

# No data and no folder are needed for a fixed batch; the window, the phases and the schema are in the answer.
# shellcheck disable=SC2086
run profile demo $small data="$dir/nowhere.txt" inputs=fixed --steps 2
code_is 0; says stdout "one random batch"; says stdout "2 steps after"; says stdout "phases    forward"
# shellcheck disable=SC2086
run profile demo $small inputs=fixed --steps 3 --json
code_is 0; has_keys "$dir/stdout" schema time commit what inputs warmup steps forward_ms backward_ms update_ms phase shape
equal "$(value "$dir/stdout" schema) $(value "$dir/stdout" inputs) $(value "$dir/stdout" data_ms)" "1 fixed 0" "schema, inputs and wait"
cp "$dir/stdout" "$dir/before.json"
run profile demo --data-only inputs=fixed
code_is 1; says stderr "leave one out"
ok "profile takes a fixed batch, and says its window and the phases"

# A slow-down that was planted: products by portable code, the rest as it was.
# shellcheck disable=SC2086
run profile demo $small inputs=fixed --steps 3 isa=portable block_size=64 n_embd=128 --json
cp "$dir/stdout" "$dir/slow.json"
# shellcheck disable=SC2086
run profile demo $small inputs=fixed --steps 3 block_size=64 n_embd=128 --json
cp "$dir/stdout" "$dir/fast.json"
run profile diff "$dir/fast.json" "$dir/slow.json"
code_is 0; silent stderr; says stdout "what changed most"
grep -A1 'what changed most' "$dir/stdout" | tail -n 1 | grep -q 'matmul' || fault "the products are not named first: $(cat "$dir/stdout")"
run profile diff "$dir/fast.json" "$dir/slow.json" --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" kind)" product "the first operation's kind"
# One operation that takes three times as long.
kernel=$(sed 's/.*"launches":\[//; s/"kernel":/\n/g' "$dir/fast.json" | grep '"phase":"backward"' | grep -v '"kind":"product"' | head -n 1 | cut -d'"' -f2)
sed "s/\({\"kernel\":\"$kernel\",[^}]*\"device_us\":\)[0-9.e+-]*/\199999/" "$dir/fast.json" >"$dir/planted.json"
run profile diff "$dir/fast.json" "$dir/planted.json"
code_is 0; grep -A1 'what takes most\|what changed most' "$dir/stdout" | tail -n 1 | grep -q "$(echo "$kernel" | sed 's/[0-9][0-9]*/\\*/g')" || fault "$kernel is not named first: $(cat "$dir/stdout")"
ok "profile diff names a planted slow-down first"

# shellcheck disable=SC2086
run train demo $tiny max_iters=2 eval_interval=2 out="$dir/run"
sed 's/"time":"[^"]*"/"time":"2026-11-01T00:00:00Z"/' "$dir/before.json" >"$dir/week1.json"
sed 's/"time":"[^"]*"/"time":"2026-11-08T00:00:00Z"/' "$dir/before.json" >"$dir/week2.json"
run profile diff "$dir/week1.json" "$dir/week2.json" logbook="$dir/run"
code_is 0; says stderr decided; says run/logbook.jsonl '"event":"decision"'; says run/logbook.jsonl "$dir/week2.json"
says run/logbook.jsonl "$(sha256sum "$dir/week1.json" | cut -d' ' -f1)"
sed 's/"time":"[^"]*"/"time":"2026-11-07T00:00:00Z"/' "$dir/before.json" >"$dir/week3.json"
run profile diff "$dir/week1.json" "$dir/week3.json" logbook="$dir/run"
code_is 0; says stderr "6.0 days apart"; equal "$(grep -c '"event":"decision"' "$dir/run/logbook.jsonl")" 1 decisions
echo '{"launches":[]}' >"$dir/none.json"
run profile diff "$dir/week1.json" "$dir/none.json"
code_is 2; says stderr "schema"
echo '{"schema":1,"launches":[]}' >"$dir/none.json"
run profile diff "$dir/week1.json" "$dir/none.json"
code_is 2; says stderr "0 launches"
run profile diff "$dir/week1.json"
code_is 1; says stderr "two files"
ok "the same three a week apart are a decision in the logbook; no profile is a sentence"

# shellcheck disable=SC2086
run selftest demo $small
code_is 0; silent stderr; says stdout "attention'"; says stdout "0 skipped: all as the oracle has them"
[ "$(grep -c '^good' "$dir/stdout")" -gt 20 ] || fault "$(grep -c '^good' "$dir/stdout") kernels"
ok "selftest checks every kernel of a model"

# shellcheck disable=SC2086
run selftest demo $small dtype=bfloat16 --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" faults)" 0 faults
ok "selftest --json is one line"

run selftest demo device=null:metal
code_is 1; says stderr "does not run"
ok "selftest of a device that does not run is a sentence"

run bench matmul --n 32 --iters 1 --device cpu,null:metal
code_is 1; says stderr "does not run"
export ANNEAL_CUDA_PATH="$dir/nowhere"
run bench matmul --n 32 --iters 1 --device cuda,cpu
code_is 0; says stdout "cpu "; says stderr "device=cuda is left out"
run bench matmul --n 32 --iters 1 --device cuda,mps
code_is 2; says stderr "none of these devices is here"
ok "bench on several devices leaves out those that are absent, and says so"
done_testing
