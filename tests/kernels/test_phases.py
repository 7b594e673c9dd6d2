"""Transposed convolutions of few features: shapes whose phases the drivers run together, with zeros for the weights that some lack."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_grid import hold, hold_specials

from fastconv.problem import Axis, ConvProblem
from fastconv.soak.draws import lay

#: Taps that s does not divide, fewer taps than phases, outputs that end within a period, strides beside the dilation, an axis without.
AXES = {
    "k9 s4, as FSRCNN": (Axis(12, 9, 45, 1, 4, 4), Axis(19, 9, 73, 1, 4, 4)),
    "k3 s2 in a volume": (Axis(4, 3, 8, 1, 1, 2), Axis(5, 3, 10, 1, 1, 2), Axis(17, 3, 33, 1, 1, 2)),
    "k3 s5": (Axis(30, 3, 148, 1, 0, 5),),
    "k5 s3 and an axis without": (Axis(9, 5, 27, 1, 2, 3), Axis(40, 3, 40, 1, 1)),
    "an axis without and k5 s3": (Axis(9, 3, 9, 1, 1), Axis(21, 5, 65, 1, 4, 3)),
    "k7 s2 beside stride 3": (Axis(70, 7, 45, 3, 5, 2),),
    "k4 s2, taps dilated by 3": (Axis(50, 4, 108, 1, 9, 2, 3),),
    "more phases than outputs": (Axis(6, 9, 5, 1, -3, 8), Axis(33, 4, 66, 1, 1, 2)),
    "cropped far": (Axis(40, 6, 60, 1, -30, 4),),
}


def transposed(
    axes: tuple[Axis, ...], features: int, last: bool, taps_inside: bool | None = None, channels: int = 21
) -> tuple[ConvProblem, tuple[int, int, int]]:
    """Two groups and two images; channels last or first, the kernel's own if not told otherwise."""
    dims = len(axes)
    orders = {True: (2, *reversed(range(3, 3 + dims)), 1, 0), False: (*reversed(range(3, 3 + dims)), 2, 1, 0)}
    kernel_last = last if taps_inside is None else not taps_inside
    lhs, rhs, out = (
        lay((*outer, *spatial), orders[order], [0] * (3 + dims), [False] * (3 + dims))
        for outer, spatial, order in (
            ((2, 2, channels), [a.size for a in axes], last),
            ((2, features, channels), [a.kernel for a in axes], kernel_last),
            ((2, 2, features), [a.out for a in axes], last),
        )
    )
    return ConvProblem(axes, 2, 2, channels, features, lhs.operand, rhs.operand, out.operand), (lhs.elements, rhs.elements, out.elements)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("features", [1, 3, 9])
@pytest.mark.parametrize("name", AXES)
def test_few_features(name: str, features: int, last: bool) -> None:
    problem, elements = transposed(AXES[name], features, last)
    hold(problem, elements, features, exact=True)
    hold(replace(problem, dtype="float64", out_dtype="float64", bias_stride=1, activation="silu"), elements, 1, exact=False)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", AXES)
def test_zeros_for_lacking_weights_meet_no_infinity(name: str, last: bool) -> None:
    """An input that is not finite reaches only the outputs of taps that there are; so does a weight."""
    problem, elements = transposed(AXES[name], 1, last)
    for seed in range(4):
        hold_specials(problem, elements, seed)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", AXES)
def test_whole_vectors_of_features(name: str, last: bool) -> None:
    """Taps innermost in memory: `points` lays out the weights of all phases together."""
    problem, elements = transposed(AXES[name], 16, last, taps_inside=True)
    hold(problem, elements, 1, exact=True)


def test_vectors_of_several_panels() -> None:
    problem, elements = transposed(AXES["an axis without and k5 s3"], 80, last=True, taps_inside=True)
    hold(replace(problem, dtype="float64", out_dtype="float64", bias_stride=1), elements, 2, exact=False)
    hold_specials(problem, elements, 3)


@pytest.mark.parametrize("taps_inside", [False, True])
def test_many_weights_for_few_points(taps_inside: bool) -> None:
    """More weights than a core's second cache: `points` packs them a panel at a time, where they are used."""
    problem, elements = transposed((Axis(5, 16, 40, 1, 11, 8),), 48, True, taps_inside, channels=400)
    assert elements[1] * 4 > 2 << 20
    hold(problem, elements, 1, exact=True)
    hold_specials(problem, elements, 3)
