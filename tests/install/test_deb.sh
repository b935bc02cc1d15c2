#!/bin/sh
# test_deb.sh: `make deb`, the package installed by dpkg into a root of its own and run from there. With CI set, and as root, it is
# installed on this machine by apt-get, run, and removed. Prints TAP.
build=${AN_BUILD:-build}
command -v dpkg-deb >/dev/null || { echo "1..1"; echo "ok 1 - # SKIP no dpkg-deb: it makes Debian packages"; exit 0; }
plan=5
for_real=
[ -n "${CI:-}" ] && [ "$(id -u)" -eq 0 ] && for_real=1 plan=6
. "$(dirname "$0")/../cli/tap.sh"
log=$dir/log
sane() { [ "$1" -eq 0 ] || fault "$2: $(tail -n 3 "$log" | tr '\n' ' ')"; }

make --no-print-directory BUILD="$build" deb >"$log" 2>&1
sane $? "make deb"
package=$(find "$build" -maxdepth 1 -name 'anneal_*.deb' | head -n 1)
is_file "$package"
ok "make deb makes a package"

dpkg-deb -f "$package" Depends >"$dir/stdout"
for library in libc6 libjansson4 libxxhash0 libnettle libyaml-0-2; do says stdout "$library"; done
dpkg-deb -c "$package" >"$dir/stdout"
for file in usr/bin/anneal usr/lib/libanneal.a usr/lib/libanneal.so.0 usr/include/anneal.h usr/share/man/man1/anneal.1.gz \
    usr/share/bash-completion/completions/anneal usr/share/doc/anneal/guide.md; do says stdout "./$file"; done
! grep -v ' root/root ' "$dir/stdout" || fault "a file that is not root's"
ok "it names the libraries it needs and has program, library, manual and completions"

root=$dir/root
mkdir -p "$root/var/lib/dpkg/updates" "$root/var/lib/dpkg/info" && : >"$root/var/lib/dpkg/status"
dpkg --root="$root" --force-not-root --force-depends --log="$dir/dpkg.log" -i "$package" >"$log" 2>&1
sane $? "dpkg -i"
(cd "$root" && md5sum --quiet -c var/lib/dpkg/info/anneal.md5sums) >"$log" 2>&1
sane $? "md5sums"
ok "dpkg installs it into a root of its own, and every file is whole"

program=$root/usr/bin/anneal
run version
code_is 0; says stdout "anneal "
run selftest demo n_layer=1 n_embd=32 n_head=2 block_size=16 batch_size=2
code_is 0; says stdout "all as the oracle has them"
ok "what it installed runs and passes its selftest"

sed "s|^prefix=.*|prefix=$root/usr|" "$root/usr/lib/pkgconfig/anneal.pc" >"$dir/anneal.pc"
# shellcheck disable=SC2046  # flags are words
${CC:-cc} -std=c17 tests/install/train.c -o "$dir/train" $(PKG_CONFIG_PATH=$dir pkg-config --cflags --libs anneal) >"$log" 2>&1
sane $? "compiling"
LD_LIBRARY_PATH=$root/usr/lib "$dir/train" >"$log" 2>&1
sane $? "the program"
ok "a program compiles against its headers and runs with its library"

if [ -n "$for_real" ]; then
    apt-get install -y "$(cd "$(dirname "$package")" && pwd)/$(basename "$package")" >"$log" 2>&1
    sane $? "apt-get install"
    anneal version >"$dir/stdout" 2>&1 || fault "the installed program does not run"
    says stdout "anneal "
    apt-get remove -y anneal >"$log" 2>&1
    sane $? "apt-get remove"
    [ ! -e /usr/bin/anneal ] || fault "the program is still there"
    ok "apt-get installs and removes it here"
fi
done_testing
