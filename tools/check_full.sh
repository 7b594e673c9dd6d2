#!/usr/bin/env bash
# Everything that continuous integration samples, in full: soak between fences, sanitizers, NEON under emulation.
# PROBLEMS: how many each driver runs at each instruction-set level (default 5000).
set -euo pipefail
cd "$(dirname "$0")/.."
problems=${PROBLEMS:-5000}
python=.venv/bin/python

step() { printf '\n== %s\n' "$*"; }

need() {
    command -v "$1" >/dev/null 2>&1 || {
        echo "make check-full: $1 is missing: install it (Debian, Ubuntu: apt install $2)" >&2
        exit 1
    }
}
need aarch64-linux-gnu-g++ g++-aarch64-linux-gnu
need qemu-aarch64-static qemu-user-static
need setarch util-linux
$python -c 'import cmake, ninja' 2>/dev/null || $python -m pip install --quiet --disable-pip-version-check cmake ninja

# A soak is one process that uses two threads now and then: two, with half the problems each, fill two cores.
soak() {
    .venv/bin/fastconv soak --minutes 0 --problems $(((problems + 1) / 2)) "$@" --seed 1000001 >build/soak.log 2>&1 &
    half=$!
    trap 'kill $half 2>/dev/null || true' EXIT
    .venv/bin/fastconv soak --minutes 0 --problems $(((problems + 1) / 2)) "$@" --seed 1
    wait $half || { cat build/soak.log; exit 1; }
    cat build/soak.log
    trap - EXIT
}

step "soak between fences: $problems problems for each driver and level, in two halves"
soak --fences

step "address and undefined-behaviour sanitizers"
tools/sanitized.sh asan tests/kernels

step "thread sanitizer"
tools/sanitized.sh tsan tests/kernels/test_grid.py tests/fronts/test_numpy_process.py -k "not memory" # its shadow is memory too

step "NEON under emulation"
include=${FASTCONV_XLA_INCLUDE:-$($python tools/xla_headers.py)}
PATH="$PATH:$PWD/.venv/bin"
cmake --preset neon -DFASTCONV_XLA_INCLUDE="$include" >build/neon.log
cmake --build --preset neon >>build/neon.log
export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
runner="qemu-aarch64-static build/neon/runner"
FASTCONV_TEST_RUNNER=$runner $python -m pytest -q tests/kernels/test_kernels.py
soak --isa neon --runner "$runner"

printf '\ncheck-full: soak, fences, sanitizers and NEON are clean\n'
