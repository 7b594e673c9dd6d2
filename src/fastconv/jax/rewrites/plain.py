"""JAX's convolution as it was before `install`, for use inside a rewrite: a clone of its primitive that only JAX's own rules lower.

A rewrite's program meets the rule that made it otherwise, without end.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from fastconv.jax import _compat

plain_p = Primitive("fastconv_plain_conv")


def conv(lhs: Any, rhs: Any, **options: Any) -> Any:
    """lax.conv_general_dilated, left to XLA."""
    shapes = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in (lhs, rhs))
    jaxpr, _ = _compat.open_jaxpr(jax.make_jaxpr(partial(lax.conv_general_dilated, **options))(*shapes))
    (equation,) = (equation for equation in jaxpr.eqns if equation.primitive is _compat.conv_general_dilated_p)
    return plain_p.bind(lhs, rhs, **equation.params)


@lru_cache(maxsize=256)
def _compiled(params: tuple[tuple[str, Any], ...]) -> Any:
    return jax.jit(partial(plain_p.bind, **dict(params)))


def _complete() -> None:
    """Gives the clone its rules."""
    plain_p.def_impl(lambda lhs, rhs, **params: _compiled(tuple(params.items()))(lhs, rhs))
    plain_p.def_effectful_abstract_eval(_compat.conv_general_dilated_p.abstract_eval)
    # The common rule alone: JAX's others differ from it for complex numbers only, and two would be a choice at run time in programs for
    # several platforms. Platforms with a rule from elsewhere are left alone (`accelerators.register`).
    mlir.register_lowering(plain_p, _compat.rules()[None])


if _compat.unserved is None:
    _complete()
