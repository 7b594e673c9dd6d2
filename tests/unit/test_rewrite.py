"""Rewrites hold the same sums: gradients by the adjoint identity, phases and merged axes by the reference on the same buffers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fastconv.problem import Axis, ConvProblem, Operand
from fastconv.reference import reference, view
from fastconv.rewrite import flipped, input_gradient, merged, phases, residues, touching, weight_gradient
from fastconv.soak.draws import fill, geometries, problem_of, with_dtype


def integers(elements: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, elements)


@settings(max_examples=80)
@given(geometries(1 << 15, epilogue=False, repeats=False), st.integers(0, 99))
def test_gradients_are_adjoint(drawn: tuple[ConvProblem, tuple[int, int, int]], seed: int) -> None:
    """<conv(x, w), dy> = <x, dx> = <w, dw>, in exact integer arithmetic."""
    problem, (lhs, rhs, out) = drawn
    problem = with_dtype(problem, "int64")
    x, w, dy = integers(lhs, seed), integers(rhs, seed + 1), integers(out, seed + 2)
    y = reference(problem, x, w).value
    dx = reference(input_gradient(problem), dy, w).value
    dw = reference(weight_gradient(problem), x, dy).value
    inner = np.sum(y * view(dy, problem.out, problem.out_extents))
    assert inner == np.sum(dx * view(x, problem.lhs, problem.lhs_extents))
    # dw comes as (g, c, o, *k), the weights as (g, o, c, *k).
    assert inner == np.sum(np.swapaxes(dw, 1, 2) * view(w, problem.rhs, problem.rhs_extents))


@settings(max_examples=60)
@given(geometries(1 << 15, epilogue=False, repeats=False))
def test_input_gradient_is_its_own_inverse(drawn: tuple[ConvProblem, tuple[int, int, int]]) -> None:
    problem, _ = drawn
    twice = input_gradient(input_gradient(problem))
    if all(a.kernel for a in problem.axes):
        assert twice == problem
    assert twice.axes == problem.axes


@settings(max_examples=80)
@given(geometries(1 << 15), st.integers(0, 99))
def test_phases_write_the_same_outputs_once(drawn: tuple[ConvProblem, tuple[int, int, int]], seed: int) -> None:
    problem, elements = drawn
    problem = replace(with_dtype(problem, "float64"), activation="relu")
    data = fill(problem, elements, seed, exact=True)
    out = np.full(elements[2], np.nan)
    written = np.zeros(elements[2], np.int64)
    for part in phases(problem):
        assert all(a.lhs_dilation == 1 for a in part.axes)
        view(out, part.out, part.out_extents)[...] = reference(part, *data).value
        view(written, part.out, part.out_extents)[...] += 1
    np.testing.assert_array_equal(view(out, problem.out, problem.out_extents), reference(problem, *data).value)
    assert (view(written, problem.out, problem.out_extents) == 1).all()
    assert written.sum() == np.prod(problem.out_extents)


@settings(max_examples=120)
@given(geometries(1 << 15), st.integers(0, 99))
def test_residues_and_what_touches_data_leave_only_sums_of_nothing_out(drawn: tuple[ConvProblem, tuple[int, int, int]], seed: int) -> None:
    problem, elements = drawn
    problem = replace(with_dtype(problem, "float64"), activation="relu")
    data = fill(problem, elements, seed, exact=True)
    out = np.full(elements[2], np.nan)
    written = np.zeros(elements[2], np.int64)
    for part in (residue for phase in phases(problem) for residue in residues(phase)):
        assert all(a.lhs_dilation == a.rhs_dilation == 1 for a in part.axes)
        view(written, part.out, part.out_extents)[...] += 1
        nothing = replace(part, axes=tuple(replace(a, size=0, kernel=0) for a in part.axes))
        view(out, part.out, part.out_extents)[...] = reference(nothing, *data).value
        core = touching(part)
        if core is not None:
            assert all(0 <= a.lo < a.kernel for a in core.axes)
            for a in core.axes:  # every input, tap and output that is left meets another
                assert a.lo < (a.out - 1) * a.stride + a.kernel
                assert (a.out - 1) * a.stride - a.lo < a.size
            view(out, core.out, core.out_extents)[...] = reference(core, *data).value
    np.testing.assert_array_equal(view(out, problem.out, problem.out_extents), reference(problem, *data).value)
    assert (view(written, problem.out, problem.out_extents) == 1).all()


def test_phases_multiply_no_zero() -> None:
    """k256, dilation 64: 64 phases of 4 taps, which together form the problem's own products and no more."""
    axis = Axis(size=400, kernel=256, out=25792, lo=255, lhs_dilation=64)
    problem = ConvProblem((axis,), 1, 1, 3, 1, Operand((0, 0, 400), (1,)), Operand((0, 0, 256), (1,)), Operand((0, 0, 0), (1,)))
    parts = phases(problem)
    assert [part.axes[0].kernel for part in parts] == [4] * 64
    assert sum(part.products for part in parts) == problem.products
    assert max(part.terms for part in parts) == problem.terms


@settings(max_examples=80)
@given(geometries(1 << 15), st.integers(0, 99))
def test_merged_axes_hold_the_same_sums(drawn: tuple[ConvProblem, tuple[int, int, int]], seed: int) -> None:
    problem, elements = drawn
    problem = with_dtype(problem, "float64")
    data = fill(problem, elements, seed, exact=True)
    small = merged(problem)
    assert len(small.axes) <= len(problem.axes)
    out, expected = np.zeros(elements[2]), np.zeros(elements[2])
    view(out, small.out, small.out_extents)[...] = reference(small, *data).value
    view(expected, problem.out, problem.out_extents)[...] = reference(problem, *data).value
    np.testing.assert_array_equal(out, expected)


def test_a_1x1_convolution_is_one_matrix_product() -> None:
    small = merged(problem_of((Axis(8, 1, 8), Axis(5, 1, 5), Axis(3, 1, 3)), groups=1, batch=1, channels=7, features=2)[0])
    assert (small.axes, small.batch, small.channels) == ((), 120, 7)


def test_a_1x1_convolution_of_a_batch_keeps_one_axis() -> None:
    small = merged(problem_of((Axis(8, 1, 8), Axis(5, 1, 5)), groups=1, batch=2, channels=7, features=2)[0])
    assert (small.axes, small.batch) == ((Axis(40, 1, 40),), 2)


def test_a_kernel_that_covers_its_input_is_one_matrix_product() -> None:
    small = merged(problem_of((Axis(4, 4, 1, stride=4), Axis(3, 3, 1)), groups=1, batch=5, channels=2, features=6)[0])
    assert (small.axes, small.batch, small.channels, small.features) == ((), 5, 24, 6)


def test_padded_and_strided_axes_stay() -> None:
    axes = (Axis(8, 1, 10, lo=1), Axis(8, 1, 4, stride=2), Axis(8, 3, 6))
    assert merged(problem_of(axes, 1, 1, 2, 2)[0]).axes == axes


def test_flipped_reverses_every_axis() -> None:
    data = np.arange(6)
    operand = flipped(Operand((0, 0, 0), (3, 1)), (2, 3))
    np.testing.assert_array_equal(view(data, operand, (1, 1, 1, 2, 3))[0, 0, 0], data.reshape(2, 3)[::-1, ::-1])
