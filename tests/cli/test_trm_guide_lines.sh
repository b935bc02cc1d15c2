#!/bin/sh
# test_trm_guide_lines.sh: every command line of the guide to TinyRecursiveModels on Macs, typed as it stands there, `python` being anneal.
# The program is called through a wrapper that adds small sizes and few epochs behind what was typed, and takes bytes for GPT-2's tokens.
plan=4
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1

mkdir bin examples
cat >bin/anneal <<END
#!/bin/sh
case \$1 in
pretrain.py) exec "$program" "\$@" device=cpu threads=1 arch.forward_dtype=float32 arch.seq_len=24 arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 epochs=1 eval_epochs=1 log_interval=1 ;;
generate.py) exec "$program" "\$@" --max-new-tokens 3 ;;
esac
for word; do
    shift
    [ "\$word" = gpt2 ] && word=bytes
    set -- "\$@" "\$word"
done
exec "$program" "\$@"
END
chmod +x bin/anneal
PATH=$dir/bin:$PATH
cp "$dir/bin/anneal" bin/torchrun
sed -i 's/^case \$1 in$/set -- torchrun "$@"; case $1 in/' bin/torchrun

# Runs the lines of standard input, each in a shell of its own.
typed() {
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        sh -c "$line" >"$dir/stdout" 2>"$dir/stderr" </dev/null || fault "$line: $(tail -n 2 "$dir/stderr")"
    done
}

awk 'BEGIN { printf "["; for (i = 0; i < 170; i++) printf "%s{\"conversations\":[{\"from\":\"human\",\"value\":\"say %d\"},{\"from\":\"gpt\",\"value\":\"%d\"}]}", i ? ",\n" : "", i, i * 7; print "]" }' \
    >conversations.json
mkdir data
cp conversations.json data/
typed <<'END'
cd examples && anneal examples/prepare_example_chat_dataset.sh tokenizer=bytes
anneal -m dataset.build_chat_dataset --input-file data/conversations.json --output-dir data/chat-mps --tokenizer gpt2 --max-length 1024 --subsample-size 10000
anneal -m dataset.build_chat_dataset --max-length 512 --input-file data/conversations.json --output-dir data/chat-dataset --tokenizer gpt2
END
mv examples/data/example-chat-dataset data/ || fault "the example is not in the folder that it was typed in"
for name in my-chat-dataset small-dataset dev-dataset full-dataset; do cp -R data/chat-dataset data/$name; done
ok "the lines that prepare"

typed <<'END'
anneal pretrain.py --config-name cfg_chat data_paths=[data/my-chat-dataset]
anneal pretrain.py --config-name cfg_chat data_paths=[data/example-chat-dataset] global_batch_size=4 epochs=10
DISABLE_COMPILE=1 anneal pretrain.py --config-name cfg_chat data_paths=[data/example-chat-dataset] global_batch_size=4
anneal pretrain.py --config-name cfg_chat global_batch_size=8 \  # Smaller batch
anneal pretrain.py --config-name cfg_chat arch.seq_len=512 \  # Shorter sequences
anneal pretrain.py --config-name cfg_chat arch.hidden_size=512 arch.L_layers=2
anneal pretrain.py --config-name cfg_chat global_batch_size=2
anneal pretrain.py --config-name cfg_chat arch.hidden_size=384 arch.L_layers=2
for bs in 2 4 8 16 32; do anneal pretrain.py --config-name cfg_chat global_batch_size=$bs epochs=1 || exit 1; done
anneal pretrain.py --config-name cfg_chat data_paths=[data/small-dataset] global_batch_size=8 epochs=10 arch.hidden_size=512 arch.L_layers=2
anneal pretrain.py --config-name cfg_chat data_paths=[data/dev-dataset] epochs=10
anneal pretrain.py --config-name cfg_chat data_paths=[data/full-dataset] epochs=100 global_batch_size=128
anneal pretrain.py --config-name cfg_chat data_paths=[data/chat-mps] global_batch_size=16 epochs=50 arch.hidden_size=768 arch.L_layers=4 lr=3e-4 ema=True
END
# three lines in one, with comments behind the backslashes: to a shell they are a command and two others
sh -c "$(printf '%s\n' 'anneal pretrain.py --config-name cfg_chat global_batch_size=16 \  # Larger batch if memory allows' \
    'arch.hidden_size=768 \  # Larger model' 'arch.L_layers=4')" >"$dir/stdout" 2>"$dir/stderr" </dev/null
says stderr "an argument of blanks is passed over"
"$program" pretrain.py --config-name cfg_chat global_batch_size=16 ' ' arch.hidden_size=16 ' ' arch.L_layers=1 arch.num_heads=2 epochs=1 arch.seq_len=24 device=cpu \
    arch.forward_dtype=float32 >"$dir/stdout" 2>"$dir/stderr"
code=$?
code_is 0; says stderr "an argument of blanks is passed over"
for sizes in "arch.hidden_size=512 arch.L_layers=2" "arch.hidden_size=384 arch.L_layers=2" "arch.hidden_size=768 arch.L_layers=4 batch_size=16"; do
    # shellcheck disable=SC2086
    run plan cfg_chat $sizes data=data/chat-dataset device=null:cpu --json # at their full size the planner takes them
    code_is 0; has_keys "$dir/stdout" total_bytes
done
ok "the lines that train"

torchrun --nproc-per-node 2 pretrain.py --config-name cfg_chat >"$dir/stdout" 2>"$dir/stderr"
code=$?
code_is 2; says stderr "devices=0,1"; says stderr "--no-python"
ok "several processes on a Mac are refused with both remedies"

run=$(echo checkpoints/Example-chat-dataset-ACT-torch/trm_chat-*)
run=${run%% *}
step=$(basename "$(ls "$run"/step_*.safetensors | head -n 1)" .safetensors)
typed <<END
anneal generate.py --checkpoint $run/$step --prompt "Hello!" --max-new-tokens 50
echo quit | anneal generate.py --checkpoint $run/$step --interactive
END
anneal generate.py --checkpoint "$run/$step" >"$dir/stdout" 2>"$dir/stderr"
code=$?
code_is 1; says stderr "--prompt TEXT or --interactive is needed"
anneal generate.py --checkpoint "$run/$step" --prompt "Hello!" --device mps >"$dir/stdout" 2>"$dir/stderr" </dev/null
code=$?
if [ "$code" -ne 0 ]; then says stderr "Metal"; fi # not a Mac: a sentence names the device that is missing
ok "the lines that generate"
done_testing
