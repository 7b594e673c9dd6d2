"""Draws whole problems with their buffers: any geometry, any dimension order, gaps, flips, and the shapes that drivers are made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from fastconv.check import operand
from fastconv.problem import Axis, ConvProblem, Operand
from fastconv.reference import numpy_dtype

Array = np.ndarray[Any, Any]

#: Small extents, and odd ones around the vector widths. Empty axes come by `_emptied`, so that most draws compute something.
EXTENTS = (3, 4, 5, 6, 7, 8, 9, 2, 1)
WIDE_EXTENTS = (*EXTENTS, 15, 16, 17, 31, 32, 33)
CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 35)


class Laid(NamedTuple):
    """An operand with the number of elements its buffer needs."""

    operand: Operand
    elements: int


def lay(extents: Sequence[int], order: Sequence[int], gaps: Sequence[int], flips: Sequence[bool], repeated: Sequence[int] = ()) -> Laid:
    """Strides for extents (three outer ones, then spatial) stored in `order` (innermost first), with gaps and reversed axes.

    Axes in `repeated` step by zero, as a broadcast view does.
    """
    strides, step, offset = [0] * len(extents), 1, 0
    for position, axis in enumerate(order):
        if axis in repeated:
            continue
        step *= 1 + gaps[position]
        strides[axis] = step
        step = max(step * max(extents[axis], 1), step)
    elements = 1 + sum((extent - 1) * stride for extent, stride in zip(extents, strides, strict=True)) if prod(extents) else 0
    for axis, flip in enumerate(flips):
        if flip and extents[axis]:
            offset += (extents[axis] - 1) * strides[axis]
            strides[axis] = -strides[axis]
    return Laid(Operand((strides[0], strides[1], strides[2]), tuple(strides[3:]), offset), elements)


def _one_in(draw: st.DrawFn, n: int) -> bool:
    """True once in n draws (of a small range Hypothesis would draw some values far more often)."""
    return draw(st.integers(0, (1 << 20) - 1)) % n == n // 2


def problem_of(axes: tuple[Axis, ...], groups: int, batch: int, channels: int, features: int) -> tuple[ConvProblem, tuple[int, int, int]]:
    """The problem of some axes on C-ordered buffers, channels before space, and the elements of these buffers."""
    laid = []
    for outer, spatial in (
        ((groups, batch, channels), [a.size for a in axes]),
        ((groups, features, channels), [a.kernel for a in axes]),
        ((groups, batch, features), [a.out for a in axes]),
    ):
        extents = (*outer, *spatial)
        laid.append(lay(extents, tuple(reversed(range(len(extents)))), [0] * len(extents), [False] * len(extents)))
    lhs, rhs, out = laid
    problem = ConvProblem(axes, groups, batch, channels, features, lhs.operand, rhs.operand, out.operand)
    return problem, (lhs.elements, rhs.elements, out.elements)


#: Which of stride, lhs dilation and rhs dilation an axis may have: plain, strided, transposed, gradient-like, anything.
KINDS = ((0, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 1), (1, 1, 1))


TAPS = (3, 3, 2, 1, 4, 5, 7)


@st.composite
def axes(draw: st.DrawFn, size: int, kind: tuple[int, int, int], taps: tuple[int, ...] = TAPS) -> Axis:
    """Any axis; the number of outputs is free, usually near what the padded input gives."""
    kernel = draw(st.sampled_from(taps))
    stride = draw(st.sampled_from((2, 3, 4, 1))) if kind[0] else 1
    lhs_dilation = draw(st.sampled_from((2, 3, 4, 6, 1))) if kind[1] else 1
    rhs_dilation = draw(st.sampled_from((2, 1, 3, 4))) if kind[2] else 1
    reach = (kernel - 1) * rhs_dilation + 1
    lo, hi = draw(st.integers(-2, min(reach - 1, 6))), draw(st.integers(-2, min(reach - 1, 6)))
    natural = ((size - 1) * lhs_dilation + 1 + lo + hi - reach) // stride + 1
    out = min(natural, 40) if natural > 0 and not _one_in(draw, 8) else draw(st.integers(1, 9))
    return Axis(size, kernel, out, stride, lo, lhs_dilation, rhs_dilation)


def _emptied(draw: st.DrawFn, outer: list[int], spatial: tuple[Axis, ...]) -> tuple[list[int], tuple[Axis, ...]]:
    """One draw in sixteen has an extent of zero somewhere."""
    if _one_in(draw, 16):
        place = draw(st.integers(0, 3 + 3 * len(spatial) - 1))
        if place < 3:
            outer[1 + place] = 0
        else:
            axis, which = divmod(place - 3, 3)
            hole = replace(spatial[axis], **{("size", "kernel", "out")[which]: 0})
            spatial = (*spatial[:axis], hole, *spatial[axis + 1 :])
    return outer, spatial


def _lay_out(draw: st.DrawFn, extents: tuple[int, ...], repeats: bool) -> Laid:
    """C order, channels last, or any order with gaps and reversed axes; a broadcast axis now and then where `repeats`."""
    plain = tuple(reversed(range(len(extents))))
    kind = draw(st.integers(0, 5))
    if kind <= 2:
        order = plain
    elif kind == 3:
        order = (2, 0, *plain[:-3], 1)
    else:
        order = tuple(draw(st.permutations(range(len(extents)))))
    gaps = [draw(st.sampled_from((0, 0, 0, 1))) if kind > 3 else 0 for _ in extents]
    flips = [axis >= 3 and draw(st.integers(0, 3)) == 0 for axis in range(len(extents))]
    repeated = () if not repeats or not _one_in(draw, 8) else (draw(st.integers(0, len(extents) - 1)),)
    return lay(extents, order, gaps, flips, repeated)


def _laid_out(
    draw: st.DrawFn, outer: Sequence[int], spatial: tuple[Axis, ...], epilogue: bool, repeats: bool
) -> tuple[ConvProblem, tuple[int, int, int]]:
    groups, batch, channels, features = outer
    lhs = _lay_out(draw, (groups, batch, channels, *(a.size for a in spatial)), repeats)
    rhs = _lay_out(draw, (groups, features, channels, *(a.kernel for a in spatial)), repeats)
    out = _lay_out(draw, (groups, batch, features, *(a.out for a in spatial)), False)
    bias = draw(st.sampled_from((None, None, 1, 2))) if epilogue else None
    problem = ConvProblem(spatial, groups, batch, channels, features, lhs.operand, rhs.operand, out.operand, bias_stride=bias)
    return problem, (lhs.elements, rhs.elements, out.elements)


def _lightened(outer: list[int], spatial: tuple[Axis, ...], most_products: int) -> tuple[Axis, ...]:
    """Fewer channels, features and groups (in `outer`), then shorter axes, until the reference is quick."""

    def work() -> int:
        return prod(outer) * prod(a.kernel * a.out for a in spatial)

    for position in (2, 3, 0):
        if work() > most_products and outer[position] > 1:
            outer[position] = 1 + outer[position] % 3
    if work() > most_products:
        return tuple(replace(a, out=min(a.out, 3), kernel=min(a.kernel, 3)) for a in spatial)
    return spatial


@st.composite
def geometries(
    draw: st.DrawFn,
    most_products: int = 1 << 18,
    epilogue: bool = True,
    repeats: bool = True,
    ranks: tuple[int, ...] = (1, 1, 1, 2, 2, 2, 3, 4, 0),
    kinds: tuple[tuple[int, int, int], ...] = KINDS,
    taps: tuple[int, ...] = TAPS,
) -> tuple[ConvProblem, tuple[int, int, int]]:
    """A problem (float32 until given another dtype) and the elements of its lhs, rhs and out buffers.

    ranks, kinds, taps: what numbers of axes, kinds and taps of an axis are drawn from.
    """
    dims = draw(st.sampled_from(ranks))
    sizes = WIDE_EXTENTS if dims <= 2 else EXTENTS
    outer = [
        draw(st.sampled_from((1, 1, 2, 3, 17))),
        draw(st.sampled_from((0, 1, 1, 2, 3))),
        *(draw(st.sampled_from(CHANNELS)) for _ in "co"),
    ]
    kind = draw(st.sampled_from(kinds))
    spatial = tuple(draw(axes(draw(st.sampled_from(sizes)), kind, taps)) for _ in range(dims))
    spatial = _lightened(outer, spatial, most_products)
    outer, spatial = _emptied(draw, outer, spatial)
    return _laid_out(draw, outer, spatial, epilogue, repeats)


class Shape(NamedTuple):
    """Choices for the extents and the kernel of a problem."""

    groups: Sequence[int]
    batch: Sequence[int]
    channels: Sequence[int]
    features: Sequence[int]
    kernels: Sequence[tuple[int, ...]]
    longest: int = 0  # the innermost axis; 0: as the number of axes has it


WIDE = (8, 15, 16, 17, 31, 32, 33, 48, 64, 65)
#: Shapes that a form of its own serves; random draws are seldom so wide, or have as many groups.
SHAPES = {
    "dense": Shape((1, 1, 2), (1, 1, 2, 5), WIDE, WIDE, ((1,), (3,), (5,), (1, 1), (3, 3), (2, 3))),
    "3x3": Shape((1, 1, 2), (1, 2, 3), WIDE, WIDE, ((3, 3), (3, 3), (3, 3, 3))),
    "depthwise": Shape(range(1, 71), (1, 1, 2, 3), (1,), (1, 1, 1, 2, 3), ((3,), (5,), (31,), (3, 3), (5, 5), (7, 7), (1, 3), (3, 3, 3))),
    "grouped": Shape((2, 3, 4, 5, 8, 16, 32), (1, 1, 2), range(2, 18), range(1, 18), ((3,), (8,), (1, 1), (3, 3), (2, 2, 2))),
    "few channels": Shape(
        (1,), (1, 2, 5), (1, 2, 3, 4), (1, 2, 3, 4, 8, 16, 17, 33), ((7,), (40,), (100,), (5, 5), (7, 7), (11, 2), (3, 3, 3))
    ),
    "images": Shape((1, 1, 2), (1, 1, 2), (1, 1, 2), (1, 1, 2), ((3, 3), (5, 5), (2, 7), (1, 60), (4, 3), (6,), (101,), (2, 3, 3)), 420),
}
#: Stride, lhs dilation and rhs dilation of an axis of such a shape; 0 stands for the kernel's extent.
STEPS = ((1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (0, 1, 1), (1, 0, 1))


@st.composite
def shapes(draw: st.DrawFn, shape: str, most_products: int = 1 << 20, epilogue: bool = True) -> tuple[ConvProblem, tuple[int, int, int]]:
    """A problem of one of SHAPES, most with stride 1 and padding as layers have them, and the elements of its buffers."""
    *extents, kernels, longest_line = SHAPES[shape]
    outer = [draw(st.sampled_from(choice)) for choice in extents]
    kernel = draw(st.sampled_from(kernels))
    longest = {1: 70, 2: 20, 3: 9}[len(kernel)]
    spatial = []
    for i, k in enumerate(kernel):
        size = draw(st.integers(1, longest_line if longest_line and i == len(kernel) - 1 else longest))
        stride, lhs_dilation, rhs_dilation = (step or k for step in draw(st.sampled_from(STEPS)))
        reach = (k - 1) * rhs_dilation
        lo, hi = (draw(st.sampled_from((reach // 2, reach // 2, 0, reach, -1))) for _ in "lh")
        out = ((size - 1) * lhs_dilation + lo + hi - reach) // stride + 1
        spatial.append(Axis(size, k, max(out, 1), stride, lo, lhs_dilation, rhs_dilation))
    spatial = _lightened(outer, tuple(spatial), most_products)
    return _laid_out(draw, outer, spatial, epilogue, repeats=False)


class Buffers(NamedTuple):
    """Flat buffers of a problem."""

    lhs: Array
    rhs: Array
    bias: Array | None


def fill(problem: ConvProblem, elements: tuple[int, int, int], seed: int, exact: bool) -> Buffers:
    """Random operands in flat buffers."""
    rng = np.random.default_rng(seed)
    bias = None
    if problem.bias_stride is not None:
        bias = operand(rng, problem.groups * problem.features * problem.bias_stride, problem.dtype, exact)
    return Buffers(operand(rng, elements[0], problem.dtype, exact), operand(rng, elements[1], problem.dtype, exact), bias)


def with_dtype(problem: ConvProblem, dtype: str, out_dtype: str | None = None) -> ConvProblem:
    """The problem in another dtype."""
    return replace(problem, dtype=dtype, out_dtype=out_dtype or dtype)


def poison(dtype: str, elements: int) -> Array:
    """A buffer that no result should look like: NaN, or the largest integer less 85."""
    target = numpy_dtype(dtype)
    value = np.nan if target.kind not in "iu" else np.iinfo(target).max - 85
    return np.full(elements, value, target)
