"""What a rewrite's program does, as counts to be priced: convolutions left to XLA, matrix products, passes over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

from fastconv.jax.rewrites.call import Call
from fastconv.jax.rewrites.named import Named
from fastconv.problem import Axis, ConvProblem, Operand


class Conv(NamedTuple):
    """A convolution that is XLA's."""

    problem: ConvProblem


class Product(NamedTuple):
    """`count` products of rows x depth and depth x columns matrices."""

    count: int
    rows: int
    columns: int
    depth: int


class Pass(NamedTuple):
    """One kernel that moves elements between memory and arithmetic: those read and written, and the multiply-adds done to them."""

    elements: int
    operations: int = 0


Step = Conv | Product | Pass


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A row of the table. refuse: why it does not serve a problem, or None. steps: what its program does. apply: the program, on
    operands with names; its result has the names g (where there are groups), n, o and p0, p1, ..."""

    name: str
    refuse: Callable[[ConvProblem], str | None]
    steps: Callable[[ConvProblem], Sequence[Step]]
    apply: Callable[[Call, Named, Named], Named]


def inner(problem: ConvProblem, axes: Sequence[Axis], **extents: Any) -> ConvProblem:
    """The problem of a convolution inside a program: other axes and extents, feature groups."""
    found = replace(problem, axes=tuple(axes), **extents)
    plain = (0,) * len(found.axes)
    outer = (found.channels, found.groups * found.channels, 1)
    return replace(found, lhs=Operand(outer, plain), rhs=Operand((found.features, 1, 1), plain), out=Operand((found.features, 1, 1), plain))


def size(extents: Sequence[int]) -> int:
    """Elements of an array."""
    return prod(extents)


def undilated(a: Axis) -> Axis:
    """An axis whose kernel has its dilation written out as zeros."""
    return replace(a, kernel=(a.kernel - 1) * a.rhs_dilation + 1 if a.kernel else 0, rhs_dilation=1)


def lhs_dilated(problem: ConvProblem) -> bool:
    """Whether an axis has lhs dilation between elements."""
    return any(a.lhs_dilation > 1 and a.size > 1 for a in problem.axes)
