#!/bin/sh
# test_tasks_exact.sh: with exact=true a run of every task has the bits of the CPU on the Metal stand-in. What is trained is that of
# tests/cli/tasks.sh; test_tasks.sh beside it sees to it that every task has a row.
if ! command -v "${CXX:-c++}" >/dev/null; then
    printf '1..1\nok 1 - # SKIP no C++ compiler: kernels cannot run on the stand-in\n'
    exit 0
fi
build=${AN_BUILD:-build}
sh tests/metal/standin/build.sh "$build/standin" || exit 1
plan=8
. "$(dirname "$0")/../cli/tap.sh"
build=$(cd "$build" && pwd)
export ANNEAL_METAL_PATH="$build/standin/libmetal_standin.so" ANNEAL_STANDIN="gpu=apple8,kernels=fast,end=check,cache=$build/standin-cache"
cd "$dir" || exit 1
root=$OLDPWD
. "$root/tests/cli/tasks.sh"

# All at once: nearly all of their time is that of the compiler of the stand-in's kernels, one process each.
train_both() { # NAME WHAT SETTINGS: leaves NAME.hashes, and of a run that failed its words
    for device in cpu metal; do
        # shellcheck disable=SC2086  # WRAP is a command with arguments, $3 a list of settings
        ${WRAP:-} "$program" train "$2" $3 device=$device exact=true max_iters=3 eval_interval=3 eval_iters=1 seed=3 out="$1.$device" \
            --quiet </dev/null >/dev/null 2>"$1.$device.stderr" || head -c 300 "$1.$device.stderr"
        state_hash "$1.$device"
    done >"$1.hashes"
}
while IFS='|' read -r name what settings; do
    what=${what# }
    train_both "${name% }" "${what% }" "$settings" &
done <table
wait

while IFS='|' read -r name what settings; do
    name=${name% } what=${what# } what=${what% }
    { read -r cpu; read -r metal; read -r more; } <"$name.hashes"
    [ ${#cpu} -eq 32 ] && [ -z "$more" ] || fault "$cpu $metal $more"
    equal "$metal" "$cpu" "state hash on the stand-in"
    ok "$name ($(basename "$what")): exact=true has one hash on the CPU and the Metal stand-in"
done <table
done_testing
