# tap.sh: for the shell tests of the program: runs it, checks what it says, prints TAP. Sourced with the number of tests in $plan.
# `run ARGS` runs the program: its exit code is in $code, its output in $dir/stdout and $dir/stderr.
dir=$(mktemp -d "${TMPDIR:-/tmp}/anneal-cli.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
program=$(cd "${AN_BUILD:-build}" && pwd)/anneal
tests=0 failures=0 faults=
# The tests say what the CPU does. On a machine with a GPU device=auto would take that; tests of GPU backends name their own folder.
export ANNEAL_CUDA_PATH=/nonexistent
echo "1..$plan"

run() {
    # shellcheck disable=SC2086  # WRAP is a command with arguments
    ${WRAP:-} "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
}

# Each notes a fault of the current test and goes on.
fault() { faults="$faults# $*
"; }
code_is() { [ "$code" -eq "$1" ] || fault "exit code $code, not $1: $(head -c 300 "$dir/stderr")"; }
says() { grep -qF -- "$2" "$dir/$1" || fault "$1 lacks '$2': $(head -c 300 "$dir/$1")"; }
silent() { [ ! -s "$dir/$1" ] || fault "$1 is not empty: $(head -c 300 "$dir/$1")"; }
one_line() { [ "$(wc -l <"$dir/$1")" -eq 1 ] || fault "$1 has $(wc -l <"$dir/$1") lines, not 1"; }
is_file() { [ -f "$1" ] || fault "no file $1"; }
equal() { [ "$1" = "$2" ] || fault "$3: '$1' is not '$2'"; }

# The value of a key in the first line of JSON of a file; empty when it has none.
value() { sed -n "1s/.*\"$2\":\(\"[^\"]*\"\|[^],}]*\).*/\1/p" "$1" | head -n 1 | tr -d '"'; }
has_keys() {
    file=$1
    shift
    for key in "$@"; do [ -n "$(value "$file" "$key")" ] || fault "no \"$key\" in $(head -c 200 "$file")"; done
}
state_hash() { ${WRAP:-} "$program" inspect "$1" --json 2>/dev/null | sed -n 's/.*"state_hash":"\([0-9a-f]*\)".*/\1/p'; }

# Ends a test: its name is a sentence.
ok() {
    tests=$((tests + 1))
    if [ -z "$faults" ]; then
        echo "ok $tests - $*"
    else
        echo "not ok $tests - $*"
        printf '%s' "$faults"
        failures=$((failures + 1)) faults=
    fi
}
# Ends a test that cannot run here: skip NAME REASON. A fault that was noted before fails it all the same.
skip() {
    if [ -n "$faults" ]; then ok "$1"; return; fi
    tests=$((tests + 1))
    echo "ok $tests - $1 # SKIP $2"
}
# Builds Metal's stand-in, which the program then takes for a GPU; its options are in $mac. False: kernels cannot run on it here.
metal_standin() {
    command -v "${CXX:-c++}" >/dev/null || return 1
    mac=$(dirname "$program")
    sh tests/metal/standin/build.sh "$mac/standin" || fault "the stand-in was not built"
    export ANNEAL_METAL_PATH="$mac/standin/libmetal_standin.so"
    mac="gpu=apple8,kernels=fast,end=check,cache=$mac/standin-cache"
    export ANNEAL_STANDIN="$mac"
}
done_testing() { [ "$failures" -eq 0 ]; }

# A model that trains in a blink, on the built-in text.
tiny="block_size=16 n_layer=2 n_head=2 n_embd=16 batch_size=4 eval_iters=2 warmup_iters=2 lr_decay_iters=40 dropout=0.1"
