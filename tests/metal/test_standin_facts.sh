#!/bin/sh
# test_standin_facts.sh: the facts that the stand-in and the table of selectors are checked against are those of Apple's metadata, unchanged.
# Needs the whole table (ANNEAL_METAL_TABLE, or beside the checkout), which the project does not carry: skipped by name without it.
table=${ANNEAL_METAL_TABLE:-../shared/reference/metal_api_26.5.tsv}
echo 1..2
if [ ! -f "$table" ]; then
    echo "ok 1 - api.def is what extract.sh makes of the metadata # SKIP no table at $table"
    echo "ok 2 - a changed row is noticed # SKIP no table at $table"
    exit 0
fi
out=$(mktemp -d "${TMPDIR:-/tmp}/anneal-facts.XXXXXX") || exit 1
trap 'rm -rf "$out"' EXIT
sh tests/metal/standin/extract.sh "$table" >"$out/api.def"
cmp -s "$out/api.def" tests/metal/standin/api.def || { printf 'not '; bad=1; }
echo "ok 1 - api.def is what extract.sh makes of the metadata"
sed 's/\tnewBufferWithLength:options:\t@\tQ,Q/\tnewBufferWithLength:options:\t@\tQ,q/' "$table" >"$out/table"
sh tests/metal/standin/extract.sh "$out/table" >"$out/api.def"
! cmp -s "$out/api.def" tests/metal/standin/api.def || { printf 'not '; bad=1; }
echo "ok 2 - a changed row is noticed"
exit "${bad:-0}"
