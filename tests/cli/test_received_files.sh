#!/bin/sh
# test_received_files.sh: files that came from elsewhere, by every command that reads them: mapped files that are cut while they
# are read, FIFOs, weights that are no numbers, counts at their bounds; and what the system takes away while a run goes on.
plan=7
. "$(dirname "$0")/tap.sh"
settings="$tiny max_iters=12 eval_interval=4 log_interval=1 save_interval=4 seed=3"
limited() {
    # shellcheck disable=SC2086  # WRAP is a command with arguments
    timeout -k 2 "${LIMIT:-60}" ${WRAP:-} "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
}
# Waits until a file has bytes, for at most 30 seconds.
until_written() { n=0; while [ ! -s "$1" ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done; }

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/base" $settings --quiet
code_is 0
i=0
while [ $i -lt 3000 ]; do echo "line $i of a text"; i=$((i + 1)); done >"$dir/text"
run prepare "$dir/text" out="$dir/tokens"
code_is 0

# ---- a mapped file that is cut. A library in front of the system's cuts the file that CUT names as soon as it is mapped.
cat >"$dir/cut.c" <<'C'
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    void *p = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    const char *cut = getenv("CUT");
    char link[64], path[PATH_MAX];
    if (fd < 0 || !cut) return p;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) path[length] = 0;
    if (length > 0 && !strcmp(path, cut) && truncate(cut, 0)) perror(cut);
    return p;
}
C
name="a mapped file that is cut is a sentence and exit code 2 in every command that reads it"
if [ "$(uname)" != Linux ] || [ -n "${WRAP:-}" ] || nm "$program" 2>/dev/null | grep -q '__[at]san_init' || ! nm "$program" 2>/dev/null | grep -q 'U mmap'; then
    skip "$name" "a library in front of mmap wants Linux and no sanitizer or wrapper"
elif ! "${CC:-cc}" -shared -fPIC -o "$dir/cut.so" "$dir/cut.c" 2>"$dir/log"; then
    skip "$name" "no C compiler that makes shared libraries"
else
    real=$(cd "$dir" && pwd -P)
    # cut FILE COMMAND...: reads a copy of the file, c.EXTENSION, which is cut while it is mapped.
    cut() {
        CUT=$real/c.${1##*.}
        cp "$1" "$CUT"
        export CUT
        shift
        LD_PRELOAD=$dir/cut.so limited "$@"
        [ "$code" -eq 2 ] && [ "$(wc -l <"$dir/stderr")" -eq 1 ] && grep -q "c\.[a-z]*: became shorter while it was read" "$dir/stderr" ||
            fault "$*: exit code $code: $(head -c 300 "$dir/stderr")"
        unset CUT
    }
    weights=$dir/base/last.safetensors
    for verb in inspect sample eval; do cut "$weights" $verb "$real/c.safetensors"; done
    cut "$weights" export "$real/c.safetensors" out="$dir/exported.safetensors" layout=hf
    [ ! -e "$dir/exported.safetensors" ] || fault "an export of weights that were cut"
    # shellcheck disable=SC2086
    cut "$weights" train macbook out="$dir/init" $settings init_from="$real/c.safetensors" --quiet
    cut tests/torch/nanogpt.pt inspect "$real/c.pt"
    cut tests/torch/nanogpt.pt sample "$real/c.pt"
    cp "$dir/text" "$dir/text.txt"
    cut "$dir/text.txt" prepare "$real/c.txt" out="$dir/cut"
    [ ! -e "$dir/cut/train.bin" ] || fault "files of a text that was cut"
    cut "$dir/tokens/train.bin" eval "$dir/base" "$real/c.bin"
    # shellcheck disable=SC2086
    cut "$dir/text.txt" train macbook out="$dir/text_cut" $settings data="$real/c.txt" --quiet
    ok "$name"
fi

# ---- FIFOs and devices wherever a file can be named
mkfifo "$dir/fifo" "$dir/fifo.yaml" "$dir/fifo.py" "$dir/fifo.npy" "$dir/fifo.csv" "$dir/fifo.pt2" "$dir/fifo.safetensors" "$dir/fifo.pt"
mkdir "$dir/holds" && mkfifo "$dir/holds/tokenizer.json"
# refused COMMAND...: at once, with a sentence that names what it is; never read, never waited for.
refused() {
    LIMIT=8 limited "$@"
    case $code in 1 | 2) ;; *) fault "$*: exit code $code" ;; esac
    [ "$(wc -l <"$dir/stderr")" -eq 1 ] && grep -q "regular file\|no tokenizer is in this folder" "$dir/stderr" || fault "$*: $(head -c 300 "$dir/stderr")"
}
for what in "$dir/fifo" /dev/zero; do
    refused prepare "$what" out="$dir/p"
    refused prepare "$dir/text" tokenizer="$what" out="$dir/p"
    refused prepare openwebtext --from "$what" tokenizer=char out="$dir/p"
    refused sample "$dir/base" --prompt "FILE:$what" tokens=2
    refused sample tests/torch/nanogpt.pt tokenizer="$what" tokens=2
    refused sample "$what"
    refused inspect "$what"
    refused eval "$dir/base" "$what"
    refused train macbook out="$dir/q" data="$what" --quiet
    refused train macbook out="$dir/q" init_from="$what" --quiet
    refused compare "$dir/base" "$dir/base" tolerances="$what"
    refused handoff "$what" out="$dir/h"
    refused profile diff "$what" "$what"
done
refused prepare "$dir/text" tokenizer="$dir/holds" out="$dir/p"
refused train "$dir/fifo.yaml"
refused train "$dir/fifo.py"
refused inspect "$dir/fifo.pt"
refused inspect "$dir/fifo.pt2"
refused train "$dir/fifo.pt2" out="$dir/q"
mkdir "$dir/hub"
cp tests/torch/hf/model.safetensors "$dir/hub/"
mkfifo "$dir/hub/config.json"
refused sample "$dir/hub/model.safetensors"
run train issues max_iters=1 eval_iters=1 device=cpu out="$dir/classes" --quiet # a model that answers rows
code_is 0
for kind in npy csv; do refused predict "$dir/classes" "$dir/fifo.$kind"; done
ok "a FIFO or a device in the place of any file that can be named is refused at once"

# ---- weights that are no numbers
cp -r "$dir/base" "$dir/nan"
header=$(od -An -t u8 -N 8 "$weights" | tr -d ' ')
{
    head -c $((header + 8)) "$dir/base/last.safetensors"
    head -c $(($(wc -c <"$dir/base/last.safetensors") - header - 8)) /dev/zero | tr '\0' '\377'
} >"$dir/nan/c"
rm "$dir"/nan/*.safetensors && mv "$dir/nan/c" "$dir/nan/last.safetensors"
limited resume "$dir/nan" max_iters=14
code_is 3; says stderr "the loss is nan"; says stderr "last.safetensors holds the run after 12 updates"
limited resume "$dir/nan" max_iters=14 # its metrics hold the NaN now, and the curve is drawn of them
code_is 3; says nan/loss.svg "</svg>"
limited sample "$dir/nan" tokens=5
code_is 3; says stderr "is nan: the model is not finite"
limited eval "$dir/nan"
code_is 3; says stderr "is nan: the model is not finite"
limited inspect "$dir/nan" --json
code_is 0; one_line stdout
limited diagnose "$dir/nan"
code_is 0; says stdout hypothesis
ok "weights that are NaN end training, sampling and evaluation with what they are"

# ---- counts at their bounds: so many updates that a loop over them would take years, and averages without their sums
cp -r "$dir/base" "$dir/long"
LC_ALL=C sed 's/step\\":12,\\"best_val\\":\([0-9]\)\.[0-9]\{9\}/step\\":1073741000,\\"best_val\\":\1.0/' "$dir/base/last.safetensors" >"$dir/long/c"
rm "$dir"/long/*.safetensors && mv "$dir/long/c" "$dir/long/last.safetensors"
LIMIT=30 limited resume "$dir/long" dtype=float16 beta2=0.999999999 max_iters=1073741002 --quiet
code_is 0
equal "$(tail -n 1 "$dir/long/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/')" 1073741001 "the last update"
limited resume "$dir/long" max_iters=1073741900 lr_decay_iters=1073741900
code_is 1; one_line stderr; says stderr "1 to 1073741822"
ok "a run of 2^30 updates goes on at once, in float16 too, and not beyond"

# ---- the lock is deleted while the run goes on
endless="max_iters=100000000 lr_decay_iters=100000000"
# shellcheck disable=SC2086
"$program" train macbook out="$dir/unlocked" $settings $endless --quiet >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
until_written "$dir/unlocked/metrics.jsonl"
rm "$dir/unlocked/.lock"
wait $running
code=$?
code_is 2; one_line stderr; says stderr "its .lock was removed or replaced while the run went on"
# shellcheck disable=SC2086
"$program" train macbook out="$dir/renamed" $settings $endless eval_interval=20 --quiet >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
until_written "$dir/renamed/metrics.jsonl"
mv "$dir/renamed" "$dir/other_name"
wait $running
code=$?
code_is 2; one_line stderr; says stderr "the folder was removed or renamed"
# shellcheck disable=SC2046
limited resume "$dir/other_name" max_iters=$(($(tail -n 1 "$dir/other_name/metrics.jsonl" | sed 's/.*"step":\([0-9]*\),.*/\1/') + 25)) --quiet
code_is 0; [ ! -e "$dir/renamed" ] || fault "the resumed run went back to the name that the folder had"
ok "a run notices that its lock was deleted, or that its folder has another name, under which it goes on"

# ---- one Ctrl-C in an evaluation of hours
# shellcheck disable=SC2086
"$program" train macbook out="$dir/evaluating" $settings eval_batches=random eval_iters=100000000 >/dev/null 2>"$dir/stderr" </dev/null &
running=$!
until_written "$dir/evaluating/metrics.jsonl"
sleep 1
began=$(date +%s)
kill -INT $running
wait $running
code=$?
code_is 130
[ $(($(date +%s) - began)) -le 20 ] || fault "an evaluation went on for $(($(date +%s) - began)) s"
ok "one SIGINT ends an evaluation"

# ---- files may have no byte, from the first instruction on: an error at a write, never the signal that ends a program
for command in help "help train" "plan demo" version "inspect $dir/base" "train" "doctor"; do
    # shellcheck disable=SC2086
    (ulimit -f 0 && exec ${WRAP:-} "$program" $command >"$dir/stdout" 2>/dev/null </dev/null)
    code=$?
    [ "$code" -le 2 ] || fault "$command: exit code $code where no byte can be written"
done
# shellcheck disable=SC2086
(ulimit -f 0 && exec ${WRAP:-} "$program" train macbook out="$dir/nothing" $settings >/dev/null 2>&1 </dev/null)
code=$?
code_is 2
# shellcheck disable=SC2086
(ulimit -f $(($(wc -c <"$dir/base/last.safetensors") / 1024)) && exec ${WRAP:-} "$program" train macbook out="$dir/half" $settings --quiet 2>&1 </dev/null) >"$dir/log"
code=$?
code_is 2
grep -q "half/.*File too large" "$dir/log" || fault "$(head -c 300 "$dir/log")"
ok "a limit on the size of files is an error at a write, from the first instruction on"
done_testing
