#!/bin/sh
# test_kill_writers.sh: kill -9 at random moments while files are written: prepare (texts, Sudokus, mazes, ARC, conversations, Fashion-MNIST), the training of an imported model, export (safetensors, an archive of
# torch.export), pack, and the compiler of kernels with an empty cache. A file is the old one, the new one or absent, never a part of one; the next run finishes the work and leaves
# nothing temporary behind. A few moments as a test; AN_KILLS=N of each, a hundred under AN_SOAK=1.
plan=9
. "$(dirname "$0")/tap.sh"
kills=${AN_KILLS:-$([ -n "${AN_SOAK:-}" ] && echo 100 || echo 4)}

random() { awk -v seed="$(date +%N)" -v n="$1" 'BEGIN { srand(seed % 1000000007); print rand() * n }'; }
seconds() { awk -v ns=$(($(date +%s%N) - $1)) 'BEGIN { print ns / 1e9 }'; }

# disturb NAME LASTS COMMAND...: runs it `kills` times, each killed at a random moment below 1.2 times LASTS; after each `whole` looks.
disturb() {
    what=$1 lasts=$2 round=0
    shift 2
    while [ "$round" -lt "$kills" ]; do
        round=$((round + 1))
        "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        pid=$!
        sleep "$(random "$(awk -v s="$lasts" 'BEGIN { print 1.2 * s }')")"
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
        whole
    done
}
# A temporary file may be another's that still writes: it goes when it is a minute old and nothing holds its lock.
age() { for left in "$1"/.*.tmp; do [ ! -e "$left" ] || touch -t 202001010000 "$left"; done; }
# same FILE REFERENCE: absent, or equal to the reference.
same() { [ ! -e "$1" ] || cmp -s "$1" "$2" || fault "$1 is neither absent nor whole ($(wc -c <"$1") of $(wc -c <"$2") bytes)"; }
# No file but those named is left in a folder.
only() {
    folder=$1
    shift
    for found in $(ls -A "$folder"); do
        case " $* " in *" $found "*) ;; *) fault "$folder/$found is left" ;; esac
    done
}

i=0
while [ $i -lt 20000 ]; do echo "line $i: the quick brown fox jumps over the lazy dog"; i=$((i + 1)); done >"$dir/text.txt"
began=$(date +%s%N)
run prepare "$dir/text.txt" out="$dir/reference"
lasts=$(seconds "$began")
code_is 0
written=$(ls -A "$dir/reference")
whole() { for f in $written; do same "$dir/folder/$f" "$dir/reference/$f"; done; }
disturb prepare "$lasts" prepare "$dir/text.txt" out="$dir/folder"
age "$dir/folder"
run prepare "$dir/text.txt" out="$dir/folder"
code_is 0
for f in $written; do cmp -s "$dir/folder/$f" "$dir/reference/$f" || fault "$f differs after kills"; done
# shellcheck disable=SC2086  # a list of names
only "$dir/folder" $written
ok "prepare, killed, leaves whole files or none; run again, it leaves nothing else"

began=$(date +%s%N)
run export tests/torch/hf out="$dir/reference.safetensors" layout=nanogpt
[ "$code" -eq 0 ] || run export tests/torch/hf/model.safetensors out="$dir/reference.safetensors" layout=nanogpt
code_is 0
lasts=$(seconds "$began")
mkdir "$dir/out"
whole() { same "$dir/out/model.safetensors" "$dir/reference.safetensors"; }
disturb export "$lasts" export tests/torch/hf/model.safetensors out="$dir/out/model.safetensors"
age "$dir/out"
run export tests/torch/hf/model.safetensors out="$dir/out/model.safetensors"
code_is 0
cmp -s "$dir/out/model.safetensors" "$dir/reference.safetensors" || fault "the exported weights differ after kills"
only "$dir/out" model.safetensors
ok "export, killed, leaves whole weights or none; run again, it leaves nothing else"

# writes NAME FILE COMMAND...: the command, which ends with out=, writes one file: killed, it leaves that file whole or none.
writes() {
    what=$1 file=$2
    shift 2
    began=$(date +%s%N)
    run "$@" out="$dir/$what.reference.$file"
    code_is 0
    lasts=$(seconds "$began")
    mkdir "$dir/$what"
    whole() { same "$dir/$what/$file" "$dir/$what.reference.$file"; }
    disturb "$what" "$lasts" "$@" out="$dir/$what/$file"
    age "$dir/$what"
    run "$@" out="$dir/$what/$file"
    code_is 0
    cmp -s "$dir/$what/$file" "$dir/$what.reference.$file" || fault "$what: another file after kills"
    only "$dir/$what" "$file"
}
mkdir "$dir/rows"
cp tests/import/train/rows.npy tests/import/train/labels.npy "$dir/rows/"
run train tests/import/train/classes.pt2 data="$dir/rows" batch_size=20 max_iters=2 out="$dir/imported" --quiet
code_is 0
writes archive model.pt2 export "$dir/imported"
ok "export to an archive, killed, leaves a whole one or none; run again, it leaves nothing else"

# shellcheck disable=SC2086
run train macbook data="$dir/text.txt" out="$dir/packed" $tiny max_iters=2 --quiet
code_is 0
# A pack says when it was made: its length tells a whole one, and handoff its hashes.
began=$(date +%s%N)
run pack "$dir/packed" out="$dir/run.anneal"
code_is 0
lasts=$(seconds "$began")
mkdir "$dir/packs"
verified() { run handoff "$dir/packs/run.anneal" out="$dir/there" smoke=0; code_is 0; rm -rf "$dir/there"; }
whole() { [ ! -e "$dir/packs/run.anneal" ] || verified; rm -f "$dir/packs/run.anneal"; }
disturb pack "$lasts" pack "$dir/packed" out="$dir/packs/run.anneal"
age "$dir/packs"
run pack "$dir/packed" out="$dir/packs/run.anneal"
code_is 0
verified
only "$dir/packs" run.anneal
ok "pack, killed, leaves a pack that verifies or none; run again, it leaves nothing else"

# data_set NAME KIND SETTING...: of a folder of files that prepare KIND writes.
files() { (cd "$1" 2>/dev/null && find . -type f | LC_ALL=C sort); }
data_set() {
    set=$1
    shift
    began=$(date +%s%N)
    run prepare "$@" out="$dir/$set.reference"
    code_is 0
    lasts=$(seconds "$began")
    whole() { for f in $(files "$dir/$set" | grep -v '/\.anneal-scratch-'); do same "$dir/$set/$f" "$dir/$set.reference/$f"; done; }
    disturb "$set" "$lasts" prepare "$@" out="$dir/$set"
    for left in "$dir/$set"/.anneal-scratch-*; do [ ! -e "$left" ] || touch -t 202001010000 "$left"; done
    run prepare "$@" out="$dir/$set"
    code_is 0
    whole
    equal "$(files "$dir/$set")" "$(files "$dir/$set.reference")" "the files of a data set"
}
data_set boards sudoku generate=300 size=4 seed=3
ok "prepare of puzzles, killed, leaves whole files or none; run again, it leaves nothing else"

data_set mazes maze generate=60 size=9 min_path=8 seed=1
printf '{"a1":{"train":[{"input":[[1,2],[3,4]],"output":[[4,3],[2,1]]}],"test":[{"input":[[5,6]]}]}}' >"$dir/x_old_challenges.json"
printf '{"b1":{"train":[{"input":[[1]],"output":[[2]]}],"test":[{"input":[[3,3,3]]}]}}' >"$dir/x_new_challenges.json"
echo '{"a1":[[[6,5]]]}' >"$dir/x_old_solutions.json"
echo '{"b1":[[[4,4,4]]]}' >"$dir/x_new_solutions.json"
data_set grids arc from="$dir/x" subsets=old,new test_set_name=new num_aug=40
awk 'BEGIN { printf "["; for (i = 0; i < 400; i++) printf "%s{\"conversations\":[{\"from\":\"human\",\"value\":\"question %d\"},{\"from\":\"gpt\",\"value\":\"answer %d\"}]}", i ? "," : "", i, i; print "]" }' >"$dir/talk.json"
data_set talk chat input_file="$dir/talk.json" tokenizer=bytes max_length=64
ok "so do prepare of mazes, of ARC and of conversations"

# Its four files are taken by their SHA-256 alone, so that no others can be put in their place: AN_FASHION, or where Debian's package has them.
fashion=${AN_FASHION:-/usr/share/datasets/fashion-mnist}
name="so does prepare of Fashion-MNIST"
if [ -d "$fashion" ]; then
    began=$(date +%s%N)
    run prepare fashion-mnist from="$fashion" out="$dir/fashion.reference"
    code_is 0
    lasts=$(seconds "$began")
    written=$(ls -A "$dir/fashion.reference")
    whole() { for f in $written; do same "$dir/fashion/$f" "$dir/fashion.reference/$f"; rm -f "$dir/fashion/$f"; done; }
    disturb fashion "$lasts" prepare fashion-mnist from="$fashion" out="$dir/fashion"
    age "$dir/fashion"
    run prepare fashion-mnist from="$fashion" out="$dir/fashion"
    code_is 0
    for f in $written; do cmp -s "$dir/fashion/$f" "$dir/fashion.reference/$f" || fault "$f differs after kills"; done
    # shellcheck disable=SC2086  # a list of names
    only "$dir/fashion" $written
    rm -rf "$dir/fashion" "$dir/fashion.reference"
    ok "$name"
else
    skip "$name" "Debian's package dataset-fashion-mnist is not installed; AN_FASHION=FOLDER names its files elsewhere"
fi

settings="data=$dir/rows batch_size=20 max_iters=300 save_interval=10 eval_interval=100 seed=5 --quiet"
began=$(date +%s%N)
# shellcheck disable=SC2086  # a list of settings
run train tests/import/train/classes.pt2 $settings out="$dir/import"
code_is 0
lasts=$(seconds "$began") round=0
while [ "$round" -lt "$kills" ]; do
    rm -rf "$dir/import_killed"
    while :; do
        if [ -f "$dir/import_killed/last.safetensors" ]; then
            set -- resume "$dir/import_killed" --quiet
        else
            rm -rf "$dir/import_killed"
            # shellcheck disable=SC2086
            set -- train tests/import/train/classes.pt2 $settings out="$dir/import_killed"
        fi
        "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null &
        pid=$!
        round=$((round + 1))
        [ "$round" -gt "$kills" ] || { sleep "$(random "$lasts")"; kill -9 "$pid" 2>/dev/null; }
        wait "$pid" 2>/dev/null && break
        [ "$round" -le "$kills" ] || { fault "resumed: $(cat "$dir/stderr")"; break; }
    done
    equal "$(state_hash "$dir/import_killed")" "$(state_hash "$dir/import")" "state hash of an imported model after $round kills"
done
ok "a run of an imported model, killed and resumed at random moments, ends in the bits of one that was not"

# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook out="$dir/calm" $tiny max_iters=2 --quiet
code_is 0
calm=$(state_hash "$dir/calm")
whole() { :; }
round_all=0
while [ "$round_all" -lt "$kills" ]; do
    round_all=$((round_all + 1))
    export ANNEAL_CACHE="$dir/cache$((round_all % 2))"
    [ $((round_all % 2)) -eq 0 ] && rm -rf "$ANNEAL_CACHE"
    rm -rf "$dir/cold"
    # shellcheck disable=SC2086
    "$program" train macbook out="$dir/cold" $tiny max_iters=2 --quiet >"$dir/stdout" 2>"$dir/stderr" </dev/null &
    pid=$!
    sleep "$(random 1.5)"
    kill -9 "$pid" 2>/dev/null
    wait "$pid" 2>/dev/null
    rm -rf "$dir/cold"
    # shellcheck disable=SC2086
    run train macbook out="$dir/cold" $tiny max_iters=2 --quiet
    code_is 0
    equal "$(state_hash "$dir/cold")" "$calm" "state hash with a cache whose writer was killed"
done
# A folder that a killed run compiled in goes when it is a minute old and nothing holds its lock.
for cache in "$dir"/cache0 "$dir"/cache1; do
    mkdir -p -m 700 "$cache/.anneal-scratch-0123456789abcdef"
    touch -t 202001010000 "$cache"/.anneal-scratch-*
    rm -rf "$dir/cold"
    export ANNEAL_CACHE="$cache"
    # shellcheck disable=SC2086
    run train macbook out="$dir/cold" $tiny n_embd=24 max_iters=1 --quiet
    code_is 0
    left=$(find "$cache" -name '.anneal-scratch-*' | head -n 3)
    [ -z "$left" ] || fault "old work folders are left in the kernel cache: $left"
done
ok "a compiler's caller, killed, leaves a cache that the next run trusts or makes anew; its work folder is swept when it is old"
done_testing
