"""Rows that random draws are too small or too rare to hold: long ones, and channels or features side by side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastconv.problem import Axis, ConvProblem
from fastconv.soak.draws import fill, lay, problem_of, with_dtype
from fastconv.soak.hold import hold


def channels_last(problem: ConvProblem) -> tuple[ConvProblem, tuple[int, int, int]]:
    """The same problem with channels and features innermost, groups next, and the elements of its buffers."""
    dims = len(problem.axes)
    inner_first = (2, 0, *reversed(range(3, 3 + dims)), 1)
    lhs, rhs, out = (
        lay(extents, inner_first, [0] * len(extents), [False] * len(extents))
        for extents in (problem.lhs_extents, problem.rhs_extents, problem.out_extents)
    )
    return replace(problem, lhs=lhs.operand, rhs=rhs.operand, out=out.operand), (lhs.elements, rhs.elements, out.elements)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [5, 33, 70])
@pytest.mark.parametrize(("channels", "features"), [(2, 1), (3, 2), (4, 3), (1, 4), (5, 5), (17, 3), (6, 16)])
def test_channels_side_by_side(channels: int, features: int, width: int, dtype: str) -> None:
    rows = Axis(size=9, kernel=3, out=10, lo=2)
    for columns in (Axis(size=width, kernel=3, out=width, lo=1), Axis(size=width, kernel=2, out=(width + 3) // 2, lo=2, stride=2)):
        plain, _ = problem_of((rows, columns), 1, 2, channels, features)
        problem, elements = channels_last(with_dtype(replace(plain, bias_stride=1, activation="relu"), dtype))
        for place in ("left", "right"):  # an access outside would fault
            hold(problem, elements, fill(problem, elements, width, place == "left"), place == "left", place=place)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_wide_rows_of_many_features(activation: str | None, dtype: str) -> None:
    """Rows whose lines, for all features, leave the first cache."""
    axes = (Axis(size=7, kernel=3, out=7, lo=1), Axis(size=150, kernel=3, out=149, lo=1))
    plain, elements = problem_of(axes, 1, 2, 2, 33)
    problem = with_dtype(replace(plain, bias_stride=1 if activation else None, activation=activation), dtype)
    hold(problem, elements, fill(problem, elements, 1, exact=True), exact=True, place="right")
