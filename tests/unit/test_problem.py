"""The counts of a problem, against counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastconv.problem import Axis, ConvProblem, Operand

AXES = st.builds(
    Axis,
    size=st.integers(0, 12),
    kernel=st.integers(0, 9),
    out=st.integers(0, 14),
    stride=st.integers(1, 7),
    lo=st.integers(-8, 12),
    lhs_dilation=st.integers(1, 8),
    rhs_dilation=st.integers(1, 8),
)


def problem_of(*axes: Axis) -> ConvProblem:
    nowhere = Operand((0, 0, 0), (0,) * len(axes))
    return ConvProblem(axes, groups=2, batch=3, channels=5, features=7, lhs=nowhere, rhs=nowhere, out=nowhere)


def meets(axis: Axis, p: int, k: int) -> bool:
    place = p * axis.stride + k * axis.rhs_dilation - axis.lo
    return place % axis.lhs_dilation == 0 and 0 <= place // axis.lhs_dilation < axis.size


@given(AXES, AXES)
def test_products_and_terms(first: Axis, second: Axis) -> None:
    pairs, most = 1, 1
    for axis in (first, second):
        touched = [sum(meets(axis, p, k) for k in range(axis.kernel)) for p in range(axis.out)]
        pairs *= sum(touched)
        most *= max(touched, default=0)
    problem = problem_of(first, second)
    assert problem.products == 2 * 3 * 5 * 7 * pairs
    assert problem.terms >= 5 * most


def test_counting_does_not_take_longer_for_longer_axes() -> None:
    n, k = 2 * 10**15, 10**15
    assert problem_of(Axis(n, k, n - k + 1)).products == 2 * 3 * 5 * 7 * k * (n - k + 1)
