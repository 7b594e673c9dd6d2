"""What may follow a convolution, as JAX computes it: a bias and an activation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

ACTIVATIONS: dict[str | None, Callable[[Any], Any]] = {
    None: lambda sums: sums,
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "leaky_relu": jax.nn.leaky_relu,
}


def finish(axis: int, activation: str | None, sums: Any, *bias: Any) -> Any:
    """act(sums + bias), a bias of shape (O,) lying along `axis`."""
    return ACTIVATIONS[activation](sums + spread(bias[0], axis, sums.ndim) if bias else sums)


def spread(bias: Any, axis: int, rank: int) -> Any:
    """A bias with extents of 1 around it."""
    return jnp.expand_dims(bias, [other for other in range(rank) if other != axis])
