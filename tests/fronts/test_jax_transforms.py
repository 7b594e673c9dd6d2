"""Under the switch every transformation of a convolution agrees with plain XLA, within the bound or exactly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from jaxtools import accelerate, agree, all_on_engine, conv, draw, engine, jax  # noqa: F401

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
