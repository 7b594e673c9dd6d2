"""Releases of JAX: the installed one is served, and one that is not as expected gets plain XLA and one warning, never a crash."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastconv

jax = pytest.importorskip("jax")

from jax.interpreters import mlir  # noqa: E402

from fastconv.jax import _compat  # noqa: E402

PROGRAM = """
import sys, warnings
import jax, jax.numpy as jnp
{change}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import fastconv.jax as fj
    x, w = jnp.ones((2, 16, 32, 32)), jnp.ones((16, 16, 3, 3))
    def f(x, w):
        return jax.lax.conv(x, w, (1, 1), "SAME")
    plain = jax.jit(lambda x, w: f(x, w)).lower(x, w).as_text()
    fj.install(timing=True, sharded=True)
    fj.install()
    with fj.accelerate():
        inside = jax.jit(lambda x, w: f(x, w)).lower(x, w).as_text()
    after = jax.jit(jax.grad(lambda w: f(x, w).sum())).lower(w).as_text()
    y = fj.conv(x, w, (1, 1), "SAME", bias=jnp.ones(16), activation="relu")
    dw = jax.grad(lambda w: fj.conv(x, w, (1, 1), "SAME").sum())(w)
    fj.uninstall()
print("fastconv_" in after, inside == plain, float(y[0, 0, 1, 1]), float(dw[0, 0, 1, 1]), len(fj.report().convolutions))
print(*(f"{{one.category.__name__}}: {{one.message}}" for one in caught), sep="\\n")
"""
CHANGES = {
    "a newer release": "jax.__version__, jax.__version_info__ = '0.99.1', (0, 99, 1)",
    "no primitive": "import jax.extend.core.primitives as p; del p.conv_general_dilated_p",
}


def run(change: str, **variables: str) -> list[str]:
    paths = os.pathsep.join(filter(None, (str(Path(fastconv.__path__[0]).parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, **variables}
    command = [sys.executable, "-c", PROGRAM.format(change=change)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_the_installed_release_is_served() -> None:
    assert _compat.unserved is None
    result, *warned = run("")
    assert result.split()[0] == "True"
    assert result.split()[1:4] == ["False", "145.0", "2048.0"]
    assert not any(warned)


@pytest.mark.parametrize("name", CHANGES)
def test_a_release_that_is_not_known_gets_xla_and_one_warning(name: str) -> None:
    result, *warned = run(CHANGES[name])
    assert result.split() == ["False", "True", "145.0", "2048.0", "0"]
    (warning,) = warned
    assert warning.startswith("RuntimeWarning: fastconv.jax leaves every convolution to XLA: jax ")


def test_what_has_changed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compat._why_unserved() is None
    with monkeypatch.context() as patch:
        patch.setattr(jax, "__version_info__", (0, 99, 1))
        assert "is newer than" in (_compat._why_unserved() or "")
        patch.setenv("FASTCONV_JAX_UNTESTED", "1")
        assert _compat._why_unserved() is None
    for owner, name in ((mlir, "_platform_specific_lowerings"), (jax, "make_user_context"), (mlir, "ModuleContext")):
        with monkeypatch.context() as patch:
            patch.delattr(owner, name)
            assert name in (_compat._why_unserved() or "")
    with monkeypatch.context() as patch:
        patch.setattr(mlir, "ModuleContext", mlir.LoweringRuleContext)
        assert re.search("axis_context|lowering_parameters", _compat._why_unserved() or "")


def test_a_context_that_jax_lacks_never_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compat, "unserved", "by a test")
    context = _compat.user_context(False)
    _compat.set_globally(context, True)
    with context(True):
        assert context.value is False
