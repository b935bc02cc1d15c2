#!/bin/sh
# test_prepare_puzzles.sh: data sets of Sudokus and mazes, of files and made here; that no test puzzle is an image of a training
# one is tests/unit/test_sudoku_set.c.
plan=6
. "$(dirname "$0")/tap.sh"

one=53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79
two=..............3.85..1.2.......5.7.....4...1...9.......5......73..2.1........4...9
printf '# two puzzles\n%s\n%s\n' $one $two >"$dir/list.txt"
gzip -k "$dir/list.txt"

run prepare sudoku from="$dir/list.txt.gz" out="$dir/a" num_aug=3 --json
code_is 0; one_line stdout
equal "$(value "$dir/stdout" train) $(value "$dir/stdout" train_examples) $(value "$dir/stdout" test)" "1 4 1" "puzzles"
is_file "$dir/a/identifiers.json"; is_file "$dir/a/test/all__group_indices.npy"
run prepare sudoku --from "$dir/list.txt.gz" --output-dir "$dir/b" --num-aug 3
cmp -s "$dir/a/train/all__inputs.npy" "$dir/b/train/all__inputs.npy" || fault "not the same files again"
run prepare sudoku from="$dir/list.txt.gz" out="$dir/c" num_aug=3 seed=1
cmp -s "$dir/a/train/all__inputs.npy" "$dir/c/train/all__inputs.npy" && fault "the seed changes nothing"
ok "lists are solved, divided and augmented, the same with the same seed"

printf 'source,question,answer,rating\nx,%s,%s,7\ny,%s,,1\n' $one \
    534678912672195348198342567859761423426853791713924856961537284287419635345286179 $two >"$dir/list.csv"
run prepare sudoku from="$dir/list.csv" out="$dir/d" min_difficulty=5
code_is 2; says stderr "the training split is empty"
run prepare sudoku from="$dir/list.csv" out="$dir/d"
code_is 2; says stderr "list.csv:3: the answer is no full board"
sed -n 's/534678912/543678912/;1,2p' "$dir/list.csv" >"$dir/wrong.csv"
run prepare sudoku from="$dir/list.txt" test="$dir/wrong.csv" out="$dir/d" subsample_size=1
code_is 2; says stderr "wrong.csv:2: the answer"
run prepare sudoku sourse=somewhere
code_is 1; says stderr "anneal prepare sudoku --help lists them"
for what in sudoku maze; do # the original's builders download
    run -m dataset.build_${what}_dataset --source-repo some/where
    code_is 1; says stderr "https://huggingface.co/datasets/some/where"; says stderr "--from train.csv --test test.csv"
done
ok "a CSV file's answers and ratings count"

for bad in "4${one#?}:has no solution" "...........................$(printf '%s' $one | cut -c28-81):has several solutions" \
    "$(printf '%s' $one | cut -c1-80)x:is no puzzle of 81 characters" "123:is no puzzle of 81 characters"; do
    printf '%s\n%s\n' $two "${bad%:*}" >"$dir/bad.txt"
    run prepare sudoku from="$dir/bad.txt" out="$dir/d" test_size=1 subsample_size=1
    code_is 2; one_line stderr; says stderr "bad.txt:2: "; says stderr "${bad#*:}"
done
run prepare sudoku from="$dir/list.txt" out="$dir/d" subsample_size=3
code_is 2; says stderr "has 2 puzzles, of which subsample_size takes 3"
run prepare sudoku out="$dir/d"
code_is 1; says stderr "generate=N"
ok "a puzzle without one solution, a ragged one and too few of them are named with file and line"

for size in 4 6 9; do
    run prepare sudoku generate=20 size=$size out="$dir/made$size" test_size=4 --json
    code_is 0
    equal "$(value "$dir/stdout" train) $(value "$dir/stdout" test)" "20 4" "puzzles of $size"
done
run prepare sudoku generate=20 size=5 out="$dir/no"
code_is 1; says stderr "size=5: puzzles that are made have size 4, 6 or 9"
run prepare sudoku --generate 20 --size 4,6,9 --test-size 4 --out "$dir/sizes"
code_is 0; equal "$(wc -l <"$dir/stdout" | tr -d ' ')" 3 "data sets"
for size in 4 6 9; do
    cmp -s "$dir/sizes/${size}x$size/train/all__inputs.npy" "$dir/made$size/train/all__inputs.npy" || fault "another set of $size"
done
for size in 4,4 4,5 ,; do
    run prepare sudoku generate=20 size=$size out="$dir/no"
    code_is 1; says stderr "size=$size: "
done
run prepare sudoku generate=100000 size=4 givens=15 out="$dir/no"
code_is 2; says stderr "there are not so many different puzzles of this size"
ok "boards of 4, 6 and 9 are made, and as many as there are"

run prepare maze generate=20 test_size=3 out="$dir/m" --json
code_is 0
equal "$(value "$dir/stdout" train) $(value "$dir/stdout" test)" "20 3" "mazes"
run prepare maze generate=10 size=9 min_path=8 out="$dir/m8" aug=true
code_is 0; says stdout "80 with their images"
run prepare maze generate=10 size=5 min_path=40 out="$dir/no"
code_is 2; says stderr "lower min_path"
ok "mazes have paths as long as asked"

cat >"$dir/m.csv" <<'END'
source,question,answer,rating
a,S  #G#   ,SooG#o ,1
END
run prepare maze from="$dir/m.csv" out="$dir/no"
code_is 2; says stderr "m.csv:2: question and answer are no squares"
for bad in "S  ## G  ,Soo##oGoo:" "S  ## G  ,S  ##oG  :no shortest path" "S  ###G  ,S  ###G  :no path leads" "S  ## G S,Soo##oG S:not one of each"; do
    printf 'source,question,answer,rating\nb,%s,1\nc,S G##    ,SoG##    ,1\n' "${bad%:*}" >"$dir/m.csv"
    run prepare maze from="$dir/m.csv" out="$dir/mm"
    case $bad in
    *:) code_is 0; says stdout "paths of 2 to 6 steps" ;;
    *) code_is 2; says stderr "m.csv:2: "; says stderr "${bad##*:}" ;;
    esac
done
ok "a maze without a path, or whose answer is none, is named with file and line"
done_testing
