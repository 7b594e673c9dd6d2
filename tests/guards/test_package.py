"""The package as installed: what an import pulls in, and what it says without its library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastconv
from fastconv.plan import ALGORITHMS, FFT
from fastconv.plan.accelerators import PROGRAMS

PACKAGE = Path(fastconv.__path__[0])
USE = "import numpy as np; import fastconv; fastconv.conv(np.ones((1, 1, 8)), np.ones((1, 1, 3)))"


def new_modules(statement: str, after: str) -> set[str]:
    """Top-level modules outside the standard library that a statement loads in a fresh interpreter, once `after` has run."""
    code = f"import sys\n{after}\nbefore = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in out.split()} - set(sys.stdlib_module_names)


def test_import_loads_numpy_only() -> None:
    assert new_modules("import fastconv", after="import numpy") == {"fastconv"}


def test_a_convolution_loads_numpy_only() -> None:
    assert new_modules(USE, after="import numpy") == {"fastconv"}


def test_the_import_guard_fires() -> None:
    assert "scipy" in new_modules("import fastconv, scipy", after="import numpy")


@pytest.mark.parametrize("library", ["missing", "corrupt"])
def test_without_its_library_it_says_what_to_do(library: str, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "fastconv", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    if library == "corrupt":
        (tmp_path / "fastconv" / "libfastconv.so").write_bytes(b"no library")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {USE}"], capture_output=True, text=True
    )
    assert run.returncode != 0
    message = run.stderr[run.stderr.rindex("ImportError") :]
    assert "libfastconv.so" in message
    assert "pip install" in message or "make build" in message


@pytest.mark.parametrize(
    ("variable", "value", "rule"),
    [
        ("FASTCONV_ISA", "avx1024", "must be one of scalar, avx2, avx512, neon, got 'avx1024'"),
        ("FASTCONV_NUM_THREADS", "two", "must be an int of at least 1, got 'two'"),
        ("FASTCONV_NUM_THREADS", "0", "must be an int of at least 1, got '0'"),
        (
            "FASTCONV_ALGORITHM",
            "fastest",
            f"must be one of {', '.join([*(row.name for row in (*ALGORITHMS, FFT)), *PROGRAMS])}, got 'fastest'",
        ),
    ],
)
def test_an_environment_it_cannot_use_is_refused(variable: str, value: str, rule: str) -> None:
    run = subprocess.run([sys.executable, "-c", "import fastconv"], capture_output=True, text=True, env={**os.environ, variable: value})
    assert run.returncode != 0
    assert run.stderr.rstrip().endswith(f"ImportError: {variable} {rule}")
