#!/bin/sh
# test_disk_full.sh: every command that writes, on a disk without room. A checkpoint that cannot be written ends the run with a sentence and
# exit code 2; the one before is whole, and the run goes on from it to the same bits (a file size limit stands in for the disk). Every other
# command is given a small disk with some of the room it needs: a sentence that names it, exit code 2, every file that was there as it
# was, and nothing half written or temporary.
plan=4
. "$(dirname "$0")/tap.sh"
settings="$tiny n_embd=64 eval_interval=4 seed=5 --quiet"

# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/whole" $settings max_iters=12
code_is 0
# shellcheck disable=SC2086
run train macbook out="$dir/full" $settings max_iters=4
code_is 0
before=$(state_hash "$dir/full")
(
    ulimit -f 700 # blocks of 512 or 1024 bytes, as the shell has it; a checkpoint has 1.2 MiB
    # shellcheck disable=SC2086
    exec ${WRAP:-} "$program" resume "$dir/full" max_iters=12 --quiet
) >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
code_is 2; one_line stderr; says stderr "step_8.safetensors"
equal "$(state_hash "$dir/full")" "$before" "state hash of the last checkpoint"
[ ! -e "$dir/full/step_8.safetensors" ] || fault "half a checkpoint has its name"
ok "a checkpoint that does not fit is exit code 2 with a sentence, and the last one is whole"

run resume "$dir/full" max_iters=12 --quiet
code_is 0
equal "$(state_hash "$dir/full")" "$(state_hash "$dir/whole")" "state hash after resuming"
ok "with room again the run ends in the bits of one that was never short of it"

# ---- a small disk
disk=$dir/disk
mkdir "$disk"
commands="commands that find the disk full say so, keep every file that was there and leave none behind"
sets="a set of files that finds the disk full leaves the older set, never parts of two"
if ! mount -t tmpfs -o size=16m tmpfs "$disk" 2>/dev/null; then
    skip "$commands" "mounting a small disk needs root"
    skip "$sets" "mounting a small disk needs root"
    done_testing
    exit
fi
trap 'umount "$disk"; rm -rf "$dir"' EXIT
kib() { df -k "$disk" | awk 'END { print $3 }'; } # used
# What is there, with checksums, but for what every run in a folder writes anew or appends to.
there() { (cd "$disk" && find . -type f ! -name .lock ! -name logbook.jsonl ! -name metrics.jsonl ! -name config.yaml ! -name loss.svg -exec cksum {} + | LC_ALL=C sort -k 3); }

# The KiB, in pages, of files that are not as they were in $old.
written() { (cd "$disk" && find . -type f ! -name .lock ! -name logbook.jsonl ! -name metrics.jsonl ! -name config.yaml ! -name loss.svg | while read -r f; do printf '%s\n' "$old" | grep -qF "$(cksum "$f")" || wc -c <"$f"; done | awk '{ n += 4 * int(($1 + 4095) / 4096) } END { print n + 0 }'); }

# on_full_disk NAME KEEPS COMMAND...: learns how much it writes, then runs it with none and with three quarters of that (a quarter where files may
# have several names, which count each). KEEPS:
# "all" and "few", nothing of it is there afterwards ("few": files get other names, and count as written); "old", whole new files may be.
on_full_disk() {
    name=$1 keeps=$2
    shift 2
    mount -o remount,size=64m "$disk"
    find "$disk" -mindepth 1 -delete
    prepare_disk
    old=$(there)
    run "$@"
    code_is 0
    needs=$(written)
    for part in 0 $([ "$keeps" = all ] && echo 3 || echo 1); do
        mount -o remount,size=64m "$disk"
        find "$disk" -mindepth 1 -delete
        prepare_disk
        old=$(there)
        size=$((($(kib) + needs * part / 4) / 4 * 4))
        [ $size -gt 0 ] || size=4 # 0 would be no limit
        mount -o remount,size=${size}k "$disk" || fault "the disk cannot shrink"
        run "$@"
        [ "$code" -eq 2 ] || fault "$name, $part quarters of its room: exit code $code: $(head -c 300 "$dir/stderr")"
        tail -n 1 "$dir/stderr" | grep -q "^anneal: .*No space left on device" || fault "$name, $part quarters: $(head -c 300 "$dir/stderr")"
        new=$(there)
        case $keeps in
        all | few) equal "$new" "$old" "$name, $part quarters: the files" ;;
        *) printf '%s\n' "$old" | while read -r line; do printf '%s\n' "$new" | grep -qF -- "$line" || echo "$line"; done >"$dir/lost"
            [ ! -s "$dir/lost" ] || fault "$name, $part quarters: lost or changed: $(cat "$dir/lost")" ;;
        esac
        left=$(find "$disk" -name '.*.tmp' -o -name '.anneal-scratch-*')
        [ -z "$left" ] || fault "$name, $part quarters: left behind: $left"
    done
}

i=0
while [ $i -lt 3000 ]; do echo "line $i of a text"; i=$((i + 1)); done >"$dir/text"
# shellcheck disable=SC2086
run train macbook out="$dir/run" $tiny max_iters=12 eval_interval=4 log_interval=1 save_interval=4 seed=3 --quiet
code_is 0
cp -r "$dir/run" "$dir/longer"
run resume "$dir/longer" max_iters=20 --quiet
code_is 0
run pack "$dir/longer" out="$dir/longer.anneal"
code_is 0
run train mlp hidden=16 max_iters=4 out="$dir/mlp" --quiet
code_is 0
run train tests/import/train/classes.pt2 data=tests/import/train batch_size=20 max_iters=2 out="$dir/imported" --quiet
code_is 0
cp tests/import/train/rows.npy "$dir/rows.npy"

prepare_disk() { :; }
# shellcheck disable=SC2086
on_full_disk train old train macbook out="$disk/run" $tiny max_iters=4 --quiet
on_full_disk "prepare of a text" all prepare "$dir/text" out="$disk"
on_full_disk "prepare of JSON lines" all prepare openwebtext --from "$dir/text" tokenizer=char out="$disk"
prepare_disk() { cp -r "$dir/run/." "$disk/" && cp "$dir/run/last.safetensors" "$disk/model.safetensors" && echo old >"$disk/old"; }
on_full_disk resume old resume "$disk" max_iters=16 keep=-1 --quiet
on_full_disk export all export "$dir/run" out="$disk/other.safetensors"
on_full_disk "export over weights" all export tests/torch/nanogpt.pt out="$disk/model.safetensors"
on_full_disk "export layout=hf" old export "$dir/run" layout=hf out="$disk/hf.safetensors"
on_full_disk "export of an imported model" all export "$dir/imported" out="$disk/old"
on_full_disk "export of a .pt2" all export "$dir/imported" out="$disk/trained.pt2"
on_full_disk pack all pack "$dir/run" out="$disk/old"
on_full_disk handoff all handoff "$dir/longer.anneal" out="$disk/handed" smoke=0
on_full_disk collect few collect "$dir/longer.anneal" "$disk"
on_full_disk report all report "$dir/run" out="$disk/old"
on_full_disk "plan svg=" all plan macbook svg="$disk/old"
on_full_disk "predict out=" all predict "$dir/imported" "$dir/rows.npy" out="$disk/old"
on_full_disk "dump_dir=" old plan macbook dump=all dump_dir="$disk"
# A line that does not fit into the last page of its file.
long=$(awk 'BEGIN { for (i = 0; i < 9000; i++) printf "x" }')
on_full_disk note all note "$disk" "$long"
cmp -s "$disk/logbook.jsonl" "$dir/run/logbook.jsonl" || fault "a line of the logbook was written in part"
ok "$commands"

prepare_disk() { run prepare sudoku generate=30 size=4 seed=1 out="$disk"; }
on_full_disk "prepare sudoku" all prepare sudoku generate=200 size=4 seed=2 out="$disk"
prepare_disk() { run prepare maze generate=20 size=9 min_path=8 seed=1 out="$disk"; }
on_full_disk "prepare maze" all prepare maze generate=60 size=9 min_path=8 seed=2 out="$disk"
prepare_disk() { run prepare example-chat tokenizer=bytes max_length=64 out="$disk"; }
on_full_disk "prepare example-chat" all prepare example-chat tokenizer=bytes out="$disk"
prepare_disk() { run prepare "$dir/text" out="$disk"; }
on_full_disk "prepare over a text" all prepare docs/guide.md out="$disk"
ok "$sets"
done_testing
