#!/bin/sh
# test_guide.sh: every command of docs/guide.md, in its order, in one folder. Only what is large is replaced, by programs that stand
# first on the path: `anneal` adds settings of a small model, `curl` copies small weights, and shakespeare is a short text of its own.
# Names of settings, files and folders are the guide's.
. "$(dirname "$0")/tap.sh" 2>/dev/null >&2
guide=$(pwd)/docs/guide.md
weights=$(pwd)/tests/torch/hf
blocks=$(grep -c '^```sh$' "$guide")
plan=$((blocks + 1))
echo "1..$plan"

mkdir "$dir/bin" "$dir/work"
# Characters of a text whose vocabulary is that of the small weights, or less.
yes "ROMEO: MENENIUS: to be, or not to be" | head -c 4000 >"$dir/short.txt"

cat >"$dir/bin/curl" <<SCRIPT
#!/bin/sh
while [ \$# -gt 1 ] && [ "\$1" != -o ]; do shift; done
exec cp '$weights/model.safetensors' '$weights/config.json' "\$(dirname "\$2")"
SCRIPT
cat >"$dir/bin/anneal" <<SCRIPT
#!/bin/sh
small="n_layer=1 n_head=2 n_embd=16 block_size=8 batch_size=2"
run="max_iters=6 eval_interval=3 eval_iters=2 warmup_iters=2 lr_decay_iters=6"
case "\$*" in
"prepare shakespeare"*" out="*) exec ${WRAP:-} $program prepare '$dir/short.txt' "out=\${*##* out=}" ;;
"prepare shakespeare"*) exec ${WRAP:-} $program prepare '$dir/short.txt' out=data/shakespeare_char ;;
*finetune_shakespeare*) exec ${WRAP:-} $program "\$@" n_layer=2 n_head=2 n_embd=16 vocab_size=33 bias=true block_size=8 \\
    init_from=gpt2/model.safetensors max_iters=2 eval_iters=2 gradient_accumulation_steps=2 ;;
"train "*) exec ${WRAP:-} $program "\$@" \$small \$run ;;
"resume "*) exec ${WRAP:-} $program "\$@" max_iters=8 ;;
"plan gpt2"*) exec ${WRAP:-} $program "\$@" \$small gradient_accumulation_steps=1 ;;
"bench matmul"*) exec ${WRAP:-} $program "\$@" --n 64 --iters 5 ;;
"bench "* | "profile "*) exec ${WRAP:-} $program "\$@" \$small --steps 2 ;;
"plan "* | "selftest"*) exec ${WRAP:-} $program "\$@" \$([ \$# -eq 1 ] && echo demo) \$small ;;
"doctor"*) exec ${WRAP:-} $program "\$@" measure=false ;;
*) exec ${WRAP:-} $program "\$@" ;;
esac
SCRIPT
chmod +x "$dir/bin/curl" "$dir/bin/anneal"

# Writes block number $1 of the guide to $dir/block and its heading to $dir/heading.
block() {
    awk -v want="$1" -v block="$dir/block" -v heading="$dir/heading" '
        /^## / { title = substr($0, 4) }
        /^```/ { if (inside) { inside = 0; if (n == want) exit } else if ($0 == "```sh") { inside = 1; n++; if (n == want) print title >heading } ; next }
        inside && n == want { print >block }' "$guide"
}

i=1
while [ "$i" -le "$blocks" ]; do
    block "$i"
    lines=0
    while IFS= read -r command; do
        (cd "$dir/work" && PATH=$dir/bin:$PATH sh -c "$command") >"$dir/stdout" 2>"$dir/stderr" </dev/null
        code=$?
        [ "$code" -eq 0 ] || fault "'$command' gave $code: $(tail -n 2 "$dir/stderr" | tr '\n' ' ')"
        lines=$((lines + 1))
    done <"$dir/block"
    [ "$lines" -ge 2 ] || fault "block $i has $lines lines"
    ok "the guide's commands work: $(cat "$dir/heading")"
    rm -f "$dir/block"
    i=$((i + 1))
done

cd "$dir/work" || exit 1
for file in run/last.safetensors bard/best.safetensors bard/metrics.jsonl bard/loss.svg bard/config.yaml \
    bard/logbook.jsonl data/shakespeare_char/train.bin data/shakespeare_char/meta.json trace.json finetuned/hf.safetensors; do is_file "$file"; done
ok "the files that the guide speaks of are there"
done_testing
