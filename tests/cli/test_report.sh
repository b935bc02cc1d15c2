#!/bin/sh
# test_report.sh: one HTML page about runs.
plan=4
. "$(dirname "$0")/tap.sh"
train="train demo $tiny max_iters=30 eval_interval=10 log_interval=1 dropout=0"

# shellcheck disable=SC2086
{
    run $train out="$dir/a"
    run $train out="$dir/b" seed=7
    run sweep demo block_size=16 n_layer=2 n_head=2 n_embd=16 threads=2 steps=4 from=4 minutes=2 budget=4MiB out="$dir/s"
}
# shellcheck disable=SC2086
run profile demo $tiny inputs=fixed --steps 2 --warmup 1 --json
cp "$dir/stdout" "$dir/profile.json"
sed -i 's/"plans":/"temperature_c":71.5,"plans":/' "$dir/b/metrics.jsonl" # of a machine that tells it
run note "$dir/a" "seen <twice>" --rejected "the seed is better"
run report "$dir/a" out="$dir/one.html"
code_is 0; says stderr "unproven, for want of"; silent stdout
run report "$dir/a" "$dir/b" --sweep "$dir/s" profile="$dir/profile.json" out="$dir/two.html" --json
code_is 0; one_line stdout; has_keys "$dir/stdout" out run proven
grep -q 'a sweep over' "$dir/one.html" || fault "the first page does not say that a sweep is missing"
grep -q 'a sweep over' "$dir/two.html" && fault "the second page says that a sweep is missing"
for words in 'Loss' 'Memory, MiB' 'Time of an update' 'Diagnosis' 'Comparison' 'Sweep of' 'device proof' 'seen &#60;twice&#62;' 'the seed is better' 'Temperature' 'Roofline' 'slowest launches' "$(sha256sum "$dir/profile.json" | cut -d' ' -f1)" 'prefers-color-scheme:dark' '@media print'; do
    grep -qF "$words" "$dir/two.html" || fault "the page lacks $words"
done
grep -q '<script\|http\|url(\|<link\|<img' "$dir/two.html" && fault "the page loads or runs something"
ok "a page has the runs, their curves, comparison and sweep, and says what a proof of speed lacks"

for tag in table tr td section figure svg p ul li h2 h3 div; do
    equal "$(grep -o "<$tag[ >]" "$dir/two.html" | wc -l)" "$(grep -o "</$tag>" "$dir/two.html" | wc -l)" "how often $tag is opened and closed"
done
ok "every element of the page is closed"

run report "$dir/none" out="$dir/x.html"
code_is 2; one_line stderr
run report "$dir/a" --sweep "$dir/a" out="$dir/x.html"
code_is 2; says stderr "sweep.json"
printf '{"points":{"a":1},"answers":"no","preset":[]}' >"$dir/s/sweep.json"
run report "$dir/a" --sweep "$dir/s" out="$dir/x.html"
code_is 0; says stderr "unproven"
run report "$dir/a" profile="$dir/s/sweep.json" out="$dir/x.html"
code_is 2; says stderr "no profile"
run report "$dir/a" profile="$dir/none" out="$dir/x.html"
code_is 2; one_line stderr
run report "$dir/a" out="$dir/nowhere/x.html"
code_is 2
ok "a missing run, a missing or foreign sweep and a folder that is not there are sentences"
# Files of a run are not written over by what a command is told to write.
before=$(cat "$dir"/a/metrics.jsonl "$dir"/a/config.yaml "$dir"/a/last.safetensors | cksum)
ln -s a/metrics.jsonl "$dir/link"
for command in "report $dir/a out=$dir/a/metrics.jsonl" "report $dir/a out=$dir/link" "pack $dir/a out=$dir/a/last.safetensors" \
    "export $dir/a out=$dir/a/best.safetensors" "profile demo $tiny --steps 1 --trace $dir/a/config.yaml" \
    "plan demo $tiny svg=$dir/a/logbook.jsonl" "selftest demo $tiny report=$dir/a/metrics.jsonl" \
    "predict $dir/a none.csv out=$dir/a/last.safetensors"; do
    # shellcheck disable=SC2086
    run $command
    code_is 1; says stderr "this is a file of a run"
done
equal "$(cat "$dir"/a/metrics.jsonl "$dir"/a/config.yaml "$dir"/a/last.safetensors | cksum)" "$before" "the run's files"
ok "a run's own files are not written over"
done_testing
