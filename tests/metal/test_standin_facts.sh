#!/bin/sh
# test_standin_facts.sh: the stand-in's methods have the types that Apple's metadata gives them; and the facts that it and the backend's
# table of selectors are held against are that metadata, unchanged. The latter needs the whole table, which the project does
# not carry: ANNEAL_METAL_TABLE names it, and without it two tests are skipped.
table=${ANNEAL_METAL_TABLE:-}
standin=tests/metal/standin
out=$(mktemp -d "${TMPDIR:-/tmp}/anneal-facts.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT
bad=0
verdict() { # STATUS NUMBER SENTENCE
    [ "$1" -eq 0 ] || { printf 'not '; bad=1; }
    echo "ok $2 - $3"
}
# Whether one source's functions have the types of the facts in $1.
compare() { # FACTS SOURCE
    awk -f $standin/prototypes.awk "$1" $standin/foundation.def "$2" >"$out/asserts"
    { printf '#include "%s"\n' "$PWD/$2"; cat "$out/asserts"; } >"$out/all.c"
    ${CC:-cc} -std=c17 -I$standin -DSTANDIN_DIR='""' -DSTANDIN_CC='""' -DSTANDIN_CXX='""' -w -fsyntax-only "$out/all.c" >"$out/log" 2>&1
}

echo 1..4
status=0 rows=0
for source in core foundation device library command execute indirect; do
    compare $standin/api.def $standin/$source.c || { status=1; grep -m 5 error "$out/log" | sed 's/^/# /'; }
    rows=$((rows + $(sed -n 's/^enum { ROWS_COMPARED = \([0-9]*\) };/\1/p' "$out/asserts")))
done
[ "$rows" -gt 200 ] || status=1
verdict $status 1 "every method has its type in Apple's metadata"
echo "# $rows methods"
sed 's/"newBufferWithLength:options:", "@", "Q,Q"/"newBufferWithLength:options:", "@", "Q,q"/' $standin/api.def >"$out/wrong.def"
! compare "$out/wrong.def" $standin/device.c
verdict $? 2 "a method of another type is noticed"
if [ ! -f "$table" ]; then
    echo "ok 3 - api.def is what extract.sh makes of the metadata # SKIP ANNEAL_METAL_TABLE does not name the table of Apple's metadata, which the project does not carry"
    echo "ok 4 - a changed row is noticed # SKIP ANNEAL_METAL_TABLE does not name the table of Apple's metadata, which the project does not carry"
    exit "$bad"
fi
sh $standin/extract.sh "$table" >"$out/api.def"
cmp -s "$out/api.def" $standin/api.def
verdict $? 3 "api.def is what extract.sh makes of the metadata"
sed 's/\tnewBufferWithLength:options:\t@\tQ,Q/\tnewBufferWithLength:options:\t@\tQ,q/' "$table" >"$out/table"
sh $standin/extract.sh "$out/table" >"$out/api.def"
! cmp -s "$out/api.def" $standin/api.def
verdict $? 4 "a changed row is noticed"
exit "$bad"
