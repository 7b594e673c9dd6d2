"""Plain JAX as one more row of the planner: a coarse model of XLA:CPU, so that leaving a convolution to it has a reason.

XLA:CPU has three ways with a convolution. Half and single precision over one or two spatial axes are unrolled into patches and
multiplied (Eigen); that costs a fixed time per patch element, and more the shorter the runs it is copied in. Double precision takes such a
path for wide dense images only. All else runs in scalar loops. Zeros that dilation inserts are skipped, or multiplied when the
kernel is an image, as in weight gradients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from fastconv.plan import Algorithm, Machine
from fastconv.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Rates:
    """What was measured of XLA:CPU on one machine; all rates are per second, all times in seconds, all cores together."""

    measured: str
    cores: int
    call: float  # one operation inside a compiled program
    product: float  # multiply-adds x 2 of the matrix product behind patches
    patch: float  # time of one patch element ...
    patch_run: float  # ... and of one contiguous run of them: channels times taps of the last axis
    volume_patch: float  # the same for three spatial axes
    volume_patch_run: float
    scatter: float  # lhs dilation: multiply-adds x 2, for 4 output channels or more; fewer are as slow as 4
    scattered: float  # and the time to add one product to the output
    wide_double: float  # double precision, dense images of 32 channels and more
    loops: dict[str, float]  # scalar loops


RATES = Rates(
    measured="2 cores of an x86-64 server with AVX-512, jax 0.10.2, 30 November 2026",
    cores=2,
    call=0.3e-6,
    product=110e9,
    patch=0.25e-9,
    patch_run=18e-9,
    volume_patch=0.3e-9,
    volume_patch_run=150e-9,
    scatter=75e9,
    scattered=0.5e-9,
    wide_double=45e9,
    loops={
        "float": 3e9,
        "one channel": 12e9,
        "depthwise": 0.5e9,
        "integer": 1.8e9,
        "kernel is an image": 2e9,
        "volume": 0.2e9,
        "batch groups": 0.12e9,
    },
)

_SINGLE = ("float32", "float16", "bfloat16")


def seconds(problem: ConvProblem, machine: Machine) -> float:
    """XLA:CPU's modelled time."""
    if problem.dtype.startswith("complex"):  # JAX makes three real convolutions of a complex one
        part = "float32" if problem.dtype == "complex64" else "float64"
        return 3 * seconds(replace(problem, dtype=part, out_dtype=part), machine)
    return RATES.call + _work(problem) * RATES.cores / machine.cores


def _work(problem: ConvProblem) -> float:
    flops = 2.0 * problem.products
    loops = RATES.loops
    dims = len(problem.axes)
    dilated = any(axis.lhs_dilation > 1 for axis in problem.axes)
    taps, outputs = prod(axis.kernel for axis in problem.axes), prod(axis.out for axis in problem.axes)
    if problem.dtype not in _SINGLE or dims > 3:
        return flops / _loop_rate(problem, dims, dilated, taps > outputs)
    if batch_grouped(problem):
        return flops / loops["batch groups"]
    if dilated and dims == 3:
        return flops / loops["volume"]
    if dilated and taps > outputs:
        return flops / loops["kernel is an image"]
    if dilated:
        scattered = problem.groups * problem.batch * problem.features * taps * prod(axis.size for axis in problem.axes)
        return flops / (RATES.scatter * min(1.0, problem.features / 4)) + scattered * RATES.scattered
    patches = problem.groups * problem.batch * problem.channels * taps * outputs
    fixed, start = (RATES.volume_patch, RATES.volume_patch_run) if dims == 3 else (RATES.patch, RATES.patch_run)
    run = max(1, problem.channels * (problem.axes[-1].kernel if problem.axes else 1))
    return 2 * patches * problem.features / RATES.product + patches * (fixed + start / run)


def _loop_rate(problem: ConvProblem, dims: int, dilated: bool, image: bool) -> float:
    """Multiply-adds x 2 per second of what single precision's fast way does not take."""
    if problem.dtype not in ("float64", *_SINGLE):
        return RATES.loops["integer"]
    if problem.dtype == "float64" and dims == 2 and problem.groups == 1 and not dilated and min(problem.channels, problem.features) >= 32:
        return RATES.wide_double
    if dilated and image:
        return RATES.loops["kernel is an image"]
    if problem.channels == problem.features == 1:
        return RATES.loops["one channel" if problem.groups == 1 else "depthwise"]
    return RATES.loops["float"]


def batch_grouped(problem: ConvProblem) -> bool:
    """Groups that split lhs's batch: one group starts where the images of the one before it end."""
    group, image, channel = problem.lhs.outer
    return problem.groups > 1 and group == problem.batch * image and group != problem.channels * channel


#: The row; a negative code is no algorithm of the library.
XLA = Algorithm("xla", -1, lambda problem, machine: None, seconds, lambda problem, machine: 0)
