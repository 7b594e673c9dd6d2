"""Judges a contestant's result against the written-out definition, one precision up: everywhere, or on all borders and random boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fastconv.bench.cases import Case
from fastconv.check import bound, is_integer, rounded, spectral_bound
from fastconv.normalise import Call, ConvDims, Spec, convn, family
from fastconv.problem import Axis, ConvProblem
from fastconv.reference import Array, reference, view

#: Products that one piece of the definition may take; a row with more is checked on borders and random boxes.
BUDGET = 500_000_000
#: Random boxes of a row that is not checked in full, and their extent on each spatial axis.
BOXES, SIDE = 24, 16


class Piece(NamedTuple):
    """A box of outputs, all groups: its problem, its right values in the output's type, and the error allowed of each."""

    problem: ConvProblem
    value: Array
    allowed: Array


class Oracle:
    """The right values of one case and direction, and how far a result is from them.

    product_error: the relative error allowed of each product on top, for devices that round operands before they multiply.
    """

    def __init__(self, case: Case, direction: str, budget: int = BUDGET, product_error: float = 0.0) -> None:
        self.shape = case.result_shape(direction)
        self.dtype = case.out_dtype or case.dtype
        self._exact = is_integer(self.dtype)
        problem, lhs, rhs = problem_of(case, direction)
        self._pieces = []
        for box in _Boxes(problem, budget).all():
            part = _restricted(problem, box)
            truth = reference(part, lhs, rhs)
            allowed = bound(problem, truth) + product_error * np.abs(truth.magnitude)
            self._pieces.append(Piece(part, rounded(problem, truth.value) if self._exact else truth.value, allowed))
        self._fft = 0.0 if self._exact else float(spectral_bound(problem, lhs, rhs).max(initial=0.0))

    @property
    def checked(self) -> int:
        """Number of outputs that are looked at."""
        return sum(piece.value.size for piece in self._pieces)

    def error(self, result: Array, fft: bool = False) -> float:
        """The largest error in units of what is allowed (above 1 is wrong); infinite for a wrong shape, type, integer or a NaN."""
        if result.shape != self.shape or result.dtype.name != self.dtype:
            return float("inf")
        result = np.ascontiguousarray(result)
        return max(self._error(piece, view(result, piece.problem.out, piece.problem.out_extents), fft) for piece in self._pieces)

    def _error(self, piece: Piece, found: Array, fft: bool) -> float:
        if self._exact:
            return 0.0 if np.array_equal(found, piece.value) else float("inf")
        off = found.astype(piece.value.dtype) - piece.value
        ratio = np.maximum(np.abs(np.real(off)), np.abs(np.imag(off))) / (piece.allowed + (self._fft if fft else 0.0))
        return float("inf") if np.isnan(ratio).any() else float(ratio.max(initial=0.0))


def problem_of(case: Case, direction: str) -> tuple[ConvProblem, Array, Array]:
    """The problem of a case and direction on C-order arrays, with its lhs and rhs (gradients are adjoints: one is conjugated)."""
    first, second = case.operands(direction)
    call = call_of(case, direction)
    if direction == "dx":
        second = second.conj()
    elif direction == "dw":
        first = first.conj()
    lhs, rhs = (second, first) if call.swapped else (first, second)
    return replace(call.problem, out_dtype=case.out_dtype or case.dtype), lhs, rhs


def call_of(case: Case, direction: str) -> Call:
    """The call that a case and direction amount to, without its arrays."""
    if case.op == "convn":
        return convn(Spec.contiguous(case.size, case.dtype), Spec.contiguous(case.kernel, case.dtype), case.mode)
    options: dict[str, Any] = {"stride": case.stride, "padding": case.pads, "dilation": case.dilation, "groups": case.groups}
    if case.transposed:
        options |= {"transposed": True, "output_padding": case.output_padding}
    op, first, second = {
        "fwd": ("conv", case.x_shape, case.w_shape),
        "dx": ("input_grad", case.y_shape, case.w_shape),
        "dw": ("weight_grad", case.x_shape, case.y_shape),
    }[direction]
    dims = ConvDims(case.x_shape, case.w_shape, **options)
    return family(op, dims, Spec.contiguous(first, case.dtype), Spec.contiguous(second, case.dtype))


@dataclass(frozen=True)
class _Boxes:
    """Which boxes of (n, o, *p) to look at."""

    problem: ConvProblem
    budget: int

    def all(self) -> list[tuple[range, ...]]:
        """The whole output if the budget allows it; else both borders of every axis, and random boxes."""
        whole = tuple(range(n) for n in self.problem.out_extents[1:])
        if self.problem.products * self._price() <= self.budget:
            return [whole]
        random = np.random.default_rng(0)
        return [*self._borders(whole, random), *(self._random(random) for _ in range(BOXES))]

    def _price(self) -> int:
        """The definition is a matrix product per tap; with few channels on both sides that is little more than a sum."""
        return 1 if max(self.problem.channels, self.problem.features) >= 8 else 4

    def _borders(self, whole: tuple[range, ...], random: np.random.Generator) -> Iterator[tuple[range, ...]]:
        """Where even a border is beyond the budget, that of some features only."""
        for axis in range(2, len(whole)):
            for edge in sorted({0, len(whole[axis]) - 1}):
                box = tuple(range(edge, edge + 1) if a == axis else r for a, r in enumerate(whole))
                cost = _restricted(self.problem, box).products
                count = max(1, self.problem.features * self.budget // max(cost, 1))
                yield (box[0], _window(random, self.problem.features, count), *box[2:])

    def _random(self, random: np.random.Generator) -> tuple[range, ...]:
        problem = self.problem
        sides = [_window(random, axis.out, SIDE if len(problem.axes) < 3 else SIDE // 2) for axis in problem.axes]
        return (_window(random, problem.batch, 1), _window(random, problem.features, 4), *sides)


def _window(random: np.random.Generator, extent: int, length: int) -> range:
    start = int(random.integers(0, max(extent - length, 0) + 1))
    return range(start, min(extent, start + length))


def _restricted(problem: ConvProblem, box: tuple[range, ...]) -> ConvProblem:
    """The problem of a box of outputs, which reads only the input that the box needs."""
    (batch, features), positions = box[:2], box[2:]
    lhs, rhs, out = problem.lhs, problem.rhs, problem.out
    axes, starts = zip(*(_restricted_axis(a, r) for a, r in zip(problem.axes, positions, strict=True)), strict=True)
    moved = sum(start * stride for start, stride in zip(starts, lhs.spatial, strict=True))
    shifts = (batch.start, features.start, *(r.start for r in positions))
    placed = sum(shift * stride for shift, stride in zip(shifts, (*out.outer[1:], *out.spatial), strict=True))
    return replace(
        problem,
        axes=axes,
        batch=len(batch),
        features=len(features),
        lhs=replace(lhs, offset=lhs.offset + batch.start * lhs.outer[1] + moved),
        rhs=replace(rhs, offset=rhs.offset + features.start * rhs.outer[1]),
        out=replace(out, offset=out.offset + placed),
    )


def _restricted_axis(axis: Axis, positions: range) -> tuple[Axis, int]:
    """The axis of some outputs, and the first input position that it keeps."""
    lo = axis.lo - positions.start * axis.stride
    reach = (len(positions) - 1) * axis.stride + (axis.kernel - 1) * axis.rhs_dilation
    first = min(max(0, -(lo // axis.lhs_dilation)), axis.size)
    end = max(first, min(axis.size, (reach - lo) // axis.lhs_dilation + 1))
    return replace(axis, size=end - first, out=len(positions), lo=lo + first * axis.lhs_dilation), first
