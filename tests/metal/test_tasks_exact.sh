#!/bin/sh
# test_tasks_exact.sh: with exact=true a run of every task has the bits of the CPU on the Metal stand-in. What is trained is that of
# tests/cli/tasks.sh; test_tasks.sh beside it sees to it that every task has a row.
if ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP no C++ compiler: kernels cannot run on the stand-in\n'
    exit 0
fi
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
plan=7
. "$(dirname "$0")/../cli/tap.sh"
build=$(cd "$build" && pwd)
export ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_STANDIN="gpu=apple8,kernels=fast,end=check,cache=$build/standin-cache"
cd "$dir" || exit 1
root=$OLDPWD
. "$root/tests/cli/tasks.sh"

while IFS='|' read -r name what settings; do
    name=${name% } what=${what# } what=${what% } want=
    for device in cpu metal; do
        rm -rf run
        # shellcheck disable=SC2086  # a list of settings
        run train "$what" $settings device=$device exact=true max_iters=3 eval_interval=3 eval_iters=1 seed=3 out=run --quiet
        code_is 0
        hash=$(state_hash run)
        [ ${#hash} -eq 32 ] || fault "no state hash on $device"
        equal "$hash" "${want:=$hash}" "state hash on $device"
    done
    ok "$name ($(basename "$what")): exact=true has one hash on the CPU and the Metal stand-in"
done <table
done_testing
