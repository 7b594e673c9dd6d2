"""Fourier transforms, overlap-save: huge kernels. Not the library's own: each front runs it on the transforms of its world."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from fastconv import rewrite
from fastconv.plan.machine import Machine
from fastconv.plan.row import Algorithm
from fastconv.problem import ConvProblem

if TYPE_CHECKING:
    from fastconv.plan.overlap import Layout, Rates

#: Fewer taps than these are cheaper summed than transformed, whatever the size.
LEAST_TAPS = 64
DTYPES = ("float32", "float64", "complex64", "complex128")


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if problem.dtype not in DTYPES or problem.out_dtype != problem.dtype:
        return f"for float32, float64 and complex numbers, not {problem.dtype} to {problem.out_dtype}"
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    if not problem.axes:
        return "needs a spatial axis"
    taps = problem.terms // problem.channels
    if taps < LEAST_TAPS:
        return f"{taps} taps are too few to pay for transforms, which take {LEAST_TAPS}"
    from fastconv.plan import overlap  # huge kernels are rare; most programs never need it

    if (count := overlap.count_pieces(problem)) > overlap.MOST_PARTS:
        return f"dilation takes it apart into {count} problems, which are too many"
    if _layout(problem, overlap.rates_of("scipy")) is None:
        return "its transforms hold too much memory"
    return None


@lru_cache(maxsize=64)
def _layout(problem: ConvProblem, rates: Rates) -> Layout | None:
    """The layout of the largest piece; an empty one where no output meets data."""
    from fastconv.plan import overlap

    touching = [part for piece in overlap.pieces(problem) if (part := rewrite.touching(piece)) is not None]
    if not touching:
        return overlap.Layout((), 1, 1, 1, 0.0, 0)
    return overlap.layout(max(touching, key=lambda part: prod(a.size + a.kernel + a.out for a in part.axes)), rates)


def _seconds(problem: ConvProblem, machine: Machine) -> float:
    from fastconv.plan.overlap import rates_of

    return seconds(problem, machine, rates_of("scipy"))


def seconds(problem: ConvProblem, machine: Machine, rates: Rates) -> float:
    """The modelled time with the transforms of some library."""
    from fastconv.plan.overlap import count_pieces

    layout = _layout(problem, rates)
    assert layout is not None, "refused"
    return machine.call_seconds + count_pieces(problem) * layout.seconds * rates.cores / machine.cores


def workspace(problem: ConvProblem, machine: Machine) -> int:
    from fastconv.plan.overlap import rates_of

    layout = _layout(problem, rates_of("scipy"))
    return 0 if layout is None else layout.bytes


FFT = Algorithm("fft", -2, refuse, _seconds, workspace, bound="spectral")
