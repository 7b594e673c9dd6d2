"""Operands in each other's place: a weight gradient whose kernel is an image, or whose input is dilated, becomes that of a plain layer.

With p' = P - 1 - p the sum over the kernel's taps k is one over the input's positions i: k * rhs_dilation = p' * stride + i * L - lo',
so the dilations change places, features become the batch, and the output comes out back to front.
"""

from __future__ import annotations

from fastconv.jax.rewrites.call import Call, convolve
from fastconv.jax.rewrites.named import Named
from fastconv.jax.rewrites.steps import Conv, Pass, Rewrite, Step, inner, lhs_dilated, size
from fastconv.problem import Axis, ConvProblem


def swapped(a: Axis) -> Axis:
    """The axis with lhs and rhs in each other's place."""
    return Axis(a.kernel, a.size, a.out, a.stride, (a.out - 1) * a.stride - a.lo, a.rhs_dilation, a.lhs_dilation)


def _refuse(problem: ConvProblem) -> str | None:
    if any(a.rhs_dilation > 1 and a.kernel > 1 for a in problem.axes):
        return "rhs dilation, which would become lhs dilation"
    if not lhs_dilated(problem) and not any(a.kernel > a.size for a in problem.axes):
        return "neither lhs dilation nor a kernel larger than the input"
    return None


def _plain(a: Axis) -> Axis:
    """The swapped axis; dilation of a kernel of one tap says nothing."""
    found = swapped(a)
    return found if a.kernel > 1 else Axis(found.size, found.kernel, found.out, found.stride, found.lo, 1, found.rhs_dilation)


def _steps(problem: ConvProblem) -> list[Step]:
    other = inner(problem, [_plain(a) for a in problem.axes], batch=problem.features, features=problem.batch)
    return [Conv(other), Pass(2 * size(problem.out_extents))]


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    count = len(call.problem.axes)
    image = rhs.renamed({"o": "n"} | {f"k{i}": f"x{i}" for i in range(count)})
    kernel = lhs.renamed({"n": "o"} | {f"x{i}": f"k{i}" for i in range(count)})
    out = convolve(call, image, kernel, [_plain(a) for a in call.problem.axes], call.features_last)
    return out.reversed([f"p{i}" for i in range(count)]).renamed({"n": "o", "o": "n"})


SWAP = Rewrite("swap_roles", _refuse, _steps, _apply)
