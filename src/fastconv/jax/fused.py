"""The explicit functions' convolution with a bias and an activation: one primitive, so that the engine adds both while it stores sums.

Its derivatives leave the engine's activation alone: they are JAX's, of the sums before it. Its vmap over images is another of its
kind; over anything else, a convolution with the rest behind it.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fastconv.jax import _compat
from fastconv.jax.epilogue import ACTIVATIONS, finish, spread
from fastconv.jax.lowering import lower
from fastconv.jax.primitive import conv_p, eagerly

fused_p = Primitive("fastconv_conv_bias_activation")


def convolve(params: dict[str, Any], activation: str | None, lhs: Any, rhs: Any, *bias: Any, primitive: Any = conv_p) -> Any:
    """act(conv(lhs, rhs) + bias), in one call where the engine can. params: those of JAX's primitive; `primitive`: it or its clone."""
    narrow = any(b.dtype != lhs.dtype for b in bias)  # operands of one type narrower than the result's
    if primitive is not conv_p or narrow or (not bias and activation is None):
        return _apart(lhs, rhs, *bias, activation=activation, primitive=primitive, **params)
    return fused_p.bind(lhs, rhs, *bias, activation=activation, **params)


def _apart(lhs: Any, rhs: Any, *bias: Any, activation: str | None, primitive: Any = conv_p, **params: Any) -> Any:
    return finish(params["dimension_numbers"].out_spec[1], activation, primitive.bind(lhs, rhs, **params), *bias)


def _abstract(lhs: Any, rhs: Any, *bias: Any, activation: str | None, **params: Any) -> Any:
    return _compat.conv_general_dilated_p.abstract_eval(lhs, rhs, **params)


def _jvp(primals: Any, tangents: Any, *, activation: str | None, **params: Any) -> tuple[Any, Any]:
    lhs, rhs, *bias = primals
    d_lhs, d_rhs, *d_bias = (None if type(tangent) is ad.Zero else tangent for tangent in tangents)
    sums = convolve(params, None, lhs, rhs, *bias)
    parts = [
        None if d_lhs is None else conv_p.bind(d_lhs, rhs, **params),
        None if d_rhs is None else conv_p.bind(lhs, d_rhs, **params),
        *(
            None if d is None else jnp.broadcast_to(spread(d, params["dimension_numbers"].out_spec[1], sums.ndim), sums.shape)
            for d in d_bias
        ),
    ]
    return jax.jvp(ACTIVATIONS[activation], (sums,), (reduce(jax.lax.add, [part for part in parts if part is not None]),))


def _batch(arrays: Any, axes: Any, **params: Any) -> tuple[Any, int]:
    lhs, *rest = arrays
    if any(axis is not None for axis in axes[1:]) or params["batch_group_count"] != 1:
        return jax.vmap(partial(_apart, **params), in_axes=tuple(axes))(*arrays), 0
    images, place = params["dimension_numbers"].lhs_spec[0], params["dimension_numbers"].out_spec[0]
    moved = jnp.moveaxis(lhs, axes[0], images)  # where the batch will be: both together are the batch of one call
    merged = (*moved.shape[:images], moved.shape[images] * moved.shape[images + 1], *moved.shape[images + 2 :])
    result = fused_p.bind(moved.reshape(merged), *rest, **params)
    split = (*result.shape[:place], *moved.shape[images : images + 2], *result.shape[place + 1 :])
    return result.reshape(split), place


def _complete() -> None:
    """Gives the primitive its rules. Platforms other than CPUs take it apart."""
    fused_p.def_impl(eagerly(fused_p))
    fused_p.def_effectful_abstract_eval(_abstract)
    ad.primitive_jvps[fused_p] = _jvp
    batching.primitive_batchers[fused_p] = _batch
    mlir.register_lowering(fused_p, mlir.lower_fun(_apart, multiple_results=False))
    mlir.register_lowering(fused_p, partial(lower, _compat.cpu_rule()), platform="cpu")
    _compat.lower_one_by_one(fused_p, True)


if _compat.unserved is None:
    _complete()
