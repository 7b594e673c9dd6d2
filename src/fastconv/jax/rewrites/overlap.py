"""A transposed convolution as one matrix product and an overlap-add: every input is multiplied with the whole kernel, and the pieces,
L apart, are added where they lie over each other. For few features and long kernels, where a convolution has too few columns."""

from __future__ import annotations

from math import prod

from jax import lax

from fastconv.jax.rewrites.call import Call, product
from fastconv.jax.rewrites.named import Named
from fastconv.jax.rewrites.phases import interleaved
from fastconv.jax.rewrites.steps import Pass, Product, Rewrite, Step, lhs_dilated, size, undilated
from fastconv.problem import ConvProblem

#: Shifted pieces that are added; each is one more operand of the fused addition.
MOST_PIECES = 64


def _pieces(problem: ConvProblem) -> int:
    return prod(-(-undilated(a).kernel // a.lhs_dilation) for a in problem.axes)


def _refuse(problem: ConvProblem) -> str | None:
    if not lhs_dilated(problem):
        return "no lhs dilation: there is nothing to overlap-add"
    if any(a.stride > 1 for a in problem.axes):
        return "window strides"
    if (count := _pieces(problem)) > MOST_PIECES:
        return f"{count} pieces lie over each other, more than {MOST_PIECES}"
    return None


def _steps(problem: ConvProblem) -> list[Step]:
    inputs, taps = prod(a.size for a in problem.axes), prod(undilated(a).kernel for a in problem.axes)
    pieces = problem.groups * problem.batch * inputs * problem.features * taps
    return [
        Product(problem.groups, problem.batch * inputs, problem.features * taps, problem.channels),
        Pass(pieces + size(problem.out_extents)),
    ]


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    axes = [undilated(a) for a in call.problem.axes]
    count = len(axes)
    for i, a in enumerate(call.problem.axes):
        rhs = rhs.spread(f"k{i}", a.rhs_dilation)
    rhs = rhs.reversed([f"k{i}" for i in range(count)])
    pieces = [-(-a.kernel // a.lhs_dilation) for a in axes]
    out = product(call, lhs, rhs, ("g",), ("c",), wide=prod(pieces) > 1)
    for i, (a, parts) in enumerate(zip(axes, pieces, strict=True)):
        out = out.window(f"k{i}", 0, parts * a.lhs_dilation).split(f"k{i}", {f"t{i}": parts, f"r{i}": a.lhs_dilation})
        out = _added(out, f"t{i}", f"x{i}", parts)
    out = out.renamed({f"x{i}": f"p{i}" for i in range(count)})
    whole = {i: (a.size + parts - 1) * a.lhs_dilation for i, (a, parts) in enumerate(zip(axes, pieces, strict=True))}
    out = interleaved(out, whole, call)
    for i, a in enumerate(axes):
        out = out.window(f"p{i}", a.kernel - 1 - a.lo, a.out)
    return out


def _added(out: Named, piece: str, along: str, count: int) -> Named:
    """Piece t moved t places along an axis, all of them added."""
    names = tuple(name for name in out.names if name != piece)
    moved = [out.window(piece, t, 1).ordered(names).padded(along, t, count - 1 - t).array for t in range(count)]
    total = moved[0]
    for array in moved[1:]:
        total = lax.add(total, array)
    return Named(total, names)


OVERLAP = Rewrite("overlap_add", _refuse, _steps, _apply)
