"""The general algorithm: any problem, in rows of outputs."""

from __future__ import annotations

from math import ceil, gcd, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import timed
from fastconv.problem import ConvProblem

# Cycles, fitted on the points of benchmarks/sweep.py.
PRODUCT = 0.35  # a product in a long row of f32 that lies side by side ...
FAR_PRODUCT = 16.0  # ... and in one whose elements lie in pages of their own
ROW = 150.0  # starting such a row
#: Lanes of a row, as in csrc/drivers/general.cc.
MOST_LANES = 2048
#: Steps of a row, in elements, from which on every element lies in another page.
PAGE = 512


def _kind(dtype: str) -> str:
    return "complex" if dtype.startswith("complex") else "integer" if "int" in dtype else "real"


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    kinds = _kind(problem.dtype), _kind(problem.out_dtype)
    if kinds == ("integer", "real") and problem.bias_stride is not None:
        return f"the bias is {problem.dtype}, but the sums are {problem.out_dtype}"
    if kinds[0] != kinds[1] and kinds != ("integer", "real"):
        return f"{problem.dtype} in and {problem.out_dtype} out are of different kinds"
    return None


def cycles(problem: ConvProblem, machine: Machine) -> float:
    length, step = _row(problem)
    slow = {"float32": 1.0, "float64": 2.0, "complex64": 3.0, "complex128": 5.0}.get(problem.dtype, 1.5)
    each = PRODUCT * slow if step <= 1 else FAR_PRODUCT if step > PAGE else costs.element_cycles(step, PRODUCT)
    return problem.products * (each + ROW / length) + costs.STORE_SCATTERED * prod(problem.out_extents)


def _row(problem: ConvProblem) -> tuple[int, int]:
    """Length of the rows and the longest step of an operand along them, of the output axis that the library takes."""
    lhs, rhs = problem.lhs, problem.rhs
    lanes = [(problem.groups, max(abs(lhs.outer[0]), abs(rhs.outer[0]))), (problem.batch, abs(lhs.outer[1]))]
    lanes.append((problem.features, abs(rhs.outer[1])))
    for a, step in zip(problem.axes, lhs.spatial, strict=True):
        lanes.append((ceil(a.out / costs.phases(a)), abs(step) * a.stride // gcd(a.stride, a.lhs_dilation)))
    lanes = [(max(1, min(MOST_LANES, length)), step) for length, step in lanes]
    return max(lanes, key=lambda lane: lane[0] / (8 + lane[0] * _slower(lane[1])))


def _slower(step: int) -> float:
    """How much of a row's time its steps cost, as in csrc/drivers/general.cc."""
    return 0.25 if step <= 1 else 1.0 if step <= 8 else 4.0 if step <= PAGE else 16.0


GENERAL = timed("general", 0, 0.0, refuse, cycles, lambda problem, machine: machine.cores << 16)
