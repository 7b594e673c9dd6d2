"""Runs the programs of rewrites on NumPy: thousands of them in the time that XLA compiles a few. An operation that a rewrite should not
use is an error here, gathers and foreign calls above all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtools import jax

from fastconv.jax import _compat
from fastconv.normalise import Spec, conv_general_dilated
from fastconv.problem import ConvProblem
from fastconv.reference import reference, view

Array = np.ndarray[Any, Any]


def evaluate(function: Callable[..., Any], *operands: Array) -> list[Array]:
    """The results of `function(*operands)`, each operation of its jaxpr by NumPy."""
    traced = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in operands))
    values: dict[Any, Any] = dict(zip(traced.jaxpr.invars, operands, strict=True))
    values |= dict(zip(traced.jaxpr.constvars, traced.consts, strict=True))
    for equation in traced.jaxpr.eqns:
        inputs = [_compat.literal(a) if _compat.is_literal(a) else values[a] for a in equation.invars]
        (out,) = equation.outvars
        result = OPERATIONS[equation.primitive.name](*map(np.asarray, inputs), **equation.params)
        assert result.shape == out.aval.shape, equation
        values[out] = result.astype(out.aval.dtype)
    return [values[out] for out in traced.jaxpr.outvars]


def problem_of(lhs: tuple[int, ...], rhs: tuple[int, ...], params: dict[str, Any], dtype: str) -> tuple[ConvProblem, tuple[int, ...]]:
    """A convolution of JAX as the problem it is, and the shape of its result."""
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count", "batch_group_count")
    options: dict[str, Any] = {name: params[name] for name in names}
    numbers = tuple(params["dimension_numbers"])
    call = conv_general_dilated(Spec.contiguous(lhs, dtype), Spec.contiguous(rhs, dtype), dimension_numbers=numbers, **options)
    return call.problem, call.out.shape


def definition(lhs: Array, rhs: Array, params: dict[str, Any]) -> Array:
    """JAX's convolution by the written-out definition."""
    problem, shape = problem_of(lhs.shape, rhs.shape, params, lhs.dtype.name)
    found = reference(problem, np.ascontiguousarray(lhs), np.ascontiguousarray(rhs)).value
    out = np.zeros(shape, found.dtype)
    view(out, problem.out, problem.out_extents)[...] = found
    return out


def _pad(a: Array, value: Array, padding_config: Any, **_: Any) -> Array:
    assert min(min(low, high, between) for low, high, between in padding_config) >= 0, "nothing is cropped by a pad"
    shape = [low + high + n + max(0, n - 1) * between for n, (low, high, between) in zip(a.shape, padding_config, strict=True)]
    out = np.full(shape, value, a.dtype)
    out[
        tuple(slice(low, low + max(0, n - 1) * (b + 1) + min(n, 1), b + 1) for n, (low, _, b) in zip(a.shape, padding_config, strict=True))
    ] = a
    return out


def _slice(a: Array, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Array:
    return a[tuple(map(slice, start_indices, limit_indices, strides or (1,) * a.ndim))]


def _broadcast(a: Array, shape: Any, broadcast_dimensions: Any, **_: Any) -> Array:
    placed = [1] * len(shape)
    for at, extent in zip(broadcast_dimensions, a.shape, strict=True):
        placed[at] = extent
    return np.broadcast_to(a.reshape(placed), shape)


def _product(a: Array, b: Array, dimension_numbers: Any, **_: Any) -> Array:
    (a_sum, b_sum), (a_batch, b_batch) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    a_names, b_names = [next(letters) for _ in a.shape], [next(letters) for _ in b.shape]
    for i, j in (*zip(a_sum, b_sum, strict=True), *zip(a_batch, b_batch, strict=True)):
        b_names[j] = a_names[i]
    batch = [a_names[i] for i in a_batch]
    free = [n for i, n in enumerate(a_names) if i not in (*a_batch, *a_sum)] + [
        n for i, n in enumerate(b_names) if i not in (*b_batch, *b_sum)
    ]
    return np.einsum(f"{''.join(a_names)},{''.join(b_names)}->{''.join(batch + free)}", a, b)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "reshape": lambda a, new_sizes, dimensions=None, **_: (a if dimensions is None else a.transpose(dimensions)).reshape(new_sizes),
    "squeeze": lambda a, dimensions, **_: np.squeeze(a, dimensions),
    "transpose": lambda a, permutation, **_: a.transpose(permutation),
    "slice": _slice,
    "pad": _pad,
    "rev": lambda a, dimensions, **_: np.flip(a, dimensions),
    "concatenate": lambda *a, dimension, **_: np.concatenate(a, dimension),
    "broadcast_in_dim": _broadcast,
    "convert_element_type": lambda a, **_: a,
    "add": lambda a, b, **_: a + b,
    "mul": lambda a, b, **_: a * b,
    "reduce_sum": lambda a, axes, **_: a.sum(tuple(axes)),
    "dot_general": _product,
    "conv_general_dilated": lambda lhs, rhs, **params: definition(lhs, rhs, params),
    "fastconv_plain_conv": lambda lhs, rhs, **params: _plain(lhs, rhs, params),
}


def _plain(lhs: Array, rhs: Array, params: dict[str, Any]) -> Array:
    assert params["batch_group_count"] == 1
    assert set(params["lhs_dilation"]) <= {1}
    assert min(map(min, params["padding"]), default=0) >= 0
    assert len(params["window_strides"]) <= 3
    return definition(lhs, rhs, params)
