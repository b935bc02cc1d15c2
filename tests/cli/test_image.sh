#!/bin/sh
# test_image.sh: classifiers of images: the built-in shapes, idx files, random changes in loader threads, resuming with running
# statistics, asking, and what is refused.
plan=9
. "$(dirname "$0")/tap.sh"
small="threads=1 batch_size=16 max_iters=12 eval_interval=6 eval_iters=4 warmup_iters=2 lr_decay_iters=12"

# shellcheck disable=SC2086  # settings are words
run train resnet $small filters=4 crop=3 flip=true jitter=0.2 zoom=0.3 label_smoothing=0.1 out="$dir/a" --json
code_is 0; has_keys "$dir/stdout" val_loss; says stderr "images/s"; says stderr "top5"; says stderr "1,800 images to train on, 200 to validate"
run inspect "$dir/a"
says stdout "layer2.0.downsample.1.running_var"; says stdout "layer1.0.conv1.weight"
grep -q 'mean: "0\.' "$dir/a/config.yaml" || fault "no mean in config.yaml"
# shellcheck disable=SC2086
run train resnet $small filters=4 crop=3 flip=true jitter=0.2 zoom=0.3 label_smoothing=0.1 out="$dir/b" max_iters=6 workers=3
run resume "$dir/b" max_iters=12 threads=2 workers=0
code_is 0
equal "$(state_hash "$dir/a")" "$(state_hash "$dir/b")" "state after 12 updates, resumed after 6, with other workers and threads"
ok "resnet learns, its statistics are kept, and a resumed run ends in the same bits whatever the workers"

# shellcheck disable=SC2086
run train cnn $small filters=4 hidden=16 out="$dir/c" optimizer=sgd momentum=0.9 learning_rate=0.01
code_is 0; says stderr accuracy
# shellcheck disable=SC2086
run train cnn_depthwise $small filters=4 hidden=16 out="$dir/d"
code_is 0
run inspect "$dir/d"
says stdout "conv3.weight"; says stdout "bn2.running_mean"
run eval "$dir/c" --json
code_is 0; has_keys "$dir/stdout" images loss accuracy top5
ok "cnn and its depthwise form train, by AdamW and by SGD with momentum"

# Two classes of 4 x 4: rows dark above, or dark below.
idx() { printf "\\000\\000\\010\\003\\000\\000\\000\\0$1\\000\\000\\000\\004\\000\\000\\000\\004"; }
up='\377\377\377\377\377\377\377\377\000\000\000\000\000\000\000\000' down='\000\000\000\000\000\000\000\000\377\377\377\377\377\377\377\377'
mkdir "$dir/own"
for f in train t10k; do
    { idx 04; printf "$up$down$up$down"; } >"$dir/own/$f-images-idx3-ubyte"
    printf '\000\000\010\001\000\000\000\004\000\001\000\001' >"$dir/own/$f-labels-idx1-ubyte"
done
gzip "$dir/own/train-images-idx3-ubyte"
run train cnn data="$dir/own" batch_size=4 max_iters=40 eval_interval=40 warmup_iters=2 learning_rate=1e-2 filters=4 hidden=8 threads=1 out="$dir/e"
code_is 0; says stderr "4 images to train on, 4 to validate"; says stderr "images of 4 x 4"
run predict "$dir/e" "$dir/own"
code_is 0; equal "$(cut -c1 "$dir/stdout" | tr -d '\n')" 0101 "classes of the images"
ok "idx files, also compressed, are learnt and predicted"

run train resnet init_from="$dir/a" data="$dir/own" batch_size=4 max_iters=2 eval_interval=2 warmup_iters=0 learning_rate=1e-4 threads=1 out="$dir/f"
code_is 0; says stderr "has no head of this shape: fc.weight, fc.bias start at random"; says stderr "images of 28 x 28"
run inspect "$dir/f"
says stdout "[2,16]"
run predict "$dir/f" "$dir/own"
code_is 0; equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 4 "images"
run resume "$dir/f" max_iters=4 --quiet
code_is 0
# shellcheck disable=SC2086
run train resnet $small init_from="$dir/a" filters=4 out="$dir/g"
code_is 0; grep -q "start at random" "$dir/stderr" && fault "a head of the same shape begins anew"
# shellcheck disable=SC2086
run train resnet $small init_from="$dir/a" mean=0.75 out="$dir/no"
code_is 1; says stderr "mean=0.75, but the weights of init_from="
ok "init_from takes another head's body, names what begins anew, and refuses another normalisation"

run plan resnet data=fashion-mnist height=28 width=28 channels=1 classes=10 --json
code_is 0; has_keys "$dir/stdout" parameters peak_bytes; equal "$(value "$dir/stdout" parameters)" 77754 parameters
run plan cnn --fit 64MiB
code_is 0; says stdout "fits     batch_size="
run bench cnn steps=2 warmup=1 threads=1 batch_size=4
code_is 0; says stdout "a step"
ok "plan and bench know them by their rows"

# Images of 8 x 8 in a folder for each class. The third differs from the first in one brightness, not in size.
png() { printf 'iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAE0lEQVR42m%s' "$1" | base64 -d >"$2"; }
upper='M4AQUMeBhyUICHAQCKExzBI0XDgAAAAABJRU5ErkJggg==' lower='OQgwIGPIwoKMDDAACVVw8BygafSgAAAABJRU5ErkJggg=='
brighter='M4CQUMeBhyUICHAQCQ0xzheakOdAAAAABJRU5ErkJggg=='
for split in train val; do
    mkdir -p "$dir/files/$split/dark_below" "$dir/files/$split/dark_above"
    for i in 1 2; do png $upper "$dir/files/$split/dark_below/$i.png"; png $lower "$dir/files/$split/dark_above/$i.png"; done
done
run train cnn data="$dir/files" channels=1 height=8 width=8 batch_size=4 max_iters=2 eval_interval=2 warmup_iters=0 filters=4 hidden=8 threads=1 out="$dir/h"
if [ "$code" != 0 ] && grep -q "libpng" "$dir/stderr"; then
    tests=$((tests + 1)) faults=
    echo "ok $tests - a changed file of a run of images # SKIP there is no libpng"
    tests=$((tests + 1))
    echo "ok $tests - a file that is emptied under the loader # SKIP there is no libpng"
else
    code_is 0; says stderr "4 images to train on, 4 to validate"
    mkdir "$dir/flat"; cp "$dir/files/val/dark_below/1.png" "$dir/flat/one.png"; cp "$dir/files/val/dark_above/1.png" "$dir/flat/two.png"
    run predict "$dir/h" "$dir/flat"
    code_is 0; equal "$(sed 's/.*  //' "$dir/stdout" | tr '\n' ' ')" "$dir/flat/one.png $dir/flat/two.png " "files behind the answers"
    mkdir -p "$dir/mix/thumbs"; cp "$dir/flat/one.png" "$dir/mix/a.png"; cp "$dir/flat/two.png" "$dir/mix/z.png"; cp "$dir/flat/one.png" "$dir/mix/thumbs/t.png"
    run predict "$dir/h" "$dir/mix"
    code_is 0; equal "$(sed 's/.*  //' "$dir/stdout" | tr '\n' ' ')" "$dir/mix/a.png $dir/mix/z.png $dir/mix/thumbs/t.png " "files of a folder and of a folder in it"
    run predict "$dir/h" "$dir/flat" --json
    code_is 0; says stdout "\"input\":\"$dir/flat/two.png\""
    cp "$dir/flat/one.png" "$dir/flat/without"
    run predict "$dir/h" "$dir/flat/without"
    code_is 0
    cp -r "$dir/files" "$dir/uneven"
    echo iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgBwAACQAIjau5AQAAAABJRU5ErkJggg== | base64 -d >"$dir/uneven/train/dark_above/3.png"
    run train cnn data="$dir/uneven" channels=1 batch_size=4 max_iters=1 out="$dir/u"
    code_is 1; says stderr "data=$dir/uneven: images of a folder are all brought to one size"
    run train cnn data="$dir/uneven" channels=1 height=8 width=8 batch_size=4 max_iters=1 warmup_iters=0 filters=4 hidden=8 threads=1 out="$dir/u"
    code_is 0
    cp -r "$dir/files" "$dir/live"
    cp -r "$dir/h" "$dir/i"; mv "$dir/files" "$dir/moved"
    run resume "$dir/h" data="$dir/moved" max_iters=4 --quiet
    code_is 0
    png $brighter "$dir/moved/train/dark_below/2.png"
    run resume "$dir/i" data="$dir/moved" max_iters=4 --quiet
    code_is 2; says stderr "as many images as the run began with, but other ones"
    ok "a run of image files goes on when their folder moved, and is refused when a file changed"

    live="channels=1 height=8 width=8 batch_size=4 warmup_iters=0 filters=4 hidden=8 threads=1 eval_interval=1000000 save_interval=2"
    # shellcheck disable=SC2086
    "$program" train cnn data="$dir/live" $live max_iters=1000000 workers=2 out="$dir/j" --quiet >"$dir/stdout" 2>"$dir/stderr" </dev/null &
    pid=$! tries=0
    until [ -f "$dir/j/last.safetensors" ] || [ $tries -ge 600 ]; do sleep 0.05; tries=$((tries + 1)); done
    : >"$dir/live/train/dark_above/1.png"
    wait $pid
    code=$?
    code_is 2; one_line stderr; says stderr "live/train/dark_above/1.png: the file changed since the data were opened (76 bytes then, 0 now)"
    png $lower "$dir/live/train/dark_above/1.png"
    run inspect "$dir/j" --json
    step=$(value "$dir/stdout" step)
    run resume "$dir/j" max_iters=$((step + 2)) --quiet
    code_is 0
    head -c 40 "$dir/live/val/dark_above/1.png" >"$dir/cut"; mv "$dir/cut" "$dir/live/val/dark_above/1.png"
    # shellcheck disable=SC2086
    run train cnn data="$dir/live" $live max_iters=2 eval_interval=1 workers=3 out="$dir/no"
    code_is 2; says stderr "live/val/dark_above/1.png: the PNG image is damaged or cut short"
    ok "a file that is emptied under the loader is named, and with the old one back the last checkpoint goes on; so is one that an evaluation reads"
fi

cp -r "$dir/own" "$dir/bad"
head -c 70 "$dir/own/t10k-images-idx3-ubyte" >"$dir/bad/t10k-images-idx3-ubyte"
run train cnn data="$dir/bad" out="$dir/no"
code_is 2; says stderr "t10k-images-idx3-ubyte: 54 bytes behind the header, where its sizes make 64"
head -c 40 "$dir/own/train-images-idx3-ubyte.gz" >"$dir/bad/train-images-idx3-ubyte.gz"
run train cnn data="$dir/bad" out="$dir/no"
code_is 2; says stderr "bad/train-images-idx3-ubyte.gz: "
cp -r "$dir/own" "$dir/odd"
printf '\000\000\010\001\000\000\000\004\000\001\000\310' >"$dir/odd/train-labels-idx1-ubyte"
run train cnn data="$dir/odd" out="$dir/no"
code_is 2; says stderr "train-labels-idx1-ubyte: the label of row 3 is 200, but only 3 of the classes 0 to 200 have a sample"
printf '\000\000\010\001\000\000\000\004\000\001\000\001' >"$dir/odd/train-labels-idx1-ubyte"
printf '\000\000\010\001\000\000\000\004\000\001\002\001' >"$dir/odd/t10k-labels-idx1-ubyte"
run train cnn data="$dir/odd" out="$dir/no"
code_is 2; says stderr "t10k-labels-idx1-ubyte: the label of row 2 is 2, of which there is no image to train on"
run train cnn data="$dir/own" batch_size=999 out="$dir/no"
code_is 2; says stderr "a batch of 999 is larger than the data, 4 images to train on: set batch_size=4"
run train cnn data=/nowhere out="$dir/no"
code_is 2; says stderr /nowhere
run train cnn data="$dir/own" mean=x out="$dir/no"
code_is 1; says stderr "mean=x"
run train cnn data="$dir/own" channels=3 out="$dir/no"
code_is 2; says stderr "its images have 1 channels, the model reads 3"
printf 'no image' >"$dir/x.png"
run predict "$dir/e" "$dir/x.png"
code_is 2; says stderr "x.png: neither a JPEG nor a PNG nor a WebP image"
run predict "$dir/e" /nowhere
code_is 2
ok "what is no data set and no image is a sentence"

run prepare fashion-mnist from="$dir/own" out="$dir/fashion"
code_is 2; says stderr "train-images-idx3-ubyte: not Fashion-MNIST's (sha256 "
run prepare fashion-mnist from=/nowhere out="$dir/fashion"
code_is 2; says stderr /nowhere
run prepare fashion-mnist mirror=file:///nowhere out="$dir/fashion"
code_is 2
if [ -d /usr/share/datasets/fashion-mnist ]; then # Debian's package
    run prepare fashion-mnist out="$dir/fashion" --json
    code_is 0; equal "$(value "$dir/stdout" train) $(value "$dir/stdout" test)" "60000 10000" "images"
    equal "$(wc -c <"$dir/fashion/train-images-idx3-ubyte" | tr -d ' ')" 47040016 "bytes of the training images"
fi
ok "prepare fashion-mnist takes the four files by their SHA-256 and no others"
done_testing
