#!/bin/sh
# test_folder.sh: the folder of a run: what it holds, who may write in it, and what happens to it: two runs at once, a
# read-only disk, a clock that jumps, another machine, a signal.
plan=10
. "$(dirname "$0")/tap.sh"
settings="$tiny max_iters=12 eval_interval=4 log_interval=1 seed=3"

# shellcheck disable=SC2086  # a list of settings
OMP_NUM_THREADS=3 run train macbook out="$dir/a" $settings note="a \"first\" try" eval_train=true
code_is 0
for f in config.yaml logbook.jsonl metrics.jsonl loss.svg; do is_file "$dir/a/$f"; done
equal "$(sed -n 's/.*"event":"\([a-z]*\)".*/\1/p' "$dir/a/logbook.jsonl" | tr '\n' ' ')" "begin plan memory end " "events"
sed -n 1p "$dir/a/logbook.jsonl" >"$dir/begin"
has_keys "$dir/begin" time host cpu ram_bytes anneal compiler train_xxh3 val_xxh3 device built available mode preset
git rev-parse HEAD >/dev/null 2>&1 && has_keys "$dir/begin" commit
says begin '"OMP_NUM_THREADS":"3"'; says begin '"note":"a \"first\" try"'; says begin '"dtype":"float32"'
says begin 'equals ref to the bit'; says begin '"on_battery":'; says begin '"low_power":'; says begin '"mount":'
sed -n 2p "$dir/a/logbook.jsonl" >"$dir/plan"
has_keys "$dir/plan" peak_bytes activation_bytes launches kernels recompute workers
sed -n 3p "$dir/a/logbook.jsonl" >"$dir/memory"
has_keys "$dir/memory" scopes
sed -n 4p "$dir/a/logbook.jsonl" >"$dir/end"
has_keys "$dir/end" val_loss best_val_loss seconds user_s system_s compile_s evaluate_s save_s data_wait_s
equal "$(grep -c train_loss "$dir/a/metrics.jsonl")" 3 "lines with train_loss"
says stderr "time    "; says stderr "s user, "; says stderr "compiling "; says stderr "evaluation "
if grep -q '"f32"\|"bf16"' "$dir/a/logbook.jsonl"; then fault "a dtype has two names"; fi
ok "the folder tells what ran: versions, machine, device and its proof, data, bill, result, note"

run train "$dir/a/config.yaml" out="$dir/b" --quiet
code_is 0; equal "$(state_hash "$dir/b")" "$(state_hash "$dir/a")" "state hash of the same settings"
equal "$(value "$dir/b/logbook.jsonl" train_xxh3)" "$(value "$dir/begin" train_xxh3)" "hash of the data"
says a/loss.svg "<circle"; says a/loss.svg "validation loss"
equal "$(grep -c '<circle' "$dir/a/loss.svg")" 2 "lines of circles: evaluations and the legend"
ok "config.yaml repeats the run to the bit; the curve shows losses and evaluations"

# shellcheck disable=SC2086
"$program" train macbook out="$dir/busy" $settings max_iters=100000000 lr_decay_iters=100000000 >/dev/null 2>"$dir/first" </dev/null &
first=$!
n=0
while [ ! -s "$dir/busy/metrics.jsonl" ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
# shellcheck disable=SC2086
run train macbook out="$dir/busy" $settings
code_is 2; says stderr "another process trains here"; one_line stderr
run resume "$dir/busy"
code_is 2; says stderr "another process trains here"
kill -TERM $first
wait $first
code=$?
code_is 130
says first "interrupted after"; says first "anneal resume"
steps=$(sed -n 's/.*interrupted after \([0-9]*\).*/\1/p' "$dir/first")
equal "$(wc -l <"$dir/busy/metrics.jsonl" | tr -d ' ')" "$steps" "lines of metrics"
run resume "$dir/busy" max_iters=$((steps + 3)) --json
code_is 0; equal "$(value "$dir/stdout" step)" $((steps + 3)) "updates after the resumed ones"
ok "a second run in a folder is refused; SIGTERM finishes the update and saves"

run sample "$dir/a" step=8 tokens=3
code_is 0
run eval "$dir/a" step=8 --json
code_is 0; at8=$(value "$dir/stdout" loss)
run eval "$dir/a/step_8.safetensors" --json
equal "$(value "$dir/stdout" loss)" "$at8" "loss by number and by file"
run sample "$dir/a" step=7
code_is 2; says stderr "8 12"
cp -r "$dir/a" "$dir/c"
run resume "$dir/c" step=8 --quiet
code_is 0; equal "$(state_hash "$dir/c")" "$(state_hash "$dir/a")" "state hash of a run taken up at update 8"
equal "$(wc -l <"$dir/c/metrics.jsonl" | tr -d ' ')" 12 "lines of metrics"
ok "sample, eval and resume take any numbered checkpoint"

cp -r "$dir/a" "$dir/moved"
sed 's/"host":"[^"]*"/"host":"elsewhere arm64"/; s/"unix":[0-9]*/"unix":9999999999/' "$dir/a/logbook.jsonl" >"$dir/moved/logbook.jsonl"
run resume "$dir/moved" max_iters=14
code_is 0; says stderr "was made on elsewhere arm64"; says stderr "the clock is "
# shellcheck disable=SC2086
run train macbook out="$dir/whole" $settings max_iters=14 --quiet
equal "$(state_hash "$dir/moved")" "$(state_hash "$dir/whole")" "state hash of a run that went on elsewhere, in another time"
ok "a folder from another machine and a clock that went back are said, and nothing depends on them"

read_only() {
    # shellcheck disable=SC2086
    run train macbook out="$1/new" $settings
    code_is 2; says stderr "$2"; says stderr "out="; one_line stderr
    run resume "$1/a" max_iters=20
    code_is 2; says stderr "$2"
    run sample "$1/a" tokens=3
    code_is 0
}
mkdir "$dir/disk"
if mount -t tmpfs tmpfs "$dir/disk" 2>/dev/null; then
    trap 'umount "$dir/disk"; rm -rf "$dir"' EXIT
    cp -r "$dir/a" "$dir/disk/a"
    mount -o remount,ro "$dir/disk"
    read_only "$dir/disk" "Read-only file system"
    umount "$dir/disk"
    trap 'rm -rf "$dir"' EXIT
else
    cp -r "$dir/a" "$dir/disk/a"
    rm -f "$dir/disk/a/.lock"
    chmod 555 "$dir/disk" "$dir/disk/a"
    read_only "$dir/disk" "ermission denied"
    chmod 755 "$dir/disk" "$dir/disk/a"
fi
ok "a read-only folder is refused by name, and can still be sampled from"

run train macbook out="$dir/a" init_from=resume max_iters=13 block_size=16 n_layer=7
code_is 0; says stderr "resume  after 12 updates"; says stderr "2 layers"
ok "init_from=resume takes the run in out with the shape it has"

for f in "$dir/a" "$dir/busy"; do if ls -a "$f" | grep -q 'tmp$'; then fault "a temporary file is left in $f"; fi; done
awk 'length($0) > 79 && !/^data|^device|^note|anneal (sample|resume)/ { print; exit 1 }' "$dir/first" >"$dir/wide" || fault "wider than 79 columns: $(cat "$dir/wide")"
if grep -q '[^[:print:][:space:]]' "$dir/first"; then fault "control characters although stderr is a file"; fi
ok "what training says has at most 79 columns and no control characters"
# shellcheck disable=SC2086
run train macbook out="$dir/twice" $settings max_iters=3 --quiet
rm "$dir/twice/last.safetensors"
echo mine >"$dir/twice/step_notes.safetensors"
# shellcheck disable=SC2086
run train macbook out="$dir/twice" $settings max_iters=2 --quiet
# shellcheck disable=SC2086
run train macbook out="$dir/twice" $settings max_iters=1 --quiet
is_file "$dir/twice/previous/step_3.safetensors"; is_file "$dir/twice/previous-2/step_2.safetensors"
is_file "$dir/twice/step_notes.safetensors"; is_file "$dir/twice/previous/loss.svg"
mkdir "$dir/beside"
cp "$dir/twice/previous/best.safetensors" "$dir/beside/model.safetensors"
cp "$dir/twice/previous/step_3.safetensors" "$dir/beside/"
run resume "$dir/beside/model.safetensors" max_iters=5
code_is 1; says stderr "out=DIR"; is_file "$dir/beside/step_3.safetensors"
run resume "$dir/beside/model.safetensors" max_iters=5 out="$dir/elsewhere" --quiet
code_is 0; is_file "$dir/elsewhere/step_5.safetensors"
ok "no new run and no resumed one removes what lies in a folder"

printf '#!/bin/sh\ntouch "%s/ran"\nexec cc "$@"\n' "$dir" >"$dir/compiler"
chmod +x "$dir/compiler"
# shellcheck disable=SC2086
run train macbook out="$dir/named" $settings max_iters=2 cc="$dir/compiler" cache_dir="$dir/cold" --quiet
code_is 0; is_file "$dir/ran"
rm "$dir/ran"
ANNEAL_CACHE="$dir/cold2" run sample "$dir/named" tokens=2
code_is 0; [ ! -e "$dir/ran" ] || fault "a checkpoint had a program run"
printf 'cc = "%s/compiler"\n' "$dir" >"$dir/hostile.py"
run train "$dir/hostile.py" max_iters=1
code_is 1; says stderr "names a program to run"; [ ! -e "$dir/ran" ] || fault "a settings file had a program run"
ok "neither a checkpoint nor a settings file names a program to run"

done_testing
