"""The explicit functions: jax.lax's, on the engine with or without `install`, with a bias and an activation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from inspect import Signature, signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fastconv.jax import _compat, fused
from fastconv.jax.primitive import served, substituted
from fastconv.problem import ACTIVATIONS


def _like(function: Callable[..., Any]) -> Callable[[Callable[..., jax.Array]], Callable[..., jax.Array]]:
    """Shows a function of the installed jax.lax's signature on ours, with bias and activation added."""

    def decorate(ours: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
        extra = [parameter for parameter in signature(ours).parameters.values() if parameter.name in ("bias", "activation")]
        ours.__signature__ = Signature([*signature(function).parameters.values(), *extra])  # pyright: ignore[reportFunctionMemberAccess]
        return ours

    return decorate


@_like(jax.lax.conv_general_dilated)
def conv_general_dilated(lhs: Any, rhs: Any, *args: Any, bias: Any = None, activation: str | None = None, **options: Any) -> jax.Array:
    """jax.lax.conv_general_dilated, computed by the engine where it is modelled faster than XLA.

        out[n, o, p] = act(bias[o] + sum over c, k of lhs[n, c, (p * stride + k * rhs_dilation - lo) / lhs_dilation] * rhs[o, c, k])

    Positional and keyword arguments are those of the installed jax.lax.conv_general_dilated. bias: shape (O,), the result's
    dtype. activation: None, "relu", "gelu" (exact), "gelu_tanh", "silu", "tanh", "sigmoid" or "leaky_relu" (0.01).
    Differentiable to any order in both modes, vmappable over any operand, usable under jit and without `install`.

    dtypes: all of JAX's; those the engine lacks are XLA's. Accuracy: as `fastconv.conv`'s.
    Raises: ValueError, TypeError as jax.lax does, and for a bias or an activation that does not fit.

    >>> import jax.numpy as jnp, fastconv.jax as fj
    >>> fj.conv_general_dilated(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 3)), (1,), "SAME", bias=jnp.ones(1)).tolist()
    [[[3.0, 4.0, 4.0, 3.0]]]

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.conv_general_dilated.html
    """
    return _call(jax.lax.conv_general_dilated, lhs, rhs, args, options, bias, activation)


@_like(jax.lax.conv)
def conv(lhs: Any, rhs: Any, *args: Any, bias: Any = None, activation: str | None = None, **options: Any) -> jax.Array:
    """jax.lax.conv (N C spatial, O I spatial) with `conv_general_dilated`'s bias and activation.

    Arguments, dtypes, accuracy and errors are `conv_general_dilated`'s.

    >>> import jax.numpy as jnp, fastconv.jax as fj
    >>> fj.conv(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 3)), (1,), "VALID").tolist()
    [[[3.0, 3.0]]]

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.conv.html
    """
    return _call(jax.lax.conv, lhs, rhs, args, options, bias, activation)


@_like(jax.lax.conv_transpose)
def conv_transpose(lhs: Any, rhs: Any, *args: Any, bias: Any = None, activation: str | None = None, **options: Any) -> jax.Array:
    """jax.lax.conv_transpose with `conv_general_dilated`'s bias and activation.

    Arguments, dtypes, accuracy and errors are `conv_general_dilated`'s; the padding means what it means in the installed jax.

    >>> import jax.numpy as jnp, fastconv.jax as fj
    >>> fj.conv_transpose(jnp.ones((1, 3, 1)), jnp.ones((2, 1, 1)), (2,), "VALID", activation="relu").shape
    (1, 6, 1)

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.conv_transpose.html
    """
    return _call(jax.lax.conv_transpose, lhs, rhs, args, options, bias, activation)


@_like(jax.lax.conv_with_general_padding)
def conv_with_general_padding(lhs: Any, rhs: Any, *args: Any, bias: Any = None, activation: str | None = None, **options: Any) -> jax.Array:
    """jax.lax.conv_with_general_padding with `conv_general_dilated`'s bias and activation.

    Arguments, dtypes, accuracy and errors are `conv_general_dilated`'s.

    >>> import jax.numpy as jnp, fastconv.jax as fj
    >>> fj.conv_with_general_padding(jnp.ones((1, 1, 4)), jnp.ones((1, 1, 3)), (1,), ((1, 1),), None, None).shape
    (1, 1, 4)

    Reference: https://docs.jax.dev/en/latest/_autosummary/jax.lax.conv_with_general_padding.html
    """
    return _call(jax.lax.conv_with_general_padding, lhs, rhs, args, options, bias, activation)


def _call(
    function: Callable[..., Any], lhs: Any, rhs: Any, args: tuple[Any, ...], options: dict[str, Any], bias: Any, activation: str | None
) -> jax.Array:
    if activation is not None and not isinstance(activation, str):
        raise TypeError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
    operands = (lhs, rhs) if bias is None else (lhs, rhs, bias)
    program = partial(_traced, function, args, options, activation)
    if not any(isinstance(operand, Tracer) for operand in operands):
        with suppress(TypeError):  # of an argument that is no key: nothing is kept then
            program = _compiled(_Program(_key((function, args, tuple(options.items()), activation)), program))
    return program(*operands)


@dataclass(frozen=True, slots=True)
class _Program:
    """A call without its arrays, equal to another where the arguments are of equal types and values."""

    key: Hashable
    run: Callable[..., Any] = field(compare=False)


@lru_cache(maxsize=1024)
def _compiled(program: _Program) -> Callable[..., Any]:
    """A call at once, traced and compiled the first time only."""
    return jax.jit(program.run)


def _key(value: Any) -> Hashable:
    """1, 1.0 and True are equal, and not the same argument."""
    if isinstance(value, (tuple, list)):
        return (type(value), *map(_key, value))
    hash(value)
    return type(value), value


def _traced(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any], activation: str | None, lhs: Any, rhs: Any, *bias: Any
) -> Any:
    def convolve(equation: Any, x: Any, w: Any) -> Any:
        params = equation.params
        features = w.shape[params["dimension_numbers"].rhs_spec[0]]
        dtype = np.dtype(params["preferred_element_type"] or x.dtype)
        for b in bias:
            if jnp.shape(b) != (features,):
                raise ValueError(f"bias must have shape (O,) = ({features},), got {jnp.shape(b)}")
            if jnp.result_type(b) != dtype:
                raise TypeError(f"bias must have the result's dtype {dtype}, got {jnp.result_type(b)}")
        if activation is not None and not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(f"activation must be None for dtype {dtype}: {activation!r} needs a real floating-point dtype")
        operands = _compat.varying_alike(x, w, *map(jnp.asarray, bias))
        return fused.convolve(params, activation, *operands, primitive=served(equation.primitive))

    return substituted(lambda x, w: function(x, w, *args, **options), lhs, rhs, convolve=convolve)
