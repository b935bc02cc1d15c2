#!/bin/sh
# test_usage.sh: what is said, where, and with which exit code, when arguments are wrong or only information is wanted.
plan=20
. "$(dirname "$0")/tap.sh"

run
code_is 0; says stdout "anneal train"; silent stderr
ok "no argument shows the commands on stdout"

run --version
code_is 0; says stdout "anneal 0."; one_line stdout
run version --json
has_keys "$dir/stdout" anneal compiler
ok "the version is one line, and JSON on request"

run trian macbook
code_is 1; says stderr "did you mean train?"; silent stdout; one_line stderr
run evaluate
code_is 1; says stderr "did you mean eval?"
run help trian
code_is 1; says stderr "did you mean train?"
run help --help
code_is 0; says stdout "anneal help [COMMAND]"; silent stderr
run train demo batch_size
code_is 1; says stderr "batch_size is a setting and needs a value: batch_size=..."
run train demo device=gpu
code_is 1; says stderr "did you mean \"auto\""
ok "an unknown command suggests the nearest, or what it is called here"

run train mcbook
code_is 1; says stderr "did you mean macbook?"; silent stdout
run train nonsense
code_is 1; says stderr "shakespeare_char"
ok "an unknown preset suggests the nearest, or lists them"

run train macbook max_itres=3
code_is 1; says stderr "did you mean max_iters?"
run train macbook --max-itres 3
code_is 1; says stderr "did you mean max_iters?"
run sample somewhere tmperature=1
code_is 1; says stderr "did you mean temperature?"
ok "an unknown key suggests the nearest, however it is written"

run train macbook max_iters=many
code_is 1; says stderr "max_iters=\"many\""
run train macbook max_iters=0
code_is 1; says stderr "max_iters=0"
run train macbook n_embd=100 n_head=3
code_is 1; says stderr "n_embd must be a multiple of n_head"
run train macbook dtype=float64 out="$dir/x"
code_is 1; says stderr "float32, bfloat16 or float16"
ok "values out of range or of the wrong type are refused by name"

run train
code_is 1; says stderr "usage: anneal train PRESET"
run train macbook extra
code_is 1; says stderr "extra"
run train macbook --max_iters
code_is 1; says stderr "needs a value"
ok "missing and surplus arguments name the usage"

run train macbook data="$dir/missing.txt" out="$dir/x"
code_is 2; says stderr "missing.txt"; silent stdout
ok "a data file that is not there is exit code 2"

printf 'ab' >"$dir/short.txt"
run train macbook data="$dir/short.txt" out="$dir/x"
[ "$code" -eq 2 ] || [ "$code" -eq 1 ] || fault "exit code $code"
says stderr "short.txt"
ok "a text that is too short is named"

run inspect "$dir/none"
code_is 2; says stderr "none"
printf 'not a checkpoint' >"$dir/bad.safetensors"
run inspect "$dir/bad.safetensors"
code_is 2; says stderr "bad.safetensors"
run sample "$dir/bad.safetensors"
code_is 2
run resume "$dir"
code_is 2
ok "a checkpoint that is missing or damaged is exit code 2"

run help train
code_is 0; says stdout "gradient_accumulation_steps"; says stdout "shakespeare_char"; silent stderr
run train --help
code_is 0; says stdout "gradient_accumulation_steps"
run help eval
code_is 0; says stdout "halt=false"; says stdout "submission="
run help export
code_is 0; says stdout "torch_compiled"; says stdout "nanogpt: names"
run help prepare
code_is 0; says stdout "prepare arc"
run help nothing
code_is 1
ok "help lists a command's settings and presets"

printf 'n_layr: 3\n' >"$dir/bad.yaml"
run train "$dir/bad.yaml"
code_is 1; says stderr "bad.yaml"; says stderr "n_layer"
ok "a YAML file's unknown key is named with its place"

run inspect "$dir/bad.safetensors" json=1
code_is 1
run sample x --json
code_is 1
run train demo -- x
code_is 1; says stderr "-- has no name after it"
ok "a flag that a command does not take is refused"

if [ -w /dev/full ]; then
    "$program" help >/dev/full 2>"$dir/stderr"
    code=$?
    code_is 2; says stderr "stdout"
    ok "output that cannot be written is exit code 2"
else
    tests=$((tests + 1))
    echo "ok $tests - output that cannot be written is exit code 2 # SKIP this system has no /dev/full"
fi
# util-linux's script gives a terminal; another one's takes other arguments.
name="at a terminal no line has more than 80 columns, but JSON is one line everywhere"
if script -qec "echo works" /dev/null </dev/null 2>/dev/null | grep -q works; then
    # shellcheck disable=SC2086
    run train macbook out="$dir/folded" $tiny max_iters=1 --quiet
    for command in "help train" "plan demo show=plan" "inspect $dir/folded" "bench matmul n=16 iters=1"; do
        script -qec "$program $command" /dev/null </dev/null 2>/dev/null | tr -d '\r' >"$dir/shown"
        [ "$(wc -l <"$dir/shown")" -gt 0 ] || fault "$command shows nothing"
        awk 'length($0) > 80 && / [^ ]/ && !/^ *[^ ]*$/ { print; exit 1 }' "$dir/shown" >"$dir/wide" || fault "$command: $(cat "$dir/wide")"
    done
    script -qec "$program plan demo --json" /dev/null </dev/null 2>/dev/null | tr -d '\r' >"$dir/shown"
    one_line shown
    has_keys "$dir/shown" peak_bytes
    [ "$(value "$dir/shown" device)" != auto ] || fault "the device that was taken is not named"
    ok "$name"
else
    tests=$((tests + 1))
    echo "ok $tests - $name # SKIP no script of util-linux gives a terminal here"
fi

for pair in lr:learning_rate batch:batch_size num_workers:workers fp16:dtype=float16 precision:dtype optim:optimizer \
    warmup_steps:warmup_iters lr_scheduler:decay_lr gradient_clip_val:grad_clip accumulate_grad_batches:gradient_accumulation_steps \
    max_seq_len:block_size d_model:n_embd dim:n_embd layers:n_layer heads:n_head log_dir:out resume:init_from=resume gpus:device; do
    run train demo "${pair%:*}=1"
    code_is 1; says stderr "did you mean ${pair#*:}?"
done
ok "what others call a setting is answered with its name here"

run train gpt2
code_is 1; one_line stderr; says stderr "set data="
run train
code_is 1; one_line stderr; says stderr "data="
ok "a model that needs data is not trained on the built-in text without a word"

run train demo budget=16MB
code_is 2; says stderr "the budget is 15.3 MiB"
run train demo budget=16parsecs
code_is 1; says stderr "an amount of memory is needed"
ok "budget takes an amount as fit does"

# shellcheck disable=SC2086
run train demo $tiny max_iters=6 log_interval=1 learning_rate=100 warmup_iters=0 grad_clip=0 out="$dir/high"
says stderr "where guessing among"; says stderr "learning_rate"
equal "$(grep -c 'where guessing among' "$dir/stderr")" 1 "warnings"
# shellcheck disable=SC2086
run train demo $tiny max_iters=2 out="$dir/low"
! grep -q "where guessing among" "$dir/stderr" || fault "a warning of an ordinary loss"
says stderr "$program sample $dir/low"
ok "a loss far above guessing is said once; the last line is a command that can be typed"
# Variables that PyTorch's users have set are honoured, and a limit that is off is said.
PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 run plan macbook device=cpu
code_is 0; says stderr "the high watermark is off"
run plan macbook device=cpu high_watermark=0
code_is 0; says stderr "the high watermark is off"
PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 run plan macbook device=cpu high_watermark=0.9
code_is 0; silent stderr
# shellcheck disable=SC2086  # $tiny is a list of settings
PYTORCH_MPS_HIGH_WATERMARK_RATIO=1e-9 run train macbook device=cpu $tiny max_iters=1 out="$dir/marked"
code_is 2; says stderr "the high watermark allows"
PYTORCH_MPS_LOW_WATERMARK_RATIO=much run plan macbook device=cpu
code_is 1; one_line stderr; says stderr "PYTORCH_MPS_LOW_WATERMARK_RATIO=much in the environment: it is a number from 0"
PYTORCH_MPS_LOW_WATERMARK_RATIO=0.9 PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.5 run plan macbook device=cpu
code_is 1; one_line stderr; says stderr "the low watermark 0.9 is above the high one 0.5"
PYTORCH_MPS_LOW_WATERMARK_RATIO=0.9 PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.5 run plan macbook device=cpu low_watermark=0.3
code_is 0; silent stderr
run plan macbook device=cpu low_watermark=0.9 high_watermark=0.5
code_is 1; one_line stderr; says stderr "the low watermark 0.9 is above the high one 0.5"
# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook device=cpu $tiny max_iters=1 high_watermark=1e-9 low_watermark=0 out="$dir/low_mark"
code_is 2; says stderr "the high watermark allows"
run plan macbook device=cpu --json
fused=$(value "$dir/stdout" launches)
run plan macbook device=cpu compile=false --json
unfused=$(value "$dir/stdout" launches)
[ "$fused" -lt "$unfused" ] || fault "compile=false has $unfused launches, compile=true $fused"
DISABLE_COMPILE=0 run plan macbook device=cpu --json
equal "$(value "$dir/stdout" launches)" "$unfused" "launches with DISABLE_COMPILE"
DISABLE_COMPILE=1 run plan macbook device=cpu compile=true --json
equal "$(value "$dir/stdout" launches)" "$fused" "launches where the command line says compile=true"
ok "PyTorch's watermarks and DISABLE_COMPILE are taken from the environment, where no setting says otherwise"

done_testing
