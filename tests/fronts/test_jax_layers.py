"""Layers of flax and equinox, as they are: forward and all gradients agree with plain XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxtools import agree, engine, jax  # noqa: F401

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("engine")


def drawn(tree: Any, exact: bool) -> Any:
    """New values for every leaf of a tree of arrays."""
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: (rng.integers(-2, 3, leaf.shape) if exact else rng.standard_normal(leaf.shape)).astype("float32"), tree
    )


def check(apply: Any, params: Any, x_shape: tuple[int, ...]) -> None:
    """`apply(params, x)` and its gradients, all of them sums of products."""
    x = jax.ShapeDtypeStruct(x_shape, np.float32)
    y = jax.eval_shape(apply, params, x)

    def function(params: Any, x: Any, c: Any) -> Any:
        return apply(params, x), jax.grad(lambda params, x: jnp.sum(apply(params, x) * c), (0, 1))(params, x)

    agree(function, *((drawn((params, x, y), exact), exact) for exact in (False, True)))


FLAX = {
    "Conv": ("Conv", {"features": 5, "kernel_size": (3, 3), "strides": (2, 1)}, (2, 8, 9, 3)),
    "Conv, grouped and dilated": ("Conv", {"features": 6, "kernel_size": (3,), "kernel_dilation": 2, "feature_group_count": 3}, (2, 11, 6)),
    "ConvTranspose": ("ConvTranspose", {"features": 4, "kernel_size": (4, 3), "strides": (2, 3)}, (2, 5, 4, 3)),
    "ConvTranspose, kernel of the forward layer": (
        "ConvTranspose",
        {"features": 3, "kernel_size": (3, 3), "strides": (2, 2), "transpose_kernel": True, "padding": "CIRCULAR"},
        (1, 4, 6, 2),
    ),
}


@pytest.mark.parametrize("name", FLAX)
def test_flax_linen(name: str) -> None:
    nn = pytest.importorskip("flax.linen")
    layer, options, shape = FLAX[name]
    module = getattr(nn, layer)(**options)
    params = jax.eval_shape(module.init, jax.random.key(0), jax.ShapeDtypeStruct(shape, np.float32))
    check(module.apply, params, shape)


EQUINOX = {
    "Conv2d": ("Conv2d", (4, 6), {"kernel_size": 3, "padding": 1, "groups": 2}, (4, 7, 8)),
    "ConvTranspose1d": ("ConvTranspose1d", (5, 2), {"kernel_size": 8, "stride": 4, "padding": 1}, (5, 9)),
    "ConvTranspose2d": ("ConvTranspose2d", (3, 4), {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}, (3, 5, 4)),
}


@pytest.mark.parametrize("name", EQUINOX)
def test_equinox(name: str) -> None:
    eqx = pytest.importorskip("equinox")
    layer, channels, options, shape = EQUINOX[name]
    module = getattr(eqx.nn, layer)(*channels, **options, key=jax.random.key(0))
    params, static = eqx.partition(module, eqx.is_inexact_array)
    check(lambda params, x: jax.vmap(eqx.combine(params, static))(x), drawn(params, False), (2, *shape))
