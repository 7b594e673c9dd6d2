"""Fewer axes, and no batch groups: what a vendor's library does not convolve, as what it does."""

from __future__ import annotations

from dataclasses import replace

from fastconv.jax.rewrites.call import MOST_AXES, Call, convolve
from fastconv.jax.rewrites.named import Named
from fastconv.jax.rewrites.steps import Conv, Pass, Rewrite, Step, inner, lhs_dilated, size
from fastconv.jax.xla import batch_grouped
from fastconv.problem import ConvProblem


def _refuse(problem: ConvProblem) -> str | None:
    if lhs_dilated(problem):
        return "lhs dilation"
    if len(problem.axes) <= MOST_AXES:
        return f"no more than {MOST_AXES} spatial axes"
    return None


def _steps(problem: ConvProblem) -> list[Step]:
    steps: list[Step] = []
    while len(problem.axes) > MOST_AXES:
        at = min(range(len(problem.axes)), key=lambda i: problem.axes[i].kernel)
        a = problem.axes[at]
        left = [*problem.axes[:at], *problem.axes[at + 1 :]]
        problem = inner(problem, left, batch=problem.batch * a.out, channels=problem.channels * a.kernel)
        steps.append(Pass(2 * size(problem.lhs_extents)))
    return [*steps, Conv(problem)]


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    axes = [replace(a, lhs_dilation=1) for a in call.problem.axes]  # a dilated axis has one input
    return convolve(call, lhs, rhs, axes, call.features_last)


FOLD = Rewrite("fold_axes", _refuse, _steps, _apply)


def _refuse_regroup(problem: ConvProblem) -> str | None:
    if lhs_dilated(problem):
        return "lhs dilation"
    return None if batch_grouped(problem) else "no batch groups"


def _steps_regroup(problem: ConvProblem) -> list[Step]:
    return [Pass(2 * size(problem.lhs_extents)), Conv(inner(problem, problem.axes))]


REGROUP = Rewrite("feature_groups", _refuse_regroup, _steps_regroup, _apply)
