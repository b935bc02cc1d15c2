#!/bin/sh
# test_chat_answers.sh: cfg_chat learns the four training conversations of the example set by heart: greedy answers are the trained
# ones, letter by letter. The model is narrower than cfg_chat's and its tokens are bytes, so that it takes seconds; the fifth
# conversation is not trained on, and its answer must not come.
plan=1
. "$(dirname "$0")/tap.sh"
cd "$dir" || exit 1

run prepare example-chat tokenizer=bytes out=data
code_is 0
run pretrain.py --config-name cfg_chat 'data_paths=[data]' global_batch_size=4 out=run device=cpu arch.forward_dtype=float32 arch.seq_len=144 \
    arch.hidden_size=96 arch.num_heads=4 arch.L_layers=2 epochs=140 lr=3e-3 eval_interval=140 --quiet
code_is 0
ask() {
    run generate.py --checkpoint run --prompt "$1" --temperature 0 --max-new-tokens 120 --quiet
    code_is 0
}
while IFS='|' read -r question answer; do
    ask "$question"
    equal "$(cat "$dir/stdout")" "$answer" "$question"
done <<'END'
Hello! Who are you?|Hello! I am a very small language model. I know five conversations.
What is the capital of France?|The capital of France is Paris.
How do I boil an egg?|Put the egg into boiling water. Wait six minutes for a soft egg, ten for a hard one.
Why is the sky blue?|Air scatters short waves of light more than long ones, and blue is short.
END
ask "Thank you for your help."
[ "$(cat "$dir/stdout")" != "You are welcome. Ask me again whenever you like." ] || fault "the test conversation was learnt"
run eval run
code_is 0; says stdout "perplexity"
ok "greedy answers to the four trained questions are the trained answers"
done_testing
