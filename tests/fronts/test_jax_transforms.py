"""Under the switch every transformation of a convolution agrees with plain XLA, within the bound or exactly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from jaxtools import accelerate, agree, all_on_engine, conv, draw, engine, jax, quickly, records  # noqa: F401

import fastconv.jax as fj
from fastconv.jax import lowering

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("engine")


class Case(NamedTuple):
    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    padding: Any = "SAME"
    numbers: tuple[str, str, str] | None = None
    options: Mapping[str, Any] = MappingProxyType({})

    def __call__(self, x: Any, w: Any) -> Any:
        return conv(x, w, self.strides, self.padding, dimension_numbers=self.numbers, **self.options)


NHWC = ("NHWC", "HWIO", "NHWC")
CASES = {
    "dense": Case((2, 3, 9, 8), (5, 3, 3, 3)),
    "channels last, strided": Case((2, 9, 11, 6), (3, 2, 6, 17), (2, 3), ((1, 2), (0, 1)), NHWC),
    "transposed": Case((2, 5, 4, 6), (3, 5, 4, 3), (1, 1), ((2, 2), (1, 1)), None, {"lhs_dilation": (2, 3)}),
    "transposed over a forward kernel": Case((2, 9, 7), (9, 2, 16), (1,), ((15, 15),), ("NCT", "IOT", "NCT"), {"lhs_dilation": (4,)}),
    "analysis": Case((2, 1, 64), (9, 1, 16), (4,), ((16, 16),), ("NCT", "OIT", "NCT")),
    "grouped": Case((2, 6, 7, 7), (4, 3, 3, 2), (1, 2), "SAME", None, {"feature_group_count": 2}),
    "depthwise, dilated": Case((1, 10, 10, 8), (3, 3, 1, 8), (1, 1), "SAME", NHWC, {"feature_group_count": 8, "rhs_dilation": (2, 1)}),
    "batch groups": Case((4, 3, 7), (6, 3, 3), (1,), "VALID", None, {"batch_group_count": 2}),
    "both dilations": Case((1, 2, 6, 5), (3, 2, 3, 3), (2, 1), ((3, 2), (2, 4)), None, {"lhs_dilation": (3, 2), "rhs_dilation": (2, 3)}),
    "negative padding": Case((2, 2, 9, 9), (3, 2, 3, 3), (1, 1), ((-2, 1), (0, -3))),
    "volume": Case((1, 2, 5, 4, 6), (3, 2, 2, 3, 1), (1, 2, 1), "SAME"),
    "four axes": Case((1, 2, 3, 4, 3, 3), (2, 2, 2, 2, 1, 3), (1, 1, 1, 2), "SAME"),
    "no axes": Case((3, 4), (5, 4), (), ()),
    "spatial axes first": Case((6, 7, 3, 2), (3, 3, 2, 4), (1, 1), "SAME", ("HWNC", "HWIO", "HWNC")),
    "one pixel out": Case((2, 3, 5, 5), (4, 3, 5, 5), (3, 2), "VALID"),
    "no output": Case((1, 2, 2, 9), (3, 2, 3, 3), (1, 1), "VALID"),
}


IN_DOUBLE = ("dense", "transposed", "analysis", "grouped")
WITHOUT_VMAP = ("forward", "jvp", "grad", "scan", "remat", "linear transpose")
#: XLA of jax 0.7.2 is wrong on groups without spatial axes, which vmap makes: no reference there.
LEFT_OUT = ("no axes",)


def transformations(case: Case, names: tuple[str, ...] | None = None):
    """Results by name, each linear in every argument it uses."""

    def apply(x: Any, w: Any) -> Any:
        return case(x, w)

    def function(v: dict[str, Any]) -> dict[str, Any]:
        x, w, dx, dw, c = (v[name] for name in ("x", "w", "dx", "dw", "c"))
        xs, ws = jnp.stack([x, dx]), jnp.stack([w, dw])

        def loss(x: Any, w: Any) -> Any:
            return jnp.sum(apply(x, w) * c)

        results = {
            "forward": lambda: apply(x, w),
            "jvp": lambda: jax.jvp(apply, (x, w), (dx, dw))[1],
            "grad": lambda: jax.grad(loss, (0, 1))(x, w),
            "vmap x": lambda: jax.vmap(apply, (0, None))(xs, w),
            "vmap w": lambda: jax.vmap(apply, (None, 0))(x, ws),
            "vmap both": lambda: jax.vmap(apply)(xs, ws),
            "grad of each sample": lambda: jax.vmap(jax.grad(loss, 1), (0, None))(xs, w),
            "forward over reverse": lambda: jax.jvp(lambda w: jax.grad(loss)(x, w), (w,), (dw,))[1],
            "reverse over reverse": lambda: jax.grad(lambda w: jnp.sum(jax.grad(loss)(x, w) * dx))(w),
            "scan": lambda: jax.lax.scan(lambda total, w: (total + apply(x, w), None), jnp.zeros_like(c), ws)[0],
            "remat": lambda: jax.grad(lambda w: jnp.sum(jax.checkpoint(apply)(x, w) * c))(w),
            "linear transpose": lambda: jax.linear_transpose(lambda x: apply(x, w), x)(c),
        }
        return {name: results[name]() for name in names or results}

    return function


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in CASES), *((name, "float64") for name in CASES if name in IN_DOUBLE)]
)
def test_transformations_agree_with_xla(name: str, dtype: str) -> None:
    case = CASES[name]
    out = jax.eval_shape(case, *(jax.ShapeDtypeStruct(shape, np.float32) for shape in (case.x, case.w))).shape
    shapes = {"x": case.x, "w": case.w, "dx": case.x, "dw": case.w, "c": out}
    function = transformations(case, WITHOUT_VMAP if name in LEFT_OUT else None)
    agree(function, ((draw(shapes, dtype, False),), False), ((draw(shapes, dtype, True),), True))


def test_vmap_over_both_without_spatial_axes() -> None:
    x, w = draw({"x": (2, 3, 4), "w": (2, 5, 4)}, "float32", True).values()
    with accelerate():
        np.testing.assert_array_equal(jax.jit(jax.vmap(CASES["no axes"].__call__))(x, w), np.einsum("bnc,boc->bno", x, w))
    all_on_engine()


# --- what runs around a convolution ----------------------------------------------------------------------------------------------


def run(x: Any, w: Any) -> Any:
    return conv(x, w, (1, 1), "SAME")


def squares(x: Any, w: Any) -> Any:
    return jnp.sum(jnp.square(run(x, w)))


@jax.custom_vjp
def doubled(x: Any, w: Any) -> Any:
    return run(x, w)


doubled.defvjp(lambda x, w: (run(x, w), (x, w)), lambda kept, c: tuple(2 * part for part in jax.vjp(run, *kept)[1](c)))


#: Functions of images x (N, C, ...) and square kernels w, of integers that stay exact.
AROUND = {
    "while": lambda x, w: jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, run(s[1], w)), (0, x))[1],
    "fori": lambda x, w: jax.lax.fori_loop(0, 2, lambda _, x: run(x, w), x),
    "cond": lambda x, w: jax.lax.cond(jnp.sum(x) > jnp.inf, lambda: x, lambda: run(x, w)),
    "switch under vmap": lambda x, w: jax.vmap(lambda i: jax.lax.switch(i, [lambda: x, lambda: run(x, w)]))(jnp.arange(2)),
    "scan with a gradient": lambda x, w: jax.grad(lambda w: jnp.sum(jax.lax.scan(lambda x, _: (run(x, w), None), x, length=2)[0]))(w),
    "custom_vjp": lambda x, w: jax.grad(lambda x, w: jnp.sum(doubled(x, w)), (0, 1))(x, w),
    "remat": lambda x, w: jax.grad(lambda x, w: jnp.sum(jax.checkpoint(run)(x, w)), (0, 1))(x, w),
    "hessian-vector product": lambda x, w: jax.jvp(jax.grad(squares, 1), (x, w), (x, w))[1],
    "gradient of each sample": lambda x, w: jax.vmap(jax.grad(lambda x, w: squares(x[None], w), 1), (0, None))(x, w),
    "jacobian": lambda x, w: jax.jacrev(lambda w: jnp.sum(run(x, w), (0, 2, 3)))(w),
    "linearize": lambda x, w: jax.linearize(run, x, w)[1](x, w),
}


def exact_operands() -> tuple[Any, Any]:
    return tuple(draw({"x": (3, 4, 5, 6), "w": (4, 4, 3, 3)}, "float32", True).values())  # pyright: ignore[reportReturnType]


def test_control_flow_and_what_is_built_on_derivatives() -> None:
    """All of it in one program; and evaluated at once, operation by operation, under disable_jit."""
    x, w = exact_operands()
    function = lambda x, w: {name: around(x, w) for name, around in AROUND.items()}  # noqa: E731
    expected = quickly(function, x, w)
    records.clear()
    with accelerate():
        jax.tree.map(np.testing.assert_array_equal, quickly(function, x, w), expected)
        with jax.disable_jit():
            for name in ("while", "hessian-vector product", "gradient of each sample"):
                jax.tree.map(np.testing.assert_array_equal, AROUND[name](x, w), expected[name])
    all_on_engine()


def test_gradients_of_each_sample_are_one_convolution_whatever_their_number() -> None:
    """As many calls for 64 samples as for 2: vmap's rules fold samples into groups, and the engine takes them as such."""
    for apply in (run, lambda x, w: fj.conv(x, w, (1, 1), "SAME")):
        gradients = jax.vmap(jax.grad(lambda x, w, apply=apply: jnp.sum(jnp.square(apply(x[None], w))), 1), (0, None))
        for samples in (2, 64):
            records.clear()
            with accelerate():
                text = jax.jit(gradients).lower(jnp.ones((samples, 4, 8, 8)), jnp.ones((8, 4, 3, 3))).as_text()
            assert text.count(f"@{lowering.TARGET}") == 2
            assert sorted(row.direction for row in records.report().convolutions) == ["dw", "fwd"]


def test_a_donated_operand_is_read_before_it_is_overwritten() -> None:
    x, w = exact_operands()
    expected = np.asarray(run(x, w)) + x
    with accelerate():
        step = jax.jit(lambda x, w: x + run(x, w), donate_argnums=0)
        given = jnp.asarray(x)
        np.testing.assert_array_equal(step(given, w), expected)
        assert given.is_deleted()
    all_on_engine()


def test_compiled_ahead_of_time() -> None:
    x, w = exact_operands()
    with accelerate():
        compiled_once = jax.jit(lambda x, w: run(x, w)).lower(x, w).compile()
    assert lowering.TARGET in compiled_once.as_text()
    np.testing.assert_array_equal(compiled_once(x, w), run(x, w))


def test_debug_nans_names_a_convolution() -> None:
    x, w = exact_operands()
    x[0, 0, 0, 0] = np.nan
    with accelerate():
        assert np.isnan(run(x, w)).any()
        jax.config.update("jax_debug_nans", True)
        try:
            with pytest.raises(FloatingPointError, match="nan"):
                jax.jit(lambda x, w: run(x, w) + 1)(x, w)
            jax.jit(lambda x, w: run(x, w) + 1)(np.nan_to_num(x), w)
        finally:
            jax.config.update("jax_debug_nans", False)
