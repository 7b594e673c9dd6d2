#!/usr/bin/env bash
# Says what this machine lacks for a build from source, all of it at once. Arguments: Python, folder of the virtual environment.
set -u
python=${1:-python3}
venv=${2:-.venv}
missing=0

lack() {
    echo "missing: $1" >&2
    echo "         $2" >&2
    missing=1
}

if [ -n "${CXX:-}" ]; then
    command -v "${CXX%% *}" >/dev/null 2>&1 || lack "the C++ compiler CXX=$CXX" "set CXX to g++ or clang++, or unset it"
elif ! command -v g++ >/dev/null 2>&1 && ! command -v clang++ >/dev/null 2>&1 && ! command -v c++ >/dev/null 2>&1; then
    lack "a C++17 compiler" "install g++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++) or clang++ (macOS: xcode-select --install)"
fi

if ! command -v "$python" >/dev/null 2>&1; then
    lack "Python ($python)" "install Python 3.11 or newer, or name one: make PYTHON=python3.12 ..."
elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    lack "Python 3.11 or newer ($python is $("$python" -c 'import platform; print(platform.python_version())'))" "name another: make PYTHON=python3.12 ..."
elif [ ! -e "$venv/bin/python" ] && ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    lack "Python's venv module ($python)" "install it (Debian, Ubuntu: apt install python3-venv)"
fi

exit $missing
