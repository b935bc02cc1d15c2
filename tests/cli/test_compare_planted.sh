#!/bin/sh
# test_compare_planted.sh: `compare` with the tolerances that are shipped finds a wrong reduction, and nothing else: 100 updates of two layers
# of macbook, in batches of 2, by a C compiler that makes other sums than it was told to; and a small GPT on the Metal stand-in, whose compiler
# does so.
plan=5
. "$(dirname "$0")/tap.sh"
tolerances=configs/tolerances/f32.yaml
real=$(command -v cc || command -v gcc || command -v clang)
# A text that stays what it is: the built-in one changes with the project's documents, and with it the update at which a small fault first shows.
awk 'BEGIN {
    split("a e i o u ai ou", vowel); split("b d f g k l m n p r s t", consonant)
    for (x = 1; lines < 2000; ) {
        for (i = 0; i < 3; i++) { x = x * 16807 % 2147483647; draw[i] = x }
        syllable = consonant[draw[0] % 12 + 1] vowel[draw[1] % 7 + 1]
        ends = draw[2] % 40
        printf "%s%s", syllable, ends == 0 ? ".\n" : ends < 16 ? " " : ""
        lines += ends == 0
    }
}' >"$dir/text"
train="train macbook n_layer=2 batch_size=2 max_iters=100 log_interval=1 eval_interval=100 eval_iters=2 cache_dir=$dir/cache data=$dir/text"

# compiler NAME SCRIPT: $dir/NAME, a compiler that changes each text by the script of sed; $dir/NAME.count: how many texts were changed.
compiler() {
    cat >"$dir/$1" <<END
#!/bin/sh
for arg; do
    case \$arg in
    *.c)
        sed '$2' "\$arg" >"\$arg.new"
        cmp -s "\$arg" "\$arg.new" || echo "\$arg" >>'$dir/$1.count'
        mv "\$arg.new" "\$arg"
        ;;
    esac
done
exec $real "\$@"
END
    chmod +x "$dir/$1"
}
planted() { [ -s "$dir/$1.count" ] || fault "$1: nothing was planted"; }

# The fold of a row's 32 lanes in pairs of neighbours instead of halves: a right sum, rounded otherwise.
compiler order 's|for (int an_s = (n) / 2; an_s; an_s >>= 1)|for (int an_s = 1; an_s < (n); an_s <<= 1)|
s|for (int an_l = 0; an_l < an_s; an_l++) lane|for (int an_l = 0; an_l < (n); an_l += 2 * an_s) lane|
s|(v\[0\] + v\[4\]) + (v\[2\] + v\[6\])|(v[0] + v[2]) + (v[4] + v[6])|'
# The sum down the columns of 128 rows without the last row: in the gradients of the norms' gains and nowhere else.
compiler column 's|for (int64_t q = 0; q < 128; q++)|for (int64_t q = 0; q < 127; q++)|'
# The fold of a row's lanes without the last lane: norms, softmax, the loss, the norm of the gradients.
compiler row 's|lane\[an_l\] = combine(lane\[an_l\], lane\[an_l + an_s\])|if (an_s != 16 \|\| an_l != 15) &|
s|(v\[3\] + v\[7\])|(v[3] + v[7] * (an_four_lanes){1, 1, 1, 0})|'

# shellcheck disable=SC2086
{
    run $train out="$dir/a"
    code_is 0
    run $train out="$dir/b" threads=1
    code_is 0
}
run compare "$dir/a" "$dir/b" exact=true
code_is 0; says stdout "same bits"; says stdout "loss           100   0 "
ok "two healthy runs of 100 updates have the same bits"

# shellcheck disable=SC2086
run $train out="$dir/order.run" cc="$dir/order"
code_is 0; planted order
run compare "$dir/a" "$dir/order.run" --tolerances "$tolerances"
code_is 0; says stdout "other bits"
run compare "$dir/a" "$dir/order.run" exact=true
code_is 3; says stdout "FAIL: the runs diverge at update "
ok "sums in another order pass the tolerances, and exact mode fails them"

# wrong NAME SETTINGS...: a run with what was planted fails by the file of tolerances, at a named update and in named numbers.
wrong() {
    name=$1
    shift
    run "$@" out="$dir/$name.run"
    code_is 0
    run compare "$healthy" "$dir/$name.run" --tolerances "$tolerances"
    code_is 3; says stdout "other bits"
    last=$(tail -n 1 "$dir/stdout")
    run compare "$healthy" "$dir/$name.run" --tolerances "$tolerances" --json
    code_is 3; equal "$(value "$dir/stdout" verdict)" fail verdict
    at=$(value "$dir/stdout" diverged_at)
    in=$(sed -n 's/.*"diverged_in":\["\([a-z_",]*\)"\].*/\1/p' "$dir/stdout" | sed 's/","/ and /g')
    [ -n "$in" ] && [ "$at" -ge 0 ] || fault "no update or no number is named: $(cat "$dir/stdout")"
    equal "$last" "FAIL: the runs diverge at update $at, in $in" "the verdict"
    run compare "$healthy" "$dir/$name.run" exact=true
    code_is 3
}
healthy=$dir/a
# shellcheck disable=SC2086
{
    wrong row $train cc="$dir/row"
    planted row; equal "$at" 0 "the update of a wrong loss"
    ok "a wrong sum of a row fails at update 0"
    wrong column $train cc="$dir/column"
    planted column; equal "$in" loss "what a wrong gradient is seen in first"
    run compare "$dir/a" "$dir/column.run" exact=true
    says stdout "FAIL: the runs diverge at update 0, in grad_norm"
    ok "a column without one of 128 rows fails within the 100 updates, in exact mode at the first"
}

if ! metal_standin; then
    skip "a GPU" "no C++ compiler: kernels cannot run on the stand-in"
    done_testing
    exit
fi
train="train macbook $tiny data=$dir/text n_layer=1 n_head=1 block_size=8 batch_size=2 max_iters=40 log_interval=1 eval_interval=40 eval_iters=1"
# shellcheck disable=SC2086
{
    run $train device=cpu out="$dir/small"
    run $train device=metal out="$dir/gpu"
    code_is 0
    run $train device=metal exact=true max_iters=4 out="$dir/gpu-exact"
    code_is 0
    run $train device=cpu exact=true max_iters=4 out="$dir/small-exact"
}
run compare "$dir/small" "$dir/gpu" --tolerances "$tolerances"
code_is 0; says stdout pass
run compare "$dir/small-exact" "$dir/gpu-exact" exact=true
code_is 0; says stdout "same bits"
healthy=$dir/small
export ANNEAL_STANDIN="$mac,edit=; c < 16; c += 32>; c < 15; c += 32"
# shellcheck disable=SC2086
wrong gpu-wrong $train device=metal
equal "$at" 0 "the update of a wrong loss"
ok "a GPU's run passes beside the CPU's, and fails where a kernel leaves out the last element of a row"
done_testing
