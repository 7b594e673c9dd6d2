"""Few outputs on the spatial axes, each a long sum: weight gradients. One sum over the pixels for each tap of the forward layer, groups
as the batch of a product, so that neither batch groups nor an image as a kernel are left; depthwise ones are multiplied and added up."""

from __future__ import annotations

from itertools import product as combinations
from math import prod

from jax import lax

from fastconv.jax.rewrites.call import Call, product
from fastconv.jax.rewrites.named import Named, stacked
from fastconv.jax.rewrites.steps import Pass, Product, Rewrite, Step, size
from fastconv.problem import Axis, ConvProblem

#: Outputs on the spatial axes, together, that are written out.
MOST_OUTPUTS = 64
#: What the slices of all outputs side by side may hold, in units of both operands, to be multiplied at once.
TOGETHER = 2
#: Sums over the same two arrays that XLA makes in one pass (its multi-output fusion).
FUSED = 8


def _moves_rhs(problem: ConvProblem) -> bool:
    """Whether windows are cut from rhs: lhs dilation asks for it, rhs dilation forbids it, and else the smaller operand is cut."""
    if any(a.lhs_dilation > 1 and a.size > 1 for a in problem.axes):
        return True
    if any(a.rhs_dilation > 1 and a.kernel > 1 for a in problem.axes):
        return False
    return problem.features < problem.batch


def _refuse(problem: ConvProblem) -> str | None:
    if any(a.lhs_dilation > 1 and a.size > 1 for a in problem.axes) and any(a.rhs_dilation > 1 and a.kernel > 1 for a in problem.axes):
        return "lhs and rhs dilation together"
    outputs = prod(a.out for a in problem.axes)
    return f"{outputs} outputs are more than {MOST_OUTPUTS}" if outputs > MOST_OUTPUTS else None


def _is_sum(problem: ConvProblem) -> bool:
    return problem.batch == problem.features == 1


def _pixels(problem: ConvProblem) -> int:
    return prod(a.size if _moves_rhs(problem) else a.kernel for a in problem.axes)


def _at_once(problem: ConvProblem) -> bool:
    outputs = prod(a.out for a in problem.axes)
    moved = problem.features if _moves_rhs(problem) else problem.batch
    together = outputs * moved * problem.groups * problem.channels * _pixels(problem)
    return outputs > 1 and together <= TOGETHER * (size(problem.lhs_extents) + size(problem.rhs_extents))


def _steps(problem: ConvProblem) -> list[Step]:
    outputs = prod(a.out for a in problem.axes)
    depth, moved, fixed = problem.channels * _pixels(problem), problem.batch, problem.features
    if _moves_rhs(problem):
        moved, fixed = fixed, moved
    if _is_sum(problem):
        return [Pass(2 * problem.groups * depth, min(outputs, FUSED) * problem.groups * depth)] * -(-outputs // FUSED)
    if _at_once(problem):
        laid = Pass(2 * outputs * moved * problem.groups * depth)
        return [laid, Product(problem.groups, fixed, outputs * moved, depth)]
    each = [Pass(2 * problem.groups * depth * (moved + fixed)), Product(problem.groups, fixed, moved, depth)]
    return each * outputs


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    axes, problem = call.problem.axes, call.problem
    cut = _moves_rhs(problem)
    positions = list(combinations(*(range(a.out) for a in axes)))
    summed = ("c", *(f"x{i}" for i in range(len(axes))))
    moved, fixed = (rhs, lhs) if cut else (lhs, rhs)
    moved, fixed = (a.renamed({f"k{i}": f"x{i}" for i in range(len(axes))}) for a in (moved, fixed))
    windows = (_window(moved, axes, position, cut) for position in positions)
    if _is_sum(problem):
        out = stacked([_sum(call, window, fixed, summed) for window in windows], "p")
    elif _at_once(problem):
        out = product(call, fixed, stacked(list(windows), "p"), ("g",), summed)
    else:
        out = stacked([product(call, fixed, window, ("g",), summed) for window in windows], "p")
    return out.split("p", {f"p{i}": a.out for i, a in enumerate(axes)})


def _window(moved: Named, axes: tuple[Axis, ...], position: tuple[int, ...], cut: bool) -> Named:
    """What of one operand meets every element of the other, for one output."""
    for i, (a, p) in enumerate(zip(axes, position, strict=True)):
        if cut:
            moved = moved.window(f"x{i}", a.lo - p * a.stride, a.size, a.lhs_dilation)
        else:
            moved = moved.window(f"x{i}", p * a.stride - a.lo, a.kernel, a.rhs_dilation)
    return moved


def _sum(call: Call, window: Named, fixed: Named, summed: tuple[str, ...]) -> Named:
    """Products of two arrays of the same names but for n and o, of one element each, added up over all but the groups."""
    names = tuple(name for name in fixed.names if name in summed or name == "g")
    a, b = (part.ordered(names).astype(call.accumulator).array for part in (window, fixed))
    where = [at for at, name in enumerate(names) if name != "g"]
    return Named(lax.reduce_sum(lax.mul(a, b), where), tuple(name for name in names if name == "g"))


PER_OUTPUT = Rewrite("per_output", _refuse, _steps, _apply)
