#!/bin/sh
# test_dashboard.sh: train dashboard=PORT: the page is there while a run trains, its button saves and stops, and the run's bits do not
# depend on it. What cannot be served is a sentence, before anything of the run is written.
plan=6
. "$(dirname "$0")/tap.sh"
trap '[ -n "$pid" ] && kill -9 "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
pid=
train="train demo $tiny eval_interval=20 log_interval=1 dropout=0"

# shellcheck disable=SC2086
run $train max_iters=40 out="$dir/alone"
# A port of this machine that is free.
port=$((20000 + $$ % 20000))
for _ in 1 2 3 4 5 6 7 8; do
    # shellcheck disable=SC2086
    run $train max_iters=40 out="$dir/beside" dashboard=$port
    [ "$code" -eq 0 ] && break
    grep -q "is in use" "$dir/stderr" || break
    port=$((port + 13))
done
if grep -q "is not installed: install libmicrohttpd" "$dir/stderr"; then
    code_is 2; one_line stderr; [ ! -e "$dir/beside" ] || fault "the run's folder was made"
    ok "without the library that serves pages it is a sentence"
    for name in "the same bits" "the page, its numbers and its button" "what cannot be served" "a picture" "a reader in a browser"; do skip "$name" "there is no libmicrohttpd"; done
    done_testing
    exit
fi
code_is 0; says stderr "page    http://127.0.0.1:$port/?token="
equal "$(state_hash "$dir/beside")" "$(state_hash "$dir/alone")" "state with and without a page"
grep -rq "token=" "$dir/beside" && fault "the token is in the run's folder"
ok "a run has the same bits with a page as without"

ANNEAL_MICROHTTPD_PATH=$dir
export ANNEAL_MICROHTTPD_PATH
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=$port
code_is 2; one_line stderr; says stderr "install libmicrohttpd"
unset ANNEAL_MICROHTTPD_PATH
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=$port dashboard_address=0.0.0.0
code_is 1; one_line stderr; says stderr "dashboard_token="
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=$port dashboard_token=short
code_is 1; one_line stderr
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=$port dashboard_address=localhost dashboard_token=0123456789abcdef
code_is 1; one_line stderr; says stderr "numeric IPv4"
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=70000
code_is 1
[ ! -e "$dir/new" ] || fault "the run's folder was made"
ok "no library, an open address without a token, and wrong settings are a sentence before anything is written"

# A run that goes on while it is looked at.
# shellcheck disable=SC2086
"$program" $train max_iters=2000000 lr_decay_iters=2000000 log_interval=20 out="$dir/long" dashboard=$port >/dev/null 2>"$dir/log" </dev/null &
pid=$!
for _ in $(seq 100); do
    [ -s "$dir/long/metrics.jsonl" ] && break
    sleep 0.1
done
# shellcheck disable=SC2086
run $train max_iters=4 out="$dir/new" dashboard=$port
code_is 2; one_line stderr; says stderr "port $port of 127.0.0.1 is in use: name another"
[ ! -e "$dir/new" ] || fault "the run's folder was made"
ok "a port in use is a sentence before anything is written"
url=$(sed -n 's/^page *//p' "$dir/log")

if command -v chromium >/dev/null 2>&1; then
    timeout 60 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$dir/profile" --window-size=1100,900 --timeout=3000 \
        --screenshot="$dir/page.png" "$url" >/dev/null 2>&1
    [ "$(wc -c <"$dir/page.png" 2>/dev/null || echo 0)" -gt 20000 ] || fault "no picture of the page"
    ok "a browser draws the page"
else
    skip "a browser draws the page" "there is no chromium"
fi

if command -v curl >/dev/null 2>&1; then
    curl -s "$url" | grep -q "Save and stop" || fault "no page at $url"
    curl -s "${url%%\?*}" | grep -q "Save and stop" && fault "the page without its token"
    equal "$(curl -s -o /dev/null -w '%{http_code}' "${url%%\?*}metrics")" 403 "code without a token"
    curl -s -H "Authorization: Bearer ${url##*=}" "${url%%\?*}metrics" | grep -q '^anneal_step{run="' || fault "no metrics"
    equal "$(curl -s -o /dev/null -w '%{http_code}' -X POST "${url%%\?*}stop")" 403 "stop without a token"
    curl -s -X POST "${url%%\?*}stop?token=${url##*=}" | grep -q "saves" || fault "stop was not taken"
    wait "$pid"
    code=$? pid=
    code_is 130
    run resume "$dir/long" max_iters=$(($(sed -n '$s/.*"step":\([0-9]*\).*/\1/p' "$dir/long/metrics.jsonl") + 60)) --quiet
    code_is 0
    ok "the page's button saves and stops, and numbers are answered to the token alone"
else
    skip "the page's button saves and stops, and numbers are answered to the token alone" "there is no curl"
fi
# A reader in a browser: events change the page, its button ends the run, and without the token there is nothing to press.
name="in a browser events change the page, and its button saves, stops and tells the end"
if command -v chromium >/dev/null 2>&1 && command -v python3 >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    "$program" $train max_iters=2000000 lr_decay_iters=2000000 eval_interval=2000000 log_interval=20 out="$dir/read" dashboard=$port >/dev/null 2>"$dir/log" </dev/null &
    pid=$!
    for _ in $(seq 100); do
        [ -s "$dir/read/metrics.jsonl" ] && break
        sleep 0.1
    done
    timeout 150 python3 tests/cli/browser.py "$(sed -n 's/^page *//p' "$dir/log")" "$dir/profile-2" >"$dir/stdout" 2>&1 </dev/null || fault "$(tail -n 3 "$dir/stdout")"
    for seen in "an event that changes it" "a refusal without the token" "the button taken" "the end of the run"; do says stdout "seen $seen"; done
    says stdout "loads from elsewhere: 0"
    kill -INT "$pid" 2>/dev/null # where the button did not
    wait "$pid"
    code=$? pid=
    code_is 130
    ok "$name"
else
    skip "$name" "there is no chromium or no python3"
fi
done_testing
