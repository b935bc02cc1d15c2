#!/bin/sh
# pack_corpus.sh OUT.c FILE...: writes the files as one C array, an_corpus (src/io/data/corpus.h).
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

printf '%s\n' "$@" | sort -u | while IFS= read -r file; do
    printf '==> %s <==\n' "$file"
    cat "$file"
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
