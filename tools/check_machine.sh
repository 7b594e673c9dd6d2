#!/usr/bin/env bash
# Says what this machine lacks for a build from source, all of it at once. Argument: the Python to build with.
set -u
python=${1:-python3}
missing=0

lack() {
    echo "missing: $1" >&2
    echo "         $2" >&2
    missing=1
}

if [ -n "${CXX:-}" ]; then
    command -v "${CXX%% *}" >/dev/null 2>&1 || lack "the C++ compiler named by CXX ($CXX)" "set CXX to g++ or clang++, or unset it"
elif ! command -v g++ >/dev/null 2>&1 && ! command -v clang++ >/dev/null 2>&1 && ! command -v c++ >/dev/null 2>&1; then
    lack "a C++17 compiler, g++ or clang++" "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install)"
fi

if ! command -v "$python" >/dev/null 2>&1; then
    lack "Python ($python)" "install Python 3.11 or newer, or name another: make PYTHON=python3.12 ..."
elif ! version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 11))'); then
    lack "Python 3.11 or newer ($python is ${version:-broken})" "name another: make PYTHON=python3.12 ..."
elif ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    lack "the venv module of $python" "install it (Debian, Ubuntu: apt install python3-venv)"
fi

exit $missing
