#!/usr/bin/env bash
# A smoke test of the JAX front, as installed from a wheel, on the oldest release of JAX that it serves and on the newest of those that
# a Python here can install. Argument: the wheel. Where no Python fits, that is said in a line and nothing fails.
# JAX_NEWEST=jax tries whatever release is the newest: to be done before _compat.NEWEST is raised.
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$1
oldest=$(sed -n 's/^jax = \["jax>=\(.*\)"\]$/\1/p' pyproject.toml)
newest=${JAX_NEWEST:-jax<=$(sed -n 's/^NEWEST = (\([0-9]*\), \([0-9]*\))$/\1.\2/p' src/fastconv/jax/_compat.py).999}
tests=(tests/fronts/test_jax_{versions,switch,activation,report}.py)

# The first of these versions of Python that starts, by name or from pyenv.
first_python() {
    local version found
    for version in "$@"; do
        for found in "python$version" "$(pyenv_python "$version")"; do
            if [ -n "$found" ] && "$found" -c 'import venv, ensurepip' 2>/dev/null; then echo "$found"; return; fi
        done
    done
}

pyenv_python() {
    local latest
    latest=$(pyenv latest "$1" 2>/dev/null) && echo "$(pyenv prefix "$latest")/bin/python" || true
}

# smoke NAME PYTHON JAX: an environment of its own, without the packages that the other tests need.
smoke() {
    local place=build/jax-$1
    rm -rf "$place"
    "$2" -m venv "$place"
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" "$3" "pytest>=8"
    "$place/bin/python" -c 'import sys, jax, jaxlib; print("Python", sys.version.split()[0], "jax", jax.__version__, "jaxlib", jaxlib.__version__)'
    "$place/bin/pytest" -q --noconftest -p no:cacheprovider "${tests[@]}"
}

start() {
    if [ -z "$2" ]; then
        echo "the $1 jax: no Python $4 here, skipped"
    else
        smoke "$1" "$2" "$3" >"build/jax-$1.log" 2>&1 &
        running+=("$1:$!")
    fi
}

mkdir -p build
running=()
start oldest "$(first_python 3.11 3.12 3.13)" "jax==$oldest" "3.11 to 3.13"
start newest "$(first_python 3.14 3.13 3.12)" "$newest" "3.12 or newer"
status=0
for each in ${running[@]+"${running[@]}"}; do
    wait "${each#*:}" || status=1
    echo "the ${each%:*} jax:"
    cat "build/jax-${each%:*}.log"
done
exit $status
