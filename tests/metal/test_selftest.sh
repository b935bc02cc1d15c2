#!/bin/sh
# test_selftest.sh: `anneal selftest --device metal` as the first Mac user runs it, on the stand-in: its report, its exit codes, and that a
# planted difference is named in both.
if [ -n "${WRAP:-}" ] || ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP the stand-in wants a C++ compiler and a program of this processor\n'
    exit 0
fi
plan=8
. tests/cli/tap.sh
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
ANNEAL_METAL_PATH=$(cd "$build/standin" && pwd)/libmetal_standin.so
export ANNEAL_METAL_PATH
report=$dir/report.txt
selftest() { # STANDIN'S-SETTINGS [key=value ...]
    ANNEAL_STANDIN=gpu=apple7,kernels=fast,$1
    export ANNEAL_STANDIN
    shift
    rm -f "$report"
    run selftest device=metal n_layer=1 n_head=2 n_embd=16 batch_size=2 block_size=8 report="$report" "$@"
}
has() { grep -qF -- "$1" "$report" || fault "the report does not say \"$1\""; }

selftest seed=1 steps=2 size=8
code_is 0; silent stderr; says stdout "all as the oracle has them"
has '"system":'; has "macOS: 15.0"; has "GPU: Apple M1"; has "families: "; has "a first kernel: 0 of 32 numbers are wrong"
has "-[MTLDevice newBufferWithLength:options:]: @32@0:8Q16Q24"
has "attention'"; has "matmul 8x8 float32: "; has "attention 8 tokens bfloat16: "; has "copy 1 MiB: "
has "-- bodies of products"; has "direct-64x64/2x2, bfloat16: products of an update in "; has "kept for this GPU: "
has "update 1: loss "; has "the same bits"; has "parameters and moments: "; has "device time of an update: "
has "0 skipped: all as the oracle has them"
[ "$(grep -c FAULT "$report")" -eq 0 ] || fault "$(grep -m 1 FAULT "$report")"
ok "a machine that is as it should be has a report of every part and no fault"

selftest fault=encoding:20 steps=0 size=0
code_is 3; has "FAULT   driver: -["; has "and was written as"
ok "a method of another type is named"

selftest "edit=float sum = strip[>float sum = 1.01f * strip[" steps=2 size=0
code_is 3; has "FAULT   kernels against the oracle, float32: gpt.h.0.attn.matmul: "; has "too far apart for rounding"; has "other bits"
ok "a kernel that computes something else is named, and training finds it too"

selftest fault=commit:2:nothing:page:on steps=1 size=0
code_is 2; has "command buffer 1 of 10 failed"; has "-- training beside the CPU"; says stderr "tried 4 times"
ok "command buffers that fail are named, and the other parts are tried all the same"

selftest fault=library:5 steps=0 size=0
has "FAULT   kernels compiled one by one, float32: "; has "Apple's compiler refuses"; has "kernels, 1 refused"; code_is 3
ok "a kernel that the compiler refuses does not hide the others"

selftest misuse=abort,working_set=64k steps=0 size=0
code_is 2; has "smaller batch"
ok "too little memory is a sentence in the report"

# What ends the program leaves the report whole up to there.
rm -f "$report"
ANNEAL_STANDIN=gpu=apple7,kernels=fast "$program" selftest device=metal n_layer=1 n_head=2 n_embd=16 batch_size=2 block_size=8 \
    report="$report" steps=2 size=8 >"$dir/stdout" 2>&1 &
child=$!
waits=300
until grep -q "^-- kernels" "$report" 2>/dev/null || [ $((waits -= 1)) -eq 0 ]; do sleep 0.1; done
kill -ABRT $child
wait $child && fault "it was not ended"
has "a first kernel: 0 of 32"; has "FAULT   kernels"; has "the program was ended here by signal 06"
ok "a crash is the report's last line"

run selftest demo n_layer=1 n_head=2 n_embd=16 batch_size=2 block_size=8 report="$dir/no/such/folder"
code_is 2; says stderr "no/such/folder"
ok "a report that cannot be written is a sentence"
done_testing
