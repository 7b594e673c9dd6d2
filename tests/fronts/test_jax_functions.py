"""The explicit functions: lax's results and derivatives, with or without the switch, plus bias and activation."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from jax import export
from jaxtools import agree, draw, engine, jax, quickly, x64  # noqa: F401

import fastconv.jax as fj
from fastconv.check import check_buffers, operand
from fastconv.jax import functions, lowering, records

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

    trials = [((draw(shapes, "float32", exact),), exact) for exact in (False, True)]
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


ACTIVATIONS = {
    None: lambda z: z,
    "relu": jax.nn.relu,
    "gelu": lambda z: z * (1 + lax.erf(z / np.sqrt(2))) / 2,
    "gelu_tanh": lambda z: z * (1 + jnp.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) / 2,
    "silu": lambda z: z / (1 + jnp.exp(-z)),
    "tanh": jnp.tanh,
    "sigmoid": lambda z: 1 / (1 + jnp.exp(-z)),
    "leaky_relu": lambda z: jnp.where(z > 0, z, 0.01 * z),
}
NHWC = ("NHWC", "HWIO", "NHWC")


def layer(x: Any, w: Any, b: Any, activation: str | None) -> Any:
    return fj.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=NHWC, bias=b, activation=activation)


def written_out(x: Any, w: Any, b: Any, activation: str | None) -> Any:
    return ACTIVATIONS[activation](lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=NHWC) + b)


@pytest.mark.usefixtures("engine")
def test_derivatives_of_bias_and_activation() -> None:
    arrays = draw({"x": (2, 6, 7, 3), "w": (3, 3, 3, 4), "b": (4,), "dx": (2, 6, 7, 3), "dw": (3, 3, 3, 4), "db": (4,)}, "float64", False)

    def all_of(f: Any, x: Any, w: Any, b: Any, dx: Any, dw: Any, db: Any) -> Any:
        def each(activation: str | None) -> Any:
            def g(x: Any, w: Any, b: Any) -> Any:
                return f(x, w, b, activation)

            pullback = lambda x, w, b: jax.vjp(g, x, w, b)[1](jnp.cos(g(x, w, b)))  # noqa: E731
            stacks = [jnp.stack([a, 2 * a]) for a in (x, w, b)]
            return {
                "value": g(x, w, b),
                "jvp": jax.jvp(g, (x, w, b), (dx, dw, db))[1],
                "jvp of the bias": jax.jvp(lambda b: g(x, w, b), (b,), (db,))[1],
                "gradients": pullback(x, w, b),
                "second order": jax.jvp(pullback, (x, w, b), (dx, dw, db))[1],
                "vmap x": jax.vmap(g, (0, None, None), out_axes=2)(stacks[0], w, b),
                "vmap w": jax.vmap(g, (None, 0, None))(x, stacks[1], b),
                "vmap bias": jax.vmap(g, (None, None, 0))(x, w, stacks[2]),
                "gradients of each sample": jax.vmap(pullback, (0, None, None))(stacks[0], w, b),
            }

        return [each(activation) for activation in ACTIVATIONS]

    values = tuple(arrays.values())
    ours, theirs = (quickly(lambda *a, f=f: all_of(f, *a), *values) for f in (layer, written_out))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11), ours, theirs)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_bias_and_activation_are_within_the_bound(dtype: str) -> None:
    shapes = ((2, 6, 7, 3), (3, 3, 3, 4), (4,))
    x, w, bias = (operand(np.random.default_rng(seed), shape, dtype, False) for seed, shape in enumerate(shapes))
    results = quickly(lambda x, w, bias: [layer(x, w, bias, name) for name in ACTIVATIONS], x, w, bias)
    (equation,) = jax.make_jaxpr(lambda x, w: lax.conv_general_dilated(x, w, (1, 2), "SAME", dimension_numbers=NHWC))(x, w).eqns
    for activation, result in zip(ACTIVATIONS, results, strict=True):
        problem = lowering.problem_of([x, w, bias, result], equation.params, activation)
        check_buffers(problem, x, w, bias, np.asarray(result))


@pytest.mark.usefixtures("engine")
def test_the_engine_adds_the_bias_and_applies_the_activation() -> None:
    x, w, b = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 6, 7, 3), (3, 3, 3, 4), (4,)))
    for function in (
        lambda x, w, b: layer(x, w, b, "relu"),
        lambda x, w, b: jax.vmap(lambda x: layer(x[None], w, b, "relu"))(x),
        lambda x, w, b: layer(x, w, b, None),
        lambda x, w, b: fj.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC, activation="relu"),
    ):
        text = jax.jit(function).lower(x, w, b).as_text()
        assert text.count(f"@{lowering.TARGET}") == 1
        assert not [name for name in ("add", "maximum", "convolution") if f"stablehlo.{name}" in text]
    records.clear()
    jax.jit(lambda *a: jax.grad(lambda x, w, b: jnp.sum(layer(x, w, b, "relu")), (0, 1, 2))(*a)).lower(x, w, b)
    rows = records.report().convolutions
    assert sorted((row.direction, row.geometry.endswith(" bias")) for row in rows) == [("dw", False), ("dx", False), ("fwd", True)]


def test_what_is_left_to_xla_has_its_bias_and_activation_there() -> None:
    arrays = draw({"x": (1, 2, 8), "w": (3, 2, 3), "b": (3,)}, "float32", True)
    function = lambda x, w, b: fj.conv(x, w, (1,), "SAME", bias=b, activation="relu")  # noqa: E731
    records.clear()
    with x64():
        exported = export.export(jax.jit(function))(*arrays.values())
    assert [row.kind for row in records.report().convolutions] == ["export"]
    assert "stablehlo.convolution" in exported.mlir_module()
    assert lowering.TARGET not in exported.mlir_module()
    expected = np.maximum(lax.conv(arrays["x"], arrays["w"], (1,), "SAME") + arrays["b"][:, None], 0)
    np.testing.assert_array_equal(exported.call(*arrays.values()), expected)
    eight = {name: array.astype(np.int8) for name, array in arrays.items()}
    wide = fj.conv(eight["x"], eight["w"], (1,), "SAME", preferred_element_type=np.int32, bias=arrays["b"].astype(np.int32))
    np.testing.assert_array_equal(wide, lax.conv(arrays["x"], arrays["w"], (1,), "SAME") + arrays["b"][:, None])


def test_a_repeated_call_is_not_traced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    traced = []
    real = functions.substituted
    monkeypatch.setattr(functions, "substituted", lambda *a, **k: traced.append(0) or real(*a, **k))
    x, w = draw({"x": (1, 2, 11), "w": (3, 2, 3)}, "float32", True).values()
    call = lambda **options: np.asarray(fj.conv_general_dilated(x, w, (1,), [[1, 1]], **options))  # noqa: E731
    expected = np.asarray(lax.conv(x, w, (1,), "SAME"))
    for options in ({}, {}, {"activation": "relu"}, {"precision": "highest"}, {"activation": "relu"}, {}):
        np.testing.assert_array_equal(call(**options), np.maximum(expected, 0) if "activation" in options else expected)
    assert len(traced) == 3
    with pytest.raises(TypeError):
        lax.conv(x, w, (1.0,), "SAME")
    fj.conv(x, w, (1,), "SAME")
    with pytest.raises(TypeError):  # 1 == 1.0, but only one of them is a stride
        fj.conv(x, w, (1.0,), "SAME")
    with_no_key = fj.conv_general_dilated(x, w, np.array([1]), "SAME")
    np.testing.assert_array_equal(with_no_key, expected)


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
