"""convn: one channel, any number of dimensions, true convolution."""

from __future__ import annotations

from typing import Any

from fastconv.normalise.arguments import MAX_SPATIAL, Spec, dtype, one_of, same_dtype
from fastconv.normalise.family import Call, check_out
from fastconv.problem import Axis, ConvProblem, Operand
from fastconv.rewrite import flipped

MODES = ("full", "same", "valid")


def convn(x: Spec, k: Spec, mode: Any = "full") -> Call:
    """The problem of y = x * k (true convolution), cut to `mode`."""
    mode = one_of("mode", mode, MODES)
    if len(x.shape) != len(k.shape):
        raise ValueError(f"k must have as many dimensions as x, got shapes {k.shape} and {x.shape}")
    if len(x.shape) > MAX_SPATIAL:
        raise ValueError(f"x must have at most {MAX_SPATIAL} dimensions, got {len(x.shape)}")
    for name, array in (("x", x), ("k", k)):
        if 0 in array.shape:
            raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    element = dtype("x", x.dtype)
    same_dtype("x", element, "k", k.dtype)
    axes = tuple(_axis(n, m, mode, axis) for axis, (n, m) in enumerate(zip(x.shape, k.shape, strict=True)))
    result = check_out(None, tuple(axis.out for axis in axes), element)
    lhs, rhs, out = Operand((0, 0, 0), x.strides), Operand((0, 0, 0), k.strides), Operand((0, 0, 0), result.strides)
    return Call(ConvProblem(axes, 1, 1, 1, 1, lhs, flipped(rhs, k.shape), out, element, element), result)


def _axis(n: int, m: int, mode: str, axis: int) -> Axis:
    """full: n + m - 1 outputs; same: the n in the middle of those (SciPy's centring); valid: n - m + 1 without padding."""
    if mode == "full":
        return Axis(n, m, n + m - 1, lo=m - 1)
    if mode == "same":
        return Axis(n, m, n, lo=m - 1 - (m - 1) // 2)
    if m > n:
        raise ValueError(f'k must not be larger than x on any axis with mode="valid", got {m} for {n} on axis {axis}')
    return Axis(n, m, n - m + 1)
