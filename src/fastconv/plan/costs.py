"""What the cost models share: modelled seconds from counts of register-tile cycles, packing, and bytes.

The models rank algorithms; they do not predict a clock. Cycles are counted per core and turned into seconds by
`Machine.gflops`, the attainable multiply-add rate of all cores: one cycle of one core is two vector multiply-adds.
"""

from __future__ import annotations

from math import gcd, prod

from fastconv.plan.machine import Machine
from fastconv.problem import Axis, ConvProblem

#: Bytes of one element.
ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip

# Cycles, fitted on the rows that benchmarks/models.py times (docs/performance.md); the models of single algorithms have more.
STORE = 0.3  # an output written, neighbours side by side
STORE_SCATTERED = 2.0
FAR_ELEMENT = 5.0  # an element moved alone, no other of its cache line near in time


def phases(axis: Axis) -> int:
    """Phases of the output axis: residues with taps of their own."""
    return min(max(axis.out, 1), axis.lhs_dilation // gcd(axis.stride, axis.lhs_dilation))


def phases_of_one(problem: ConvProblem) -> bool:
    """Whether phases of several features have one position an image each, and taps lie side by side in weights and outputs: a
    product of images and phases."""
    dilated = problem.features > 1 and any(phases(a) > 1 for a in problem.axes) and all(a.out <= phases(a) for a in problem.axes)
    return dilated and 1 in map(abs, problem.rhs.spatial) and 1 in map(abs, problem.out.spatial)


def most_phases(problem: ConvProblem) -> int:
    """Problems without lhs dilation that this one splits into, at most."""
    return prod(min(a.lhs_dilation, a.out) for a in problem.axes)


def seconds(cycles: float, problem: ConvProblem, machine: Machine) -> float:
    """Cycles of one core, spread over the cores, or the time that the bytes take, whichever is longer; plus the call."""
    work, traffic = core_seconds(cycles, machine), operand_bytes(problem) / machine.bandwidth
    return machine.call_seconds + max(work, traffic) + 0.1 * min(work, traffic)  # never quite side by side


def core_seconds(cycles: float, machine: Machine) -> float:
    """Cycles of one core, spread over the cores."""
    clock = machine.gflops * 1e9 / (machine.cores * machine.vector_bytes)
    return cycles / clock / machine.cores


def operand_bytes(problem: ConvProblem) -> int:
    item = ITEM_BYTES[problem.dtype]
    return item * (prod(problem.lhs_extents) + prod(problem.rhs_extents)) + ITEM_BYTES[problem.out_dtype] * prod(problem.out_extents)


def lanes_of(problem: ConvProblem, machine: Machine) -> int:
    return max(1, machine.vector_bytes // ITEM_BYTES[problem.dtype])


def element_cycles(step: int, contiguous: float) -> float:
    """Cycles to move an element alone: each has a cache line of its own when steps are long."""
    return contiguous if step == 1 else 1.2 if step <= 8 else FAR_ELEMENT


def sorted_axes(problem: ConvProblem) -> list[Axis]:
    """Axes in order of falling lhs stride, as the library sorts them."""
    pairs = sorted(zip(problem.axes, problem.lhs.spatial, strict=True), key=lambda pair: -abs(pair[1]))
    return [axis for axis, _ in pairs]
