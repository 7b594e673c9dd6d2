#!/usr/bin/env bash
# Builds the library with a sanitizer (preset asan or tsan) and runs tests against it, in a copy of the package beside that build.
# Arguments: the preset, then pytest's. PYTHON must have the test requirements (make test leaves them in .venv).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
python=${PYTHON:-.venv/bin/python}
PATH="$PATH:$PWD/.venv/bin"

include=${FASTCONV_XLA_INCLUDE:-$("$python" tools/xla_headers.py)}
cmake --preset "$preset" -DFASTCONV_XLA_INCLUDE="$include" >"build/$preset.log"
cmake --build --preset "$preset" >>"build/$preset.log"
copy=build/$preset/python
rm -rf "$copy"
mkdir -p "$copy"
cp -r src/fastconv "$copy/fastconv"
cp "build/$preset/libfastconv.so" "$copy/fastconv/libfastconv.so"

runtime=libasan.so
run=()
if [ "$preset" = tsan ]; then
    runtime=libtsan.so
    run=(setarch -R) # its shadow memory wants fixed addresses
fi
# Faults inside the fenced tests belong to the tests; Python's own allocations are not leaks of ours. A forked child starts threads of
# its own, which the thread sanitizer allows when asked to.
export ASAN_OPTIONS=detect_leaks=0:handle_segv=0:handle_sigbus=0
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:handle_segv=0:handle_sigbus=0:die_after_fork=0:suppressions=$PWD/tools/tsan.supp
export LD_PRELOAD="$(g++ -print-file-name=$runtime):$(g++ -print-file-name=libstdc++.so)"
export PYTHONPATH=$copy
exec "${run[@]}" "$python" -m pytest -q --capture=sys -p no:cacheprovider "$@"
