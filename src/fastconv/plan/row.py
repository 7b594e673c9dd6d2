"""An algorithm as a row of the planner's table, and the refusals that rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.problem import ConvProblem

#: What an error bound says, by its name; "direct" is that of a plain sum (`fastconv.check` has the formulas).
BOUNDS = {
    "direct": "each output errs by eps times the number of its products and the sum of their sizes",
    "window": "each output errs by up to 4 eps times the products that the largest numbers of its window would make",
    "spectral": "each output errs by eps * log2(n) * ||x|| * ||w|| more, with the norms of all that is transformed together",
}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`refuse` says why the algorithm cannot run a problem, or None; `seconds` is its modelled cost; `workspace` its scratch bytes.

    `bound` names the error bound that it holds (`fastconv.check`); one that does not hold the direct one is approximate, and is never
    taken where the precision is "highest".
    """

    name: str
    code: int
    refuse: Callable[[ConvProblem, Machine], str | None]
    seconds: Callable[[ConvProblem, Machine], float]
    workspace: Callable[[ConvProblem, Machine], int]
    bound: str = "direct"

    @property
    def approximate(self) -> bool:
        return self.bound != "direct"


def refusal(row: Algorithm, problem: ConvProblem, machine: Machine) -> str | None:
    """Why a row cannot be taken for a problem, or None."""
    if row.approximate and problem.precision == "highest":
        return "approximate, and the precision is 'highest'"
    return row.refuse(problem, machine)


def timed(name: str, code: int, start: float, refuse: Callable, cycles: Callable, workspace: Callable, bound: str = "direct") -> Algorithm:
    """`start`: seconds that the driver takes to lay out its work, whatever the size."""
    return Algorithm(
        name, code, refuse, lambda problem, machine: start + costs.seconds(cycles(problem, machine), problem, machine), workspace, bound
    )


def exchanging(row: Algorithm) -> Algorithm:
    """The row of a driver that takes long sums over a dilated input the other way round (csrc/drivers/exchange.h)."""
    return replace(
        row,
        refuse=lambda problem, machine: row.refuse(rewrite.undilated(problem), machine),
        seconds=lambda problem, machine: row.seconds(rewrite.undilated(problem), machine),
        workspace=lambda problem, machine: row.workspace(rewrite.undilated(problem), machine),
    )


def refuse_unless_float(problem: ConvProblem) -> str | None:
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    if problem.dtype not in ("float32", "float64"):
        return f"for float32 and float64, not {problem.dtype}"
    if problem.out_dtype != problem.dtype:
        return f"the output type must be the operands' ({problem.dtype}), not {problem.out_dtype}"
    return None


def refuse_unless_spatial(problem: ConvProblem) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    return None if problem.axes else "needs a spatial axis"
