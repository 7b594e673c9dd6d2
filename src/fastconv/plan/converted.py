"""The algorithms of real numbers on other element types: operands are copied as reals, and the result back (csrc/drivers/converted.cc).

Half types are widened to float32, small integers to a real type that holds every sum exactly; complex numbers become planes of
a real problem with three times the products (Gauss) or, for short sums, four.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import Algorithm, refusal
from fastconv.problem import ConvProblem, Operand

#: Shorter complex sums are formed by four real products, as in csrc/drivers/converted.cc.
GAUSS_TERMS = 8
#: Times its span that an operand's copy may be long; the library itself refuses above twice this.
MOST_OVERLAP = 8

# Cycles, fitted on the rows that benchmarks/models.py times.
COPY = 0.3  # an element copied in runs
COPY_ALONE = 2.0  # an element fetched or put down alone
COPY_RUN = 10.0  # starting a run
START = 1.0e-6  # seconds to lay the copies out

_REALS = ("float32", "float64")


def through_reals(row: Algorithm) -> Algorithm:
    """The row, extended to every problem that has a real one in its place."""

    def refuse(problem: ConvProblem, machine: Machine) -> str | None:
        real = real_problem(problem)
        return real if isinstance(real, str) else refusal(row, real, machine)

    def seconds(problem: ConvProblem, machine: Machine) -> float:
        real = _real(problem)
        extra = 0.0 if real is problem else START + costs.core_seconds(_copying(problem, real), machine)
        return row.seconds(real, machine) + extra

    def workspace(problem: ConvProblem, machine: Machine) -> int:
        real = _real(problem)
        return row.workspace(real, machine) + (0 if real is problem else costs.operand_bytes(real))

    return replace(row, refuse=refuse, seconds=seconds, workspace=workspace)


def real_problem(problem: ConvProblem) -> ConvProblem | str:
    """The problem that a driver of real numbers runs (itself where it is one), or why there is none."""
    return problem if problem.dtype == problem.out_dtype and problem.dtype in _REALS else _converted(problem)


@lru_cache(maxsize=64)
def _converted(problem: ConvProblem) -> ConvProblem | str:
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    integers = "int" in problem.dtype, "int" in problem.out_dtype
    complexes = problem.dtype.startswith("complex"), problem.out_dtype.startswith("complex")
    if complexes[0] != complexes[1] or (integers[1] and not integers[0]):
        return f"{problem.dtype} in and {problem.out_dtype} out are of different kinds"
    if problem.activation is not None and (integers[1] or complexes[0]):
        return "activations are for real floating types"
    if integers == (True, False) and problem.bias_stride is not None:
        return f"the bias is {problem.dtype}, but the sums are {problem.out_dtype}"
    terms = problem.channels * prod(a.kernel for a in problem.axes)
    real = "float64" if {problem.dtype, problem.out_dtype} & {"float64", "complex128"} else "float32"
    precision = problem.precision
    if all(integers):
        bits = 8 * costs.ITEM_BYTES[problem.dtype] - (0 if problem.dtype.startswith("u") else 1)
        if bits > 16 or (terms + 1) << 2 * bits > 1 << 53:
            return f"no real type holds every sum of {terms} products of {problem.dtype}"
        real = "float32" if (terms + 1) << 2 * bits <= 1 << 24 else "float64"
    if any(integers):
        precision = "highest"  # whole numbers stay whole in direct sums only
    if real == problem.dtype:
        lhs, rhs, bias_stride = problem.lhs, problem.rhs, problem.bias_stride
        out = _packed(problem.out, problem.out_extents)
    else:
        gauss, blocks = (3, 1) if terms >= GAUSS_TERMS else (1, 2)
        if not complexes[0]:
            gauss = blocks = 1
        lhs = _packed(problem.lhs, problem.lhs_extents, gauss, 1, blocks)
        rhs = _packed(problem.rhs, problem.rhs_extents, gauss, blocks, blocks)
        bias_stride = None if problem.bias_stride is None else 1
        out = problem.out if real == problem.out_dtype else _packed(problem.out, problem.out_extents, gauss, 1, blocks)
        if gauss != 1 or blocks != 1:
            problem = replace(
                problem, groups=gauss * problem.groups, channels=blocks * problem.channels, features=blocks * problem.features
            )
    if lhs is None or rhs is None or out is None:
        return "windows of an operand overlap too much to be copied"
    return replace(problem, lhs=lhs, rhs=rhs, out=out, dtype=real, out_dtype=real, bias_stride=bias_stride, precision=precision)


def _real(problem: ConvProblem) -> ConvProblem:
    real = real_problem(problem)
    if isinstance(real, str):
        raise ValueError(real)
    return real


def _packed(operand: Operand, extents: tuple[int, ...], *times: int) -> Operand | None:
    """The operand without gaps, coordinates in the same order and direction; None where that is much longer than its span."""
    strides = (*operand.outer, *operand.spatial)
    factors = (*times, *(1 for _ in strides[len(times) :]))
    packed, offset, step, span = [0] * len(strides), 0, 1, 1
    # Planes of a single element lie outermost; where strides say nothing, later coordinates are inner.
    for i in sorted(range(len(strides)), key=lambda i: (extents[i] == 1, abs(strides[i]) if extents[i] > 1 else 0, -i)):
        span += (extents[i] - 1) * abs(strides[i])
        if strides[i] == 0 and extents[i] > 1 and factors[i] == 1:
            continue
        length = extents[i] * factors[i]
        packed[i] = -step if strides[i] < 0 else step
        offset += (length - 1) * step if strides[i] < 0 else 0
        step *= length
    if step > MOST_OVERLAP * (span + 4096):
        return None
    return Operand((packed[0], packed[1], packed[2]), tuple(packed[3:]), offset)


def _copying(problem: ConvProblem, real: ConvProblem) -> float:
    """Cycles of the copies in and out."""
    total = 0.0
    for source, copied, extents, lengths in (
        (problem.lhs, real.dtype != problem.dtype, problem.lhs_extents, real.lhs_extents),
        (problem.rhs, real.dtype != problem.dtype, problem.rhs_extents, real.rhs_extents),
        (problem.out, real.dtype != problem.out_dtype, problem.out_extents, real.out_extents),
    ):
        if copied:
            run = _run(source, extents)
            total += prod(lengths) * ((COPY if run[1] == 1 else COPY_ALONE) + COPY_RUN / run[0])
    return total


def _run(operand: Operand, extents: tuple[int, ...]) -> tuple[int, int]:
    """Length and step of the runs in which an operand is walked."""
    loops = sorted((abs(s), e) for s, e in zip((*operand.outer, *operand.spatial), extents, strict=True) if e > 1 and s)
    if not loops:
        return 1, 1
    step, run = loops[0]
    for stride, extent in loops[1:]:
        if stride != step * run:
            break
        run *= extent
    return run, step
