#!/bin/sh
# run.sh: a program that is not ours, and that runs on Macs, trains on the stand-in: tinygrad's Metal device against its CPU device, launch by
# launch and through an indirect command buffer. Needs python3 and the package index (once: the environment is kept).
# Lines that begin with "# " are its figures.
set -eu
cd "$(dirname "$0")/../../.."
AN_BUILD=${AN_BUILD:-build}
mkdir -p "$AN_BUILD"
AN_BUILD=$(cd "$AN_BUILD" && pwd)
export AN_BUILD
env=$AN_BUILD/tinygrad
if [ ! -x "$env/bin/python" ] || ! "$env/bin/python" -c 'import tinygrad, numpy' 2>/dev/null; then
    python3 -m venv "$env"
    "$env/bin/pip" install -q tinygrad==0.14.0 numpy
fi
sh tests/metal/standin/build.sh "$AN_BUILD/standin"
export STANDIN="$AN_BUILD/standin/libmetal_standin.so"
export PARALLEL=0 CACHELEVEL=0 # tinygrad: compile in this process, keep nothing between runs
run() { # WAY SETTINGS
    ANNEAL_STANDIN="macos=15,pool=absent,misuse=record,$2" timeout 600 "$env/bin/python" tests/metal/tinygrad/train.py $1 >"$AN_BUILD/tinygrad.log" 2>&1 || {
        cat "$AN_BUILD/tinygrad.log"
        exit 1
    }
    sed "s/^/# ${1:-plain} $2: /" "$AN_BUILD/tinygrad.log"
}
run "" gpu=apple7,when=late
run "" gpu=apple9,when=random,seed=5
run jit gpu=apple9,when=late # before Apple9 tinygrad dispatches empty grids on purpose (its FIX_METAL_ICB), which is a misuse
run jit gpu=apple9,when=random,seed=7
# Kernels that others wrote: GPT2_METAL names the file (see kernels.py), which is not part of this project.
if [ -n "${GPT2_METAL:-}" ]; then
    for when in late random early; do
        ANNEAL_STANDIN="macos=15,pool=absent,misuse=record,gpu=apple9,when=$when,seed=5" timeout 600 "$env/bin/python" \
            tests/metal/tinygrad/kernels.py "$GPT2_METAL" >"$AN_BUILD/kernels.log" 2>&1 || {
            cat "$AN_BUILD/kernels.log"
            exit 1
        }
        tail -n 1 "$AN_BUILD/kernels.log" | sed "s/^/# when=$when: /"
    done
else
    echo "# kernels.py: not run, GPT2_METAL names no file"
fi
