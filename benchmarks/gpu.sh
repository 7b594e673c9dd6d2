#!/bin/sh
# Checks and races the cells of benchmarks/gpu_cases.py on one GPU, in 8 minutes at most; start it again to go on.
#   benchmarks/gpu.sh [--platform cuda|rocm|tpu|cpu] [--json FILE] [--minutes M] [--rows PART] [--plan]
# Needs a Python (PYTHON=...) with JAX for the device, and torch where it is to take part. Builds nothing: it uses the library of this
# checkout where there is one, else an installed fastconv.
here=$(cd "$(dirname "$0")" && pwd)
[ -f "$here/../src/fastconv/libfastconv.so" ] && export PYTHONPATH="$here/../src${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" "$here/gpu.py" "$@"
