#!/bin/sh
# test_compare.sh: two runs beside each other, and notes in a run's logbook.
plan=9
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=30 eval_interval=10 log_interval=1 dropout=0"

# shellcheck disable=SC2086
{
    run $train out="$dir/a"
    run $train out="$dir/b" threads=1
    run $train out="$dir/c" recompute=off learning_rate=0.00101
}
run compare "$dir/a" "$dir/b"
code_is 0; says stdout "same bits"; says stdout "threads"; says stdout "pass"
run compare "$dir/a" "$dir/b" exact=true --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" verdict)" pass verdict
equal "$(value "$dir/stdout" state_a)" "$(state_hash "$dir/a")" "the hash"
ok "two runs of the same bits pass, exactly too"

run compare "$dir/a" "$dir/c"
code_is 3; says stdout "FAIL: the runs diverge at update"; says stdout "learning_rate"; says stdout "other bits"
run compare "$dir/a" "$dir/c" --json
code_is 3; equal "$(value "$dir/stdout" verdict)" fail verdict
printf 'loss: 1\nval_loss: 1\ngrad_norm: 10\n' >"$dir/wide.yaml"
run compare "$dir/a" "$dir/c" --tolerances "$dir/wide.yaml"
code_is 0
ok "a run with another learning rate fails, unless a file of tolerances allows the difference"

# A wrong number in the middle of a copy: one digit of one loss.
cp -r "$dir/a" "$dir/wrong"
sed -i '18{s/"loss":\([0-9]\.[0-9]\{3\}\)[0-4]/"loss":\19/;t
s/"loss":\([0-9]\.[0-9]\{3\}\)[5-9]/"loss":\10/;}' "$dir/wrong/metrics.jsonl"
cmp -s "$dir/a/metrics.jsonl" "$dir/wrong/metrics.jsonl" && fault "nothing was planted"
run compare "$dir/a" "$dir/wrong" --json
code_is 3; equal "$(value "$dir/stdout" diverged_at)" 17 "the first update that differs"
ok "one wrong digit of one loss is found, with its update"

# Cut off after the first update, and trained on other data.
cp -r "$dir/a" "$dir/cut"
head -n 1 "$dir/a/metrics.jsonl" >"$dir/cut/metrics.jsonl"
run compare "$dir/a" "$dir/cut"
code_is 3; says stdout "FAIL: $dir/cut ends at update 0, and the other run logged 29 updates more"
run compare "$dir/cut" "$dir/a" --json
code_is 3; equal "$(value "$dir/stdout" cut_short)" a cut_short
printf 'updates: 1\n' >"$dir/one.yaml"
run compare "$dir/a" "$dir/cut" --tolerances "$dir/one.yaml"
code_is 0
cp -r "$dir/a" "$dir/data"
sed -i 's/"train_xxh3":"[0-9a-f]*"/"train_xxh3":"00"/' "$dir/data/logbook.jsonl"
run compare "$dir/a" "$dir/data"
code_is 0; says stdout "the runs had other training data: "; says stdout " and 00"
ok "a run that was cut off does not pass, and other data are said"

# shellcheck disable=SC2086
run $train max_iters=2 out="$dir/promised" closed=sh,no-such-program store="$dir"
code_is 0; grep -q '"event":"promises".*"closed":"sh,no-such-program","still_running":\(\["sh"\]\|null\).*"intact":true' "$dir/promised/logbook.jsonl" || fault "promises: $(cat "$dir/promised/logbook.jsonl")"
# shellcheck disable=SC2086
run $train max_iters=2 out="$dir/promised" store="$dir/none"
code_is 0; says stderr "store=: a file cannot be written there and read back"; says promised/logbook.jsonl '"intact":false'
# Another machine, by a stand-in of sftp that copies files of this one.
mkdir -p "$dir/bin" "$dir/kept"
cat >"$dir/bin/sftp" <<'END'
#!/bin/sh
while [ "$1" != -b ]; do shift; done
case $4 in away*) echo "ssh: connect to host away port 22: No route to host" >&2; exit 255 ;; esac
while read -r verb a b; do
    a=${a#\"}; a=${a%\"}; b=${b#\"}; b=${b%\"}
    case $verb in put | get) cp "$a" "$b" || exit 1 ;; rm) rm "$a" || exit 1 ;; esac
    case $4:$verb in bad*:get) echo x >>"$b" ;; esac
done <"$2"
END
chmod +x "$dir/bin/sftp"
before=$(ls "${TMPDIR:-/tmp}" | grep -c anneal-store)
for store in "me@host:$dir/kept" "away:$dir/kept" "bad:$dir/kept"; do
    # shellcheck disable=SC2086
    PATH="$dir/bin:$PATH" run $train max_iters=2 out="$dir/promised" store="$store"
    code_is 0
    case $store in
    me*) says promised/logbook.jsonl '"intact":true' ;;
    away*) says stderr "a file cannot be written there and read back: sftp away: ssh: connect to host away port 22: No route"; says promised/logbook.jsonl '"intact":false' ;;
    bad*) says stderr "a file cannot be written there and read back"; says promised/logbook.jsonl '"intact":false' ;;
    esac
done
equal "$(ls -A "$dir/kept" | wc -l)" 0 "files left in the store"
equal "$(ls "${TMPDIR:-/tmp}" | grep -c anneal-store)" "$before" "folders left here"
ls -a "$dir" | grep -q round-trip && fault "a file was left in the store"
# shellcheck disable=SC2086
run $train out="$dir/half" dtype=bfloat16
says stderr "disk    "; says stderr " checkpoints of "
run compare "$dir/a" "$dir/half"
code_is 3; says stdout 'policy    "matrix_weights" float32 and bfloat16, "convolution_weights" float32 and bfloat16'
run compare "$dir/a" "$dir/b"
grep -q '^policy' "$dir/stdout" && fault "runs of one policy differ in it"
for key in cache mount ms_64_kib busiest workers worker_seeds dtype_policy norm_statistics deterministic; do
    grep -q "\"event\":\"begin\".*\"$key\":" "$dir/half/logbook.jsonl" || fault "the logbook has no $key"
done
ok "the precision of each group of numbers is recorded, and shown where it differs"

run compare "$dir/a" "$dir/c" accept="A. Person"
code_is 1; says stderr "NAME,REASON"
run compare "$dir/a" "$dir/c" accept="A. Person, the rate was changed on purpose"
code_is 0; says stdout "accepted"
grep -q '"event":"accepted".*"name":"A. Person","reason":"the rate was changed on purpose"' "$dir/c/logbook.jsonl" || fault "it is not in the logbook"
run compare "$dir/a" "$dir/b" accept="A. Person,why not"
code_is 0; says stderr "nothing to accept"
ok "a difference is accepted by name and reason, which the logbook keeps with the table"

run note "$dir/a" 'the "first" run'
code_is 0; says stderr "after 30 updates"
run note "$dir/a" "slower, and no better" --rejected "a batch of 8 learns faster" --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" event)" rejected event
equal "$(grep -c '"event":"note"\|"event":"rejected"' "$dir/a/logbook.jsonl")" 2 "notes in the logbook"
# shellcheck disable=SC2086
run $train out="$dir/a2" note=x
run resume "$dir/a" max_iters=31
code_is 0; [ "$(grep -c '"event":"note"' "$dir/a/logbook.jsonl")" = 1 ] || fault "resuming lost the note"
ok "notes and rejected hypotheses are lines of the logbook, and stay when the run goes on"

mkdir "$dir/empty"
run note "$dir/empty" "x"
code_is 1; says stderr "no run was trained"
[ ! -e "$dir/empty/logbook.jsonl" ] || fault "a file was made"
run note "$dir/a"
code_is 1; says stderr "nothing to write"
run note "$dir/a" "$(printf 'a\377b')"
code_is 1; says stderr "UTF-8"
run compare "$dir/a" "$dir/empty"
code_is 2; says stderr "no run's folder"
run compare "$dir/a" "$dir/b" --tolerances "$dir/none.yaml"
code_is 2
printf 'los: 1\n' >"$dir/bad.yaml"
run compare "$dir/a" "$dir/b" --tolerances "$dir/bad.yaml"
code_is 1; says stderr "loss"
ok "folders that are no run's, texts that are not UTF-8 and wrong tolerances are sentences"

has_keys "$dir/b/metrics.jsonl" live_bytes reserved_bytes rss_bytes plans
# shellcheck disable=SC2086
run $train out="$dir/nan" learning_rate=100 grad_clip=0
code_is 3
grep -q '"event":"failed".*"error":"update ' "$dir/nan/logbook.jsonl" || fault "the logbook does not say why it failed"
ok "metrics tell memory, and a failed run's logbook says why it failed"
done_testing
