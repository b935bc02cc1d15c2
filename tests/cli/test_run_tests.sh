#!/bin/sh
# test_run_tests.sh: tools/run_tests counts what test programs print, and takes nothing silent for a success. Prints TAP.
plan=9
. "$(dirname "$0")/tap.sh"
mkdir -p "$dir/build/tests/x"

# A program of the build, as cmocka prints its TAP, and a shell test: make NAME TEXT [EXIT STATUS].
make_program() { printf '#!/bin/sh\nprintf "%s"\nexit %s\n' "$2" "${3:-0}" >"$dir/build/tests/x/$1"; chmod +x "$dir/build/tests/x/$1"; }
make_shell() { printf 'printf "%s"\nexit %s\n' "$2" "${3:-0}" >"$dir/$1.sh"; }
runner() {
    AN_BUILD=$dir/build TEST_TIMEOUT=${TEST_LIMIT:-60} BUILD_FAILED= sh tools/run_tests "$@" >"$dir/stdout" 2>"$dir/stderr"
    code=$?
}
closing() { equal "$(tail -n 1 "$dir/stdout")" "$1" "closing line"; }

make_program good '1..2\\nok 1 - a\\nok 2 - b\\n'
make_shell good '1..1\\nok 1 - c\\n'
runner "$dir/build/tests/x/good" "$dir/good.sh"
code_is 0; closing "3 passed, 0 failed"
ok "tests that pass are counted"

# Each of two waits for the other's file: one after the other they would never end.
for pair in "a b" "b a"; do
    printf '#!/bin/sh\n: >"%s/is_%s"\nuntil [ -e "%s/is_%s" ]; do sleep 0.1; done\necho 1..1; echo "ok 1 - met"\n' \
        "$dir" "${pair% *}" "$dir" "${pair#* }" >"$dir/build/tests/x/meet_${pair% *}"
    chmod +x "$dir/build/tests/x/meet_${pair% *}"
done
TEST_JOBS=2 runner "$dir/build/tests/x/meet_a" "$dir/build/tests/x/meet_b"
code_is 0; closing "2 passed, 0 failed"
ok "programs run side by side"

# Their reports come one after the other, also into a plain file.
many=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    make_program "many_$i" '1..1\\nok 1 - a\\n'
    many="$many $dir/build/tests/x/many_$i"
done
# shellcheck disable=SC2086  # a list of paths
TEST_JOBS=8 runner $many
code_is 0; closing "20 passed, 0 failed"
equal "$(grep -c '^x/many_[0-9]*  *1 passed  (. s)$' "$dir/stdout")" 20 "whole lines"
ok "the reports of programs that run side by side are whole"

mkdir -p "$dir/build/tests/unit"
printf '#!/bin/sh\necho 1..1\n[ "$ANNEAL_CUDA_PATH" = /nonexistent ] && echo "ok 1 - a"\n' >"$dir/build/tests/unit/pinned"
chmod +x "$dir/build/tests/unit/pinned"
ANNEAL_CUDA_PATH=/usr runner "$dir/build/tests/unit/pinned"
code_is 0; closing "1 passed, 0 failed"
ok "a test of the CPU finds no GPU, even where there is one"

make_program bad '1..2\\nok 1 - a\\nnot ok 2 - b\\n' 1
runner "$dir/build/tests/x/bad" "$dir/good.sh"
code_is 1; closing "2 passed, 1 failed"
ok "a test that fails is counted, and the others still run"

make_program short '1..3\\nok 1 - a\\n'
make_program none 'hello\\n'
make_program status '1..1\\nok 1 - a\\n' 3
runner "$dir/build/tests/x/short" "$dir/build/tests/x/none" "$dir/build/tests/x/status" "$dir/build/tests/x/absent"
code_is 1; closing "2 passed, 4 failed"
says stdout "ended after 1 of 3 tests"; says stdout "ran no test"; says stdout "exit status 3"; says stdout "did not build"
ok "a program that ends early, prints no test, fails silently or is not there is a failed test"

make_program skips '1..3\\nok 1 - a\\n# skipped: no GPU\\nnot ok 2 # SKIP b\\n# skipped: no GPU\\nnot ok 3 # SKIP c\\n'
make_shell skips '1..1\\nok 1 - d # SKIP no bash\\n'
runner "$dir/build/tests/x/skips" "$dir/skips.sh"
code_is 0; closing "1 passed, 0 failed, 3 skipped"
says stdout "skipped: 2: no GPU"; says stdout "skipped: 1: no bash"
ok "skipped tests are listed by their reasons and counted in the closing line"

make_program silent '1..1\\nnot ok 1 # SKIP a\\n'
make_shell silent '1..1\\nok 1 - # SKIP\\n'
runner "$dir/build/tests/x/silent" "$dir/silent.sh"
code_is 1; closing "0 passed, 2 failed, 2 skipped"; says stdout "skipped a test without a reason"
ok "a test that is skipped without a reason is a failed test"

if command -v timeout >/dev/null; then
    printf '#!/bin/sh\nexec sleep 30\n' >"$dir/build/tests/x/slow"
    chmod +x "$dir/build/tests/x/slow"
    TEST_LIMIT=1 runner "$dir/build/tests/x/slow"
    code_is 1; closing "0 passed, 1 failed"; says stdout "ran out of time"
    ok "a program that does not end is stopped"
else
    tests=$((tests + 1))
    echo "ok $tests - a program that does not end is stopped # SKIP no timeout command"
fi
done_testing
