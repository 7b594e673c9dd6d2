"""The checker can fail: for every dtype and every operation, each of four mutations of a right result is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fastconv.check import bound, check, is_integer, mismatch, operand, rounded
from fastconv.normalise import ConvDims, Epilogue, Spec, family
from fastconv.problem import ACTIVATIONS, DTYPES, ConvProblem
from fastconv.reference import Reference, numpy_dtype, reference, with_peak

OPS = ("conv", "conv_transpose", "input_grad", "weight_grad")


def problem_of(op: str, dtype: str, activation: str | None = None) -> ConvProblem:
    """A strided 2-D problem of an operation with 5 channels, 4 features, batch 2."""
    transposed = op == "conv_transpose"
    dims = ConvDims((2, 5, 7, 6), (5, 4, 3, 2) if transposed else (4, 5, 3, 2), stride=2, padding=1, transposed=transposed)
    shapes = {
        "conv": (dims.x_shape, dims.w_shape),
        "conv_transpose": (dims.x_shape, dims.w_shape),
        "input_grad": (dims.output_shape, dims.w_shape),
        "weight_grad": (dims.x_shape, dims.output_shape),
    }[op]
    first, second = (Spec.contiguous(shape, dtype) for shape in shapes)
    return family(op, dims, first, second, Epilogue(activation=activation)).problem


def data_of(problem: ConvProblem, exact: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    lhs, rhs = (operand(rng, int(np.prod(extents)), problem.dtype, exact) for extents in (problem.lhs_extents, problem.rhs_extents))
    return lhs, rhs


def zero_output(problem: ConvProblem, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return np.zeros(problem.out_extents)


def one_tap_dropped(problem: ConvProblem, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The innermost axis loses its last tap: fewer of them and, for a flipped kernel, the same corner."""
    *rest, last = problem.axes
    return reference(replace(problem, axes=(*rest, replace(last, kernel=last.kernel - 1))), lhs, rhs).value


def edge_column_dropped(problem: ConvProblem, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """The innermost axis loses the last input column that any output reads."""
    expected = reference(problem, lhs, rhs).value
    for size in range(problem.axes[-1].size - 1, -1, -1):
        *rest, last = problem.axes
        cut = reference(replace(problem, axes=(*rest, replace(last, size=size))), lhs, rhs).value
        if not np.array_equal(cut, expected):
            return cut
    raise AssertionError("no column is read")


def channels_swapped(problem: ConvProblem, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    value = reference(problem, lhs, rhs).value.copy()
    value[:, :, [0, 1]] = value[:, :, [1, 0]]
    return value


MUTATIONS = (zero_output, one_tap_dropped, edge_column_dropped, channels_swapped)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_the_right_result_passes(op: str, dtype: str, exact: bool) -> None:
    problem = problem_of(op, dtype)
    ref = reference(problem, *data_of(problem, exact))
    check(problem, rounded(problem, ref.value), ref, exact)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPS)
def test_every_mutation_is_found(op: str, dtype: str, exact: bool, mutation: Callable[..., np.ndarray]) -> None:
    problem = problem_of(op, dtype)
    lhs, rhs = data_of(problem, exact)
    with pytest.raises(AssertionError, match=r"\d+ of \d+ outputs wrong, worst at \(g, n, o, \*p\) = "):
        check(problem, rounded(problem, mutation(problem, lhs, rhs)), reference(problem, lhs, rhs), exact)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_every_mutation_is_found_by_the_bound_of_windows(op: str, dtype: str, exact: bool, mutation: Callable[..., np.ndarray]) -> None:
    problem = problem_of(op, dtype)
    lhs, rhs = data_of(problem, exact)
    ref = with_peak(reference(problem, lhs, rhs), problem, lhs, rhs)
    check(problem, rounded(problem, ref.value), ref, kind="window")
    with pytest.raises(AssertionError, match="outputs wrong"):
        check(problem, rounded(problem, mutation(problem, lhs, rhs)), ref, kind="window")


def test_an_unknown_bound_and_a_missing_peak_are_refused() -> None:
    problem = problem_of("conv", "float32")
    ref = reference(problem, *data_of(problem, exact=False))
    for kind in ("window", "loose"):
        with pytest.raises(ValueError, match="kind must be"):
            bound(problem, ref, kind)


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
def test_every_mutation_is_found_behind_an_activation(activation: str, mutation: Callable[..., np.ndarray]) -> None:
    problem = problem_of("conv", "float32", activation)
    lhs, rhs = data_of(problem, exact=False)
    ref = reference(problem, lhs, rhs)
    check(problem, rounded(problem, ref.value), ref)
    assert mismatch(problem, rounded(problem, mutation(problem, lhs, rhs)), ref) is not None


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not is_integer(name)])
def test_the_bound_is_the_designs(dtype: str) -> None:
    """Written out again for one output of a 1x1 convolution over 5 channels."""
    problem = problem_of("conv", dtype)
    ref = Reference(np.full((1,), 2.0), np.full((1,), 2.0), np.full((1,), 3.0))
    accumulator = np.finfo(np.float64 if dtype in ("float64", "complex128") else np.float32)
    import ml_dtypes

    out = ml_dtypes.finfo(numpy_dtype(dtype))
    double = 2 if dtype.startswith("complex") else 1
    taps = problem.terms
    expected = (
        double * float(accumulator.eps) * (taps + 1) * 3
        + double * float(out.eps) * 2
        + (taps + 1) * float(accumulator.tiny)
        + float(out.tiny)
    )
    assert bound(problem, ref)[0] == pytest.approx(expected, rel=1e-12)


def test_one_unit_more_than_the_bound_fails() -> None:
    problem = problem_of("conv", "float32")
    ref = reference(problem, *data_of(problem, exact=False))
    limit = bound(problem, ref)
    at = (0, 1, 2, 1, 1)
    for share, fails in ((0.9, False), (1.1, True)):
        value = ref.value.copy()
        value[at] += share * limit[at]
        assert (mismatch(problem, rounded(problem, value), ref) is not None) == fails


@pytest.mark.parametrize(
    ("got", "value", "fails"),
    [
        (np.nan, np.nan, False), (np.inf, np.inf, False), (-np.inf, -np.inf, False), (np.inf, 1e39, False),
        (np.nan, 1.0, True), (1.0, np.nan, True), (np.inf, 1.0, True),
        (-np.inf, np.inf, True), (np.inf, np.nan, True), (-np.inf, 1e39, True),
    ],
)  # fmt: skip
def test_specials(got: float, value: float, fails: bool) -> None:
    problem = replace(problem_of("conv", "float32"), axes=(), batch=1, features=1)
    shaped = np.full((1, 1, 1), value)
    ref = Reference(shaped, shaped, np.abs(shaped))
    assert (mismatch(problem, np.full((1, 1, 1), got, np.float32), ref) is not None) == fails


def test_shape_and_dtype_are_checked() -> None:
    problem = problem_of("conv", "float32")
    ref = reference(problem, *data_of(problem, exact=False))
    assert "shape" in (mismatch(problem, np.zeros(3, np.float32), ref) or "")
    assert "dtype" in (mismatch(problem, ref.value, ref) or "")
