"""The planner's `fft` under JAX: overlap-save by XLA's transforms, cut as `plan.overlap` says, traced into the program.

Dilation is written out as zeros, and priced so. Where the result is not finite, everything is summed by the engine instead, so
that an inf or NaN reaches what its taps touch and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fastconv import rewrite
from fastconv.jax.xla import batch_grouped
from fastconv.plan import FFT as SCIPY_FFT
from fastconv.plan import Algorithm, Machine, overlap
from fastconv.plan.overlap import Layout
from fastconv.plan.rows import fft
from fastconv.problem import Axis, ConvProblem

#: Spatial axes that XLA transforms.
MOST_AXES = 3


def _refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if len(problem.axes) > MOST_AXES:
        return f"XLA transforms at most {MOST_AXES} axes"
    if batch_grouped(problem):
        return "groups that split the batch"
    if why := SCIPY_FFT.refuse(_dense(problem), machine):
        return why
    layout = _layout(problem)
    if layout is None or (layout.groups, layout.features) != (problem.groups, problem.features):
        return "its transforms hold too much memory"
    return None


def _dense(problem: ConvProblem) -> ConvProblem:
    """The problem with its dilation written out as zeros; where its elements lie is left as it is."""

    def spread(extent: int, dilation: int) -> int:
        return (extent - 1) * dilation + 1 if extent else 0

    axes = (Axis(spread(a.size, a.lhs_dilation), spread(a.kernel, a.rhs_dilation), a.out, a.stride, a.lo) for a in problem.axes)
    return replace(problem, axes=tuple(axes))


def _layout(problem: ConvProblem) -> Layout | None:
    part = rewrite.touching(_dense(problem))
    return None if part is None else overlap.layout(part, overlap.rates_of("ducc"))


FFT = Algorithm(
    SCIPY_FFT.name,
    SCIPY_FFT.code,
    _refuse,
    lambda problem, machine: fft.seconds(_dense(problem), machine, overlap.rates_of("ducc")),
    lambda problem, machine: layout.bytes if (layout := _layout(problem)) is not None else 0,
    bound=SCIPY_FFT.bound,
)


def conv(problem: ConvProblem, numbers: Any, by_library: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
    """lax.conv_general_dilated's result for a problem that `FFT` does not refuse; to be traced."""
    count = len(problem.axes)
    images = lax.transpose(lhs, numbers.lhs_spec)
    kernels = lax.transpose(rhs, numbers.rhs_spec)
    images = images.reshape(problem.batch, problem.groups, problem.channels, *images.shape[2:])
    kernels = kernels.reshape(problem.groups, problem.features, problem.channels, *kernels.shape[2:])
    images = _spread(images, [a.lhs_dilation for a in problem.axes])
    kernels = _spread(kernels, [a.rhs_dilation for a in problem.axes])
    met = [part for axis in _dense(problem).axes if (part := rewrite.touching_of(axis)) is not None]
    layout = _layout(problem)
    assert layout is not None, "refused"
    assert len(met) == count, "refused"
    images = images[(..., *(slice(part.first, part.first + part.axis.size) for part in met))]
    kernels = kernels[(..., *(slice(part.tap, part.tap + part.axis.kernel) for part in met))]
    sums = _blocks(images, kernels, layout)
    picked = sums[(..., *(slice(0, (part.axis.out - 1) * part.axis.stride + 1, part.axis.stride) for part in met))]
    around = [(part.begin, a.out - part.begin - part.axis.out) for part, a in zip(met, problem.axes, strict=True)]
    whole = jnp.pad(picked, [(0, 0)] * 3 + around).reshape(problem.batch, problem.groups * problem.features, *(a.out for a in problem.axes))
    result = lax.transpose(whole, np.argsort(numbers.out_spec))
    return lax.cond(jnp.isfinite(result).all(), lambda x, w, y: y, lambda x, w, y: by_library(x, w), lhs, rhs, result)


def _spread(array: Any, dilation: list[int]) -> Any:
    return lax.pad(array, jnp.zeros((), array.dtype), [(0, 0, 0)] * 3 + [(0, 0, d - 1) for d in dilation])


def _blocks(images: Any, kernels: Any, layout: Layout) -> Any:
    """The correlation of (n, g, c, *size) with (g, o, c, *kernel) at stride 1: (n, g, o, *outputs and perhaps more)."""
    cuts, axes = layout.cuts, tuple(range(-len(layout.cuts), 0))
    lengths = [cut.length for cut in cuts]
    real = jnp.issubdtype(images.dtype, jnp.floating)
    forward, backward = (jnp.fft.rfftn, jnp.fft.irfftn) if real else (jnp.fft.fftn, jnp.fft.ifftn)
    parts = list(product(*(range(cut.parts) for cut in cuts)))

    short = [cut.parts * cut.taps - k for cut, k in zip(cuts, kernels.shape[3:], strict=True)]
    taps = jnp.pad(kernels, [(0, 0)] * 3 + [(0, n) for n in short])
    slices = [tuple(slice(at * cut.taps, (at + 1) * cut.taps) for at, cut in zip(part, cuts, strict=True)) for part in parts]
    spectra = forward(jnp.flip(jnp.concatenate([taps[(..., *where)] for where in slices], axis=2), axes), lengths, axes)

    ends = [cut.first + (cut.blocks - 1) * cut.step + (cut.parts - 1) * cut.taps + cut.reads for cut in cuts]
    around = [(-cut.first, max(0, end - size)) for cut, end, size in zip(cuts, ends, images.shape[3:], strict=True)]
    padded = jnp.pad(images, [(0, 0)] * 3 + around)
    outer = (1, *images.shape[1:3])

    def segment(start: Any) -> Any:
        found = []
        for part in parts:
            shift = np.array([0, 0, 0, *(k * cut.taps for k, cut in zip(part, cuts, strict=True))], np.int32)
            found.append(lax.dynamic_slice(padded, list(start + shift), (*outer, *(cut.reads for cut in cuts)))[0])
        return jnp.concatenate(found, axis=1)

    def chunk(starts: Any) -> Any:
        x = forward(jax.vmap(segment)(starts), lengths, axes)
        y = backward(jnp.einsum("rgd...,god...->rgo...", x, spectra, precision="highest"), lengths, axes)
        return y[(..., *(slice(cut.start, cut.start + cut.step) for cut in cuts))]

    items = list(product(range(images.shape[0]), (0,), (0,), *(range(0, cut.blocks * cut.step, cut.step) for cut in cuts)))
    rows = min(layout.rows, len(items))
    chunks = -(-len(items) // rows)
    starts = np.array(items + items[-1:] * (chunks * rows - len(items)), np.int32)
    if chunks == 1:
        sums = chunk(starts)
    else:
        sums = lax.map(chunk, starts.reshape(chunks, rows, -1)).reshape(chunks * rows, *kernels.shape[:2], *(cut.step for cut in cuts))
    return _assembled(sums[: len(items)], images.shape[0], layout)


def _assembled(sums: Any, images: int, layout: Layout) -> Any:
    """(n x blocks, g, o, *step) in place: (n, g, o, *blocks x step)."""
    count = len(layout.cuts)
    blocks = [cut.blocks for cut in layout.cuts]
    split = sums.reshape(images, *blocks, *sums.shape[1:])
    order = [0, count + 1, count + 2]
    for axis in range(count):
        order += [1 + axis, count + 3 + axis]
    return split.transpose(order).reshape(images, *sums.shape[1:3], *(cut.blocks * cut.step for cut in layout.cuts))
