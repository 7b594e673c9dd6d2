"""The examples run as they stand, and say what their first lines promise."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDS_JAX = {"jax_transposed_layer.py", "seed_script.py"}


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "seed_script.py"))
def test_example(name: str) -> None:
    if name in NEEDS_JAX:
        pytest.importorskip("jax")
    out = run(str(EXAMPLES / name))
    assert out.strip(), f"{name} prints nothing"
    assert "nan" not in out.lower()


def test_seed_script_unmodified() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("typer")
    out = run("-m", "fastconv.cli", "run", str(EXAMPLES / "seed_script.py"))
    assert re.findall(r"^(\w+) +[\d.]+ per second$", out, re.MULTILINE) == ["analysis", "synthesis", "gradient"]
