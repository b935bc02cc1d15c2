#!/bin/sh
# test_hostile_files.sh: a short form of the campaign of tools/hostile_files.py: files that a user hands over and that have no libFuzzer
# target, damaged at random and read by the commands that take them. AN_SOAK=1 has a thousand of each.
plan=2
. "$(dirname "$0")/tap.sh"
if [ -n "${WRAP:-}" ] || ! command -v python3 >/dev/null 2>&1; then
    skip "the campaign sees planted faults" "it wants python3, and no wrapper"
    skip "damaged files are taken or refused with a sentence" "it wants python3, and no wrapper"
    done_testing
    exit
fi
python3 tools/hostile_files.py "$program" --plant >"$dir/stdout" 2>&1 || fault "$(cat "$dir/stdout")"
says stdout "7 planted faults are seen"
ok "the campaign sees planted faults"

python3 tools/hostile_files.py "$program" --mutations "$([ -n "${AN_SOAK:-}" ] && echo 1000 || echo 16)" --seed 3 >"$dir/stdout" 2>&1 ||
    fault "$(tail -n 12 "$dir/stdout")"
says stdout "on 12 kinds of files"; says stdout " 0 faults"
echo "# $(tail -n 1 "$dir/stdout")"
ok "damaged files are taken or refused with a sentence"
done_testing
