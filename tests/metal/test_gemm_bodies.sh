#!/bin/sh
# test_gemm_bodies.sh: every body of products gives the same bits on the Metal stand-in; the one that was kept is used on the GPU of that
# name alone; a name that is none is a sentence.
if [ -n "${WRAP:-}" ] || ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP the stand-in wants a C++ compiler and a program of this processor\n'
    exit 0
fi
plan=4
. tests/cli/tap.sh
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
build=$(cd "$build" && pwd)
export ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_CACHE="$dir/cache"
standin="kernels=fast,cache=$build/standin-cache"
export ANNEAL_STANDIN="gpu=apple8,$standin"

# hash_of FOLDER SETTINGS: of three updates, whose products of 64 x 64 and more are whole tiles.
hash_of() {
    out=$1
    shift
    "$program" train macbook out="$dir/$out" device=metal n_layer=1 n_head=2 n_embd=64 block_size=32 batch_size=2 max_iters=3 \
        eval_interval=3 eval_iters=1 seed=3 "$@" --quiet >"$dir/$out.stdout" 2>"$dir/$out.stderr" </dev/null || head -c 300 "$dir/$out.stderr"
    state_hash "$dir/$out"
}
# Compiling the kernels for the stand-in takes most of the time: all of them with AN_SOAK=1.
bodies="by-size 64x64x16/1x2 direct-32x32/1x1"
[ -z "${AN_SOAK:-}" ] || bodies="$bodies 64x64x32/2x2 64x64x16/2x2 32x32x16/2x1 64x32x32/2x2 32x64x16/1x2 direct-64x64/2x2"
for body in $bodies; do
    name=$(echo "$body" | tr / -)
    ANNEAL_METAL_GEMM=$body hash_of "f32-$name" dtype=float32 >"$dir/$name.hashes"
    ANNEAL_METAL_GEMM=$body hash_of "bf16-$name" dtype=bfloat16 >>"$dir/$name.hashes"
done
for body in $bodies; do
    name=$(echo "$body" | tr / -)
    [ "$(wc -c <"$dir/$name.hashes")" -eq 66 ] || fault "$body: $(cat "$dir/$name.hashes")"
    cmp -s "$dir/$name.hashes" "$dir/by-size.hashes" || fault "$body has other bits than by-size"
done
ok "all bodies have the same bits in float32 and bfloat16"

# That a body asked for is what runs: a mistake planted in its text alone is seen.
planted="gpu=apple8,$standin,edit=const an_mul *)a + (m0 + m) * g.a_m>const an_mul *)a + m * g.a_m"
by_size=$(head -n 1 "$dir/by-size.hashes")
equal "$(ANNEAL_STANDIN=$planted ANNEAL_METAL_GEMM=by-size hash_of planted-1 dtype=float32)" "$by_size" "by size, where the mistake is elsewhere"
[ "$(ANNEAL_STANDIN=$planted ANNEAL_METAL_GEMM=direct-32x32/1x1 hash_of planted-2 dtype=float32)" != "$by_size" ] || fault "direct loads are not used"
ok "the body that is asked for runs"

mkdir -p "$dir/cache" && chmod 700 "$dir/cache"
printf 'gpu Apple M2\nfloat32 direct-32x32/1x1\n16-bit no-such-body\ngpu Apple M9\nfloat32 by-size\n' >"$dir/cache/gemm-bodies"
[ "$(ANNEAL_STANDIN=$planted hash_of kept-1 dtype=float32)" != "$by_size" ] || fault "what was kept for this GPU is not used"
sed -i.old 's/Apple M2/Apple M3/' "$dir/cache/gemm-bodies"
equal "$(ANNEAL_STANDIN=$planted hash_of kept-2 dtype=float32)" "$by_size" "what was kept for another GPU"
chmod 666 "$dir/cache/gemm-bodies"
sed -i.old 's/Apple M3/Apple M2/' "$dir/cache/gemm-bodies"
chmod 666 "$dir/cache/gemm-bodies"
equal "$(ANNEAL_STANDIN=$planted hash_of kept-3 dtype=float32)" "$by_size" "a file that others can write"
ok "what was kept is used for the GPU of that name, and from a file of this user's alone"

ANNEAL_METAL_GEMM=128 run train macbook device=metal out="$dir/none" max_iters=1
code_is 1; says stderr "ANNEAL_METAL_GEMM is 128; a body of products is one of by-size, "; one_line stderr
ok "a name that is no body is a sentence"

done_testing
