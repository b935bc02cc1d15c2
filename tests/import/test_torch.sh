#!/bin/sh
# test_torch.sh: torch.compile(backend="anneal") and anneal.torch.step beside PyTorch, by tests/import/torch_tests.py, from the wheel.
python=${PYTHON:-python3}
if ! "$python" -c 'import torch, sys; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9))' 2>/dev/null; then
    echo "1..1"
    echo "ok 1 - torch.compile(backend=anneal) and steps are those of PyTorch # SKIP $python has no PyTorch of 2.9 or newer"
    exit 0
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/anneal-torch.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
library=$(ls "${AN_BUILD:-build}"/libanneal.so.* "${AN_BUILD:-build}"/libanneal.*.dylib 2>/dev/null | head -n 1)
"$python" tools/wheel.py "$library" "$dir" >"$dir/log" 2>&1 && "$python" -m zipfile -e "$dir"/*.whl "$dir/site" || {
    echo "1..1"
    echo "not ok 1 - the wheel is made"
    sed 's/^/# /' "$dir/log"
    exit 1
}
PYTHONPATH=$dir/site "$python" -W ignore tests/import/torch_tests.py
