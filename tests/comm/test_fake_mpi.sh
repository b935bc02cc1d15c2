#!/bin/sh
# test_fake_mpi.sh: ranks over the strict stand-in of MPI (fake_mpi.c), with the handles of both families. It notices every misuse that
# misuse.c commits; then a complaint of it is a mistake of src/comm: none in any collective, failure, or failed call, and the bits are
# those of shared memory. Mistakes planted in the transport (mutants.list) are found. Needs no MPI.
plan=7
. "$(dirname "$0")/../cli/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE PMI_FD SLURM_STEP_ID ANNEAL_MPI ANNEAL_COMM_TIMEOUT
build=${AN_BUILD:-build}
here=$(dirname "$0")
comm=$build/tests/unit/test_comm
if [ -n "${WRAP:-}" ] || [ "$(uname)" != Linux ] || ! command -v timeout >/dev/null 2>&1; then
    for name in "every misuse is noticed" "every promise holds" "the bits are those of shared memory" "a call that fails ends all ranks" \
        "a rank alone ends" "calls of one thread only are refused" "planted mistakes are found"; do
        skip "$name" "the stand-in wants Linux, timeout and no wrapper"
    done
    done_testing
    exit
fi
cc="${CC:-cc} -std=gnu17 -O2 -Wall -Wextra -Werror"
$cc -fPIC -shared -fvisibility=hidden -o "$dir/open_mpi.so" "$here/fake_mpi.c" || exit 1
$cc -fPIC -shared -fvisibility=hidden -DMPICH -o "$dir/mpich.so" "$here/fake_mpi.c" || exit 1
$cc -o "$dir/misuse" "$here/misuse.c" -ldl -lpthread || exit 1
[ -x "$comm" ] || { echo "# $comm is not built: make build-tests T=unit/test_comm"; exit 1; }
export FAKE_MPI_LOG="$dir/misuse.log"

# ranks FAMILY N COMMAND...: N ranks as the family's launcher starts them; their codes in $codes, what they say in stdout and stderr
ranks() {
    family=$1 n=$2
    shift 2
    rm -f "$dir/job" "$FAKE_MPI_LOG"
    : >"$dir/stdout"
    : >"$dir/stderr"
    pids='' codes='' r=0
    while [ $r -lt "$n" ]; do
        if [ "$family" = mpich ]; then names="PMI_RANK=$r PMI_SIZE=$n PMI_FD=0"; else names="OMPI_COMM_WORLD_RANK=$r OMPI_COMM_WORLD_SIZE=$n"; fi
        # shellcheck disable=SC2086  # a list of variables
        env $names ANNEAL_MPI="$dir/$family.so" FAKE_MPI_FILE="$dir/job" timeout 120 "$@" >>"$dir/stdout" 2>>"$dir/stderr" </dev/null &
        pids="$pids $!" r=$((r + 1))
    done
    for p in $pids; do
        wait "$p"
        codes="$codes $?"
    done
}
clean() { [ ! -s "$FAKE_MPI_LOG" ] || fault "$*: $(sort "$FAKE_MPI_LOG" | uniq -c | head -n 3)"; }
# noticed CASE WORDS
noticed() {
    ranks open_mpi 2 "$dir/misuse" "$dir/open_mpi.so" "$1"
    grep -qF -- "$2" "$FAKE_MPI_LOG" 2>/dev/null || fault "$1 is not noticed: $(head -n 2 "$FAKE_MPI_LOG" 2>&1), codes$codes"
}

ranks open_mpi 2 "$dir/misuse" "$dir/open_mpi.so" right
equal "$codes" " 0 0" "codes of right use"
clean "right use"
noticed early "before MPI_Init_thread"
noticed again "MPI_Init_thread twice"
noticed late "after MPI_Finalize"
noticed aborted "MPI_Isend after MPI_Abort"
noticed exit "ends without MPI_Finalize"
noticed count "of 40 bytes of rank 1 meets a receive of 44"
noticed order "of 4096 bytes of rank 1 meets a receive of 64"
noticed written "was written while it was under way"
noticed overlap "its buffer is also that of a message with rank"
noticed twice "what is no open request"
noticed open "is still open"
noticed lost "nobody has received a message of 8 bytes"
noticed handle "other handles than the library's"
noticed threads "while another thread is in a call of MPI"
ok "the stand-in notices wrong order, other sizes, buffers in use, open requests, and calls too early, too late and after an abort"

# promise FAMILY N CASE
promise() {
    ranks "$1" "$2" "$comm" "$3"
    [ "$(grep -c 'is done' "$dir/stdout")" -eq "$2" ] || fault "$1, $3, $2 ranks: codes$codes, $(head -n 2 "$dir/stderr")"
    clean "$1, $3, $2 ranks"
}
for family in open_mpi mpich; do
    promise $family 2 mixed
    FAKE_MPI_SLOW=7 promise $family 3 mixed
    FAKE_MPI_SLOW=11 promise $family 4 copies
    for job in "3 bits" "4 fails" "3 leaves" "3 differs" "2 kinds" "3 disagrees"; do FAKE_MPI_SLOW=5 promise $family "${job% *}" "${job#* }"; done
    ANNEAL_COMM_TIMEOUT=2.5 promise $family 2 hangs
done
ok "every promise of the ranks holds over it, and every failure is told, without misuse"

settings="$tiny seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 --quiet max_iters=8"
# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/shared" $settings ranks=2
for shard in none moments; do
    # shellcheck disable=SC2086
    FAKE_MPI_SLOW=2 ranks open_mpi 2 "$program" train macbook out="$dir/$shard" $settings transport=mpi shard=$shard
    equal "$codes" " 0 0" "codes of two ranks, shard=$shard"
    clean "shard=$shard"
    equal "$(state_hash "$dir/$shard")" "$(state_hash "$dir/shared")" "the state of two ranks over the stand-in, shard=$shard"
done
[ -n "$(state_hash "$dir/shared")" ] || fault "no state hash"
ok "two ranks train without misuse, with the bits of shared memory"

export ANNEAL_COMM_TIMEOUT=20
for call in MPI_Isend:1:0 MPI_Irecv:1:1 MPI_Test:1:1 MPI_Isend:20:1 MPI_Irecv:40:0 MPI_Test:300:1 MPI_Isend:90:0 MPI_Irecv:91:1; do
    rm -rf "$dir/fault"
    # shellcheck disable=SC2086
    FAKE_MPI_FAIL=$call ranks open_mpi 2 "$program" train macbook out="$dir/fault" $settings transport=mpi
    case $codes in *" 0"* | *124*) fault "$call: codes$codes" ;; esac
    says stderr "MPI fails at "
    grep -q 'rank [01] on .*: the stand-in refuses it' "$dir/stderr" || fault "$call: no rank and host in $(head -n 1 "$dir/stderr")"
    equal "$(grep -c 'anneal: ' "$dir/stderr")" 1 "sentences after $call"
    clean "$call"
done
# shellcheck disable=SC2086
FAKE_MPI_FAIL=MPI_Finalize:1:1 ranks open_mpi 2 "$program" train macbook out="$dir/last" $settings transport=mpi
clean "MPI_Finalize fails"
equal "$(state_hash "$dir/last")" "$(state_hash "$dir/shared")" "the state where MPI_Finalize fails"
ok "a call that fails ends both ranks with one sentence that names call, rank and host, and nothing is called after MPI_Abort"

began=$(date +%s)
export ANNEAL_COMM_TIMEOUT=1 FAKE_MPI_STOPS=MPI_Init_thread:1
ranks open_mpi 2 "$program" train macbook out="$dir/no" $settings transport=mpi
equal "$codes" " 2 2" "codes where rank 1 stops in MPI's first call"
says stderr "rank 0 has waited 5 s in MPI_Init_thread: of the 2 processes that mpirun started one has not started MPI"
says stderr "rank 0 has waited 21 s in MPI_Init_thread"
FAKE_MPI_STOPS=MPI_Finalize:1 ranks open_mpi 2 "$program" train macbook out="$dir/end" $settings transport=mpi
equal "$codes" " 2 2" "codes where rank 1 stops in MPI's last call"
says stderr "rank 0 has waited 21 s in MPI_Finalize"
equal "$(state_hash "$dir/end")" "$(state_hash "$dir/shared")" "the state where MPI's last call does not end"
unset FAKE_MPI_STOPS ANNEAL_COMM_TIMEOUT
began=$(($(date +%s) - began))
[ "$began" -lt 110 ] || fault "ranks whose others stop have waited $began s"
ok "ranks whose others stop in MPI's first or last call end in time"

FAKE_MPI_LEVEL=1 ranks open_mpi 2 "$comm" sums
clean "a library for one thread"
says stderr "allows calls from its first thread only"
unset ANNEAL_COMM_TIMEOUT
ok "a library that allows calls of one thread only is refused at once"

flags=$(grep -o -E -- '-(std=|I|D|fsanitize|fno-sanitize|pthread)[^ ]*' "$build/flags" | tr '\n' ' ')
wrap=$(for f in malloc calloc realloc aligned_alloc posix_memalign; do printf -- '-Wl,--wrap=%s ' "$f"; done)
libraries=$(pkg-config --libs jansson libxxhash nettle libpcre2-8 yaml-0.1 cmocka)
# The first place of $1 in mpi.c becomes $2; fails where there is none.
plant() {
    FROM=$1 TO=$2 awk 'function lines(s) { gsub(/\\n/, "\n", s); return s }
        BEGIN { from = lines(ENVIRON["FROM"]); to = lines(ENVIRON["TO"]) }
        { text = text $0 "\n" }
        END { at = index(text, from); if (!at) exit 1
              printf "%s%s%s", substr(text, 1, at - 1), to, substr(text, at + length(from)) }' src/comm/mpi.c
}
# How a case's ranks end: result PROGRAM VARIABLES... N CASE
result() {
    test_program=$1
    shift
    set -- "$@" "$test_program"
    while [ $# -gt 3 ]; do export "$1"; given="$given ${1%%=*}"; shift; done
    ranks open_mpi "$1" "$3" "$2"
    [ -z "$given" ] || unset $given
    given=''
    [ ! -s "$FAKE_MPI_LOG" ] || codes="$codes, misuse"
}
given='' tried=0
tab=$(printf '\t')
grep -v '^#' "$here/mutants.list" >"$dir/list"
export ANNEAL_COMM_TIMEOUT=8
while IFS=$tab read -r job from to; do
    tried=$((tried + 1))
    plant "$from" "$to" >"$dir/mutant.c" || { fault "mistake $tried fits no more: $from"; continue; }
    # shellcheck disable=SC2086  # lists of words
    $cc $flags -O0 -w -c -o "$dir/mutant.o" "$dir/mutant.c" && $cc $flags $wrap -o "$dir/test_comm" "$dir/mutant.o" "$comm.o" \
        "$build"/tests/lib/*.o "$build/libcli.a" "$build/libanneal.a" $libraries -lm -ldl -lpthread || { fault "mistake $tried is no program"; continue; }
    # shellcheck disable=SC2086
    result "$comm" $job
    right=$codes
    # shellcheck disable=SC2086
    result "$dir/test_comm" $job
    [ "$codes" != "$right" ] || fault "mistake $tried was not found: $from"
    [ -z "${AN_SOAK:-}" ] || echo "# mistake $tried:$right, with it$codes"
done <"$dir/list"
[ $tried -gt 10 ] || fault "only $tried mistakes were tried"
ok "each mistake planted in the transport is found"
done_testing
