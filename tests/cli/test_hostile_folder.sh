#!/bin/sh
# test_hostile_folder.sh: a run folder that came from a stranger, in fifty hostile forms. For each: the exit code, one
# sentence, an end within seconds, and not a byte changed outside of the folder.
plan=7
. "$(dirname "$0")/tap.sh"
settings="$tiny max_iters=12 eval_interval=4 log_interval=1 save_interval=4 seed=3"

# What must not change: a start-up file, a user's settings, a folder.
mkdir -p "$dir/home/folder"
echo "alias ll='ls -l'" >"$dir/home/rc"
echo "mine: yes" >"$dir/home/config.yaml"
cp "$dir/home/rc" "$dir/home/folder/rc"
outside() { (cd "$dir/home" && find . -type f -exec cksum {} + | sort && find . | sort); }
before=$(outside)

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/base" $settings note='$(touch planted)'
code_is 0

forms=0
# limited COMMAND ARGS: the program with a time limit; 124 when it takes longer.
limited() {
    # shellcheck disable=SC2086
    timeout 60 ${WRAP:-} "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
}
# hostile CODE WORDS CHANGE [COMMAND...]: a copy of the run after CHANGE (shell, in the folder), resumed or COMMAND.
hostile() {
    wanted=$1 words=$2 change=$3
    shift 3
    forms=$((forms + 1))
    rm -rf "$dir/r"
    cp -r "$dir/base" "$dir/r"
    (cd "$dir/r" && eval "$change") || fault "form $forms cannot be made: $change"
    if [ $# -eq 0 ]; then limited resume "$dir/r" max_iters=14 --quiet; else limited "$@"; fi
    [ "$code" -eq "$wanted" ] || fault "form $forms ($change): exit code $code, not $wanted: $(head -c 300 "$dir/stderr")"
    [ -z "$words" ] || grep -qF -- "$words" "$dir/stderr" || fault "form $forms ($change): no '$words' in: $(head -c 300 "$dir/stderr")"
    [ "$wanted" -eq 0 ] || [ "$(wc -l <"$dir/stderr")" -eq 1 ] || fault "form $forms ($change): $(wc -l <"$dir/stderr") lines"
    [ "$(outside)" = "$before" ] || fault "form $forms ($change): a file outside of the folder has changed"
}
first=last.safetensors

# ---- links, and things that are no files, under each name that a run writes
for f in metrics.jsonl logbook.jsonl .lock; do
    hostile 2 "symbolic link" "ln -sf $dir/home/rc $f"
    hostile 2 "symbolic link" "ln -sf $dir/home/none $f"
    hostile 2 "symbolic link" "ln -sf /dev/zero $f"
    hostile 2 "not a regular file" "rm -f $f; mkfifo $f"
    hostile 2 "$f" "rm -f $f; mkdir $f"
    hostile 2 "names (hard links)" "rm -f $f; ln $dir/home/rc $f"
    rm -f "$dir/r/$f"
done
for f in config.yaml loss.svg; do
    hostile 0 "" "ln -sf $dir/home/config.yaml $f" # replaced, not followed
    hostile 0 "" "ln -sf $dir/home/rc $f.tmp; ln -sf $dir/home/none .$f.tmp"
    hostile 2 "not a regular file" "rm -f $f; mkfifo $f"
done
hostile 0 "" "for i in 1 2 3; do ln -sf $dir/home/rc last.safetensors.\$i.tmp; done; ln -sf $dir/home/folder previous"
hostile 2 "symbolic link" "ln -sf $dir/base/step_12.safetensors $first"
hostile 2 "symbolic link" "ln -sf /dev/zero $first"
hostile 2 "not a regular file" "rm $first; mkfifo $first"
hostile 2 "symbolic link" "ln -sf $dir/base/step_4.safetensors best.safetensors" sample "$dir/r" best=true tokens=2
hostile 2 "symbolic link" "ln -sf $dir/base/step_8.safetensors step_8.safetensors" resume "$dir/r" step=8
[ ! -e "$dir/home/none" ] || fault "a link to nothing was followed"
ok "links, hard links, FIFOs and folders in the place of files: nothing outside is written"

# ---- what the files say
long() { awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) printf "1"; print "" }'; }
hostile 0 "" "sort -r metrics.jsonl >m; mv m metrics.jsonl" resume "$dir/r" max_iters=14
hostile 0 "" "echo '{\"step\":9007199254740993,\"loss\":1}' >>metrics.jsonl; echo '{\"step\":-9223372036854775807,\"loss\":2}' >>metrics.jsonl" resume "$dir/r" max_iters=14
hostile 0 "" "for i in 0 1 2 3 4 5 6 7 8 9; do echo '{\"step\":'\$i',\"loss\":1e17}'; echo '{\"step\":'\$i',\"loss\":100000000000000016}'; done >metrics.jsonl" resume "$dir/r" max_iters=14
hostile 0 "" "for i in 0 1 2 3 4 5 6 7 8 9; do echo '{\"step\":'\$i',\"loss\":1e308}'; echo '{\"step\":'\$i',\"loss\":-1e308}'; done >metrics.jsonl" resume "$dir/r" max_iters=14
hostile 0 "" "awk 'BEGIN { for (i = 0; i < 3000000; i++) printf \"x\"; print \"\" }' >>metrics.jsonl"
hostile 2 "no unfinished line" "awk 'BEGIN { for (i = 0; i < 3000000; i++) printf \"x\" }' >>metrics.jsonl"
hostile 2 "larger than 1024 MiB" "truncate -s 2G metrics.jsonl"
hostile 2 "larger than 1024 MiB" "truncate -s 1T logbook.jsonl"
hostile 0 "" "awk 'BEGIN { for (i = 0; i < 5000; i++) printf \"[\"; print \"\" }' >>logbook.jsonl"
hostile 0 "" "printf '{\"host\":\"\\\\u001b]0;owned\\\\u0007\\\\u001b[2J\",\"unix\":9223372036854775807}\\n' >>logbook.jsonl" resume "$dir/r" max_iters=14
if grep -q "$(printf '\033')" "$dir/stderr"; then fault "an escape of the logbook reached the terminal"; fi
ok "metrics and logbook with wild contents: a run goes on, or one sentence"

# ---- checkpoints and names
change() { printf '%s' "LC_ALL=C sed 's/$1/$2/' $first >c; rm $first; mv c $first"; }
hostile 2 "step_12" "head -c 3000 step_12.safetensors >c; rm step_12.safetensors $first; mv c step_12.safetensors; rm best.safetensors"
hostile 2 "$first" "head -c 100000 /dev/urandom >c; rm $first; mv c $first"
hostile 2 "$first" ": >c; rm $first; mv c $first"
hostile 2 "$first" "printf '\\377\\377\\377\\377\\377\\377\\377\\177{}' >c; rm $first; mv c $first"
hostile 2 "number of updates" "$(change 'step\\":12,' 'step\\":-1,')"
hostile 2 "no run has more than" "$(change 'step\\":12,\\"best_val\\":\([0-9]\)\.[0-9]\{11\}' 'step\\":12123456789012,\\"best_val\\":\1')"
hostile 2 "a best_val that is no loss" "$(change '[0-9]\{4\},\\"best_step' 'e300,\\"best_step')"
hostile 2 "a best_val that is no loss" "$(change 'best_val\\":[0-9]\(\.[0-9]*\)[0-9]\{3\},' 'best_val\\":\\"\1\\",')"
hostile 2 "has its best loss at update" "$(change 'best_step\\":12,' 'best_step\\":13,')"
hostile 2 "has its best loss at update" "$(change 'best_step\\":12,' 'best_step\\":-1,')"
hostile 2 "$first" "$(change 'anneal.state' 'anneal.stat_')"
hostile 2 "$first" "$(change 'data_offsets' 'data_offsetz')"
hostile 0 "" "touch step_99999999999999999999.safetensors step_-1.safetensors step_007.safetensors 'step_5.safetensors '"
hostile 0 "" "head -c 1000000 /dev/urandom >config.yaml; head -c 1000000 /dev/urandom >loss.svg"
hostile 0 "" "for i in 1 2 3 4 5 6 7 8 9; do mkfifo previous-\$i; done; mkfifo previous; echo '\$(touch planted)' >.lock"
hostile 2 "no checkpoint after" "ln $first step_2000000000000.safetensors; chmod 000 step_2000000000000.safetensors; rm $first" resume "$dir/r" step=2000000000001
# shellcheck disable=SC2086
run train macbook out="$dir/half" $settings dtype=float16 max_iters=4 --quiet
code_is 0
for scale in '\x80\xbf' '\x80\x7f' '\xc0\x7f'; do # -1, inf, NaN in the place of 65536
    hostile 2 "the loss scale is" "cp $dir/half/last.safetensors c; LC_ALL=C sed 's/\x00\x00\x80\x47/\x00\x00$scale/' c >d; rm $first; mv d $first"
done
# An infinite second moment: no update would change its weight. A layer that the settings leave no place for: it would be lost.
hostile 2 "is infinite, so no update would change its weight" "head -c \$((\$(wc -c <$first) - 4)) $first >c; printf '\\000\\000\\200\\177' >>c; rm $first; mv c $first"
fewer=$(change 'n_layer\\":2' 'n_layer\\":1')
hostile 2 "is none of the model that the settings in it describe" "$fewer"
hostile 2 "is none of the model that the settings in it describe" "$fewer" sample "$dir/r" tokens=2
ok "checkpoints that are cut, random or changed, and names that mean to mislead"

# ---- one damaged line loses nothing
rm -rf "$dir/d"
cp -r "$dir/base" "$dir/d"
sed '2s/.*/damaged/' "$dir/base/metrics.jsonl" >"$dir/d/metrics.jsonl"
limited resume "$dir/d" max_iters=14 --quiet
code_is 0
equal "$(wc -l <"$dir/d/metrics.jsonl" | tr -d ' ')" 14 "lines of metrics, the damaged one among them"
ok "a damaged line of metrics.jsonl does not take the lines behind it"

# ---- a user's own files
mkdir "$dir/own"
cp "$dir/home/config.yaml" "$dir/own/config.yaml"
# shellcheck disable=SC2086
limited train macbook out="$dir/own" $settings
code_is 1; says stderr "no run of anneal was in it"; one_line stderr
equal "$(ls -A "$dir/own")" config.yaml "the folder"
printf 'out: %s\nmax_iters: 2\n' "$dir/own" >"$dir/downloaded.yaml"
limited train "$dir/downloaded.yaml"
code_is 1; says stderr "no run of anneal was in it"
equal "$(cat "$dir/own/config.yaml")" "mine: yes" "the user's settings"
cp "$dir/base/last.safetensors" "$dir/own/"
echo "my,metrics" >"$dir/own/metrics.jsonl"
limited resume "$dir/own" max_iters=14
code_is 0
equal "$(cat "$dir/own/previous/config.yaml" "$dir/own/previous/metrics.jsonl" | tr '\n' ' ')" "mine: yes my,metrics " "what was there"
says stderr "own/previous"
mkdir "$dir/hub"
echo '{"model_type":"other","their_key":1}' >"$dir/hub/config.json"
limited export "$dir/base" layout=hf out="$dir/hub/model.safetensors"
code_is 1; says stderr "was not written by anneal export"; one_line stderr
equal "$(ls "$dir/hub")" config.json "the folder"
limited export "$dir/base" layout=hf out="$dir/hf.safetensors"
code_is 0
limited export "$dir/base" layout=hf out="$dir/hf.safetensors"
code_is 0
ok "config.yaml, metrics.jsonl and config.json that anneal did not write are never written over"

# ---- the folder goes away while the run goes on
# shellcheck disable=SC2086
"$program" train macbook out="$dir/gone" $settings max_iters=100000000 lr_decay_iters=100000000 --quiet >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
n=0
while [ ! -s "$dir/gone/metrics.jsonl" ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
mv "$dir/gone" "$dir/elsewhere"
wait $running
code=$?
code_is 2; says stderr "the folder was removed or renamed since the run began"; one_line stderr
ok "a run notices that its folder was moved away"

[ "$forms" -ge 50 ] || fault "only $forms forms"
[ -z "$(find . "$dir" -name planted)" ] || fault "the note was run as a command"
equal "$(outside)" "$before" "the files outside"
ok "$forms forms, and nothing outside of the folder has changed"
done_testing
