#!/bin/sh
# test_report.sh: one HTML page about runs.
plan=5
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

# A narrow and a wide window in a browser: nothing is wider than the window, and no cell of a short text is squeezed into a column of letters.
if command -v chromium >/dev/null 2>&1; then
    run note "$dir/a" "$(printf 'x%.0s' $(seq 300))"
    # Losses of many digits: a run that diverges, with exponents of either sign in its numbers.
    cp -r "$dir/b" "$dir/large"
    sed -i 's/"loss":\([0-9.]*\)/"loss":-\1e9/; s/"grad_norm":\([0-9.]*\)/"grad_norm":\1e-7/; s/"ms":/"ms":12345/' "$dir/large/metrics.jsonl"
    run report "$dir/a" "$dir/b" "$dir/large" --sweep "$dir/s" profile="$dir/profile.json" out="$dir/long.html"
    code_is 0
    for width in 420 1400; do
        cat >"$dir/frame.html" <<HTML
<iframe id=f style="border:0;width:${width}px;height:9000px" src="file://$dir/long.html"></iframe><p id=told></p><script>
f.onload = function () {
    var d = f.contentDocument, bad = []
    if (d.documentElement.scrollWidth > $width) bad.push("the page is " + d.documentElement.scrollWidth + " wide")
    d.querySelectorAll("td,th").forEach(function (c) { if (c.textContent.length < 12 && c.textContent && c.firstChild.nodeType === 3) {
        var r = d.createRange(); r.selectNodeContents(c)
        if (r.getBoundingClientRect().height > 50) bad.push("squeezed: " + c.textContent) } })
    d.querySelectorAll("svg text").forEach(function (t) {
        var r = t.getBoundingClientRect(), s = t.ownerSVGElement.getBoundingClientRect()
        if (r.left < s.left - 1 || r.right > s.right + 1) bad.push("cut off: " + t.textContent) })
    told.textContent = "looked at $width: " + (bad.join("; ") || "good") + "."
}
</script>
HTML
        timeout 60 chromium --headless=new --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$dir/profile-dir" --window-size=1500,900 \
            --virtual-time-budget=5000 --dump-dom "file://$dir/frame.html" >"$dir/stdout" 2>/dev/null
        says stdout "looked at $width: good."
    done
    ok "a browser shows the page in a narrow and in a wide window, and cuts no text of a chart off"
else
    skip "a browser shows the page in a narrow and in a wide window" "there is no chromium"
fi

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
