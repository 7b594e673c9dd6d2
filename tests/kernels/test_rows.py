"""What random draws are too small or too rare to hold: long rows, channels or features side by side, long sums over a dilated input."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fastconv import rewrite
from fastconv.problem import Axis, ConvProblem
from fastconv.reference import reference
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
            hold(problem, elements, fill(problem, elements, width, place == "left"), place == "left", places=(place,))


IMAGES = {
    "padded": (Axis(size=37, kernel=3, out=37, lo=1), Axis(size=300, kernel=5, out=300, lo=2)),
    "full": (Axis(size=20, kernel=4, out=23, lo=3), Axis(size=257, kernel=6, out=262, lo=5)),
    "cut": (Axis(size=40, kernel=3, out=33, lo=-3), Axis(size=290, kernel=3, out=280, lo=-5)),
    "wide padding": (Axis(size=30, kernel=2, out=60, lo=20), Axis(size=200, kernel=3, out=330, lo=65)),
    "strided and dilated rows": (
        Axis(size=61, kernel=3, out=27, lo=2, stride=2, rhs_dilation=2),
        Axis(size=280, kernel=3, out=276, rhs_dilation=2),
    ),
    "spaced rows": (Axis(size=61, kernel=3, out=21, lo=1, stride=3), Axis(size=280, kernel=3, out=280, lo=1)),
    "long taps": (Axis(size=3, kernel=1, out=3), Axis(size=900, kernel=70, out=900, lo=34)),
    "a signal": (Axis(size=2000, kernel=5, out=2004, lo=4),),
    "images of a volume": (Axis(size=3, kernel=1, out=3), Axis(size=11, kernel=3, out=11, lo=1), Axis(size=290, kernel=3, out=290, lo=1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gap", [0, 7])
@pytest.mark.parametrize(("channels", "features"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("name", IMAGES)
def test_images_of_many_tiles(name: str, channels: int, features: int, gap: int, dtype: str) -> None:
    """Most tiles meet no padding, and may read the input where it lies: rows at any distance, between inaccessible pages."""
    plain, elements = problem_of(IMAGES[name], 1, 2, channels, features)
    if gap:
        lhs = lay(plain.lhs_extents, tuple(reversed(range(len(plain.lhs_extents)))), [0, gap, *[0] * len(plain.lhs_extents)], [])
        plain, elements = replace(plain, lhs=lhs.operand), (lhs.elements, *elements[1:])
    problem = with_dtype(plain, dtype)
    for place in ("left", "right"):
        hold(problem, elements, fill(problem, elements, 1, place == "left"), place == "left", names=("stencil",), places=(place,))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_wide_rows_of_many_features(activation: str | None, dtype: str) -> None:
    """Rows whose lines, for all features, leave the first cache."""
    axes = (Axis(size=7, kernel=3, out=7, lo=1), Axis(size=150, kernel=3, out=149, lo=1))
    plain, elements = problem_of(axes, 1, 2, 2, 33)
    problem = with_dtype(replace(plain, bias_stride=1 if activation else None, activation=activation), dtype)
    hold(problem, elements, fill(problem, elements, 1, exact=True), exact=True, places=("right",))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("axis", [Axis(size=9, kernel=6, out=27, lo=3, lhs_dilation=3), Axis(size=7, kernel=3, out=7, lo=1)])
def test_many_small_groups(axis: Axis, dtype: str) -> None:
    """Channels first, so small that a task takes several vectors of groups; the last vector is not full."""
    plain, elements = problem_of((axis,), 149, 18, 1, 1)
    problem = with_dtype(replace(plain, bias_stride=1, activation="relu"), dtype)
    hold(problem, elements, fill(problem, elements, 1, exact=True), exact=True, names=("depthwise",), places=("right",))


DILATED = {
    "one axis": (Axis(size=8, kernel=24, out=6, lo=3, lhs_dilation=3),),
    "strided, beside a plain axis": (Axis(size=8, kernel=24, out=6, lo=3, lhs_dilation=3, stride=2), Axis(size=5, kernel=7, out=7)),
    "cut and padded": (Axis(size=8, kernel=17, out=6, lo=-2, lhs_dilation=2), Axis(size=4, kernel=13, out=3, lo=3, lhs_dilation=4)),
}


@pytest.mark.parametrize("axes", DILATED.values(), ids=DILATED)
@pytest.mark.parametrize(("groups", "batch", "channels", "features"), [(1, 2, 3, 4), (33, 1, 2, 1), (5, 2, 3, 1), (1, 8, 1, 16)])
def test_long_sums_over_a_dilated_input(groups: int, batch: int, channels: int, features: int, axes: tuple[Axis, ...]) -> None:
    """The operands may change places; the last case has more outputs than operands, whose order is turned instead of theirs."""
    problem, elements = problem_of(axes, groups, batch, channels, features)
    turned, data = rewrite.undilated(problem), fill(problem, elements, 3, exact=True)
    assert all(a.lhs_dilation == 1 for a in turned.axes)
    backwards = np.flip(reference(turned, data.rhs, data.lhs, None).value, tuple(range(3, 3 + len(axes))))
    assert np.array_equal(np.swapaxes(backwards, 1, 2), reference(problem, *data).value)
    for dtype in ("float32", "float64", "bfloat16", "int8"):
        narrow = with_dtype(problem, dtype)
        hold(narrow, elements, fill(narrow, elements, 3, exact=True), exact=True)
    assert rewrite.undilated(replace(problem, activation="relu")) == replace(problem, activation="relu")
