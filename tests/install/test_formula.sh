#!/bin/sh
# test_formula.sh: the Homebrew formula that `make formula` makes: of this version, with the hash of the tarball it names, and with the
# libraries that bootstrap installs. Prints TAP.
build=${AN_BUILD:-build}
git rev-parse HEAD >/dev/null 2>&1 || { echo "1..1"; echo "ok 1 - # SKIP not a git checkout, or no git: there is nothing to pack"; exit 0; }
plan=3
. "$(dirname "$0")/../cli/tap.sh"
make --no-print-directory BUILD="$build" formula >"$dir/stdout" 2>&1 || fault "make formula: $(tail -n 3 "$dir/stdout" | tr '\n' ' ')"
formula=$build/anneal.rb
is_file "$formula"
! grep -n '@[A-Z0-9]*@' "$formula" || fault "a place was not filled in"
ok "make formula fills in every place"

version=$(sed -n 's/^.define AN_VERSION "\(.*\)"/\1/p' include/anneal.h)
tarball=$build/anneal-$version.tar.gz
equal "$(sed -n 's/^  sha256 "\(.*\)"/\1/p' "$formula")" "$( (sha256sum "$tarball" || shasum -a 256 "$tarball") 2>/dev/null | cut -d' ' -f1)" "the tarball's hash"
tar tzf "$tarball" >"$dir/stdout"
says stdout "anneal-$version/Makefile"; says stdout "anneal-$version/man/anneal.1"
ok "the tarball it names has the sources of this version"

sed -n 's/^  depends_on "\([a-z0-9]*\)".*/\1/p' "$formula" | sort >"$dir/depends"
sed -n 's/^homebrew="\(.*\)"/\1/p' bootstrap | tr ' ' '\n' | grep -v cmocka | sort >"$dir/homebrew"
cmp -s "$dir/depends" "$dir/homebrew" || fault "formula: $(paste -sd' ' "$dir/depends"); bootstrap: $(paste -sd' ' "$dir/homebrew")"
ok "it depends on what bootstrap installs, but for the tests' library"
done_testing
