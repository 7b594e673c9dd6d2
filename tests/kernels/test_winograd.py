"""Winograd's form: the whole grid on problems it takes, its bound on data that break careless transforms, and never at "highest"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grid import FAST, Drawn, hold, hold_specials

from fastconv import _core
from fastconv.check import bound, check
from fastconv.plan import ALGORITHMS, choose, forced, this_machine
from fastconv.plan.row import Algorithm
from fastconv.problem import Axis, ConvProblem
from fastconv.reference import Array, reference, view, with_peak
from fastconv.rewrite import input_gradient
from fastconv.soak.draws import Buffers, geometries, lay, problem_of, with_dtype
from fastconv.soak.hold import run

(ROW,) = (row for row in ALGORITHMS if row.name == "winograd")
PLAIN = {"ranks": (2, 2, 2, 3, 4), "kinds": ((0, 0, 0),), "taps": (3, 3, 3, 3, 3, 3, 2, 1)}


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", FAST)
@settings(max_examples=60)
@given(drawn=geometries(**PLAIN), seed=st.integers(0, 99))
def test_any_plain_problem(dtype: str, exact: bool, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold(with_dtype(problem, dtype), elements, seed, exact)


@settings(max_examples=40)
@given(drawn=geometries(**PLAIN, epilogue=False, repeats=False), seed=st.integers(0, 99), exact=st.booleans())
def test_any_plain_input_gradient(drawn: Drawn, seed: int, exact: bool) -> None:
    forward, (lhs, rhs, out) = drawn
    hold(input_gradient(forward), (out, rhs, lhs), seed, exact)


@pytest.mark.parametrize("dtype", FAST)
@settings(max_examples=40)
@given(drawn=geometries(**PLAIN, epilogue=False, most_products=1 << 15), seed=st.integers(0, 99))
def test_inf_and_nan_reach_only_what_their_tap_touches(dtype: str, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold_specials(with_dtype(problem, dtype), elements, seed)


def image(channels: int, features: int, size: tuple[int, ...] = (13, 22), batch: int = 2) -> tuple[ConvProblem, tuple[int, int, int]]:
    """3 taps everywhere, padded by one on the low side and by none to two on the high one."""
    axes = tuple(Axis(n, 3, n + i % 3 - 1, lo=1) for i, n in enumerate(size))
    return problem_of(axes, 1, batch, channels, features)


# --- the bound on adversarial data -------------------------------------------------------------------------------------------


def wide_range(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    """Magnitudes over six decades in both operands."""
    for array in data[:2]:
        array *= 10.0 ** rng.uniform(-3, 3, array.shape)


def masked_kernels(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    """Autoregressive masks: no tap at or after the middle."""
    view(data.rhs, problem.rhs, problem.rhs_extents).reshape(-1, prod(a.kernel for a in problem.axes))[:, 4:] = 0


def one_huge_pixel(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    data.lhs[rng.integers(data.lhs.size)] = 1e6


def one_huge_weight(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    data.rhs[rng.integers(data.rhs.size)] = 1e6


def offset(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    """A large mean: the transform's differences cancel it."""
    data.lhs[...] += 1e3


def normal(rng: np.random.Generator, elements: tuple[int, int, int], dtype: str) -> Buffers:
    lhs, rhs = (rng.standard_normal(count).astype(dtype) for count in elements[:2])
    return Buffers(lhs, rhs, None)


def tiny_numbers(rng: np.random.Generator, problem: ConvProblem, data: Buffers) -> None:
    """Products below the smallest normal number."""
    for array in data[:2]:
        array *= float(np.finfo(array.dtype).tiny) ** 0.5


HOSTILE = (wide_range, masked_kernels, one_huge_pixel, one_huge_weight, offset, tiny_numbers)


@pytest.mark.parametrize("level", _core.isas())
@pytest.mark.parametrize("dtype", FAST)
@pytest.mark.parametrize("make", HOSTILE, ids=lambda make: make.__name__)
def test_the_bound_on_hostile_data(make: Callable[..., None], dtype: str, level: str) -> None:
    for seed, (channels, features, size) in enumerate([(1, 1, (13, 22)), (17, 33, (13, 22)), (64, 20, (7, 7)), (9, 5, (4, 6, 9))]):
        rng = np.random.default_rng(seed)
        plain, elements = image(channels, features, size)
        problem = with_dtype(plain, dtype)
        data = normal(rng, elements, dtype)
        make(rng, problem, data)
        expected = with_peak(reference(problem, *data), problem, *data)
        with _core.isa_level(level):
            out = view(run(problem, ROW.code, data, elements[2]), problem.out, problem.out_extents)
        check(problem, out, expected, kind=ROW.bound)


def test_the_bound_is_the_designs() -> None:
    """Written out again, output by output: 4 eps (taps + 1) times the window's largest numbers, and the usual small terms."""
    problem, elements = image(3, 2, (5, 4), batch=1)
    rng = np.random.default_rng(0)
    data = normal(rng, elements, "float32")
    ref = with_peak(reference(problem, *data), problem, *data)
    limit = bound(problem, ref, "window")
    x, w = data.lhs.reshape(3, 5, 4).astype(float), data.rhs.reshape(2, 3, 9).astype(float)
    eps, tiny = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).tiny)
    for o, i, j in np.ndindex(2, *(a.out for a in problem.axes)):
        window = np.abs(x[:, max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2]).max(axis=(1, 2))
        sums = (9 * window * np.abs(w[o]).max(axis=1)).sum()
        expected = 4 * eps * (27 + 1) * sums + eps * abs(ref.value[0, 0, o, i, j]) + (27 + 2) * tiny
        assert limit[0, 0, o, i, j] == pytest.approx(expected, rel=1e-12)


def test_one_outlier_stays_in_its_windows() -> None:
    """F(2,3) reads only an output's own window: elsewhere not one bit changes."""
    problem, elements = image(20, 18, (12, 15), batch=1)
    rng = np.random.default_rng(1)
    data = normal(rng, elements, "float32")
    before = view(run(problem, ROW.code, data, elements[2]), problem.out, problem.out_extents).copy()
    view(data.lhs, problem.lhs, problem.lhs_extents)[0, 0, 3, 6, 7] = 1e30
    after = view(run(problem, ROW.code, data, elements[2]), problem.out, problem.out_extents)
    changed = (before != after).any(axis=(0, 1, 2))
    assert np.argwhere(changed).min(axis=0).tolist() == [5, 6]
    assert np.argwhere(changed).max(axis=0).tolist() == [7, 8]


@pytest.mark.parametrize("dtype", FAST)
def test_sums_of_numbers_near_the_largest_do_not_overflow(dtype: str) -> None:
    """The sum of two inputs may be too large where none of the products is."""
    problem, elements = image(2, 3, (9, 9))
    problem = with_dtype(problem, dtype)
    largest = float(np.finfo(dtype).max)
    data = Buffers(np.full(elements[0], 0.9 * largest, dtype), np.full(elements[1], 1e-3, dtype), None)
    out = view(run(problem, ROW.code, data, elements[2]), problem.out, problem.out_extents)
    check(problem, out, reference(problem, *data))


# --- operands as they come ---------------------------------------------------------------------------------------------------

#: Orders of (group, feature, channel, y, x), innermost first, in which weights are read in ways of their own.
WEIGHTS = {
    "OIHW": (4, 3, 2, 1, 0), "IOHW": (4, 3, 1, 2, 0), "HWIO": (1, 2, 4, 3, 0), "HWOI": (2, 1, 4, 3, 0), "OHWI": (2, 4, 3, 1, 0),
    "OWIH": (3, 2, 4, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("size", [(6, 11), (30, 31)], ids=["one task", "several tasks"])  # weights of one task are transformed in it
@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("order", WEIGHTS.values(), ids=WEIGHTS)
def test_any_order_of_weights(order: tuple[int, ...], flipped: bool, size: tuple[int, int]) -> None:
    problem, elements = image(19, 37, size)
    laid = lay(problem.rhs_extents, order, [0] * 5, [False] * 3 + [flipped, flipped])
    hold(replace(problem, rhs=laid.operand), (elements[0], laid.elements, elements[2]), 0, exact=True)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (33, 5), (5, 61), (3, 250), (41, 41)])
@pytest.mark.parametrize("last", [False, True])
def test_sizes_around_tasks(size: tuple[int, int], last: bool) -> None:
    problem, elements = image(35, 67, size, batch=3)
    if last:
        order = (2, 4, 3, 1, 0)  # channels innermost
        lhs, out = (lay(extents, order, [0] * 5, [False] * 5) for extents in (problem.lhs_extents, problem.out_extents))
        problem = replace(problem, lhs=lhs.operand, out=out.operand)
    hold(replace(problem, bias_stride=1, activation="relu"), elements, 0, exact=True)


# --- the planner -------------------------------------------------------------------------------------------------------------


def wide(precision: str) -> ConvProblem:
    return replace(problem_of((Axis(56, 3, 56, lo=1),) * 2, 1, 1, 64, 64)[0], precision=precision)


def test_chosen_by_default_and_never_at_highest() -> None:
    assert choose(wide("default")).algorithm == "winograd"
    plan = choose(wide("highest"))
    assert plan.algorithm != "winograd"
    assert plan.considered["winograd"] == "approximate, and the precision is 'highest'"
    with forced("winograd"):
        assert choose(wide("default")).algorithm == "winograd"
        assert choose(wide("highest")).algorithm != "winograd"


@pytest.mark.parametrize(("gain", "taken"), [(1.25, True), (1.15, False), (0.9, False)])
def test_an_approximate_row_must_be_worth_it(gain: float, taken: bool) -> None:
    problem = replace(wide("default"), axes=(Axis(56, 2, 55),) * 2)  # not one for Winograd
    exact = choose(problem).seconds
    row = Algorithm("near", -3, lambda *_: None, lambda *_: exact / gain, lambda *_: 0, bound="window")
    plan = choose(problem, extra=(row,))
    assert (plan.algorithm == "near") == taken
    verdict = plan.considered["near"]
    assert verdict == ("approximate, and only 1.15 times as fast as the best exact algorithm" if gain == 1.15 else exact / gain)


def test_every_approximate_row_says_so() -> None:
    assert [row.name for row in ALGORITHMS if row.approximate] == ["winograd"]


def _refusals() -> dict[str, tuple[ConvProblem, str]]:
    plain = wide("default")
    y, x = plain.axes

    def other(axis: Axis) -> ConvProblem:
        return problem_of((y, axis), 1, 1, 64, 64)[0]

    return {
        "one axis": (problem_of((Axis(56, 3, 54),), 1, 1, 64, 64)[0], "two axes with 3 taps"),
        "strided": (other(replace(x, stride=2, out=28)), "two axes with 3 taps"),
        "dilated": (other(replace(x, rhs_dilation=2, out=54)), "two axes with 3 taps"),
        "five taps": (other(Axis(56, 5, 52)), "two axes with 3 taps"),
        "dilated input": (problem_of((Axis(9, 2, 9, 1, 1, 2), Axis(9, 3, 7), Axis(9, 3, 7)), 1, 1, 8, 8)[0], "the input is dilated"),
        "integers": (with_dtype(plain, "int8"), "approximate, and the precision is 'highest'"),
        "many channels": (problem_of((Axis(5, 3, 3),) * 2, 1, 1, 1 << 18, 1)[0], "channels are too many"),
        "many features": (problem_of((Axis(5, 3, 3),) * 2, 1, 1, 1, 1 << 19)[0], "features are too many"),
        "many weights": (problem_of((Axis(5, 3, 3),) * 2, 1 << 12, 1, 1 << 10, 64)[0], "weights are too large"),
    }


@pytest.mark.parametrize("name", _refusals())
def test_refusals(name: str) -> None:
    problem, text = _refusals()[name]
    assert text in (ROW.refuse(problem, this_machine()) or "")


@pytest.mark.parametrize("name", ["one axis", "strided", "dilated", "five taps", "dilated input"])
def test_the_library_refuses_by_itself(name: str) -> None:
    """Words can come from a file."""
    problem, _ = _refusals()[name]
    sizes = [prod(extents) for extents in (problem.lhs_extents, problem.rhs_extents, problem.out_extents)]
    data: list[Array] = [np.zeros(size, problem.dtype) for size in sizes[:2]]
    with pytest.raises(AssertionError, match="winograd: "):
        run(problem, ROW.code, Buffers(data[0], data[1], None), sizes[2])


def test_a_row_is_direct_unless_it_says_otherwise() -> None:
    row = Algorithm("x", 9, lambda *_: None, lambda *_: 0.0, lambda *_: 0)
    assert (row.bound, row.approximate) == ("direct", False)
