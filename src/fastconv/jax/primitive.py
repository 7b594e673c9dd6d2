"""A clone of JAX's convolution primitive that always asks the engine, installed or not.

Its transposition and batching rules are JAX's own: they are traced, and every convolution in the trace becomes a clone again.
So the clone has every derivative of any order and every vmap that JAX's convolution has. (A custom_vjp would lose forward mode.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fastconv.jax import _compat, accelerators
from fastconv.jax.lowering import lower

conv_p = Primitive("fastconv_conv_general_dilated")

#: From an equation with JAX's convolution and its operands to the result.
Convolve = Callable[..., Any]


def substituted(function: Callable[..., Any], *arrays: Any, convolve: Convolve | None = None) -> Any:
    """`function(*arrays)`, which is one array, with `convolve(equation, lhs, rhs)` for each of JAX's convolutions; None: a clone.

    Under a release of JAX that is not served, the convolutions stay JAX's own.
    """
    _compat.warn_if_unserved()
    (result,) = _replay(jax.make_jaxpr(function)(*arrays), arrays, convolve or _clone)
    return result


def served(primitive: Any) -> Any:
    """The clone; under a release that is not served, JAX's own primitive."""
    return conv_p if _compat.unserved is None else primitive


def _clone(equation: Any, lhs: Any, rhs: Any) -> Any:
    return served(equation.primitive).bind(lhs, rhs, **equation.params)


def _replay(traced: Any, arrays: Any, convolve: Convolve) -> list[Any]:
    jaxpr, constants = _compat.open_jaxpr(traced)
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arrays), strict=True))

    def value(atom: Any) -> Any:
        return _compat.literal(atom) if _compat.is_literal(atom) else values[atom]

    for equation in jaxpr.eqns:
        operands = [value(atom) for atom in equation.invars]
        if equation.primitive.name == _compat.CONV:
            results = [convolve(equation, *operands)]
        elif "jaxpr" in equation.params and equation.primitive.name in ("jit", "pjit"):
            results = _replay(equation.params["jaxpr"], operands, convolve)
        else:
            results = _compat.bind(equation, operands)
        values.update(zip(equation.outvars, results, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def eagerly(primitive: Primitive) -> Callable[..., Any]:
    """How a primitive is evaluated at once: jitted, once for each set of parameters."""

    @lru_cache(maxsize=1024)
    def compiled(params: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
        return jax.jit(partial(primitive.bind, **dict(params)))

    return lambda *operands, **params: compiled(tuple(params.items()))(*operands)


def _transpose_lhs(cotangent: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    shape = _compat.struct(lhs.aval)
    return substituted(
        lambda g, w: jax.linear_transpose(lambda x: _compat.conv_general_dilated_p.bind(x, w, **params), shape)(g)[0], cotangent, rhs
    )


def _transpose_rhs(cotangent: Any, lhs: Any, rhs: Any, **params: Any) -> Any:
    shape = _compat.struct(rhs.aval)
    return substituted(
        lambda g, x: jax.linear_transpose(lambda w: _compat.conv_general_dilated_p.bind(x, w, **params), shape)(g)[0], cotangent, lhs
    )


def _batch(arrays: Any, axes: Any, **params: Any) -> tuple[Any, int]:
    """The new axis comes out where JAX's rule leaves it: at the batch, or at the features when kernels differ."""
    spec = params["dimension_numbers"].out_spec
    where = spec[0] if axes[1] is None else spec[1]
    mapped = jax.vmap(lambda x, w: _compat.conv_general_dilated_p.bind(x, w, **params), in_axes=tuple(axes), out_axes=where)
    return substituted(mapped, *arrays), where


def _complete() -> None:
    """Gives the clone its rules."""
    conv_p.def_impl(eagerly(conv_p))
    conv_p.def_effectful_abstract_eval(_compat.conv_general_dilated_p.abstract_eval)
    ad.defbilinear(conv_p, _transpose_lhs, _transpose_rhs)
    batching.primitive_batchers[conv_p] = _batch
    mlir.register_lowering(conv_p, partial(lower, _compat.cpu_rule()), platform="cpu")
    _compat.lower_one_by_one(conv_p, True)
    accelerators.register(conv_p, lambda ours, original, *operands, **params: ours(*operands, **params))


if _compat.unserved is None:
    _complete()
