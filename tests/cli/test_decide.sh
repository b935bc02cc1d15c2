#!/bin/sh
# test_decide.sh: where to train, decided live from runs that were trained here, and what cannot be decided.
plan=5
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=40 eval_interval=40 log_interval=1"

# shellcheck disable=SC2086
run $train out="$dir/one" threads=1
# The same, by portable code: other bits, and slower.
# shellcheck disable=SC2086
run $train out="$dir/portable" threads=1 isa=portable compile=false
run decide "$dir/one"
code_is 0; says stdout "verdict   train on lane 1 (cpu)"; says stdout "another lane"
cp -r "$dir/one" "$dir/old" # of a version whose logbook had no settings
sed -i 's/"settings"/"set"/' "$dir/old/logbook.jsonl"
run decide "$dir/old"
code_is 0; says stdout "cpu in an unknown dtype"
run compare "$dir/one" "$dir/old"
says stdout "updates in an unknown dtype on cpu"
run decide "$dir/one" "$dir/portable" growth=1000
code_is 0; silent stderr; says stdout "lane 2"; says stdout "drift: losses differ by"; says stdout "verdict   train on lane"; says stdout changes
run decide "$dir/one" "$dir/portable" growth=1000 --json
code_is 0; one_line stdout; equal "$(value "$dir/stdout" verdict)" train verdict; has_keys "$dir/stdout" ms first_step last_step rule found limit
ok "runs of one processor are decided by their time, with the window of each figure"

# shellcheck disable=SC2086
run $train out="$dir/drifts" threads=1 dtype=bfloat16
run decide "$dir/one" "$dir/drifts" growth=1000
code_is 0; says stdout "FIRES   drift"; says stdout "holds   memory"
run compare "$dir/one" "$dir/drifts" --accept "me,bfloat16 is what we want"
run decide "$dir/one" "$dir/drifts" growth=1000
code_is 0; says stdout "holds   drift"; says stdout "signed and accepted"
ok "a drift fires until it is signed"

# Live: each device of this machine; here only the processor runs, and the others say why not.
# shellcheck disable=SC2086
run decide demo $tiny steps=24 out="$dir/live" threads=1 growth=1000
code_is 0; says stderr "lane cpu: 24 updates"; says stdout "lane 1    $dir/live/cpu"; says stdout "verdict   train on lane 1 (cpu)"; says stdout "left out  cuda: "; says stdout "left out  mlx: "
[ ! -e "$dir/live/cpu/last.safetensors" ] || fault "weights are kept"
# shellcheck disable=SC2086
run decide demo $tiny steps=24 out="$dir/live" threads=1 growth=1000 --json
code_is 0; silent stderr; one_line stdout; has_keys "$dir/stdout" verdict left_out why # not trained again
# shellcheck disable=SC2086
run decide demo $tiny steps=22 out="$dir/live" threads=1 growth=1000 dropout=0
code_is 0; says stderr "lane cpu: 22 updates"
# MLX's Python package, by stand-ins of python3: times, a sentence of why not, a fault, rubbish.
mkdir "$dir/bin"
mlx() { # SCRIPT: what python3 does
    printf '#!/bin/sh\n%s\n' "$1" >"$dir/bin/python3"
    chmod +x "$dir/bin/python3"
    shift
    # shellcheck disable=SC2086
    PATH="$dir/bin:$PATH" run decide demo $tiny steps=22 out="$dir/live" threads=1 growth=1000 dropout=0 "$@"
    code_is 0
}
times='case "$1 $2 $3" in "-c # mlx_gpt.py"*"\"n_layer\":2,"*) ;; *) exit 1 ;; esac; echo a warning; echo "{\"ms\":[900,40,7,5,6,\"x\",8],\"device\":\"Device(gpu, 0)\",\"version\":\"9.9\"}"'
mlx "$times"
silent stderr; says stdout "timed     mlx: 6.5 ms an update"; says stdout "4 updates after the first tenth, MLX 9.9, Device(gpu, 0)"
if grep -q "left out  mlx" "$dir/stdout"; then fault "timed, and left out"; fi
mlx "$times" --json
one_line stdout; says stdout '"timed":[{"lane":"mlx","on":"MLX 9.9, Device(gpu, 0)","updates":4,"ms":6.5'
mlx 'echo "it is here, but not for this"; exit 3'
says stdout "left out  mlx: it is here, but not for this"
mlx 'echo boom; exit 7'
says stdout "left out  mlx: its program ended with code 7: boom"
mlx 'echo "{\"ms\":[1]}"'
says stdout "left out  mlx: its program ended with code 0"
mlx 'printf "\033[31mred\n"; exit 3'
if grep -q "$(printf '\033')" "$dir/stdout"; then fault "python3 steers the terminal"; fi
python=$(command -v python3)
if [ -n "$python" ] && ! "$python" -c "import mlx.core" 2>/dev/null; then
    mkdir -p "$dir/here/mlx"
    echo "open('hijacked', 'w')" >"$dir/here/mlx/__init__.py" # a folder of that name where the command is typed is not the package
    # shellcheck disable=SC2086
    (cd "$dir/here" && "$program" decide demo $tiny steps=22 out="$dir/live" threads=1 growth=1000 dropout=0) >"$dir/stdout" 2>&1
    says stdout "left out  mlx: python3 has no package mlx"; [ ! -e "$dir/here/hijacked" ] || fault "a module of the current folder was run"
fi
ok "MLX is timed where its package is there, else left out and said"

# A lane that another machine packed: the run by portable code, and its folder is gone.
run pack "$dir/portable" out="$dir/theirs.anneal" owner=them
rm -r "$dir/portable"
run decide "$dir/one" "$dir/theirs.anneal" growth=1000
code_is 0; says stdout "lane 2    $dir/theirs.anneal"; says stdout "drift: losses differ by"
[ -z "$(ls -d "${TMPDIR:-/tmp}"/anneal-lane.* 2>/dev/null)" ] || fault "a folder was left behind"
ok "a preset is decided live on each device here, and a pack of another machine is a lane"

# shellcheck disable=SC2086
run $train out="$dir/other" threads=1 batch_size=2
run decide "$dir/one" "$dir/other"
code_is 1; says stderr "one input bucket"; says stderr "batch_size"; one_line stderr
cp -r "$dir/one" "$dir/placed"
sed -i 's/"place":""/"place":"optimizer:cpu"/; s/"epochs":0/"epochs":2/' "$dir/placed/logbook.jsonl"
cmp -s "$dir/one/logbook.jsonl" "$dir/placed/logbook.jsonl" && fault "no setting was changed"
run decide "$dir/one" "$dir/placed"
! grep -q "one input bucket" "$dir/stderr" || fault "where launches run makes another bucket: $(cat "$dir/stderr")"
for twice in "$dir/one" "$dir/live/../one/"; do
    run decide "$dir/one" "$dir/theirs.anneal" "$twice"
    code_is 1; says stderr "are one run: name each lane once"; one_line stderr
done
run decide "$dir/none"
code_is 2; says stderr "no run's folder"
run decide "$dir/one" gain=2
code_is 1
run decide "$dir/one" batch_size=2
code_is 1; says stderr "trained already"; one_line stderr
cp -r "$dir/one" "$dir/demo"
(cd "$dir" && "$program" decide demo steps=3 >stdout 2>stderr)
code=$?
code_is 1; says stderr "this preset is also the name of a folder here"; one_line stderr
run decide nosuch
code_is 1; says stderr "preset"
run decide demo device=cpu
code_is 1; says stderr "own"; one_line stderr
printf 'PK\003\004 no pack' >"$dir/rubbish.anneal"
run decide "$dir/one" "$dir/rubbish.anneal"
code_is 2; one_line stderr
head -c 2000 /dev/urandom >"$dir/other/metrics.jsonl"
run decide "$dir/other"
code_is 2; says stderr "lines of metrics"
ok "another bucket, no run and rubbish are a sentence"
done_testing
