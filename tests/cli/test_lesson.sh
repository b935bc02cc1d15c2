#!/bin/sh
# test_lesson.sh: the commands of docs/lesson.md, docs/from-pytorch-mps.md and docs/vision.md run as they are written, and eval's confusion table adds up.
plan=5
. "$(dirname "$0")/tap.sh"
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
cd "$dir" || exit 1
{ echo text,label; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "the sea $i,water"; echo "a hill $i,land"; done; } >mine.csv

# Runs each line of a document's code blocks; the program is the one that was built.
snippets() {
    sed -n '/^```$/,/^```$/p' "$docs/$1" | grep '^anneal ' >"$dir/lines"
    [ -s "$dir/lines" ] || fault "$1 has no commands"
    equal "$(wc -l <"$dir/lines")" "$(grep -c '^anneal ' "$docs/$1")" "commands of $1 that run, and all of them"
    while IFS= read -r line; do
        eval "\"$program\" ${line#anneal }" >"$dir/stdout" 2>"$dir/stderr" </dev/null || fault "$line: $(tail -c 300 "$dir/stderr")"
    done <"$dir/lines"
}
snippets lesson.md
ok "the lesson's commands run"
right="b a c b a c b b"
# shellcheck disable=SC2086
sh "$docs/lesson-check.sh" $right | grep -q "^8 of 8" || fault "the right answers"
sh "$docs/lesson-check.sh" b a c b a c a a >/dev/null || fault "six of eight did not pass"
for answers in "b a c b a a a a" "" "b a c b a c b" "b a c b a c b b b" "b a c b a c b x"; do
    # shellcheck disable=SC2086
    if sh "$docs/lesson-check.sh" $answers >/dev/null 2>&1; then fault "passed: $answers"; fi
done
equal "$(grep -c '^[1-8]\. .*(a).*(b).*(c)' "$docs/lesson.md")" 8 "questions with three answers"
ok "six of eight answers pass, fewer do not"
snippets from-pytorch-mps.md
is_file weights.safetensors; is_file trace.json
for name in $(sed -n 's/^| `\(PYTORCH_[A-Z_]*MPS_[A-Z_]*RATIO\|PYTORCH_ENABLE_MPS_FALLBACK\).*/\1/p' "$docs/from-pytorch-mps.md"); do
    grep -rq "\"$name\"" "$docs/../src" || fault "nothing reads $name"
done
ok "the commands of from-pytorch-mps.md run, and the variables that it says are read have a reader"
snippets vision.md
ok "the commands of vision.md run"
run eval shapes
says stdout "200 images"; says stdout "disc"
run eval shapes --json
sum=$(sed -n 's/.*"confusion":\[\(.*\]\)\].*/\1/p' "$dir/stdout" | tr -d '[]' | tr ',' '\n' | awk '{ n += $1 } END { print n }')
equal "$sum" 200 "images in the confusion table"
ok "the confusion table counts every image once"
done_testing
