#!/bin/sh
# test_ranks.sh: several ranks with a GPU each, on the stand-in of the driver and of NCCL: every rank asks for the same exchanges in the
# same order, once an update and in exact mode once a micro-batch, captured with the plan; what is missing is a sentence. Numbers
# are those of no GPU: tests/cuda/ranks_on_gpu.sh has them.
plan=13
. "$(dirname "$0")/../cli/tap.sh"
unset ANNEAL_CUDA_LAUNCH ANNEAL_CUDA_TIMEOUT ANNEAL_EXACT ANNEAL_TF32 WORLD_SIZE CUDA_VISIBLE_DEVICES
mkdir "$dir/cuda"
${CC:-cc} -std=gnu17 -O1 -fPIC -shared -fvisibility=hidden -o "$dir/cuda/libcuda.so.1" tests/cuda/fake_cuda.c -lpthread -ldl || exit 1
for name in libnvrtc.so.13 libcublasLt.so.13 libnccl.so.2; do ln -s libcuda.so.1 "$dir/cuda/$name"; done
export ANNEAL_CUDA_PATH="$dir/cuda" FAKE_CUDA_LOG="$dir/misuse"
settings="$tiny gradient_accumulation_steps=4 max_iters=2 eval_interval=2 log_interval=1 device=cuda cache_dir=$dir/cache --quiet"

# train RUN SETTING...: with a log of the exchanges in $dir/RUN.nccl.RANK
train() {
    export FAKE_NCCL_LOG="$dir/$1.nccl"
    out=$dir/$1
    shift
    # shellcheck disable=SC2086  # a list of settings
    run train macbook out="$out" $settings "$@"
}
same_calls() { cmp -s "$dir/$1.nccl.0" "$dir/$1.nccl.1" || fault "the ranks of $1 ask for other exchanges: $(diff "$dir/$1.nccl.0" "$dir/$1.nccl.1" | head -3)"; }

train two devices=2
code_is 0
same_calls two
captured=$(grep -c 'ncclAllReduce.*captured' "$dir/two.nccl.0")
[ "$captured" -gt 0 ] || fault "no sum was captured with the plan"
if grep 'ncclAllGather' "$dir/two.nccl.0" | grep -q captured; then fault "a plan gathers, though not exact"; fi
train exact devices=0,1 exact=true
code_is 0
same_calls exact
grep -q 'ncclAllGather.*captured' "$dir/exact.nccl.0" || fault "exact: no plan gathers"
if grep 'ncclAllReduce' "$dir/exact.nccl.0" | grep -q captured; then fault "exact: NCCL adds in an order of its own"; fi
ok "both ranks ask for the same exchanges in the same order, captured with the plan; exact mode gathers"

CUDA_VISIBLE_DEVICES=0,1 train auto devices=auto
code_is 0
equal "$(cat "$dir/auto.nccl.0")" "$(cat "$dir/two.nccl.0")" "the exchanges of devices=auto with two GPUs, and of devices=2"
same_calls auto
CUDA_VISIBLE_DEVICES=0 train auto_one devices=auto
code_is 0
[ ! -e "$dir/auto_one.nccl.0" ] || fault "devices=auto exchanges with one GPU"
ok "devices=auto takes the GPUs that are there"

train shard devices=2 shard=moments n_embd=32
code_is 0
same_calls shard
equal "$(grep -c 'ncclReduce .*captured' "$dir/shard.nccl.0")" 2 "sums of parts in the captured update: one for each rank"
# the sums of squares, and the parameters
equal "$(grep -c 'ncclAllGather.*captured' "$dir/shard.nccl.0")" 2 "gathers in the captured update"
equal "$(grep -c 'ncclAllReduce.*captured' "$dir/shard.nccl.0")" 1 "sums in the captured update: of a block too small to be cut"
for overlap in true false; do
    train shard_$overlap devices=2 shard=moments n_embd=192 gradient_accumulation_steps=2 overlap=$overlap
    code_is 0
    same_calls shard_$overlap
done
[ "$(grep -c 'ncclReduce .*captured' "$dir/shard_true.nccl.0")" -gt 3 ] || fault "parts of gradients are not summed in buckets: $(cat "$dir/shard_true.nccl.0")"
cmp -s "$dir/shard_true.nccl.0" "$dir/shard_false.nccl.0" || fault "shard=moments overlap=false asks for other sums: their bits may differ"
ok "shard=moments: each rank gets its part of the gradients, and gathers the parameters"

for overlap in true false; do
    train weights_$overlap devices=2 shard=weights n_embd=64 overlap=$overlap
    code_is 0
    same_calls weights_$overlap
done
[ "$(grep -c 'ncclBroadcast.*captured' "$dir/weights_true.nccl.0")" -gt 2 ] || fault "no weights are gathered: $(cat "$dir/weights_true.nccl.0")"
# the sums of squares alone: parameters stay in parts
equal "$(grep -c 'ncclAllGather.*captured' "$dir/weights_true.nccl.0")" 1 "gathers in the captured update"
ok "shard=weights: the ranks that have a piece of the weights send it to all, ahead of use"

for overlap in true false; do
    train over_$overlap devices=2 overlap=$overlap n_embd=192 gradient_accumulation_steps=2
    code_is 0
    same_calls over_$overlap
done
[ "$(grep -c 'ncclAllReduce.*captured' "$dir/over_true.nccl.0")" -gt 3 ] || fault "gradients are not summed in buckets: $(cat "$dir/over_true.nccl.0")"
cmp -s "$dir/over_true.nccl.0" "$dir/over_false.nccl.0" || fault "overlap=false asks for other sums: their bits may differ"
ok "gradients are summed in buckets, in one order on both ranks, which overlap=false does not change"

# The stand-in's exchanges take 5 us and its other calls 1 us, as many beside one another as the graph allows.
# share RUN: of the time in exchanges on rank 0, what nothing hides, in percent
share() { sed -n 's/.*"rank":0,.*"exchange_ms":\([^,]*\),"exposed_ms":\([^,]*\),.*/\1 \2/p' "$dir/$1/ranks.jsonl" | tail -n 1 | awk '{ print int($1 ? 100 * $2 / $1 : -1) }'; }
export FAKE_NCCL_US=5
for micros in 2 8; do
    for shard in none moments weights; do
        for overlap in true false; do
            train hidden devices=2 overlap=$overlap shard=$shard n_embd=192 gradient_accumulation_steps=$micros max_iters=6 eval_interval=6
            code_is 0
            grep -q '"step":0,"rank":0,.*"exchange_ms":null' "$dir/hidden/ranks.jsonl" || fault "the first update, which connects the GPUs, is timed"
            grep -q '"exchange_share":0' "$dir/hidden/metrics.jsonl" || fault "no share of the time in metrics"
            eval "exposed_$overlap=$(share hidden)"
        done
        # shellcheck disable=SC2154  # set by eval
        case $shard in
        none) [ "$exposed_true" -ge 0 ] && [ "$exposed_true" -le 50 ] && [ "$exposed_false" -ge 80 ] || fault "$micros micro-batches: $exposed_true % exposed, $exposed_false % without overlap" ;;
        # parameters that are gathered behind an update are not hidden
        *) [ "$exposed_true" -ge 0 ] && [ "$exposed_true" -lt "$exposed_false" ] || fault "$micros micro-batches, shard=$shard: $exposed_true % exposed, $exposed_false % without overlap" ;;
        esac
    done
done
ok "one update in sixteen is timed by events: the share of exchanges that nothing hides, with one micro-batch a rank and several"

for overlap in true false; do
    # shellcheck disable=SC2086  # a list of settings
    run profile macbook $tiny n_embd=192 device=cuda cache_dir="$dir/cache" devices=2 overlap=$overlap inputs=fixed --steps 2 --warmup 1 --json \
        --trace "$dir/$overlap.json"
    code_is 0
    mv "$dir/stdout" "$dir/profile.$overlap"
done
exposed() { sed -n 's/.*"exchange_ms":\([^,]*\),"exposed_ms":\([^,]*\),.*/\1 \2/p' "$dir/profile.$1" | awk '{ printf "%d", 100 * $2 / $1 }'; }
[ "$(exposed true)" -le 50 ] && [ "$(exposed false)" -ge 80 ] || fault "profile: $(exposed true) % exposed, $(exposed false) % without overlap"
# events CATEGORY: begin and end of the last step's events
events() { tr -d '\n' <"$dir/$1.json" | sed 's/},{/}\n{/g' | sed -n "s/.*\"cat\":\"$2\".*\"ts\":\([0-9.]*\),\"dur\":\([0-9.]*\).*/\1 \2/p"; }
for overlap in true false; do
    events $overlap exchange >"$dir/exchanges"
    events $overlap product >"$dir/products"
    [ -s "$dir/exchanges" ] && [ -s "$dir/products" ] || fault "no exchanges or products in the trace"
    awk 'NR == FNR { begin[NR] = $1; end[NR] = $1 + $2; n = NR; next }
         { for (i = 1; i <= n; i++) if ($1 < end[i] && begin[i] < $1 + $2) beside++ } END { print beside + 0 }' "$dir/exchanges" "$dir/products" >"$dir/beside.$overlap"
done
[ "$(cat "$dir/beside.true")" -gt 4 ] || fault "the trace shows no product beside an exchange"
equal "$(cat "$dir/beside.false")" 0 "products beside exchanges in the trace of overlap=false"
! awk 1 "$dir/true.json" | grep -q '"tid":2,"args":{"name":"device' || fault "exchanges have no track of their own"
grep -q 'exchanges between ranks' "$dir/true.json" || fault "the track of exchanges has no name"
unset FAKE_NCCL_US
ok "profile devices=2 shows exchanges beside launches, in its figures and in the trace"

mv "$dir/cuda/libnccl.so.2" "$dir/away"
train none devices=2
code_is 2
one_line stderr
says stderr "libnccl.so.2 not found"
mv "$dir/away" "$dir/cuda/libnccl.so.2"
FAKE_NCCL_VERSION=2804 train old devices=2
code_is 2
says stderr "install 2.10 or newer"
CUDA_VISIBLE_DEVICES=5,7 train far devices=0,2
code_is 1
says stderr "CUDA_VISIBLE_DEVICES=5,7 has no GPU 2"
train alone
code_is 0
ok "without NCCL, with an old one, or for a GPU that is not there, nothing begins; one GPU needs none of it"

FAKE_CUDA_GPUS=3 FAKE_CUDA_PEERS=nph run doctor measure=false cache_dir="$dir/cache"
code_is 0
for words in "GPU 2: 0000:1D:00.0" "1 by NVLink, 1 by PCIe, one GPU's memory to the" "NCCL: 2.27.3, $dir/cuda" "network: "; do
    tr -s ' \n' ' ' <"$dir/stdout" | grep -qF -- "$words" || fault "doctor lacks '$words': $(cat "$dir/stdout")"
done
FAKE_CUDA_GPUS=2 FAKE_CUDA_PEERS=n run doctor measure=false cache_dir="$dir/cache" --json
has_keys "$dir/stdout" links what found
mv "$dir/cuda/libnccl.so.2" "$dir/away"
FAKE_CUDA_GPUS=2 FAKE_CUDA_PEERS=n run doctor measure=false cache_dir="$dir/cache"
says stdout "several GPUs cannot train together"
mv "$dir/away" "$dir/cuda/libnccl.so.2"
# Kernels do not run on the stand-in: what comes back is not the sum, and that is noticed.
run doctor devices=2 cache_dir="$dir/cache"
code_is 2
says stderr "the sum of 256 elements of 2 ranks is from"
ok "doctor names the links between GPUs and NCCL, and measures sums that it checks"

# start_rank RANK NAME VARIABLE=VALUE...: one of two ranks, as torchrun starts them; its process is $rank0 or $rank1
start_rank() {
    rank=$1 name=$2
    shift 2
    # shellcheck disable=SC2086  # a list of settings
    (export RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=7001 CUDA_VISIBLE_DEVICES=$rank \
        ANNEAL_CUDA_TIMEOUT=90 FAKE_NCCL_LOG="$dir/$name.nccl" "$@" && exec "$program" train macbook out="$dir/$name" $settings \
        max_iters=100000 eval_interval=100000 log_interval=100000 >"$dir/stdout$rank" 2>"$dir/stderr$rank") &
    eval "rank$rank=$!"
}
# rank 1 is killed: rank 0 ends soon
ends_with_rank_1() {
    # shellcheck disable=SC2154  # set by eval
    kill -KILL "$rank1"
    wait "$rank1"
    began=$(date +%s)
    # shellcheck disable=SC2154  # set by eval
    wait "$rank0"
    code=$?
    code_is 2
    [ $(($(date +%s) - began)) -le 20 ] || fault "the other rank ends after $(($(date +%s) - began)) s"
    says stderr0 "rank 1 has ended without a word"
}
# From its eighth graph on, rank 0's exchanges do not end.
start_rank 0 gone FAKE_NCCL_ALONE=8
start_rank 1 gone FAKE_NCCL_ALONE=100000
for _ in $(seq 300); do [ -s "$dir/gone.nccl.1" ] && break || sleep 0.1; done
sleep 1
ends_with_rank_1
ok "a rank is killed while another's GPU waits for it: that one ends at once, and says who"

# The same, of ranks that the program started: the driver's exit handlers would wait as well.
# shellcheck disable=SC2086  # a list of settings
FAKE_NCCL_ALONE=8 FAKE_NCCL_LOG="$dir/started.nccl" "$program" train macbook devices=2 out="$dir/started" $settings \
    max_iters=100000 eval_interval=100000 log_interval=100000 >"$dir/stdout0" 2>"$dir/stderr0" &
rank0=$!
for _ in $(seq 300); do [ -s "$dir/started.nccl.1" ] && break || sleep 0.1; done
sleep 1
rank1=$(pgrep -P "$rank0" | tail -n 1)
began=$(date +%s)
kill -KILL "$rank1"
wait "$rank0"
code=$?
code_is 2
[ $(($(date +%s) - began)) -le 20 ] || fault "the other rank ends after $(($(date +%s) - began)) s"
says stderr0 "was killed by signal 9"
ok "a rank that the program started is killed while another's GPU waits for it: all end at once"

for rank in 0 1; do start_rank $rank absent FAKE_NCCL_ABSENT="$dir/joins"; done
for _ in $(seq 300); do [ -e "$dir/joins.0" ] && [ -e "$dir/joins.1" ] && break || sleep 0.1; done
ends_with_rank_1
ok "a rank is killed before its GPU has joined the other's: that one ends at once, and says who"

[ ! -s "$dir/misuse" ] || fault "$(sort "$dir/misuse" | uniq -c | head -n 5)"
ok "in all of this driver and library were used rightly"
done_testing
