#!/usr/bin/env python3
"""Scores a submission.json for ARC against published solutions, with nothing but Python's library.

    score_arc.py submission.json PREFIX_SUBSET_challenges.json[.gz] PREFIX_SUBSET_solutions.json[.gz]

A test is right when either attempt is its solution; a puzzle counts by the share of its tests. A submission that lacks a
puzzle or a test, or whose grids are none, is refused with exit code 1."""
import gzip
import json
import sys


def load(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        return json.load(f)


def check_grid(where, grid):
    rows_fit = isinstance(grid, list) and 1 <= len(grid) <= 30 and all(isinstance(row, list) for row in grid)
    if not rows_fit or not 1 <= len(grid[0]) <= 30 or any(len(row) != len(grid[0]) for row in grid):
        sys.exit(f"{where}: not a grid of 1 to 30 rows of 1 to 30 cells")
    if any(type(cell) is not int or not 0 <= cell <= 9 for row in grid for cell in row):
        sys.exit(f"{where}: a cell is no colour of 0 to 9")


def main(submission_path, challenges_path, solutions_path):
    submission, challenges, solutions = load(submission_path), load(challenges_path), load(solutions_path)
    if set(submission) != set(challenges):
        sys.exit(f"{submission_path}: its puzzles are not those of {challenges_path}")
    first = both = 0.0
    for name, puzzle in challenges.items():
        answers = submission[name]
        if len(answers) != len(puzzle["test"]):
            sys.exit(f"{submission_path}: puzzle {name} has {len(puzzle['test'])} tests, not {len(answers)}")
        for i, (answer, solution) in enumerate(zip(answers, solutions[name])):
            attempts = [answer["attempt_1"], answer["attempt_2"]]
            for k, grid in enumerate(attempts):
                check_grid(f"{submission_path}: puzzle {name}, test {i + 1}, attempt {k + 1}", grid)
            first += (attempts[0] == solution) / len(answers)
            both += (solution in attempts) / len(answers)
    n = len(challenges)
    print(f"pass@1 {first / n:.4f}, pass@2 {both / n:.4f} over {n} test puzzles")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
