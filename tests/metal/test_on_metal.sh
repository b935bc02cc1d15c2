#!/bin/sh
# test_on_metal.sh: test programs that know nothing of Metal, run with device=metal on the stand-in: PyTorch's goldens; with AN_SOAK=1
# also the whole table of operations and 20 random programs.
build=${AN_BUILD:-build}
if ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP no C++ compiler: kernels cannot run on the stand-in\n'
    exit 0
fi
programs='torch/test_gpt torch/test_ops'
[ -z "${AN_SOAK:-}" ] || programs="$programs ops/test_ops random/test_programs"
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
sh tests/metal/standin/build.sh "$build/standin" || exit 1
# shellcheck disable=SC2086  # a list of words
set -- $programs
echo "1..$#"
number=0 failed=0
for program; do
    number=$((number + 1))
    if [ ! -x "$build/tests/$program" ]; then
        echo "ok $number - $program # SKIP it is not built"
    elif AN_LAB_DEVICE=metal AN_RANDOM="${AN_RANDOM:-14,20}" ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_STANDIN=gpu=apple7,kernels=fast \
        "$build/tests/$program" >"$log" 2>&1; then
        echo "ok $number - $program holds with device=metal"
    else
        echo "not ok $number - $program holds with device=metal"
        sed 's/^/# /' "$log" | tail -n 40
        failed=1
    fi
done
exit $failed
