"""The general algorithm: any problem, in rows of outputs."""

from __future__ import annotations

from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import timed
from fastconv.problem import ConvProblem

PRODUCT = 0.35  # cycles of a product in a long row of f32
ROW = 40.0  # starting such a row


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
    # Rows run along the best of the output axes; what a row costs to start is shared by its length.
    lengths = [problem.features, problem.batch, problem.groups, *(ceil(a.out / costs.phases(a)) for a in problem.axes)]
    length = max(1, min(2048, max(lengths)))
    slow = {"float32": 1.0, "float64": 2.0, "complex64": 3.0, "complex128": 5.0}.get(problem.dtype, 1.5)
    return problem.products * (PRODUCT * slow + ROW / length) + costs.STORE_SCATTERED * prod(problem.out_extents)


GENERAL = timed("general", 0, 0.0, refuse, cycles, lambda problem, machine: machine.cores << 16)
