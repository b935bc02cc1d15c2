#!/bin/sh
# test_tools.sh: bench, profile and selftest from the outside: what they print, and their exit codes.
plan=10
. "$(dirname "$0")/tap.sh"
small="block_size=16 n_layer=1 n_head=2 n_embd=32 batch_size=2 threads=1"

run bench matmul --n 100 --iters 5 --device cpu,cpu
code_is 0; silent stderr; says stdout "matmul 100x100 float32"; says stdout GFLOP/s; says stdout "times as fast as cpu"
ok "bench matmul times a product on each device and compares them"

run bench copy --n 4 --iters 3 --json
code_is 0; one_line stdout; has_keys "$dir/stdout" operation device ms gbytes speed_up
run bench conv --n 4 --iters 2
code_is 0; says stdout "conv 8x56x56x4"
ok "bench copy and conv are timed, in JSON too"

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
