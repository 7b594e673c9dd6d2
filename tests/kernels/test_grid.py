"""The library on whole problems: every geometry, dtype, ISA level and algorithm against the definition, 1 and 2 threads alike.

Each draw is run by every algorithm that does not refuse it, at every ISA level, with one and with two threads. Outputs lie
between guard cells in a poisoned buffer of which nothing but the outputs may change.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastconv.check import check, is_integer
from fastconv.plan import choose
from fastconv.problem import ACTIVATIONS, DTYPES, Axis, ConvProblem
from fastconv.reference import reference, view
from fastconv.rewrite import input_gradient, weight_gradient
from fastconv.soak.draws import Buffers, fill, geometries, problem_of, with_dtype
from fastconv.soak.hold import algorithms, called, run
from fastconv.soak.hold import hold as hold_data
from fastconv.soak.memory import Cells

FAST = ("float32", "float64")  # the dtypes with more than the general algorithm
Drawn = tuple[ConvProblem, tuple[int, int, int]]


def hold(problem: ConvProblem, elements: tuple[int, int, int], seed: int, exact: bool) -> None:
    """Every algorithm at every level on random operands (`fastconv.soak.hold`); and the planner prices them all."""
    hold_data(problem, elements, fill(problem, elements, seed, exact), exact)
    plan = choose(problem)
    assert all(isinstance(verdict, str) or 0 <= verdict < np.inf for verdict in plan.considered.values()), plan


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", FAST)
@settings(max_examples=100)
@given(drawn=geometries(), seed=st.integers(0, 99))
def test_any_problem(dtype: str, exact: bool, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold(with_dtype(problem, dtype), elements, seed, exact)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name not in FAST])
@settings(max_examples=30)
@given(drawn=geometries(most_products=1 << 16), seed=st.integers(0, 99))
def test_any_problem_of_another_dtype(dtype: str, exact: bool, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold(with_dtype(problem, dtype), elements, seed, exact)


#: Sums of no products, each for another reason, beside outputs that have some.
DEGENERATE = {
    "no taps": (Axis(9, 0, 7),),
    "no taps on one of two axes": (Axis(9, 3, 7), Axis(9, 0, 10)),
    "no input": (Axis(0, 3, 5, lo=3),),
    "padding only": (Axis(9, 3, 20, lo=-30),),
    "long padding at both ends": (Axis(9, 3, 60, lo=25),),
    "strided past the input": (Axis(9, 3, 20, 4, 40),),
    "dilated past the input": (Axis(9, 5, 20, 1, 30, 1, 9),),
    "fewer inputs than phases": (Axis(1, 3, 20, 1, 8, 7),),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*DEGENERATE, "no channels"])
def test_degenerate_sums(name: str, dtype: str) -> None:
    """Outputs that no product reaches are bias and activation of zero, for every algorithm."""
    shape = (2, 2, 0, 17) if name == "no channels" else (2, 2, 3, 17)
    forward, elements = problem_of(DEGENERATE.get(name, (Axis(9, 3, 7),)), *shape)
    problem = with_dtype(replace(forward, bias_stride=1, activation="sigmoid" if dtype.startswith(("float", "bfloat")) else None), dtype)
    for seed in range(3):
        hold(problem, elements, seed, exact=problem.activation is None)


@pytest.mark.parametrize("features", [0, 2])
def test_a_bias_may_lie_nowhere_where_it_has_no_elements(features: int) -> None:
    """Empty buffers of other libraries may have no address; one with elements must."""
    plain, elements = problem_of((Axis(9, 3, 7),), 1, 2, 3, features)
    problem = replace(plain, bias_stride=1)
    lhs, rhs, _ = fill(problem, elements, 0, exact=True)
    for row in algorithms(problem):
        message = called(problem, row.code, Buffers(lhs, rhs, None), Cells("float32", elements[2], "guarded"))
        assert message is None if features == 0 else "the plan names a bias, but there is none" in (message or ""), row.name


@pytest.mark.parametrize("dtype", FAST)
@pytest.mark.parametrize("gradient", [input_gradient, weight_gradient])
@settings(max_examples=40)
@given(drawn=geometries(epilogue=False, repeats=False), seed=st.integers(0, 99), exact=st.booleans())
def test_any_gradient(dtype: str, gradient, drawn: Drawn, seed: int, exact: bool) -> None:
    forward, (lhs, rhs, out) = drawn
    problem = gradient(with_dtype(forward, dtype))
    elements = (out, rhs, lhs) if gradient is input_gradient else (lhs, out, rhs)
    hold(problem, elements, seed, exact)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
@settings(max_examples=8)
@given(drawn=geometries(most_products=1 << 14), seed=st.integers(0, 99))
def test_any_activation(dtype: str, activation: str, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold(replace(with_dtype(problem, dtype), activation=activation), elements, seed, exact=False)


PAIRS = (
    ("int8", "int32"), ("int8", "int16"), ("uint8", "int32"), ("uint8", "uint32"), ("int16", "int64"), ("uint8", "int8"),
    ("float16", "float32"), ("bfloat16", "float32"), ("float16", "float64"), ("float16", "bfloat16"),
    ("float32", "float64"), ("complex64", "complex128"),
    ("int8", "float32"), ("uint16", "float32"), ("int32", "float64"), ("uint64", "float64"),
)  # fmt: skip


@pytest.mark.parametrize(("dtype", "out_dtype"), PAIRS)
@settings(max_examples=8)
@given(drawn=geometries(most_products=1 << 14), seed=st.integers(0, 99), exact=st.booleans())
def test_any_wider_result(dtype: str, out_dtype: str, drawn: Drawn, seed: int, exact: bool) -> None:
    problem, elements = drawn
    if is_integer(dtype) != is_integer(out_dtype):
        problem = replace(problem, bias_stride=None)  # a bias has the operands' dtype
    hold(with_dtype(problem, dtype, out_dtype), elements, seed, exact)


@pytest.mark.parametrize("dtype", [name for name in DTYPES if not is_integer(name)])
@settings(max_examples=15)
@given(drawn=geometries(most_products=1 << 14, epilogue=False), seed=st.integers(0, 99))
def test_inf_and_nan_reach_only_what_their_tap_touches(dtype: str, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    hold_specials(with_dtype(problem, dtype), elements, seed)


def hold_specials(problem: ConvProblem, elements: tuple[int, int, int], seed: int) -> None:
    """One inf or NaN in each operand, by every algorithm: only outputs whose taps meet it may differ from what they were."""
    data = fill(problem, elements, seed, exact=True)
    rng = np.random.default_rng(seed)
    for array in data[:2]:
        if array.size:
            array[rng.integers(0, array.size)] = rng.choice([np.nan, np.inf, -np.inf])
    expected = reference(problem, *data)
    for row in algorithms(problem):
        out = view(run(problem, row.code, data, elements[2]), problem.out, problem.out_extents)
        found, wanted = np.isfinite(out.astype(np.clongdouble)), np.isfinite(expected.value)
        assert np.array_equal(found, wanted), f"{row.name}: inf or NaN in other places\n{problem}"
        check(problem, np.where(wanted, out, 0).astype(out.dtype), expected._replace(value=np.where(wanted, expected.value, 0)), exact=True)


TOLD = (Axis(size=8, kernel=3, out=5),)


class Untrue(ConvProblem):
    """Says it writes 5 outputs; its words write 6."""

    def words(self, algorithm: int) -> tuple[int, ...]:
        return problem_of((Axis(size=8, kernel=3, out=6),), 1, 1, 1, 1)[0].words(algorithm)


def test_the_guards_fire() -> None:
    told, _ = problem_of(TOLD, 1, 1, 1, 1)
    problem = Untrue(told.axes, 1, 1, 1, 1, told.lhs, told.rhs, told.out)
    with pytest.raises(AssertionError, match="cells that are no output were written"):
        run(problem, 0, fill(problem, (8, 3, 6), 0, exact=True), 6)
