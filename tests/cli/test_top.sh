#!/bin/sh
# test_top.sh: what top says of the machine and of the runs on it, with GPUs of a library made here, and why something is unreadable.
plan=4
. "$(dirname "$0")/tap.sh"
export XDG_STATE_HOME="$dir/state" ANNEAL_NVML_PATH="$dir"
trap '"$program" stop "$dir/run" >/dev/null 2>&1; "$program" stop "$dir/early/run" >/dev/null 2>&1; rm -rf "$dir"' EXIT

run top --once
code_is 0; silent stderr; says stdout "memory"; says stdout "GPU       libnvidia-ml.so.1 not found"; says stdout "power"
run top --json
code_is 0; one_line stdout; has_keys "$dir/stdout" processors ram_bytes free_bytes cpu_busy
busy=$(value "$dir/stdout" cpu_busy)
awk -v b="$busy" 'BEGIN { exit !(b == "null" || (b >= 0 && b <= 1)) }' || fault "busy is $busy"
[ "$(value "$dir/stdout" watts)" != null ] || [ -n "$(value "$dir/stdout" watts_why)" ] || fault "no reason for unknown watts"
run top seconds=0
code_is 1; says stderr seconds
ok "the machine is shown, and what is unreadable says why"

# shellcheck disable=SC2086
run train demo $tiny max_iters=2000000 lr_decay_iters=2000000 eval_interval=2000000 log_interval=10 threads=1 out="$dir/run" --detach
code_is 0
i=0
while [ ! -s "$dir/run/metrics.jsonl" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
waits() { sed -n 's/.*"waits":\([0-9]*\).*/\1/p' "$1"; }
# Between the two readings of one call a busy machine may end no ten updates.
i=0
mine() { sed 's/{"run":/\n&/g' "$dir/stdout" | grep -F "{\"run\":\"$(cd "$dir/run" && pwd -P)\""; } # others may train here too
while run top --json seconds=0.5; [ $i -lt 60 ] && ! mine | grep -q '"units_per_s":[0-9]'; do i=$((i + 1)); done
code_is 0; says stdout "\"run\":\"$(cd "$dir/run" && pwd -P)\""; says stdout '"unit":"token"'
speed=$(mine | sed -n 's/.*"units_per_s":\([0-9.e+]*\).*/\1/p')
awk -v s="$speed" 'BEGIN { exit !(s > 0) }' || fault "speed $speed"
if [ -r /proc/stat ]; then
    cpu=$(mine | sed -n 's/.*"cpu":\([0-9.e+-]*\).*/\1/p')
    awk -v c="$cpu" 'BEGIN { exit !(c > 0 && c < 1.5) }' || fault "one thread uses $cpu processors"
fi
run top --once
says stdout "tokens/s"; says stdout "resident"
ok "a run that trains is there with its speed, processor time and memory"

# A folder that a run holds before its first line is not a row of unknown numbers.
mkdir "$dir/early"
"$program" train demo block_size=512 batch_size=64 compile=false threads=1 out="$dir/early/run" --detach >/dev/null 2>&1
run top --once
sed -n "\\|$dir/early/run|{n;p;}" "$dir/stdout" >"$dir/row"
[ -s "$dir/early/run/metrics.jsonl" ] || says row "no update is logged yet"
grep -q '\bnan\b' "$dir/row" && fault "a number that is none: $(cat "$dir/row")"
"$program" stop "$dir/early/run" >/dev/null 2>&1
ok "a run without a line says so"

cat >"$dir/nvml.c" <<'C'
#include <stdio.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { static char one, two; *d = i ? (void *)&two : (void *)&one; return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned n) { (void)d; snprintf(s, n, "Stand-in \033[31mGPU"); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { (void)d; u[0] = 75; u[1] = 10; return 0; }
int nvmlDeviceGetMemoryInfo(void *d, unsigned long long *m) { (void)d; m[0] = 8ull << 30; m[1] = 6ull << 30; m[2] = 2ull << 30; return 0; }
int nvmlDeviceGetTemperature(void *d, int s, unsigned *t) { (void)d; *t = 61 + (unsigned)s; return 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned *p) { (void)d; (void)p; return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *list) { (void)d; (void)list; *n = 2; return 7; }
const char *nvmlErrorString(int e) { return e == 3 ? "Not Supported" : "?"; }
C
"${CC:-cc}" -shared -fPIC -o "$dir/libnvidia-ml.so.1" "$dir/nvml.c" || fault "the stand-in was not built"
run top --once
code_is 0; says stdout "GPU 1"; says stdout "75.0 %"; says stdout "2 GiB of 8 GiB"; says stdout "61.0 degrees C"; says stdout "unreadable: NVML: Not Supported"
if grep -q "$(printf '\033')" "$dir/stdout"; then fault "a name steers the terminal"; fi
run top --json
one_line stdout; says stdout '"busy":0.75'; says stdout '"processes":2'; says stdout '"watts_why":"NVML: Not Supported"'
ok "GPUs are those of the management library; what it refuses is said"
done_testing
