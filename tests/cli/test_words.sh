#!/bin/sh
# test_words.sh: what --help lists is in the manual page and in every shell's completion, and the completions work.
plan=6
. "$(dirname "$0")/tap.sh"
share=${AN_BUILD:-build}/share
make --no-print-directory BUILD="${AN_BUILD:-build}" words >"$dir/log" 2>&1 || fault "make words: $(tail -n 3 "$dir/log")"
for file in anneal.1 anneal.bash _anneal anneal.fish; do is_file "$share/$file"; done
ok "the manual page and the completions are made by the program"

# "COMMAND KEY" of everything that help lists.
run help
commands=$(sed -n 's/^  anneal \([a-z]*\) .*/\1/p' "$dir/stdout" | sort -u)
for command in $commands; do
    run help "$command"
    sed -n "s/^  \([a-z_0-9]*\)=.*/$command \1/p" "$dir/stdout"
done >"$dir/keys"
[ "$(echo "$commands" | wc -l)" -ge 12 ] || fault "only these commands: $commands"
[ "$(wc -l <"$dir/keys")" -ge 150 ] || fault "only $(wc -l <"$dir/keys") settings"
for command in $commands; do grep -q "^\.Ss anneal $command" "$share/anneal.1" || fault "the manual lacks $command"; done
while read -r command key; do
    grep -q "^\.It Ar $key Ns = " "$share/anneal.1" || fault "the manual lacks $key of $command"
done <"$dir/keys"
! grep -n '^@COMMANDS@' "$share/anneal.1" || fault "the manual's commands were not put in"
ok "the manual has every command and setting"

if command -v groff >/dev/null; then
    faults="$faults$(groff -man -Tascii -ww -z "$share/anneal.1" 2>&1 | head -n 3 | sed 's/^/# /')"
    ok "the manual is faultless roff"
else
    tests=$((tests + 1))
    echo "ok $tests - the manual is faultless roff # SKIP groff is not here"
fi

while read -r command key; do
    grep -q "^    $command) keys=.* $key=" "$share/anneal.bash" || fault "bash lacks $key of $command"
    grep -q "__fish_seen_subcommand_from $command' -l $key " "$share/anneal.fish" || fault "fish lacks $key of $command"
    sed -n "/^    $command)/,/;;/p" "$share/_anneal" | grep -q "'$key:" || fault "zsh lacks $key of $command"
done <"$dir/keys"
ok "every shell's completion has every setting of every command"

if command -v bash >/dev/null; then
    # complete LINE: what bash would offer at its end.
    cat >"$dir/complete" <<'BASH'
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<<"$2"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
case $2 in *' ') COMP_CWORD=$((COMP_CWORD + 1)) ;; esac
_anneal
printf '%s\n' "${COMPREPLY[@]}"
BASH
    offers() { bash "$dir/complete" "$share/anneal.bash" "$1" 2>"$dir/stderr" | grep -qxF -- "$2" || fault "'$1' does not offer '$2': $(head -c 200 "$dir/stderr")"; }
    offers "anneal tr" train
    offers "anneal train shake" shakespeare_char
    offers "anneal train demo max_i" max_iters=
    offers "anneal train demo --max_i" --max_iters=
    offers "anneal train demo compile=f" false
    offers "anneal train demo --recompute=o" off
    offers "anneal bench mat" matmul
    offers "anneal help doc" doctor
    offers "anneal inspect $dir/comp" "$dir/complete"
    ok "bash completes commands, presets, settings, values and files"
else
    tests=$((tests + 1))
    echo "ok $tests - bash completes # SKIP bash is not here"
fi

for shell in zsh fish; do
    command -v "$shell" >/dev/null || continue
    file=$share/_anneal
    [ "$shell" = zsh ] || file=$share/anneal.fish
    "$shell" -n "$file" 2>"$dir/stderr" || fault "$shell: $(head -n 2 "$dir/stderr")"
done
ok "zsh and fish, where they are, can read theirs"
done_testing
