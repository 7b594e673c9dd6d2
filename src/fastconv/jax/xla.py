"""Plain JAX as one more row of the planner: a coarse model of XLA:CPU, so that leaving a convolution to it has a reason.

XLA:CPU has three ways with a convolution. Half and single precision over one or two spatial axes are unrolled into patches and
multiplied (Eigen); that costs a fixed time per patch element, and more the shorter the runs it is copied in. Double precision takes such a
path for wide dense images only. All else runs in scalar loops. Zeros that dilation inserts are skipped, or multiplied when the
kernel is an image, as in weight gradients.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from fastconv.plan import Algorithm, Machine
from fastconv.plan.rates import rates
from fastconv.problem import ConvProblem

_SINGLE = ("float32", "float16", "bfloat16")


def seconds(problem: ConvProblem, machine: Machine) -> float:
    """XLA:CPU's modelled time: what there is to do, times the rates that were fitted for it."""
    fit = rates("xla")
    counts = work(problem)
    calls = counts.pop("call") * fit.rates["call"]
    return calls + sum(count * fit.rates[name] for name, count in counts.items()) * fit.cores / machine.cores


def work(problem: ConvProblem) -> dict[str, float]:
    """How often XLA:CPU does what the fitted rates name: flops (multiply-adds x 2) of one of its ways, patch elements, runs of them."""
    if problem.dtype.startswith("complex"):  # JAX makes three real convolutions of a complex one
        part = "float32" if problem.dtype == "complex64" else "float64"
        return {name: 3 * count for name, count in work(replace(problem, dtype=part, out_dtype=part)).items()}
    return {"call": 1} | _work(problem)


def _work(problem: ConvProblem) -> dict[str, float]:
    flops = 2.0 * problem.products
    dims = len(problem.axes)
    dilated = any(axis.lhs_dilation > 1 for axis in problem.axes)
    taps, outputs = prod(axis.kernel for axis in problem.axes), prod(axis.out for axis in problem.axes)
    if taps == problem.channels == problem.features == 1 and problem.groups > 1 and not dilated:
        return {"patch": float(problem.groups * problem.batch * outputs)}  # XLA makes it a multiplication
    if problem.dtype not in _SINGLE or dims > 3:
        return {_loop(problem, dims, dilated, taps > outputs): flops}
    if batch_grouped(problem):
        return {"batch groups": flops}
    if dilated and dims == 3:
        return {"volume loop": flops}
    if dilated and taps > outputs:
        return {"image loop": flops}
    if dilated:  # fewer than 4 output channels are as slow as 4
        scattered = problem.groups * problem.batch * problem.features * taps * prod(axis.size for axis in problem.axes)
        return {"scatter": flops * max(1.0, 4 / max(problem.features, 1)), "scattered": scattered}
    patches = problem.groups * problem.batch * problem.channels * taps * outputs
    run = max(1, problem.channels * (problem.axes[-1].kernel if problem.axes else 1))
    volume = "volume " if dims == 3 else ""
    return {"product": 2.0 * patches * problem.features, f"{volume}patch": patches, f"{volume}patch run": patches / run}


def _loop(problem: ConvProblem, dims: int, dilated: bool, image: bool) -> str:
    """The scalar loop that gets what single precision's fast way does not take."""
    if problem.dtype not in ("float64", *_SINGLE):
        return "integer loop"
    if problem.dtype == "float64" and dims == 2 and problem.groups == 1 and not dilated and min(problem.channels, problem.features) >= 32:
        return "wide double"
    if dilated and image:
        return "image loop"
    if problem.channels == problem.features == 1:
        return "one channel loop" if problem.groups == 1 else "depthwise loop"
    return "float loop"


def batch_grouped(problem: ConvProblem) -> bool:
    """Groups that split lhs's batch: one group starts where the images of the one before it end."""
    group, image, channel = problem.lhs.outer
    return problem.groups > 1 and group == problem.batch * image and group != problem.channels * channel


#: The row; a negative code is no algorithm of the library.
XLA = Algorithm("xla", -1, lambda problem, machine: None, seconds, lambda problem, machine: 0)
