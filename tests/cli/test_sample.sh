#!/bin/sh
# test_sample.sh: where a prompt may come from, when a text ends, and what a sample is a function of.
plan=7
. "$(dirname "$0")/tap.sh"

i=0
while [ $i -lt 400 ]; do echo "one two three four five"; i=$((i + 1)); done >"$dir/text.txt"
# shellcheck disable=SC2086  # $tiny is a list of settings
run train macbook data="$dir/text.txt" out="$dir/a" $tiny max_iters=20 eval_interval=20 dropout=0 --quiet
code_is 0

run sample "$dir/a" --prompt "one two" temperature=0 tokens=30 --quiet
code_is 0; cp "$dir/stdout" "$dir/direct"
[ "$(wc -c <"$dir/direct")" -ge 37 ] || fault "only $(cat "$dir/direct")"
printf 'one two' >"$dir/prompt"
run sample "$dir/a" --prompt "FILE:$dir/prompt" temperature=0 tokens=30 --quiet
cmp -s "$dir/stdout" "$dir/direct" || fault "a prompt from a file gave $(cat "$dir/stdout")"
"$program" sample "$dir/a" --prompt - temperature=0 tokens=30 --quiet <"$dir/prompt" >"$dir/stdout" 2>"$dir/stderr"
cmp -s "$dir/stdout" "$dir/direct" || fault "a prompt from standard input gave $(cat "$dir/stdout")"
run sample "$dir/a" start="one two" temperature=0 max_new_tokens=30 --quiet
cmp -s "$dir/stdout" "$dir/direct" || fault "nanoGPT's names gave $(cat "$dir/stdout")"
ok "a prompt comes from the command line, a file or standard input"

run sample "$dir/a" --prompt "one two" --dtype=float32 temperature=0 tokens=30 --quiet
cmp -s "$dir/stdout" "$dir/direct" || fault "dtype=float32 of a float32 run gave $(cat "$dir/stdout")"
for dtype in bfloat16 float16; do
    run sample "$dir/a" --prompt "one two" --dtype=$dtype temperature=0 tokens=30 --quiet
    code_is 0; [ "$(wc -c <"$dir/stdout")" -ge 37 ] || fault "dtype=$dtype: only $(cat "$dir/stdout")"
done
run sample "$dir/a" --prompt "one two" --dtype=int4
code_is 1; says stderr "dtype=\"int4\""
ok "a run trained in float32 is sampled in 16 bits when asked"

# two characters of the text, where they come first behind the prompt, and one of them followed by what never comes
text=$(cat "$dir/direct")
stop=$(printf '%s' "$text" | tail -n 1 | cut -c21-22)
case $text in *"
"*) fault "a new line in the text: choose another seed" ;; esac
rest=${text#one two}
run sample "$dir/a" --prompt "one two" temperature=0 tokens=30 --stop nowhere --stop "$stop" --quiet
code_is 0; equal "$(cat "$dir/stdout")" "one two${rest%%"$stop"*}" "text before the stop text"
run sample "$dir/a" --prompt "one two" temperature=0 tokens=30 --stop "$(printf '%s' "$stop" | cut -c1)XX" --quiet
equal "$(cat "$dir/stdout")" "$text" "text that only began like a stop text"
run sample "$dir/a" --prompt "one two" temperature=3 seed=4 tokens=400 --stop '\n' --quiet
equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 1 "lines of a text that stops at a new line"
ok "a text ends before the first stop text, and what only begins like one is written"

run sample "$dir/a" --prompt "one zebra" tokens=3
code_is 2; says stderr "z"; says stderr "prompt"; silent stdout
run sample "$dir/a" --prompt "" tokens=3
code_is 0
: >"$dir/empty"
run sample "$dir/a" --prompt "FILE:$dir/empty"
code_is 1; says stderr "empty"
run sample "$dir/a" --prompt "FILE:$dir/nowhere"
code_is 2; says stderr "nowhere"
ok "a character that the model does not know is named, an empty prompt too"

run sample "$dir/a" --prompt "one" num_samples=3 tokens=20 seed=7 temperature=2 top_k=0
code_is 0; equal "$(grep -c -- '^---------------$' "$dir/stdout")" 3 "lines between texts"
says stderr "tokens/s"
cp "$dir/stdout" "$dir/three"
for together in 2 3 5; do
    run sample "$dir/a" --prompt "one" num_samples=3 together=$together tokens=20 seed=7 temperature=2 top_k=0
    code_is 0
    cmp -s "$dir/stdout" "$dir/three" || fault "three texts drawn $together at a time are not those drawn one by one"
done
run sample "$dir/a" --prompt "one" num_samples=4 together=4 tokens=150 seed=7 stop=e --quiet # some end early, the context slides
cp "$dir/stdout" "$dir/stopped"
run sample "$dir/a" --prompt "one" num_samples=4 tokens=150 seed=7 stop=e --quiet
cmp -s "$dir/stdout" "$dir/stopped" || fault "texts that end early are others when they are drawn together"
run sample "$dir/a" --prompt "one" num_samples=1 tokens=20 seed=7 temperature=2 top_k=0 --quiet
head -n "$(wc -l <"$dir/stdout")" "$dir/three" | cmp -s - "$dir/stdout" || fault "the first of three is not the one alone"
run sample "$dir/a" --prompt "one" tokens=20 seed=7 temperature=2 top_k=1 --quiet
cp "$dir/stdout" "$dir/greedy"
run sample "$dir/a" --prompt "one" tokens=20 seed=8 temperature=0 --quiet
cmp -s "$dir/stdout" "$dir/greedy" || fault "top_k=1 is not temperature=0"
run sample "$dir/a" --prompt "one" tokens=20 seed=9 temperature=5 top_p=0.0001 --quiet
cmp -s "$dir/stdout" "$dir/greedy" || fault "a tiny top_p is not temperature=0"
ok "samples are functions of the seed; top_k=1 and a tiny top_p are greedy"

: >"$dir/long" # before the background shell opens it
"$program" sample "$dir/a" tokens=100000000 temperature=1 >"$dir/long" 2>"$dir/stderr" </dev/null &
pid=$!
n=0
while [ "$(wc -c <"$dir/long")" -lt 200 ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
kill -INT $pid
wait $pid
code=$?
code_is 130; says stderr "tokens/s"
"$program" sample "$dir/a" tokens=100000000 2>/dev/null </dev/null | head -c 100 >/dev/null
ok "text streams; Ctrl-C and a closed pipe end it"
# A model of three characters, none of them a new line; and a prompt longer than a setting's text.
i=0
while [ $i -lt 600 ]; do printf 'abcb'; i=$((i + 1)); done >"$dir/abc"
# shellcheck disable=SC2086
run train macbook data="$dir/abc" out="$dir/abc.run" $tiny max_iters=2 --quiet
code_is 0
run sample "$dir/abc.run" tokens=3 --quiet
code_is 0; equal "$(head -c 1 "$dir/stdout")" a "the first character of a text without a prompt"
run sample "$dir/abc.run" --prompt "$(cat "$dir/abc")" tokens=3 --quiet
code_is 0; equal "$(wc -c <"$dir/stdout" | tr -d ' ')" 2404 "bytes of a prompt of 2400, three tokens and a new line"
ok "without a prompt a text begins with what the model knows; a prompt may be of any length"
done_testing
