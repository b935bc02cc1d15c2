#!/bin/sh
# test_pack.sh: a run packed here and taken up in another place trains on to the same bits; a changed byte is refused by name.
plan=10
. "$(dirname "$0")/tap.sh"
export XDG_STATE_HOME="$dir/state" OMP_NUM_THREADS=1
unset CC # the logbook would have it, and below a second one is written beside it
# shellcheck disable=SC2086
set -- $tiny eval_interval=20 log_interval=1 lr_decay_iters=40 threads=1 dropout=0.1
text="$dir/home/text.txt"
mkdir "$dir/home"
cat docs/guide.md docs/data.md >"$text"

run train demo "$@" data="$text" max_iters=40 out="$dir/through" --quiet
code_is 0
run train demo "$@" data="$text" max_iters=20 out="$dir/home/run" --quiet
code_is 0
# A variable that no receiver should take over, and one that it may.
sed -i '1s/"environment":{/"environment":{"LD_PRELOAD":"evil.so","CC":"evil","PATH":"evil",/' "$dir/home/run/logbook.jsonl"
run pack "$dir/home/run" out="$dir/run.anneal" owner="A. Person"
code_is 0; silent stdout; says stderr "after 20 updates"
mv "$dir/home" "$dir/elsewhere" # the origin's paths lead nowhere
run handoff "$dir/run.anneal" out="$dir/there" smoke=0
code_is 0; silent stderr; says stdout "verified  5 files"; says stdout "owner A. Person"; says stdout "OMP_NUM_THREADS=1"
if grep -rq evil "$dir/there/anneal.service" "$dir/there/anneal.plist" "$dir/stdout"; then fault "a variable of the origin came through"; fi
cp "$dir/stdout" "$dir/said"
run resume "$dir/there" max_iters=40
code_is 2; one_line stderr; says stderr "no such file or folder; this folder came with its data: data=$dir/there/data/text.txt"
sh -c "$(sed -n 's/^goes on   //p' "$dir/said") max_iters=40 --quiet" >"$dir/log" 2>&1 || fault "the command: $(cat "$dir/log")"
equal "$(state_hash "$dir/there")" "$(state_hash "$dir/through")" "state after the handoff"
ok "a pack taken up where the origin's files are gone trains on to the same bits"

is_file "$dir/there/anneal.service"; is_file "$dir/there/anneal.plist"
says there/anneal.service "ExecStart=$program resume $dir/there data=$dir/there/data/text.txt"
says there/anneal.service "Environment=OMP_NUM_THREADS=1"
says there/anneal.plist "<string>data=$dir/there/data/text.txt</string>"
run handoff "$dir/run.anneal" out="$dir/a b" smoke=0
code_is 0; says stdout "units     none"; [ ! -e "$dir/a b/anneal.service" ] || fault "a unit for a path with a blank"
run handoff "$dir/run.anneal" out="$dir/there"
code_is 2; says stderr "new folder"
ok "units are made here, from checked paths; a folder that is there is left alone"

# The smoke window: compared with the origin, whose figures say here that it was far faster.
run handoff "$dir/run.anneal" out="$dir/tried" tolerance=1e6 smoke=30
code_is 0; says stderr "30 updates in"; says stdout "memory is flat"; says stdout "times the origin's"
equal "$(wc -l <"$dir/tried/metrics.jsonl")" 20 "lines of the run itself"
sed -i 's/"ms":[0-9.e-]*/"ms":0.00001/' "$dir/elsewhere/run/metrics.jsonl"
mv "$dir/elsewhere" "$dir/home"
run pack "$dir/home/run" out="$dir/fast.anneal"
mv "$dir/home" "$dir/elsewhere"
run handoff "$dir/fast.anneal" out="$dir/slower" smoke=20
code_is 3; for cause in processor "I/O path" cache load thermals logging "explanation is missing"; do says stdout "$cause"; done
run handoff "$dir/fast.anneal" out="$dir/explained" smoke=20 explain="an older processor" --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" alike) $(value "$dir/stdout" flat)" "false true" "the window"
says explained/logbook.jsonl '"text":"an older processor"'
# An origin whose processors others used: 5 s an update, nearly all of them spent waiting for one.
if grep -q cpu_wait_ms "$dir/elsewhere/run/metrics.jsonl"; then
    sed -i 's/"ms":[0-9.e-]*/"ms":5000/; s/"cpu_wait_ms":[0-9.e-]*/"cpu_wait_ms":4990/' "$dir/elsewhere/run/metrics.jsonl"
    mv "$dir/elsewhere" "$dir/home"
    run pack "$dir/home/run" out="$dir/busy.anneal"
    mv "$dir/home" "$dir/elsewhere"
    run handoff "$dir/busy.anneal" out="$dir/quieter" smoke=20
    code_is 3; grep -q "likely *load *there: an update waited 4.99e+03 ms for a processor" "$dir/stdout" || fault "$(grep -A1 load "$dir/stdout")"
    grep -q "likely *I/O path" "$dir/stdout" && fault "the path of the data is called likely too"
fi
ok "a smoke window is compared with the origin, and a difference wants an explanation"

# One byte of each member.
for name in data/text.txt config.yaml metrics.jsonl logbook.jsonl last.safetensors; do
    at=$(grep -abo "$name" "$dir/run.anneal" | head -n 1 | cut -d: -f1)
    cp "$dir/run.anneal" "$dir/changed"
    printf '\001' | dd of="$dir/changed" bs=1 seek=$((at + 200)) conv=notrunc 2>/dev/null
    run handoff "$dir/changed" out="$dir/never"
    code_is 2; says stderr "$name"; says stderr "SHA-256"; one_line stderr
    [ ! -e "$dir/never" ] || fault "$name: something was written"
done
ok "a changed byte is refused by the name of its file, and nothing is written"

for n in 0 10 1000 100000; do
    head -c $n "$dir/run.anneal" >"$dir/cut"
    run handoff "$dir/cut" out="$dir/never"
    code_is 2; one_line stderr; [ ! -e "$dir/never" ] || fault "$n bytes: something was written"
done
run handoff "$dir/nothing" out="$dir/never"
code_is 2
run pack "$dir/never" out="$dir/x"
code_is 1; says stderr "no run was trained"
run pack "$dir/elsewhere/run" out="$dir/x"
code_is 1; says stderr "are not here"; [ ! -e "$dir/x" ] || fault "half a pack"
ok "cut packs, and runs without their data, are a sentence"

# A checkpoint that this program would not resume does not travel; the metrics of a killed run go on behind it, its updates do not count.
run train demo "$@" max_iters=20 out="$dir/hurt" --quiet
code_is 0
sed -n 's/"step":19,/"step":20,/p' "$dir/hurt/metrics.jsonl" >"$dir/line" && cat "$dir/line" >>"$dir/hurt/metrics.jsonl"
run pack "$dir/hurt" out="$dir/hurt.anneal" --json
code_is 0; equal "$(value "$dir/stdout" step)" 20 "updates of a run that was killed behind its checkpoint"
run handoff "$dir/hurt.anneal" out="$dir/hurt_there" smoke=0 --json
code_is 0; equal "$(value "$dir/stdout" step)" 20 "updates at the receiver"
cp "$dir/hurt/last.safetensors" "$dir/whole.safetensors"
for hurt in "head -c 20000" "LC_ALL=C sed s/anneal.state/anneal.stale/" "LC_ALL=C sed s/data_offsets/data_offsetz/"; do
    rm -f "$dir/hurt/last.safetensors"
    sh -c "$hurt" <"$dir/whole.safetensors" >"$dir/hurt/last.safetensors"
    run pack "$dir/hurt" out="$dir/hurt2.anneal"
    code_is 2; one_line stderr; says stderr last.safetensors; [ ! -e "$dir/hurt2.anneal" ] || fault "a pack of a checkpoint after $hurt"
done
ok "a damaged checkpoint is not packed, and a pack counts the updates that are in its checkpoint"

mv "$dir/elsewhere" "$dir/home"
run pack "$dir/home/run" out="$dir/light" data=checksums --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" files)" 4 files
run handoff "$dir/light" out="$dir/light-run" --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" needs_data) $(value "$dir/stdout" units)" "true false" "what it needs"
run handoff "$dir/light" out="$dir/light-run2"
says stdout "$(value "$dir/home/run/logbook.jsonl" train_xxh3)"; says stdout "data=DATA"
ok "without the data the pack has their hash"
# Home again: what went on elsewhere takes the place of the older state, and of that of no other run.
run train demo "$@" data="$dir/home/text.txt" max_iters=20 seed=2 out="$dir/other" --quiet
sh -c "cd '$dir' && '$program' pack there out=back.anneal" 2>/dev/null || fault "pack of what went on"
run collect "$dir/back.anneal" "$dir/other"
code_is 2; says stderr "another loss"; [ ! -e "$dir/other/previous" ] || fault "a refused pack moved something"
run collect "$dir/light" "$dir/there"
code_is 2; says stderr "update 20 is not in it"
cp -r "$dir/home/run" "$dir/kept"
sed -i 's/"ms":0.00001/"ms":1/' "$dir/kept/metrics.jsonl"
run collect "$dir/back.anneal" "$dir/kept" --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" from) $(value "$dir/stdout" step)" "20 40" "updates"
equal "$(state_hash "$dir/kept")" "$(state_hash "$dir/through")" "state of the collected run"
is_file "$dir/kept/previous/last.safetensors"; says kept/logbook.jsonl "collected from"
run collect "$dir/back.anneal" "$dir/kept"
code_is 2; says stderr "nothing to collect"
run collect "$dir/back.anneal" "$dir/nowhere"
code_is 1; says stderr "no run was trained"
for left in "$dir"/kept/.anneal-scratch-* "$dir"/kept/previous/.*.tmp; do [ ! -e "$left" ] || fault "left behind: $left"; done
ok "collect takes the same run further on, to its bits, and no other; what was there is kept"

# shellcheck disable=SC2016
printf 'batch_size: 2\nblock_size: 16\nn_layer: 1\nn_head: 1\nn_embd: 16\nmax_iters: 12\neval_iters: 1\ndata: "%s"\n' "$dir/home/text.txt" >"$dir/mine.yaml"
run pack "$dir/mine.yaml" out="$dir/mine.anneal"
code_is 0; says stderr "the settings and 1 files of data"
run handoff "$dir/mine.anneal" out="$dir/begun" smoke=20
code_is 0; says stdout "no run so far"; says stdout "memory is flat"
says begun/anneal.service "train $dir/begun/config.yaml out=$dir/begun/run data=$dir/begun/data/text.txt"
sh -c "$(sed -n 's/^goes on   //p' "$dir/stdout") --quiet" >"$dir/log" 2>&1 || fault "the command: $(cat "$dir/log")"
run train "$dir/mine.yaml" out="$dir/direct" --quiet
equal "$(state_hash "$dir/begun/run")" "$(state_hash "$dir/direct")" "state of a run begun from a pack"
printf 'batch_size: 2\ncc: "/bin/evil"\n' >"$dir/evil.yaml"
run pack "$dir/evil.yaml" out="$dir/x"
code_is 1; says stderr "names a program"; [ ! -e "$dir/x" ] || fault "a pack of it"
run collect "$dir/mine.anneal" "$dir/kept"
code_is 2; says stderr "not a run"
ok "settings travel before there is a run, and train to the same bits"

OMP_NUM_THREADS=7 run handoff "$dir/run.anneal" --diff
code_is 0; says stdout "differs \$LD_PRELOAD"; says stdout "evil.so  ->  -"; says stdout "OMP_NUM_THREADS       1  ->  7"
[ ! -e handoff ] || fault "diff wrote a folder"
OMP_NUM_THREADS=7 run handoff "$dir/run.anneal" --diff --json
one_line stdout; says stdout '{"name":"OMP_NUM_THREADS","variable":true,"differs":true,"there":"1","here":"7"}'
run handoff "$dir/mine.anneal" --diff
code_is 2; says stderr "no run"
ok "diff shows the drift of variables and writes nothing"
done_testing
