"""Overlap-save under JAX: against plain XLA in double precision, with every option of lax's; what is not finite; memory's chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jaxtools import accelerate, conv, jax, records, x64

from fastconv.jax import spectral
from fastconv.plan import forced, this_machine
from fastconv.problem import Axis
from fastconv.soak.draws import problem_of

jnp = jax.numpy


def arrays(*shapes: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def transformed(function: Callable[..., Any], *operands: Any) -> Any:
    """The result with every convolution by transforms."""
    records.clear()
    with forced("fft"), accelerate():
        result = jax.jit(lambda *values: function(*values))(*operands)
    rows = records.report().convolutions
    assert rows
    assert {row.algorithm for row in rows} == {"fft"}, rows
    return jax.tree.map(np.asarray, result)


def plain(function: Callable[..., Any], *operands: Any) -> Any:
    """Plain XLA's result in double precision."""
    with x64():
        return jax.tree.map(np.asarray, jax.jit(lambda *values: function(*values))(*(np.asarray(a, np.float64) for a in operands)))


def near(got: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Errors are relative to norms, so to the largest output that there is."""
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= tolerance * np.abs(theirs).max()


CASES = {
    "plain": ((2, 3, 500), (4, 3, 100), {}),
    "padded": ((1, 1, 500), (1, 1, 200), {"padding": ((199, 150),)}),
    "cropped": ((1, 2, 500), (1, 2, 100), {"padding": ((-20, -30),)}),
    "far beyond the data": ((1, 1, 100), (1, 1, 80), {"padding": ((300, 200),)}),
    "parts of the kernel": ((1, 1, 5000), (1, 1, 4930), {}),
    "blocks of outputs": ((2, 1, 9000), (2, 1, 70), {"padding": ((3, 5),)}),
    "strided": ((1, 2, 900), (3, 2, 130), {"window_strides": (3,), "padding": ((4, 5),)}),
    "dilated": ((1, 2, 900), (3, 2, 70), {"rhs_dilation": (3,), "padding": ((4, 5),)}),
    "transposed": ((1, 2, 300), (3, 2, 150), {"lhs_dilation": (2,), "padding": ((74, 75),)}),
    "groups": ((2, 6, 400), (4, 3, 90), {"feature_group_count": 2}),
    "image": ((1, 2, 40, 70), (2, 2, 11, 20), {"padding": ((3, 4), (19, 19))}),
    "channels last": ((1, 40, 70, 2), (11, 20, 2, 3), {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "window_strides": (1, 2)}),
    "odd order": ((70, 2, 1, 40), (2, 20, 3, 11), {"dimension_numbers": ("WCNH", "IWOH", "HWNC")}),
    "volume": ((1, 1, 12, 14, 16), (1, 1, 5, 6, 7), {"padding": ((2, 2), (5, 0), (0, 6))}),
}


@pytest.mark.parametrize("name", CASES)
def test_any_option(name: str) -> None:
    x_shape, w_shape, options = CASES[name]
    settings = {"window_strides": (1,) * (len(x_shape) - 2), "padding": "VALID"} | options
    operands = arrays(x_shape, w_shape)
    near(transformed(lambda x, w: conv(x, w, **settings), *operands), plain(lambda x, w: conv(x, w, **settings), *operands))


@pytest.mark.parametrize("name", ["padded", "strided", "image"])
def test_gradients(name: str) -> None:
    x_shape, w_shape, options = CASES[name]
    settings = {"window_strides": (1,) * (len(x_shape) - 2), "padding": "VALID"} | options

    def gradients(x: Any, w: Any) -> Any:
        return jax.grad(lambda x, w: jnp.sum(jnp.sin(conv(x, w, **settings) / 100)), argnums=(0, 1))(x, w)

    operands = arrays(x_shape, w_shape)
    near(transformed(gradients, *operands), plain(gradients, *operands), 1e-4)


def test_under_vmap_and_in_double_precision() -> None:
    def mapped(x: Any, w: Any) -> Any:
        return jax.vmap(lambda x: conv(x, w, (1,), ((10, 20),)))(x)

    operands = arrays((3, 2, 2, 300), (2, 2, 80), dtype="float64")
    with x64():
        near(transformed(mapped, *operands), plain(mapped, *operands), 1e-14)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("operand", [0, 1])
def test_what_is_not_finite_reaches_only_what_its_tap_touches(operand: int, value: float) -> None:
    def full(x: Any, w: Any) -> Any:
        return conv(x, w, (1,), ((99, 99),))

    operands = arrays((1, 1, 500), (1, 1, 100))
    operands[operand][0, 0, 37] = value
    got = transformed(full, *operands)
    assert np.isfinite(got).sum() == 599 - (100 if operand == 0 else 500)
    finite, clean = np.isfinite(got), [np.where(np.isfinite(a), a, 0) for a in operands]
    assert np.abs(got - plain(full, *clean))[finite].max() < 1e-3


def test_chunks_keep_to_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts of few rows: the loop over chunks, with a last one that is not full."""
    layout = spectral._layout
    monkeypatch.setattr(spectral, "_layout", lambda problem: replace(found, rows=3) if (found := layout(problem)) else found)
    operands = arrays((7, 2, 800), (3, 2, 70))
    near(
        transformed(lambda x, w: conv(x, w, (1,), ((69, 69),)), *operands),
        plain(lambda x, w: conv(x, w, (1,), ((69, 69),)), *operands),
    )


def test_the_planner_takes_it_by_cost_and_not_with_the_highest_precision() -> None:
    operands = arrays((1, 1, 100_000), (1, 1, 20_000))
    for precision, expected in ((None, "fft"), ("highest", "stencil")):
        records.clear()
        with accelerate():
            jax.jit(lambda x, w, p=precision: conv(x, w, (1,), "VALID", precision=p)).lower(*operands)
        (row,) = records.report().convolutions
        assert row.algorithm == expected


def test_refusals_have_reasons() -> None:
    four, _ = problem_of((Axis(9, 3, 7),) * 4, 1, 1, 1, 1)
    assert spectral.FFT.refuse(four, this_machine()) == "XLA transforms at most 3 axes"
    few, _ = problem_of((Axis(9, 3, 7),), 1, 1, 1, 1)
    assert "too few" in str(spectral.FFT.refuse(few, this_machine()))
