"""What the tests of public reports share: a function of convolutions held against the definition, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from definition import wrong
from jaxtools import NO_XLA, accelerate, all_on_engine, jax, records

from fastconv.jax import lowering
from fastconv.jax.xla import XLA

NHWC, NCW, NWC = ("NHWC", "HWIO", "NHWC"), ("NCW", "IOW", "NCW"), ("NWC", "WIO", "NWC")


def draw(*shapes: tuple[int, ...], dtype: Any = "float32", exact: bool = True) -> list[np.ndarray[Any, Any]]:
    """Small integers, whose sums are exact; or normal numbers."""
    rng = np.random.default_rng(0)
    return [(rng.integers(-2, 3, shape) if exact else rng.standard_normal(shape)).astype(dtype) for shape in shapes]


def hold(function: Callable[..., Any], *arguments: Any, exact: bool = True) -> list[Any]:
    """The leaves of the function's result on the engine, which are what the definition says."""
    records.clear()
    with accelerate():
        got = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(lambda *values: function(*values))(*arguments))]
    assert (text := wrong(function, arguments, got, exact)) is None, text
    all_on_engine()
    return got


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """(result, gradients of its product with c) of a function of x and w."""

    def whole(x: Any, w: Any, c: Any) -> Any:
        y, pull = jax.vjp(function, x, w)
        return y, pull(c)

    return whole


def hold_all(function: Callable[..., Any], x: Any, w: Any, *, exact: bool = True) -> None:
    """`hold` for the function and both its gradients."""
    out = jax.eval_shape(function, x, w)
    (c,) = draw(out.shape, dtype=out.dtype, exact=exact)
    hold(with_gradients(function), x, w, c, exact=exact)


def rows(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float32) -> dict[str, Any]:
    """What became of a program's convolutions, by direction, with XLA in the race; the program is only lowered."""
    records.clear()
    lowering.XLA = XLA
    try:
        with accelerate():
            jax.jit(lambda *values: function(*values)).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    finally:
        lowering.XLA = NO_XLA
    return {row.direction: row for row in records.report().convolutions}
