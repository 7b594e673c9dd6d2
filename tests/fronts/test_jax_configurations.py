"""Hundreds of drawn convolutions under drawn transformations, with the switch on and off, against the written-out definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from definition import convolutions, wrong
from jaxtools import accelerate, all_on_engine, conv, engine, jax, quickly  # noqa: F401

from fastconv.check import operand

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("engine")

GROUPS, EACH = 33, 10
REAL, COMPLEX = ("float32", "float32", "float64", "bfloat16", "float16"), ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
#: What `preferred_element_type` may widen to.
WIDER = {
    "bfloat16": "float32", "float16": "float32", "float32": "float64", "complex64": "complex128",
    "int8": "int32", "uint8": "uint32", "int16": "int32", "int32": "int64", "uint16": "int32",
}  # fmt: skip


class Drawn(NamedTuple):
    """A convolution, and what is done with it. dtype: of the operands; trio: of x, w and the result's cotangent."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    options: dict[str, Any]
    dtype: str
    transformation: str
    exact: bool

    def __call__(self, x: Any, w: Any) -> Any:
        return conv(x, w, **self.options)

    @property
    def out(self) -> tuple[int, ...]:
        return jax.eval_shape(self, *(jax.ShapeDtypeStruct(shape, self.dtype) for shape in (self.x, self.w))).shape


def pulled(f: Drawn, x: Any, w: Any, c: Any, argument: int) -> Any:
    """The gradient of <c, f(x, w)>, by the transposition that all reverse-mode derivatives end in."""
    if argument == 0:
        return jax.linear_transpose(lambda x: f(x, w), x)(c)[0]
    return jax.linear_transpose(lambda w: f(x, w), w)(c)[0]


def nested(f: Drawn, xs: Any, ws: Any) -> Any:
    return jax.vmap(lambda w: jax.vmap(lambda x: f(x, w), out_axes=-1)(xs))(ws)


#: Name: the operands it takes (capitals: a stack of them) and the function of them.
TRANSFORMATIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    "forward": ("xw", lambda f, x, w: f(x, w)),
    "dx": ("xwc", lambda f, x, w, c: pulled(f, x, w, c, 0)),
    "dw": ("xwc", lambda f, x, w, c: pulled(f, x, w, c, 1)),
    "vmap x": ("Xw", lambda f, xs, w: jax.vmap(lambda x: f(x, w))(xs)),
    "vmap w": ("xW", lambda f, x, ws: jax.vmap(lambda w: f(x, w), out_axes=1)(ws)),
    "vmap both": ("XW", lambda f, xs, ws: jax.vmap(f)(xs, ws)),
    "nested vmap": ("XW", nested),
    "jvp": ("xwxw", lambda f, x, w, dx, dw: jax.jvp(f, (x, w), (dx, dw))[1]),
    "grad": ("xwc", lambda f, x, w, c: jax.vjp(f, x, w)[1](c)),
    "grad of each sample": ("XwC", lambda f, xs, w, cs: jax.vmap(lambda x, c: pulled(f, x, w, c, 1))(xs, cs)),
    "dx of each model": ("xWC", lambda f, x, ws, cs: jax.vmap(lambda w, c: pulled(f, x, w, c, 0))(ws, cs)),
    "forward over reverse": ("xwcw", lambda f, x, w, c, dw: jax.jvp(lambda w: jax.vjp(f, x, w)[1](c), (w,), (dw,))[1]),
    "reverse over reverse": ("xwcx", lambda f, x, w, c, dx: jax.vjp(lambda w: pulled(f, x, w, c, 0), w)[1](dx)[0]),
    "transposed twice": ("xwc", lambda f, x, w, c: jax.linear_transpose(lambda c: pulled(f, x, w, c, 0), c)(x)[0]),
}
#: Those that JAX has for every dtype, integers and mixed results included.
ANY_DTYPE = ("forward", "vmap x", "vmap w", "vmap both", "nested vmap")
#: Those that add up results, each rounded for itself, or feed one convolution to another.
SEVERAL_SUMS = ("jvp", "forward over reverse", "reverse over reverse")


def drawn(seed: int) -> Drawn:
    """A configuration that JAX accepts: any rank, order, stride, dilation, padding, grouping, dtype, transformation."""
    rng = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    rank = pick(1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 0, 5)
    dtype = pick(*REAL, *REAL, *COMPLEX, pick(*INTEGERS), pick(*INTEGERS))
    transformation = pick(*TRANSFORMATIONS)
    preferred = WIDER.get(dtype) if rng.integers(5) == 0 or dtype in ("int8", "uint8") else None
    if dtype in INTEGERS or preferred is not None:
        transformation = pick(*ANY_DTYPE)
    elif dtype in ("bfloat16", "float16"):
        transformation = pick(*(name for name in TRANSFORMATIONS if name not in SEVERAL_SUMS))
    small = 3 if rank > 3 else 6 if rank == 3 else 12
    kernel = [int(rng.integers(1, min(4, small) if rank > 1 else 8)) for _ in range(rank)]
    strides, lhs_dilation, rhs_dilation = ([pick(1, 1, 1, 2, 3) for _ in range(rank)] for _ in range(3))
    size = [int(rng.integers(1, small)) for _ in range(rank)]
    if rank and rng.integers(20) == 0:
        size[0] = 0
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, rhs_dilation, strict=True)]
    padding = []
    for n, d, r in zip(size, lhs_dilation, reach, strict=True):
        extent = (n - 1) * d + 1 if n else 0
        lo, hi = int(rng.integers(-2, r + 1)), int(rng.integers(-2, r + 1))
        lo = max(lo, -(extent // 2))
        hi = max(hi, -(extent // 2), r - extent - lo if rng.integers(8) else -(extent // 2))  # now and then no output is left
        padding.append((lo, hi))
    groups, kind = pick(1, 1, 2, 3, 4), pick("feature", "feature", "batch")
    batch, channels, features = int(rng.integers(1, 4)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
    if rng.integers(20) == 0:
        batch = 0
    feature_groups, batch_groups = (groups, 1) if kind == "feature" else (1, groups)
    lhs, rhs, out = (rng.permutation(rank + 2) if rng.integers(2) else np.arange(rank + 2) for _ in range(3))
    if rng.integers(3) == 0:
        lhs, rhs, out = ([0, rank + 1, *range(1, rank + 1)], [rank + 1, rank, *range(rank)], [0, rank + 1, *range(1, rank + 1)])
    numbers = jax.lax.ConvDimensionNumbers(*(tuple(map(int, spec)) for spec in (lhs, rhs, out)))

    def laid(extents: list[int], spec: Any) -> tuple[int, ...]:
        return tuple(extents[spec.index(position)] for position in range(rank + 2))

    options = {
        "window_strides": tuple(strides), "padding": tuple(padding), "lhs_dilation": tuple(lhs_dilation),
        "rhs_dilation": tuple(rhs_dilation), "dimension_numbers": numbers, "feature_group_count": feature_groups,
        "batch_group_count": batch_groups, "precision": pick(None, None, None, "highest"), "preferred_element_type": preferred,
    }  # fmt: skip
    x = laid([batch * batch_groups, channels * feature_groups, *size], numbers.lhs_spec)
    w = laid([features * feature_groups * batch_groups, channels, *kernel], numbers.rhs_spec)
    return Drawn(x, w, options, dtype, transformation, bool(rng.integers(2)))


def operands(case: Drawn, seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    shapes = {"x": case.x, "w": case.w, "c": case.out}
    shapes |= {name.upper(): (3, *shape) for name, shape in shapes.items()}
    return tuple(operand(rng, shapes[name], case.dtype, case.exact) for name in TRANSFORMATIONS[case.transformation][0])


@pytest.mark.parametrize("group", range(GROUPS))
def test_drawn_configurations(group: int) -> None:
    cases = [drawn(seed) for seed in range(group * EACH, group * EACH + EACH)]
    arguments = [operands(case, seed) for seed, case in enumerate(cases)]
    functions = [lambda *a, case=case: TRANSFORMATIONS[case.transformation][1](case, *a) for case in cases]

    def program(arguments: Any) -> Any:
        return [jax.tree.leaves(function(*values)) for function, values in zip(functions, arguments, strict=True)]

    plain = quickly(program, arguments)
    with accelerate():
        ours = quickly(program, arguments)
    all_on_engine()
    for seed, (case, function, values, mine, theirs) in enumerate(zip(cases, functions, arguments, ours, plain, strict=True)):
        for who, results in (("fastconv", mine), ("XLA", theirs)):
            text = wrong(function, values, [np.asarray(result) for result in results], case.exact)
            assert text is None or (who == "XLA" and known_of_xla(case, function, values)), (
                f"{who}, configuration {group * EACH + seed}: {text}\n{case}"
            )


def known_of_xla(case: Drawn, function: Callable[..., Any], values: tuple[Any, ...]) -> bool:
    """XLA crops by reading outside rows (openxla/xla#48713), and JAX widens a complex result only after it was summed."""
    cropped = any(lo < 0 or hi < 0 for params in convolutions(function, values) for lo, hi in params["padding"])
    return cropped or (case.dtype == "complex64" and case.options["preferred_element_type"] is not None)


def test_the_configurations_are_many_and_different() -> None:
    cases = [drawn(seed) for seed in range(GROUPS * EACH)]
    assert len({(c.x, c.w, c.dtype, c.transformation, tuple(c.options.items())) for c in cases}) >= 300
    assert {case.transformation for case in cases} == set(TRANSFORMATIONS)
    assert {case.dtype for case in cases} == {*REAL, *COMPLEX, *INTEGERS}
    assert {len(case.x) - 2 for case in cases} == set(range(6))
