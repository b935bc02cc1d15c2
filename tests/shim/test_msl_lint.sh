#!/bin/sh
# test_msl_lint.sh: tools/msl_lint names the rule that each sample in tests/shim/lint breaks, and no other; a good sample passes. Prints TAP.
# A sample's first line is `// expect: RULE`, or none; a name that begins with version_300 is read as MSL 3.0.
n=0 bad=0
set -- tests/shim/lint/*.metal
echo "1..$#"
if ! command -v python3 >/dev/null 2>&1; then
    for f in "$@"; do n=$((n + 1)); echo "ok $n - $f # SKIP no python3: tools/msl_lint cannot run"; done
    exit 0
fi
for f in "$@"; do
    n=$((n + 1))
    case $f in */version_300*) version=300 ;; *) version=310 ;; esac
    want=$(sed -n '1s/^.. expect: //p' "$f")
    found=$(python3 tools/msl_lint --version $version "$f" 2>&1)
    rules=$(echo "$found" | sed -n 's/^[^:]*:[0-9]*: \([a-z0-9+-]*\): .*/\1/p' | sort -u)
    [ -n "$found" ] || rules=none
    if [ "$rules" = "$want" ]; then
        echo "ok $n - ${f##*/} breaks: $want"
    else
        echo "not ok $n - ${f##*/} breaks: $want"
        echo "$found" | sed 's/^/# /'
        bad=1
    fi
done
exit $bad
