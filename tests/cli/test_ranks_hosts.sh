#!/bin/sh
# test_ranks_hosts.sh: two hosts, which are network namespaces of this machine with a cable (veth) between them: ranks over MPI and TCP have
# the bits of one host; a cable that is pulled ends all ranks within the timeout, with the checkpoint whole. Needs root.
plan=2
. "$(dirname "$0")/tap.sh"
unset WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE PMI_FD SLURM_STEP_ID ANNEAL_MPI
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
settings="$tiny seed=5 device=cpu threads=1 gradient_accumulation_steps=4 eval_interval=5 log_interval=2 --quiet"
id=an$$
clean() {
    ip netns del ${id}a 2>/dev/null
    ip netns del ${id}b 2>/dev/null
}
why=
command -v mpirun.openmpi >/dev/null 2>&1 && command -v timeout >/dev/null 2>&1 || why="Open MPI's mpirun is not installed"
if [ -z "$why" ]; then
    { ip netns add ${id}a && ip netns add ${id}b && ip link add ${id}x netns ${id}a type veth peer name ${id}y netns ${id}b; } >/dev/null 2>&1 ||
        why="this system makes no network namespaces"
fi
if [ -n "$why" ]; then
    clean
    skip "two hosts have the bits of one" "$why"
    skip "a cable that is pulled ends all ranks" "$why"
    done_testing
    exit
fi
trap 'clean; rm -rf "$dir"' EXIT
ip -n ${id}a addr add 10.97.0.1/24 dev ${id}x && ip -n ${id}b addr add 10.97.0.2/24 dev ${id}y
for side in a b; do ip -n $id$side link set lo up; done
ip -n ${id}a link set ${id}x up
ip -n ${id}b link set ${id}y up
# in place of ssh: HOST COMMAND...
cat >"$dir/reach" <<END
#!/bin/sh
shift
exec ip netns exec ${id}b unshare --uts sh -c "hostname second-host; \$*"
END
chmod +x "$dir/reach"
# two_hosts ARGUMENT...
two_hosts() {
    timeout -k 10 200 ip netns exec ${id}a mpirun.openmpi --mca plm_rsh_agent "$dir/reach" --mca btl tcp,self --mca btl_tcp_if_include 10.97.0.0/24 \
        --mca oob_tcp_if_include 10.97.0.0/24 -n 2 --host 10.97.0.1:1,10.97.0.2:1 -x ANNEAL_COMM_TIMEOUT "$program" "$@" >"$dir/stdout" 2>"$dir/stderr" </dev/null
    code=$?
}

export ANNEAL_COMM_TIMEOUT=60
# shellcheck disable=SC2086  # a list of settings
run train macbook out="$dir/one" $settings max_iters=20 ranks=2
# shellcheck disable=SC2086
two_hosts train macbook out="$dir/two" $settings max_iters=20
code_is 0
equal "$(state_hash "$dir/two")" "$(state_hash "$dir/one")" "the state of two hosts and of one"
ok "two hosts take MPI without being told, and have the bits of one"

export ANNEAL_COMM_TIMEOUT=5
# shellcheck disable=SC2086
two_hosts train macbook out="$dir/cut" $settings max_iters=1000000 save_interval=5 &
watcher=$!
for _ in $(seq 300); do [ -f "$dir/cut/last.safetensors" ] && break; sleep 0.1; done
ip -n ${id}a link set ${id}x down
began=$(date +%s)
ranks_left() { ps ax -o stat=,args= | grep -v '^Z' | awk -v p="$program" -v o="out=$dir/cut" '$2 == p && index($0, o " ")'; }
for _ in $(seq 600); do [ -n "$(ranks_left)" ] || break; sleep 0.1; done
lasted=$(($(date +%s) - began))
[ -z "$(ranks_left)" ] || fault "ranks are left: $(ranks_left)"
ip -n ${id}a link set ${id}x up # Open MPI's launcher itself waits for the other host
kill "$(ps ax -o pid=,args= | awk -v o="out=$dir/cut" '$2 == "timeout" && index($0, o " ") { print $1 }')" 2>/dev/null
wait $watcher
[ -n "$(state_hash "$dir/cut")" ] || fault "no whole checkpoint after the cable was pulled"
says stderr "has lost its link"
ok "a cable that is pulled ends all ranks in $lasted s with a timeout of 5, with a sentence; the checkpoint is whole"
done_testing
