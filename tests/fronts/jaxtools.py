"""What the JAX tests share: every convolution on the engine, and a bound for any function that is a sum of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from fastconv.jax import lowering, records  # noqa: E402
from fastconv.jax.switch import accelerate, uninstall  # noqa: E402
from fastconv.plan import Algorithm  # noqa: E402

conv = jax.lax.conv_general_dilated

#: XLA's row as it would be if XLA had no convolution: small test cases then run on the engine too.
NO_XLA = Algorithm("xla", -1, lambda problem, machine: "left out by a test", lambda problem, machine: 0.0, lambda problem, machine: 0)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The planner always prefers the engine; x64 is on; records start empty."""
    monkeypatch.setattr(lowering, "XLA", NO_XLA)
    with x64():
        records.clear()
        yield


@pytest.fixture
def uninstalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The planner always prefers the engine; records start empty; what a test installs is uninstalled after it."""
    monkeypatch.setattr(lowering, "XLA", NO_XLA)
    records.clear()
    yield
    uninstall()


@contextmanager
def x64() -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def quickly(function: Callable[..., Any], *arguments: Any) -> Any:
    """`jax.jit(function)(*arguments)`, with little time spent on code that runs once."""
    return compiled(function, *arguments)(*arguments)


def compiled(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """`jax.jit(function)` for arguments of these shapes, with little time spent on the code."""
    return jax.jit(lambda *values: function(*values)).lower(*arguments).compile(_quick_options())


@cache
def _quick_options() -> dict[str, Any]:
    """What XLA's code generator can be told to leave out; releases differ."""
    known = {}
    for name, value in (("xla_backend_optimization_level", 0), ("xla_cpu_use_fusion_emitters", False)):
        with suppress(jax.errors.JaxRuntimeError):
            jax.jit(lambda x: -x).lower(1.0).compile({name: value})
            known[name] = value
    return known


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """keras on JAX, with its files in a folder of the tests."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path_factory.mktemp("keras")))
    found = pytest.importorskip("keras")
    if found.backend.backend() != "jax":
        pytest.skip("keras was imported with another backend")
    return found


def all_on_engine() -> None:
    """Every convolution compiled since the records were cleared runs on the engine, and there was one."""
    rows = records.report().convolutions
    assert rows
    left = [row for row in rows if row.algorithm == "xla"]
    assert not left, left


def cast(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.astype(dtype), tree)


def agree(function: Callable[..., Any], *trials: tuple[tuple[Any, ...], bool], reference: Callable[..., Any] | None = None) -> None:
    """Holds `function` on the engine against plain XLA in double precision, for trials (arguments, exact) of the same shapes.

    reference: what plain XLA runs, when it is not `function` itself.

    `function` returns a tree of arrays, each a sum of products of its arguments' elements: applied to ones it counts the products
    behind each output, applied to absolute values it gives the size of their sum, and both together bound the error.
    exact: the arguments are small integers, so nothing is rounded.
    """
    first = trials[0][0]
    plain = compiled(reference or function, *cast(first, np.float64))
    records.clear()
    with accelerate():
        accelerated = compiled(function, *first)
    for arguments, exact in trials:
        wide = cast(arguments, np.float64)
        expected, sizes = plain(*wide), plain(*jax.tree.map(np.abs, wide))
        counts = plain(*jax.tree.map(np.ones_like, wide))
        got = accelerated(*arguments)
        assert jax.tree.structure(got) == jax.tree.structure(expected)
        dtype = jax.tree.leaves(arguments)[0].dtype
        paths = jax.tree_util.tree_flatten_with_path(got)[0]
        for (path, ours), theirs, count, size in zip(paths, *map(jax.tree.leaves, (expected, counts, sizes)), strict=True):
            _compare(jax.tree_util.keystr(path), dtype, exact, *map(np.asarray, (ours, theirs, count, size)))
    all_on_engine()


def _compare(name: str, dtype: Any, exact: bool, ours: Any, theirs: Any, count: Any, size: Any) -> None:
    assert ours.dtype == dtype, name
    assert ours.shape == theirs.shape, name
    error, info = np.abs(ours.astype(np.float64) - theirs), np.finfo(dtype)
    double = 2 if dtype == np.float64 else 1  # the reference then has errors of its own
    limit = np.zeros(error.shape) if exact else double * float(info.eps) * (count + 2) * size + count * float(info.tiny)
    assert np.all(error <= limit), f"{name}: error {np.max(error - limit)} above the bound"


def draw(shapes: dict[str, tuple[int, ...]], dtype: str, exact: bool, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Named arrays: normal numbers, or integers from -2 to 2."""
    rng = np.random.default_rng(seed)
    return {name: (rng.integers(-2, 3, shape) if exact else rng.standard_normal(shape)).astype(dtype) for name, shape in shapes.items()}


__all__ = [
    "NO_XLA", "accelerate", "agree", "all_on_engine", "cast", "compiled", "conv", "draw", "engine", "jax", "quickly", "records", "x64",
]  # fmt: skip
