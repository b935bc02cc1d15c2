# tasks.sh: what tests train of each task; sourced behind tap.sh in the folder $dir, with the checkout's root in $root. Leaves the rows in the
# file `table`: file of src/train/tasks (or what is particular) | what to train | settings

"$program" prepare example-chat tokenizer=bytes out=chat >/dev/null 2>&1
mkdir rows
cp "$root/tests/import/train/rows.npy" "$root/tests/import/train/labels.npy" rows/

tr -s ' ' >table <<END
language       | macbook  | $tiny
narrow_weights | macbook  | $tiny n_embd=32 gradient_accumulation_steps=2 weights_dtype=bfloat16 moments_dtype=bfloat16
puzzle         | sudoku_4x4 | arch.hidden_size=16 arch.halt_max_steps=3 batch_size=8 eval_iters=2 warmup_iters=2 lr_decay_iters=40
conversation   | cfg_chat | data=chat arch.seq_len=48 arch.hidden_size=16 arch.num_heads=2 arch.L_layers=1 batch_size=4 dtype=float32 epochs=0 eval_epochs=0 lr_decay_iters=40 warmup_iters=2
text_classes   | issues   | width=24 batch_size=8
image_classes  | cnn      | batch_size=8 eval_iters=2 warmup_iters=2 lr_decay_iters=40 crop=2 flip=true
table          | mlp      | hidden=16
samples        | $root/tests/import/train/classes.pt2 | data=rows batch_size=20 warmup_iters=2 lr_decay_iters=40
END
