"""The rewrites as rows of the planner, and the program of the one that was chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from jax.interpreters import mlir

from fastconv.jax.rewrites import REWRITES, prices
from fastconv.jax.rewrites.call import MOST_AXES, Call
from fastconv.jax.rewrites.steps import Conv, Pass, Rewrite
from fastconv.plan import Algorithm, Machine, Plan
from fastconv.problem import Axis, ConvProblem

PREFIX = "xla:"


def _refuse(row: Rewrite, problem: ConvProblem, machine: Machine) -> str | None:
    if problem.dtype.startswith("complex"):
        return "complex numbers: JAX makes real convolutions of them first"
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    return row.refuse(problem)


def _seconds(row: Rewrite, problem: ConvProblem, machine: Machine) -> float:
    return prices.seconds(row.steps(problem), problem, machine)


def _workspace(row: Rewrite, problem: ConvProblem, machine: Machine) -> int:
    """The largest array between two steps."""
    moved = [step.elements for step in row.steps(problem) if isinstance(step, Pass)]
    return max(moved, default=0) * prices.ITEM_BYTES.get(problem.dtype, 4)


#: A negative code is no algorithm of the library.
ROWS: tuple[Algorithm, ...] = tuple(
    Algorithm(PREFIX + row.name, -10 - at, partial(_refuse, row), partial(_seconds, row), partial(_workspace, row))
    for at, row in enumerate(REWRITES)
)
_BY_NAME = {PREFIX + row.name: row for row in REWRITES}


def _xla_refuses(problem: ConvProblem, machine: Machine) -> str | None:
    if machine.isa in ("cuda", "rocm") and len(problem.axes) > MOST_AXES:
        return f"XLA has no convolution of {len(problem.axes)} axes on GPUs"
    if machine.isa == "cuda" and problem.dtype in ("bfloat16", "float16") and any(_stepped_twice(a) for a in problem.axes):
        return "half types with stride and dilation find no kernel on CUDA (jax#37922)"
    return None


def _stepped_twice(a: Axis) -> bool:
    return sum(step > 1 for step in (a.stride, a.lhs_dilation, a.rhs_dilation)) > 1


@cache
def xla_row(reversed_kernel: bool) -> Algorithm:
    """Leaving an accelerator's convolution to XLA, as one more row. reversed_kernel: whether the program reverses the kernel just before,
    by which XLA tells an input gradient."""
    return Algorithm(
        "xla",
        -1,
        _xla_refuses,
        lambda problem, machine: prices.seconds([Conv(problem)], problem, machine, reversed_kernel),
        lambda problem, machine: 0,
    )


def program(plan: Plan, params: dict[str, Any], result: Any) -> Callable[[Any, Any], Any]:
    """The function of lhs and rhs that a plan names; params are those of JAX's primitive, result the dtype of its result."""
    row, problem = _BY_NAME[plan.algorithm], plan.problem
    call = Call(problem, params["dimension_numbers"], params["batch_group_count"] > 1, params["precision"], np.dtype(result))
    return lambda lhs, rhs: call.closed(row.apply(call, *call.opened(lhs, rhs)))


def lowered(plan: Plan, ctx: mlir.LoweringRuleContext, lhs: Any, rhs: Any, params: dict[str, Any]) -> Any:
    """Its operations, where a convolution is lowered."""
    return mlir.lower_fun(program(plan, params, ctx.avals_out[0].dtype), multiple_results=False)(ctx, lhs, rhs)
