#!/bin/sh
# words.sh [KEY=VALUE...]: does the preset `words` write words after ten minutes on two cores? Trains it (with the settings given:
# max_iters=250 lr_decay_iters=250 is a trial), writes 2,000 characters (TOKENS) from each of five seeds, and counts how many of their words
# occur in the text that it was trained on. A word: letters, of which a sample's first and last may be cut; in small letters.
# Words of one letter are left out. Prints seconds of training, the lowest validation loss, the share, and the same share after one
# update, which says what chance gives. Two quiet cores: CPUS=0,1 (by default the first two that are allowed).
# Exit 1: more than MINUTES (10), or less than SHARE (80) of a hundred words.
set -u
build=${AN_BUILD:-build}
program=$build/anneal
out=$(mktemp -d "${TMPDIR:-/tmp}/anneal-words.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT
pin=
if command -v taskset >/dev/null; then pin="taskset -c ${CPUS:-0,1}"; fi

# The built-in text, as bytes of a C array.
text=$build/gen/corpus.c
[ -x "$program" ] && [ -f "$text" ] || { echo "words.sh: $program and $text: run make first" >&2; exit 2; }
grep -E '^[0-9,]+$' "$text" | tr ',' '\n' | LC_ALL=C awk 'NF { printf "%c", $1 + 0 }' >"$out/text"
words() { tr 'A-Z' 'a-z' | tr -c 'a-z' '\n' | LC_ALL=C awk 'length > 1'; }
words <"$out/text" | sort -u >"$out/vocabulary"

# share FILE...: of the words of the files, how many are in the text: in a hundred, and counted.
share() {
    for sample; do words <"$sample" | sed '1d;$d'; done |
        LC_ALL=C awk -v known="$out/vocabulary" 'BEGIN { while ((getline w < known) > 0) is[w] = 1 }
            { n++; if ($0 in is) yes++; else if (++shown <= 12) odd = odd " " $0 }
            END { printf "%.1f %d%s\n", n ? 100 * yes / n : 0, n, odd }'
}
sample() { # RUN NAME
    for seed in 1 2 3 4 5; do
        "$program" sample "$1" --best --tokens "${TOKENS:-2000}" --temperature 0.6 --seed $seed --threads 2 >"$out/$2.$seed" 2>"$out/log" ||
            { tail -n 3 "$out/log" >&2; exit 1; }
    done
}

began=$(date +%s)
# shellcheck disable=SC2086  # a command and its arguments
$pin "$program" train words "$@" threads=2 out="$out/run" --quiet >"$out/log" 2>&1 || { tail -n 5 "$out/log" >&2; exit 1; }
took=$(($(date +%s) - began))
"$program" train words max_iters=1 eval_iters=1 threads=2 out="$out/chance" --quiet >"$out/log" 2>&1 || { tail -n 5 "$out/log" >&2; exit 1; }
sample "$out/run" trained
sample "$out/chance" chance
set -- "$out"/trained.?
read -r trained n odd <<EOF
$(share "$@")
EOF
set -- "$out"/chance.?
read -r chance m rest <<EOF
$(share "$@")
EOF
loss=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$out/run/metrics.jsonl" | sort -n | head -n 1)
grep -m 1 'model name' /proc/cpuinfo 2>/dev/null | sed 's/.*: /processor  /'
echo "training   $took s on two threads; lowest validation loss $loss"
echo "words      $trained % of $n in the training text; of chance $chance % of $m"
echo "others     $odd"
echo "a sample:"
head -c 400 "$out/trained.1" | sed 's/^/    /'
echo
awk -v took="$took" -v most="${MINUTES:-10}" -v share="$trained" -v least="${SHARE:-80}" \
    'BEGIN { exit !(took <= 60 * most && share >= least) }'
