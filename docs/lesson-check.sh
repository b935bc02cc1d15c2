#!/bin/sh
# lesson-check.sh: counts the answers to the eight questions of lesson.md: sh docs/lesson-check.sh a b c a b c a b
# Exit code 0: passed, six of eight (75 %); 1: not passed, or not eight letters.
right="b a c b a c b b"
[ $# -eq 8 ] || { echo "lesson-check: eight letters, one for each question; $# were given" >&2; exit 1; }
n=0 question=0 wrong=
for want in $right; do
    question=$((question + 1))
    case $1 in
    a | b | c) ;;
    *) echo "lesson-check: question $question: an answer is a, b or c" >&2; exit 1 ;;
    esac
    if [ "$1" = "$want" ]; then n=$((n + 1)); else wrong="$wrong $question"; fi
    shift
done
echo "$n of 8 are right${wrong:+; read again for question$wrong}"
[ $((100 * n)) -ge $((75 * 8)) ] && echo "passed" || { echo "not passed: six are needed"; exit 1; }
