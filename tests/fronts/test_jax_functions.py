"""The explicit functions: lax's results and derivatives, with or without the switch, plus bias and activation."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from jaxtools import agree, draw, engine, jax  # noqa: F401

import fastconv.jax as fj
from fastconv.jax import records

jnp, lax = jax.numpy, jax.lax

CALLS = {
    "conv": ((2, 3, 7, 6), (4, 3, 3, 3), lambda f, x, w: f.conv(x, w, (2, 1), "SAME")),
    "conv_general_dilated": (
        (2, 9, 4),
        (3, 2, 6),
        lambda f, x, w: f.conv_general_dilated(
            x, w, (2,), ((1, 2),), lhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=2
        ),
    ),
    "conv_transpose": ((1, 4, 5, 3), (3, 2, 3, 2), lambda f, x, w: f.conv_transpose(x, w, (2, 3), "SAME")),
    "conv_transpose, kernel of the forward layer": (
        (1, 5, 3),
        (4, 2, 3),
        lambda f, x, w: f.conv_transpose(x, w, (2,), "VALID", transpose_kernel=True),
    ),
    "conv_with_general_padding": (
        (2, 3, 7, 6),
        (4, 3, 3, 3),
        lambda f, x, w: f.conv_with_general_padding(x, w, (1, 2), ((1, 0), (2, 1)), None, (2, 1)),
    ),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", CALLS)
def test_results_and_derivatives_are_laxs(name: str) -> None:
    x_shape, w_shape, call = CALLS[name]
    shapes = {"x": x_shape, "w": w_shape, "dx": x_shape, "dw": w_shape}
    shapes["c"] = jax.eval_shape(lambda x, w: call(lax, x, w), *(jax.ShapeDtypeStruct(s, np.float32) for s in (x_shape, w_shape))).shape

    def all_of(f: Any, v: dict[str, Any]) -> dict[str, Any]:
        x, w, dx, dw, c = (v[key] for key in ("x", "w", "dx", "dw", "c"))
        loss = lambda x, w: jnp.sum(call(f, x, w) * c)  # noqa: E731
        return {
            "forward": call(f, x, w),
            "jvp": jax.jvp(lambda x, w: call(f, x, w), (x, w), (dx, dw))[1],
            "grad": jax.grad(loss, (0, 1))(x, w),
            "vmap x": jax.vmap(lambda x: call(f, x, w))(jnp.stack([x, dx])),
            "vmap w": jax.vmap(lambda w: call(f, x, w), out_axes=1)(jnp.stack([w, dw])),
            "vmap both": jax.vmap(lambda x, w: call(f, x, w), in_axes=(1, 0))(jnp.stack([x, dx], 1), jnp.stack([w, dw])),
            "grad of each sample": jax.vmap(jax.grad(loss, 1), (0, None))(jnp.stack([x, dx]), w),
            "forward over reverse": jax.jvp(lambda w: jax.grad(loss)(x, w), (w,), (dw,))[1],
            "reverse over reverse": jax.grad(lambda w: jnp.sum(jax.grad(loss)(x, w) * dx))(w),
            "linear transpose": jax.linear_transpose(lambda x: call(f, x, w), x)(c),
        }

    trials = (((draw(shapes, "float32", exact),), exact) for exact in (False, True))
    agree(lambda v: all_of(fj, v), *trials, reference=lambda v: all_of(lax, v))


@pytest.mark.usefixtures("engine")
def test_they_use_the_engine_without_install_eager_and_jitted() -> None:
    x, w = draw({"x": (2, 3, 9, 5), "w": (4, 3, 3, 2)}, "float32", True).values()
    expected = lax.conv(x, w, (1, 1), "SAME")
    records.clear()
    np.testing.assert_array_equal(fj.conv(x, w, (1, 1), "SAME"), expected)
    np.testing.assert_array_equal(jax.jit(lambda x, w: fj.conv(x, w, (1, 1), "SAME"))(x, w), expected)
    rows = records.report().convolutions  # a line each
    assert [(row.algorithm != "xla", row.compiled) for row in rows] == [(True, 1), (True, 1)]


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu"])
def test_bias_and_activation(activation: str | None) -> None:
    functions = {
        None: lambda z: z,
        "relu": jax.nn.relu,
        "gelu": lambda z: z * (1 + lax.erf(z / np.sqrt(2))) / 2,
        "gelu_tanh": lambda z: z * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2,
        "silu": lambda z: z / (1 + jnp.exp(-z)),
        "tanh": jnp.tanh,
        "sigmoid": lambda z: 1 / (1 + jnp.exp(-z)),
        "leaky_relu": lambda z: jnp.where(z > 0, z, 0.01 * z),
    }
    arrays = draw({"x": (2, 6, 7, 3), "w": (3, 3, 3, 4), "b": (4,)}, "float32", False)
    numbers = ("NHWC", "HWIO", "NHWC")

    def ours(x, w, b):
        return fj.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers, bias=b, activation=activation)

    def theirs(x, w, b):
        return functions[activation](lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers) + b)

    for ours_, theirs_ in ((ours, theirs), *((jax.grad(lambda *a, f=f: jnp.sum(f(*a)), (0, 1, 2)) for f in (ours, theirs)),)):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), ours_(*arrays.values()), theirs_(*arrays.values())
        )


def test_bias_lies_on_the_output_features_of_a_transposed_convolution() -> None:
    x, w, b = draw({"x": (1, 4, 3), "w": (2, 3, 5), "b": (5,)}, "float32", True).values()
    np.testing.assert_array_equal(fj.conv_transpose(x, w, (2,), "SAME", bias=b), lax.conv_transpose(x, w, (2,), "SAME") + b)


def test_signatures_are_those_of_the_installed_jax() -> None:
    x, w = draw({"x": (1, 1, 8), "w": (1, 1, 3)}, "float32", True).values()
    for name in ("conv", "conv_general_dilated", "conv_transpose", "conv_with_general_padding"):
        theirs = inspect.signature(getattr(lax, name)).parameters
        ours = inspect.signature(getattr(fj, name)).parameters
        assert list(ours) == [*theirs, "bias", "activation"]
    with pytest.raises(TypeError):
        fj.conv(x, w, (1,), "SAME", no_such_argument=1)


def test_bad_arguments_are_named() -> None:
    x, w = draw({"x": (1, 1, 8), "w": (2, 1, 3)}, "float32", True).values()
    with pytest.raises(ValueError, match=r"bias must have shape \(O,\) = \(2,\), got \(3,\)"):
        fj.conv(x, w, (1,), "SAME", bias=np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="bias must have the result's dtype float32, got int32"):
        fj.conv(x, w, (1,), "SAME", bias=np.zeros(2, np.int32))
    with pytest.raises(ValueError, match=r"activation must be one of None, 'relu'.*got 'swish'"):
        fj.conv(x, w, (1,), "SAME", activation="swish")
    with pytest.raises(TypeError, match="activation must be one of"):
        fj.conv(x, w, (1,), "SAME", activation=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="activation must be None for dtype int32: 'relu' needs"):
        fj.conv(x.astype(np.int32), w.astype(np.int32), (1,), "SAME", activation="relu")
