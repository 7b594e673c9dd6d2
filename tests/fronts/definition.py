"""What a function of convolutions should give: its jaxpr evaluated in NumPy, each convolution by the written-out definition.

Only what JAX's own derivative and batching rules put around a convolution is known here; anything else is a KeyError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtools import jax

from fastconv.check import mismatch
from fastconv.jax import _compat
from fastconv.jax.lowering import problem_of
from fastconv.problem import ConvProblem, Operand
from fastconv.reference import Array, Reference, reference, view, wide_dtype


def wide(array: Array, out_dtype: Any = None) -> Array:
    """The array one precision up (`fastconv.reference.wide_dtype`)."""
    name = np.dtype(array.dtype).name
    return array.astype(wide_dtype(sums(1, name, np.dtype(out_dtype or array.dtype).name)))


def sums(terms: int, dtype: str, out_dtype: str) -> ConvProblem:
    """A problem whose every output is a sum of `terms` products: `fastconv.check` holds any such sum by it."""
    scalar = Operand((0, 0, 1), ())
    return ConvProblem((), 1, 1, terms, 1, scalar, scalar, scalar, dtype, out_dtype)


def wrong(function: Callable[..., Any], arguments: tuple[Array, ...], got: list[Array], exact: bool) -> str | None:
    """None, or what is wrong with the leaves that a function of sums of products returned.

    Applied to ones the function counts the products behind each output, applied to absolute values it gives the size of their sum.
    exact: the arguments are small integers, so nothing is rounded before the end.
    """
    traced = jax.make_jaxpr(lambda *values: jax.tree.leaves(function(*values)))(*arguments)
    results = [evaluate(traced, [change(argument) for argument in arguments]) for change in (wide, _size, _one)]
    for index, (mine, value, size, count) in enumerate(zip(got, *results, strict=True)):
        aval = traced.out_avals[index]
        if mine.dtype != aval.dtype or mine.shape != value.shape:
            return f"result {index} is {mine.dtype}{mine.shape} instead of {aval.dtype}{value.shape}"
        dtype, out_dtype = np.dtype(arguments[0].dtype).name, np.dtype(aval.dtype).name
        terms = int(np.max(np.abs(count), initial=1)) + 1
        text = mismatch(sums(terms, dtype, out_dtype), mine, Reference(value, value, np.abs(size)), exact)
        if text is not None:
            return f"result {index}: {text}"
    return None


def _size(array: Array) -> Array:
    return np.abs(wide(array)) if array.dtype.kind in "iu" else np.abs(wide(array)).astype(wide(array).dtype)


def _one(array: Array) -> Array:
    return np.ones_like(wide(array))


def convolutions(function: Callable[..., Any], arguments: tuple[Array, ...]) -> list[dict[str, Any]]:
    """The parameters of every convolution that a function comes down to."""

    def found(traced: Any) -> Iterator[dict[str, Any]]:
        for equation in traced.jaxpr.eqns:
            if equation.primitive is _compat.conv_general_dilated_p:
                yield equation.params
            elif "jaxpr" in equation.params:
                yield from found(equation.params["jaxpr"])

    return list(found(jax.make_jaxpr(function)(*arguments)))


def evaluate(traced: Any, arguments: list[Array]) -> list[Array]:
    """The results of a closed jaxpr on wide arguments, all of one dtype."""
    jaxpr, constants = _compat.open_jaxpr(traced)
    element = arguments[0].dtype
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*map(np.asarray, constants), *arguments), strict=True))

    def value(atom: Any) -> Any:
        return np.asarray(_compat.literal(atom)) if _compat.is_literal(atom) else values[atom]

    for equation in jaxpr.eqns:
        operands = [value(atom) for atom in equation.invars]
        if "jaxpr" in equation.params:
            results = evaluate(equation.params["jaxpr"], operands)
        elif equation.primitive is _compat.conv_general_dilated_p:
            results = [_convolution(equation, *operands)]
        else:
            results = [np.asarray(_RULES[equation.primitive.name](equation.params, *operands))]
        for variable, result in zip(equation.outvars, results, strict=True):
            assert result.shape == variable.aval.shape, equation
            values[variable] = result.astype(element) if variable.aval.dtype != bool else result
    return [value(atom) for atom in jaxpr.outvars]


def _convolution(equation: Any, lhs: Array, rhs: Array) -> Array:
    avals = [atom.aval for atom in (*equation.invars, *equation.outvars)]
    problem = problem_of(avals, equation.params)
    out = np.zeros(avals[-1].shape, lhs.dtype)
    if out.size:
        view(out, problem.out, problem.out_extents)[...] = reference(problem, *map(np.ascontiguousarray, (lhs, rhs))).value
    return out


def _broadcast(params: dict[str, Any], array: Array) -> Array:
    shape = params["shape"]
    extents = dict(zip(params["broadcast_dimensions"], array.shape, strict=True))
    return np.broadcast_to(array.reshape([extents.get(axis, 1) for axis in range(len(shape))]), shape)


_RULES: dict[str, Callable[..., Any]] = {
    "reshape": lambda params, x: np.transpose(x, params["dimensions"] or range(x.ndim)).reshape(params["new_sizes"]),
    "squeeze": lambda params, x: np.squeeze(x, params["dimensions"]),
    "transpose": lambda params, x: np.transpose(x, params["permutation"]),
    "rev": lambda params, x: np.flip(x, params["dimensions"]),
    "broadcast_in_dim": _broadcast,
    "convert_element_type": lambda params, x: x,
    "copy": lambda params, x: x,
    "add": lambda params, x, y: x + y,
    "add_any": lambda params, x, y: x + y,
    "mul": lambda params, x, y: x * y,
    "reduce_sum": lambda params, x: np.sum(x, params["axes"]),
}

__all__ = ["convolutions", "evaluate", "sums", "wide", "wrong"]
