#!/bin/sh
# pack_corpus.sh OUT.c FILE...: writes the prose of the files as one C array, an_corpus (src/io/data/corpus.h): of a document
# (.md) all but tables and remarks to tools, of a source its comments that are sentences, without the marks of a comment.
# Sorted by path in the C locale and named once each, so that equal files give equal bytes; what is not a newline or printable
# ASCII is dropped, so that the vocabulary stays small. OUT.c appears whole or not at all.
set -eu
LC_ALL=C
export LC_ALL
[ $# -ge 2 ] || { echo "usage: pack_corpus.sh OUT.c FILE..." >&2; exit 2; }
out=$1
shift
for file in "$@"; do
    [ -f "$file" ] && [ -r "$file" ] || { echo "pack_corpus.sh: $file: no such file" >&2; exit 1; }
done
trap 'rm -f "$out.new" "$out.txt"' EXIT

# shellcheck disable=SC2016  # awk's own variables
comments='
function add(s) {
    sub(/^[ \t]*\*?[ \t]*/, "", s)
    text = text s "\n"
}
{
    line = $0
    for (;;) {
        if (!inside) {
            if (!(at = index(line, "/*"))) next
            inside = 1; text = ""; line = substr(line, at + 2)
        }
        if (!(at = index(line, "*/"))) { add(line); next }
        add(substr(line, 1, at - 1))
        inside = 0; line = substr(line, at + 2)
        if (length(text) >= 60 && text ~ /[a-z] [a-z]+ [a-z]/) print text
    }
}'
prose() {
    case $1 in
    *.md) awk '!/^[|]/ && !/^<!--/' "$1" ;;
    *) awk "$comments" "$1" ;;
    esac
}

printf '%s\n' "$@" | sort -u | while IFS= read -r file; do
    printf '==> %s <==\n' "$file"
    prose "$file"
    printf '\n'
done | tr -cd '\n -~' >"$out.txt"
{
    echo '/* Made by tools/pack_corpus.sh. */'
    echo '#include "io/data/corpus.h"'
    echo 'const unsigned char an_corpus[] = {'
    od -An -v -tu1 "$out.txt" | sed -e 's/  */,/g' -e 's/^,//' -e 's/,*$/,/'
    echo '};'
    echo 'const size_t an_corpus_bytes = sizeof an_corpus;'
} >"$out.new"
mv -f "$out.new" "$out"
