#!/usr/bin/env bash
# Compiles the library for development: build/dev -> src/fastconv/libfastconv.so, replaced in one step so that running
# processes keep the file they mapped. Argument: the Python that downloads the XLA headers.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}

need() {
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "make build: $1 is missing: install it ($2)" >&2
        exit 1
    fi
}
[ -d .venv/bin ] && PATH="$PATH:$PWD/.venv/bin"
need cmake "pip install cmake, or your system's package"
need ninja "pip install ninja, or your system's package ninja-build"

include=${FASTCONV_XLA_INCLUDE:-}
if [ -z "$include" ]; then
    include=$("$python" tools/xla_headers.py) || include=
fi
mkdir -p build
cmake --preset dev -DFASTCONV_XLA_INCLUDE="$include" >build/configure.log || { cat build/configure.log; exit 1; }
grep "JAX front" build/configure.log
cmake --build --preset dev
cp build/dev/libfastconv.so src/fastconv/.libfastconv.$$.so
mv -f src/fastconv/.libfastconv.$$.so src/fastconv/libfastconv.so
