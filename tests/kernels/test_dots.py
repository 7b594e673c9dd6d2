"""Dot products of narrow types: every unit of this CPU on any geometry, on the values its instructions treat in their own way, and
plans made where the CPU has more than here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fastconv import _core
from fastconv.check import check
from fastconv.plan import choose, machine, this_machine
from fastconv.plan.rows.dots import DOTS
from fastconv.problem import Axis, ConvProblem
from fastconv.reference import numpy_dtype, reference, view
from fastconv.rewrite import input_gradient, weight_gradient
from fastconv.soak.draws import Buffers, fill, geometries, problem_of, with_dtype
from fastconv.soak.hold import run, using_threads

Drawn = tuple[ConvProblem, tuple[int, int, int]]
UNITS = ("tiles", "vector")
PAIRS = (("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("int8", "int32"), ("int8", "int8"), ("uint8", "int32"), ("uint8", "uint16"))


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest) -> Iterator[str]:
    try:
        with _core.dot_unit_cap(request.param):
            yield request.param
    except ValueError:
        pytest.skip(f"this CPU has no {request.param} unit")


def hold(problem: ConvProblem, data: Buffers, elements: int, exact: bool) -> None:
    if DOTS.refuse(problem, this_machine()) is not None:
        return
    with using_threads(1):
        alone = run(problem, DOTS.code, data, elements)
    with using_threads(2):
        shared = run(problem, DOTS.code, data, elements)
    assert alone.tobytes() == shared.tobytes(), f"2 threads differ from 1\n{problem}"
    check(problem, view(alone, problem.out, problem.out_extents), reference(problem, *data), exact)


any_unit = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
@any_unit
@given(drawn=geometries(most_products=1 << 16), seed=st.integers(0, 99))
def test_any_problem(unit: str, dtype: str, out_dtype: str, exact: bool, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    problem = with_dtype(problem, dtype, out_dtype)
    hold(problem, fill(problem, elements, seed, exact), elements[2], exact)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("gradient", [input_gradient, weight_gradient])
@any_unit
@given(drawn=geometries(most_products=1 << 16, epilogue=False, repeats=False), seed=st.integers(0, 99))
def test_any_gradient(unit: str, dtype: str, gradient, drawn: Drawn, seed: int) -> None:
    forward, (lhs, rhs, out) = drawn
    problem = gradient(with_dtype(forward, dtype))
    elements = (out, rhs, lhs) if gradient is input_gradient else (lhs, out, rhs)
    hold(problem, fill(problem, elements, seed, exact=True), elements[2], exact=True)


#: Layers of ordinary size: whole tiles and their rests, rows along images, channels inside and outside of the runs, phases.
LAYERS = {
    "3x3": ((Axis(28, 3, 28, lo=1), Axis(30, 3, 30, lo=1)), 1, 2, 40, 50),
    "images as rows": ((Axis(7, 3, 7, lo=1), Axis(3, 3, 3, lo=1)), 1, 37, 24, 33),
    "stride 2, dilation 3": ((Axis(40, 3, 20, 2, 3, 1, 3), Axis(41, 5, 15, 2, 1, 1, 3)), 1, 1, 17, 16),
    "channels as runs": ((Axis(40, 3, 20, 2, 3, 1, 3), Axis(70, 3, 33, 2, 4, 1, 5)), 1, 2, 64, 20),
    "dilation 2 in a run": ((Axis(33, 7, 21, rhs_dilation=2), Axis(40, 7, 28, rhs_dilation=2)), 1, 1, 16, 32),
    "phases": ((Axis(30, 16, 240, lo=11, lhs_dilation=8),), 1, 2, 48, 40),
    "a weight gradient": ((Axis(30, 28, 3, lo=1), Axis(30, 29, 4, lo=1)), 1, 40, 3, 33),
    "long runs": ((Axis(300, 100, 201),), 2, 1, 3, 5),
    "a matrix": ((), 1, 50, 100, 70),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(unit: str, name: str, last: bool, dtype: str) -> None:
    axes, *outer = LAYERS[name]
    problem, elements = problem_of(axes, *outer)
    if last:
        problem = channels_last(problem)
    problem = with_dtype(replace(problem, bias_stride=1), dtype, "int32" if dtype == "int8" else None)
    assert DOTS.refuse(problem, this_machine()) is None
    hold(problem, fill(problem, elements, 3, exact=True), elements[2], exact=True)


def channels_last(problem: ConvProblem) -> ConvProblem:
    """The same extents with channels and features innermost everywhere (taps outside of them in the weights)."""

    def moved(operand, extents, order):
        strides, step = [0] * len(extents), 1
        for i in order:
            strides[i] = step
            step *= extents[i]
        return replace(operand, outer=tuple(strides[:3]), spatial=tuple(strides[3:]))

    spatial = tuple(reversed(range(3, 3 + len(problem.axes))))
    return replace(
        problem,
        lhs=moved(problem.lhs, problem.lhs_extents, (2, *spatial, 1, 0)),
        rhs=moved(problem.rhs, problem.rhs_extents, (1, 2, *spatial, 0)),
        out=moved(problem.out, problem.out_extents, (2, *spatial, 1, 0)),
    )


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e-39, -3e-39])
@pytest.mark.parametrize("operand", ["lhs", "rhs"])
def test_values_that_the_units_treat_otherwise(unit: str, operand: str, value: float) -> None:
    """Infinities and NaN stay where their taps are; subnormal numbers count where the other operand is large."""
    problem, elements = problem_of((Axis(20, 3, 20, lo=1), Axis(21, 3, 21, lo=1)), 1, 1, 5, 7)
    problem = with_dtype(problem, "bfloat16")
    data = fill(problem, elements, 2, exact=True)
    bfloat16 = numpy_dtype("bfloat16").type
    special, other = (data.lhs, data.rhs) if operand == "lhs" else (data.rhs, data.lhs)
    if 0 < abs(value) < 1:
        other[...] = other * bfloat16(2.0**120)
    special[[10, 40]] = bfloat16(value)
    expected = reference(problem, *data)
    out = view(run(problem, DOTS.code, data, elements[2]), problem.out, problem.out_extents)
    np.testing.assert_array_equal(np.isfinite(out.astype(np.float32)), np.isfinite(expected.value.astype(bfloat16).astype(np.float32)))
    check(problem, out, expected)


@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
def test_plans_run_where_the_units_are_missing(dtype: str, out_dtype: str) -> None:
    problem, elements = problem_of((Axis(20, 3, 20, lo=1),), 1, 2, 5, 7)
    problem = with_dtype(problem, dtype, out_dtype)
    data = fill(problem, elements, 2, exact=True)
    expected = reference(problem, *data)
    for level in _core.isas():
        with _core.isa_level(level), _core.dot_unit_cap("none"):
            assert _core.dot_unit() == "none"
            out = run(problem, DOTS.code, data, elements[2])
        check(problem, view(out, problem.out, problem.out_extents), expected, exact=True)


def test_units_belong_to_the_avx512_level() -> None:
    for level in _core.isas():
        with _core.isa_level(level):
            assert level == "avx512" or _core.dot_unit() == "none"
    with pytest.raises(ValueError, match="unknown or unavailable unit"), _core.dot_unit_cap("abacus"):
        pass


def test_wide_layers_take_the_unit_and_depthwise_ones_do_not() -> None:
    tiles = machine.machine_for("avx512", 2, dot_unit="tiles")
    wide, _ = problem_of((Axis(56, 3, 56, lo=1), Axis(56, 3, 56, lo=1)), 1, 1, 64, 64)
    assert choose(with_dtype(wide, "bfloat16"), tiles).algorithm == "dots"
    assert choose(with_dtype(wide, "int8", "int32"), tiles).algorithm == "dots"
    assert "not float16" in str(choose(with_dtype(wide, "float16"), tiles).considered["dots"])
    depthwise, _ = problem_of((Axis(56, 3, 56, lo=1), Axis(56, 3, 56, lo=1)), 64, 1, 1, 1)
    assert choose(with_dtype(depthwise, "bfloat16"), tiles).algorithm != "dots"
