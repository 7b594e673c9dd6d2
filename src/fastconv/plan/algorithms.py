"""The algorithms of the library as rows: a refusal (text or None) and predicted seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from fastconv.plan import models
from fastconv.plan.machine import Machine
from fastconv.problem import ConvProblem

#: Scratch of one thread for the packed panels and sums of the direct algorithm, at most.
_DIRECT_LOCAL_BYTES = 2 << 20
#: Bytes of packed weights that all tasks of the direct algorithm share, at most.
_DIRECT_SHARED_BYTES = 8 << 20
#: Features x phases of the direct algorithm; the library itself refuses above twice this.
_DIRECT_COLUMNS = 1 << 17
#: Elements of a stencil's scratch; the library itself refuses above twice this.
_STENCIL_ELEMENTS = 1 << 19
#: Phases of a stencil, as in csrc/drivers/stencil.cc.
_STENCIL_PHASES = 64
#: Elements of a row that a reduction copies; the library itself refuses above twice this.
_REDUCE_ROW = 1 << 23
#: Sums of a reduction; the library itself refuses above twice this.
_REDUCE_SUMS = 1 << 15


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`refuse` says why the algorithm cannot run a problem, or None; `seconds` is its modelled cost; `workspace` its scratch bytes."""

    name: str
    code: int
    refuse: Callable[[ConvProblem, Machine], str | None]
    seconds: Callable[[ConvProblem, Machine], float]
    workspace: Callable[[ConvProblem, Machine], int]


def _kind(dtype: str) -> str:
    return "complex" if dtype.startswith("complex") else "integer" if "int" in dtype else "real"


def _refuse_general(problem: ConvProblem, machine: Machine) -> str | None:
    kinds = _kind(problem.dtype), _kind(problem.out_dtype)
    if kinds == ("integer", "real") and problem.bias_stride is not None:
        return f"the bias is {problem.dtype}, but the sums are {problem.out_dtype}"
    if kinds[0] != kinds[1] and kinds != ("integer", "real"):
        return f"{problem.dtype} in and {problem.out_dtype} out are of different kinds"
    return None


def _refuse_fast(problem: ConvProblem) -> str | None:
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    if problem.dtype not in ("float32", "float64"):
        return f"for float32 and float64, not {problem.dtype}"
    if problem.out_dtype != problem.dtype:
        return f"the output type must be the operands' ({problem.dtype}), not {problem.out_dtype}"
    return None


def _refuse_direct(problem: ConvProblem, machine: Machine) -> str | None:
    if why := _refuse_fast(problem):
        return why
    columns = problem.features * models.most_phases(problem)
    return f"{columns} columns (features x phases) are too many to describe" if columns > _DIRECT_COLUMNS else None


def _refuse_spatial(problem: ConvProblem) -> str | None:
    if why := _refuse_fast(problem):
        return why
    return None if problem.axes else "needs a spatial axis"


def _refuse_stencil(problem: ConvProblem, machine: Machine) -> str | None:
    if why := _refuse_spatial(problem):
        return why
    if models.most_phases(problem) > _STENCIL_PHASES:
        return f"{models.most_phases(problem)} phases of the dilated input are too many to run one by one"
    if models.stencil_scratch(problem) > _STENCIL_ELEMENTS:
        return "the working set of a tile is too large"
    return None


def _refuse_reduce(problem: ConvProblem, machine: Machine) -> str | None:
    if why := _refuse_spatial(problem):
        return why
    if any(a.lhs_dilation != 1 for a in problem.axes):
        return "the input is dilated"
    if models.reduce_outputs(problem) > _REDUCE_SUMS:
        return f"{models.reduce_outputs(problem)} sums are too many to keep apart"
    if models.reduce_row(problem) > _REDUCE_ROW:
        return f"rows of {models.reduce_row(problem)} elements are too long to copy"
    return None


def _direct_workspace(problem: ConvProblem, machine: Machine) -> int:
    packed = min(prod(problem.rhs_extents) * models.ITEM_BYTES[problem.dtype] * 2, _DIRECT_SHARED_BYTES)
    return packed + machine.cores * _DIRECT_LOCAL_BYTES


def _stencil_workspace(problem: ConvProblem, machine: Machine) -> int:
    return machine.cores * models.stencil_scratch(problem) * models.ITEM_BYTES[problem.dtype]


def _reduce_workspace(problem: ConvProblem, machine: Machine) -> int:
    return 16 * problem.groups * problem.batch * models.reduce_outputs(problem) * machine.vector_bytes


def _row(name: str, code: int, start: float, refuse: Callable, cycles: Callable, workspace: Callable) -> Algorithm:
    """`start`: seconds that the driver takes to lay out its work, whatever the size."""
    return Algorithm(
        name, code, refuse, lambda problem, machine: start + models.seconds(cycles(problem, machine), problem, machine), workspace
    )


#: The library's algorithms; codes are part of the C ABI (csrc/engine.h).
ALGORITHMS: tuple[Algorithm, ...] = (
    _row("general", 0, 0.0, _refuse_general, models.general_cycles, lambda problem, machine: machine.cores << 16),
    _row("direct", 1, 2.0e-6, _refuse_direct, models.direct_cycles, _direct_workspace),
    _row("stencil", 2, 2.0e-6, _refuse_stencil, models.stencil_cycles, _stencil_workspace),
    _row("reduce", 3, 1.0e-6, _refuse_reduce, models.reduce_cycles, _reduce_workspace),
)
