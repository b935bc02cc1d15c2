#!/bin/sh
# test_lesson.sh: the commands of docs/lesson.md and docs/vision.md run as they are written, and eval's confusion table adds up.
plan=3
. "$(dirname "$0")/tap.sh"
docs=$(cd "$(dirname "$0")/../../docs" && pwd)
cd "$dir" || exit 1
{ echo text,label; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo "the sea $i,water"; echo "a hill $i,land"; done; } >mine.csv

# Runs each line of a document's code blocks; the program is the one that was built.
snippets() {
    sed -n '/^```$/,/^```$/p' "$docs/$1" | grep '^anneal ' >"$dir/lines"
    [ -s "$dir/lines" ] || fault "$1 has no commands"
    while IFS= read -r line; do
        eval "\"$program\" ${line#anneal }" >"$dir/stdout" 2>"$dir/stderr" </dev/null || fault "$line: $(tail -c 300 "$dir/stderr")"
    done <"$dir/lines"
}
snippets lesson.md
ok "the lesson's commands run"
snippets vision.md
ok "the commands of vision.md run"
run eval shapes
says stdout "200 images"; says stdout "disc"
run eval shapes --json
sum=$(sed -n 's/.*"confusion":\[\(.*\]\)\].*/\1/p' "$dir/stdout" | tr -d '[]' | tr ',' '\n' | awk '{ n += $1 } END { print n }')
equal "$sum" 200 "images in the confusion table"
ok "the confusion table counts every image once"
done_testing
