"""FASTCONV_JAX=1 installs fastconv in programs that do not know it; without it JAX's look for plugins costs one empty import."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import fastconv

pytest.importorskip("jax")

PACKAGES = Path(fastconv.__path__[0]).parent
PROGRAM = """
import sys
import jax, jax.numpy as jnp
f = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"))
x, w = jnp.ones((4, 16, 64, 64)), jnp.ones((16, 16, 3, 3))
print("fastconv_conv" in f.lower(x, w).as_text(), float(f(x, w)[0, 0, 1, 1]), "fastconv" in sys.modules)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which JAX finds the entry point: as installed, or as pyproject.toml would have it installed."""
    paths = [str(PACKAGES), os.environ.get("PYTHONPATH", "")]
    if not any(point.value == "fastconv_jax_plugin" for point in entry_points(group="jax_plugins")):
        project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
        lines = [f"{name} = {value}" for name, value in project["entry-points"]["jax_plugins"].items()]
        folder = tmp_path / "fastconv-0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fastconv\nVersion: 0\n")
        (folder / "entry_points.txt").write_text("\n".join(["[jax_plugins]", *lines, ""]))
        paths.append(str(tmp_path))
    inherited = {name: value for name, value in os.environ.items() if name != "FASTCONV_JAX"}
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def python(code: str, environment: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, timeout=120)


def test_a_program_that_does_not_know_fastconv_is_accelerated(environment: dict[str, str]) -> None:
    done = python(PROGRAM, environment, FASTCONV_JAX="1")
    assert done.stdout.split() == ["True", "144.0", "True"], done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("value", [None, "", "0"])
def test_without_the_variable_nothing_is_imported(value: str | None, environment: dict[str, str]) -> None:
    done = python(PROGRAM, environment, **({} if value is None else {"FASTCONV_JAX": value}))
    assert done.stdout.split() == ["False", "144.0", "False"], done.stderr


def test_another_value_is_logged_and_the_program_goes_on(environment: dict[str, str]) -> None:
    done = python(PROGRAM, environment, FASTCONV_JAX="yes")
    assert done.stdout.split() == ["False", "144.0", "False"], done.stderr
    assert "ValueError: FASTCONV_JAX must be 0 or 1, got 'yes'" in done.stderr


def test_activation_starts_no_backend(environment: dict[str, str]) -> None:
    code = (
        "import fastconv_jax_plugin as plugin; plugin.initialize(); import fastconv.jax.switch as switch; "
        "from jax._src import xla_bridge; print(switch._on.value, xla_bridge.backends_are_initialized())"
    )
    done = python(code, environment, FASTCONV_JAX="1")
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_the_plugin_imports_nothing(environment: dict[str, str]) -> None:
    code = "import sys; before = set(sys.modules); import fastconv_jax_plugin as p; p.initialize(); print(*set(sys.modules) - before)"
    done = python(code, environment)
    assert done.stdout.split() == ["fastconv_jax_plugin"], done.stderr
