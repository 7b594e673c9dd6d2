"""Layers of flax (linen and nnx), equinox, haiku and keras, as they are: forward and all gradients agree with plain XLA."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxtools import agree, engine, jax, keras  # noqa: F401

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("engine")


def drawn(tree: Any, exact: bool) -> Any:
    """New values for every leaf of a tree of arrays."""
    rng = np.random.default_rng(3)
    return jax.tree.map(
        lambda leaf: (rng.integers(-2, 3, leaf.shape) if exact else rng.standard_normal(leaf.shape)).astype("float32"), tree
    )


def shaped(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


def check(apply: Any, params: Any, x_shape: tuple[int, ...], double: Any = None) -> None:
    """`apply(params, x)` and its gradients, all of them sums of products. double: apply in double precision, if it is another."""
    x, params = shaped(*x_shape), jax.tree.map(lambda leaf: shaped(*leaf.shape), params)
    y = jax.eval_shape(apply, params, x)

    def whole(apply: Any) -> Any:
        def function(params: Any, x: Any, c: Any) -> Any:
            y, pull = jax.vjp(apply, params, x)
            return y, pull(c)

        return function

    trials = ((drawn((params, x, y), exact), exact) for exact in (False, True))
    agree(whole(apply), *trials, reference=whole(double or apply))


LINEN = {
    "Conv": ("Conv", {"features": 5, "kernel_size": (3, 3), "strides": (2, 1)}, (2, 8, 9, 3)),
    "Conv, grouped and dilated": ("Conv", {"features": 6, "kernel_size": (3,), "kernel_dilation": 2, "feature_group_count": 3}, (2, 11, 6)),
    "Conv, depthwise": ("Conv", {"features": 8, "kernel_size": (3, 3), "feature_group_count": 4}, (1, 6, 7, 4)),
    "Conv, causal": ("Conv", {"features": 4, "kernel_size": (4,), "padding": "CAUSAL"}, (2, 9, 3)),
    "ConvLocal": ("ConvLocal", {"features": 3, "kernel_size": (3,), "padding": "VALID"}, (2, 7, 2)),
    "ConvTranspose": ("ConvTranspose", {"features": 4, "kernel_size": (4, 3), "strides": (2, 3)}, (2, 5, 4, 3)),
    "ConvTranspose, kernel of the forward layer": (
        "ConvTranspose",
        {"features": 3, "kernel_size": (3, 3), "strides": (2, 2), "transpose_kernel": True, "padding": "CIRCULAR"},
        (1, 4, 6, 2),
    ),
}


@pytest.mark.parametrize("name", LINEN)
def test_flax_linen(name: str) -> None:
    nn = pytest.importorskip("flax.linen")
    layer, options, shape = LINEN[name]
    module = getattr(nn, layer)(**options)
    params = jax.eval_shape(module.init, jax.random.key(0), shaped(*shape))
    check(module.apply, params, shape)


def test_flax_linen_separable() -> None:
    nn = pytest.importorskip("flax.linen")
    module = nn.Sequential([nn.Conv(6, (3, 3), feature_group_count=3, use_bias=False), nn.Conv(5, (1, 1), use_bias=False)])
    params = jax.eval_shape(module.init, jax.random.key(0), shaped(2, 6, 5, 3))
    check(module.apply, params, (2, 6, 5, 3))


NNX = {
    "Conv": ("Conv", (3, 5), {"kernel_size": (3, 2), "strides": 2, "padding": ((1, 2), (0, 1))}, (2, 7, 6, 3)),
    "Conv, grouped": ("Conv", (6, 4), {"kernel_size": 3, "feature_group_count": 2}, (2, 9, 6)),
    "Conv, depthwise": ("Conv", (4, 4), {"kernel_size": (3, 3), "feature_group_count": 4, "kernel_dilation": 2}, (1, 8, 7, 4)),
    "ConvTranspose": ("ConvTranspose", (3, 4), {"kernel_size": (4,), "strides": 2}, (2, 6, 3)),
}


@pytest.mark.parametrize("name", NNX)
def test_flax_nnx(name: str) -> None:
    nnx = pytest.importorskip("flax.nnx")
    layer, channels, options, shape = NNX[name]
    if isinstance(options["kernel_size"], int):
        options = {**options, "kernel_size": (options["kernel_size"],)}
    definition, params = nnx.split(nnx.eval_shape(lambda: getattr(nnx, layer)(*channels, **options, rngs=nnx.Rngs(0))))
    check(lambda params, x: nnx.merge(definition, params)(x), params, shape)


EQUINOX = {
    "Conv2d, grouped": ("Conv2d", (4, 6), {"kernel_size": 3, "padding": 1, "groups": 2}, (4, 7, 8)),
    "Conv1d, depthwise": ("Conv1d", (5, 5), {"kernel_size": 4, "stride": 2, "groups": 5, "padding": ((2, 1),)}, (5, 12)),
    "Conv3d": ("Conv3d", (2, 3), {"kernel_size": 2, "stride": 2, "dilation": 2}, (2, 5, 6, 5)),
    "ConvTranspose1d": ("ConvTranspose1d", (5, 2), {"kernel_size": 8, "stride": 4, "padding": 1}, (5, 9)),
    "ConvTranspose2d": ("ConvTranspose2d", (3, 4), {"kernel_size": 3, "stride": 2, "padding": 1, "output_padding": 1}, (3, 5, 4)),
    "ConvTranspose2d, grouped": ("ConvTranspose2d", (4, 4), {"kernel_size": 3, "stride": 2, "groups": 2, "dilation": 2}, (4, 4, 3)),
}


@pytest.mark.parametrize("name", EQUINOX)
def test_equinox(name: str) -> None:
    eqx = pytest.importorskip("equinox")
    layer, channels, options, shape = EQUINOX[name]
    module = eqx.filter_eval_shape(lambda: getattr(eqx.nn, layer)(*channels, **options, key=jax.random.key(0)))
    params, static = eqx.partition(module, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    check(lambda params, x: jax.vmap(eqx.combine(params, static))(x), params, (2, *shape))


HAIKU = {
    "Conv2D": ("Conv2D", {"output_channels": 4, "kernel_shape": (3, 2), "stride": 2, "data_format": "NCHW"}, (2, 3, 7, 8)),
    "Conv1D, grouped": ("Conv1D", {"output_channels": 6, "kernel_shape": 3, "rate": 2, "feature_group_count": 3}, (2, 10, 6)),
    "Conv2DTranspose": ("Conv2DTranspose", {"output_channels": 3, "kernel_shape": 4, "stride": 2}, (1, 5, 4, 2)),
    "DepthwiseConv2D": ("DepthwiseConv2D", {"channel_multiplier": 2, "kernel_shape": 3}, (2, 6, 5, 3)),
    "SeparableDepthwiseConv2D": (
        "SeparableDepthwiseConv2D",
        {"channel_multiplier": 1, "kernel_shape": 3, "with_bias": False},
        (1, 6, 5, 3),
    ),
}


@pytest.mark.parametrize("name", HAIKU)
def test_haiku(name: str) -> None:
    hk = pytest.importorskip("haiku")
    layer, options, shape = HAIKU[name]
    module = hk.without_apply_rng(hk.transform(lambda x: getattr(hk, layer)(**options)(x)))
    params = jax.eval_shape(module.init, jax.random.key(0), shaped(*shape))
    check(module.apply, params, shape)


KERAS = {
    "Conv2D": ("Conv2D", {"filters": 4, "kernel_size": (3, 2), "strides": 2, "padding": "same"}, (2, 7, 8, 3)),
    "Conv1D, grouped": ("Conv1D", {"filters": 6, "kernel_size": 3, "groups": 3, "dilation_rate": 2, "padding": "causal"}, (2, 10, 6)),
    "Conv2DTranspose": (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same", "output_padding": 1},
        (1, 5, 4, 2),
    ),
    "Conv3D": ("Conv3D", {"filters": 2, "kernel_size": 2, "strides": (1, 2, 1)}, (1, 4, 5, 4, 3)),
    "DepthwiseConv2D": ("DepthwiseConv2D", {"kernel_size": 3, "depth_multiplier": 2}, (2, 6, 5, 3)),
    "SeparableConv1D": ("SeparableConv1D", {"filters": 4, "kernel_size": 3, "use_bias": False}, (2, 9, 3)),
}


@pytest.mark.parametrize("name", KERAS)
def test_keras(name: str, keras: Any) -> None:  # noqa: F811
    kind, options, shape = KERAS[name]

    def built(dtype: str) -> Any:
        layer = getattr(keras.layers, kind)(**options, dtype=dtype)
        layer.build(shape)
        return layer

    single, double = built("float32"), built("float64")
    params = [shaped(*variable.shape) for variable in single.trainable_variables]

    def applied(layer: Any) -> Any:
        return lambda params, x: layer.stateless_call(params, [], x)[0]

    check(applied(single), params, shape, applied(double))
