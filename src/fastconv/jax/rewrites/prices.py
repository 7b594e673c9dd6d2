"""Modelled seconds of a rewrite's steps: on CPUs by the rates fitted for XLA, on GPUs and TPUs by what data sheets say.

On accelerators a convolution is priced as the matrix product that the vendor's library makes of it, features and channels rounded up to
its tiles. What XLA is known to do badly there is priced as reports found it: zeros of a dilated input are multiplied, unless the kernel
was reversed just before (then XLA sees a gradient, openxla's ConvRewriter); groups of the batch, and depthwise layers with dilation,
cost what the dense layer costs (jax#13800, jax#26266); an image as the kernel of a dilated input costs IMAGE times as much (jax#31662).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

from fastconv.jax import xla
from fastconv.jax.rewrites.steps import Conv, Product, Step, lhs_dilated, size
from fastconv.plan.machine import ISA_LEVELS, Machine
from fastconv.plan.rates import rates
from fastconv.problem import ConvProblem

#: Share of the peak that a large product reaches, and one of the vendor's convolutions.
PRODUCT, CONVOLUTION = 0.6, 0.5
#: What an image as the kernel of a dilated input costs, in units of its products.
IMAGE, IMAGE_TAPS = 16.0, 1024
#: Features and channels come in tiles of these.
TILES = {"cuda": (32, 8), "rocm": (32, 8), "tpu": (128, 8)}
#: Multiply-adds of a fused pass for which its operands come out of a cache, per element that memory delivers in that time.
CACHED = 4.0
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float64": 8, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int64": 8, "uint64": 8}


def seconds(steps: Sequence[Step], problem: ConvProblem, machine: Machine, reversed_kernel: bool = False) -> float:
    """All steps one after another."""
    return sum(_seconds(step, problem, machine, reversed_kernel) for step in steps)


def _seconds(step: Step, problem: ConvProblem, machine: Machine, reversed_kernel: bool) -> float:
    on_cpu = machine.isa in ISA_LEVELS
    if isinstance(step, Conv):
        return xla.seconds(step.problem, machine) if on_cpu else _convolution(step.problem, machine, reversed_kernel)
    if isinstance(step, Product):
        flops = 2.0 * prod(step)
        if on_cpu:
            fit = rates("xla")
            return fit.rates["call"] + flops * fit.rates["product"] * fit.cores / machine.cores
        return _bounded(flops / PRODUCT, _elements(step), problem, machine)
    moved = step.elements * _bytes(problem)
    if on_cpu:
        return machine.call_seconds + moved / machine.bandwidth + step.operations * 2e-9 / machine.gflops
    fetched = step.operations * _bytes(problem) / CACHED
    return machine.call_seconds + max(moved, fetched) / machine.bandwidth


def _elements(step: Product) -> int:
    return step.count * (step.rows * step.depth + step.depth * step.columns + step.rows * step.columns)


def _bytes(problem: ConvProblem) -> int:
    return ITEM_BYTES.get(problem.dtype, 4)


def _bounded(flops: float, elements: int, problem: ConvProblem, machine: Machine) -> float:
    """One kernel: as long as its arithmetic or its memory takes, whichever is longer."""
    return machine.call_seconds + max(flops / (_peak(problem, machine) * 1e9), elements * _bytes(problem) / machine.bandwidth)


def _peak(problem: ConvProblem, machine: Machine) -> float:
    if problem.dtype in ("float16", "bfloat16"):
        return machine.half_gflops
    if problem.dtype == "float32":
        return machine.gflops if problem.precision == "highest" else machine.matrix_gflops
    return machine.double_gflops or machine.gflops / 16


def _is_gradient(problem: ConvProblem) -> bool:
    """Whether XLA:GPU takes a convolution by a reversed kernel for an input gradient (openxla's ConvRewriter, MatchBackwardInput)."""
    if problem.groups > 1 or any(a.stride > 1 or a.rhs_dilation > 1 for a in problem.axes):
        return False
    low = [a.kernel - 1 - a.lo for a in problem.axes]
    most = [a.kernel + a.lhs_dilation * a.size - a.out - 1 - lo for a, lo in zip(problem.axes, low, strict=True)]
    return min(low, default=0) >= 0 and min(most, default=0) >= 0


def _convolution(problem: ConvProblem, machine: Machine, reversed_kernel: bool) -> float:
    """What XLA takes for a convolution on an accelerator."""
    features, channels = TILES[machine.isa]
    elements = size(problem.lhs_extents) + size(problem.rhs_extents) + size(problem.out_extents)
    taps, outputs = prod(a.kernel for a in problem.axes), prod(a.out for a in problem.axes)
    groups, of, to = problem.groups, problem.channels, problem.features
    dilated = lhs_dilated(problem)
    depthwise = groups > 1 and of == 1
    if depthwise and not dilated and not xla.batch_grouped(problem) and all(a.rhs_dilation == 1 for a in problem.axes):
        fetched = problem.products * _bytes(problem) / CACHED
        return machine.call_seconds + 2 * max(elements * _bytes(problem), fetched) / machine.bandwidth
    if xla.batch_grouped(problem) or depthwise:
        groups, of = 1, of * groups
        to *= problem.groups
    pairs, before = problem.batch * outputs * taps, 0.0
    if dilated and reversed_kernel and _is_gradient(problem):
        pairs = max(1, problem.products // (problem.channels * problem.features))
    elif dilated:  # a kernel of its own writes the zeros
        stuffed = prod((a.size - 1) * a.lhs_dilation + 1 for a in problem.axes) * problem.groups * problem.batch * problem.channels
        before = machine.call_seconds + stuffed * _bytes(problem) / machine.bandwidth
        if taps >= IMAGE_TAPS and outputs < taps:
            pairs *= IMAGE
    flops = 2.0 * groups * pairs * ceil(to / features) * features * ceil(of / channels) * channels
    return before + _bounded(flops / CONVOLUTION, elements, problem, machine)
