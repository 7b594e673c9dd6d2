"""lhs dilation without its zeros: the phases of the output are features of one convolution, written side by side (Shi et al. 2016).

With k = t * L + b - r * s for residue r = p mod M and the b of the padding, every phase reads the same window of T taps of the input.
So a kernel padded to T * L taps, its phases beside the features, gives all outputs in one convolution without dilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod

from fastconv.jax.rewrites.call import Call, convolve
from fastconv.jax.rewrites.named import Named, stacked
from fastconv.jax.rewrites.steps import Conv, Pass, Rewrite, Step, inner, lhs_dilated, size
from fastconv.problem import Axis, ConvProblem

#: Phases of a strided axis, whose kernels are sliced one by one.
MOST_SLICED = 32


@dataclass(frozen=True, slots=True)
class Phases:
    """One axis: how its kernel is spread, the number of its phases, and the axis that serves all of them."""

    spread: int
    count: int
    first: int
    step: int
    axis: Axis


def phases_of(a: Axis) -> Phases:
    """The phases of an axis; one, and the axis itself, where nothing is dilated."""
    if a.lhs_dilation == 1:
        return Phases(1, 1, 0, 1, a)
    kernel = (a.kernel - 1) * a.rhs_dilation + 1
    common = gcd(a.lhs_dilation, a.stride)
    count, first = a.lhs_dilation // common, a.lo % a.lhs_dilation
    taps = max(1, (kernel - 1 - first + (count - 1) * a.stride) // a.lhs_dilation + 1)
    axis = Axis(a.size, taps, -(-a.out // count), a.stride // common, a.lo // a.lhs_dilation)
    return Phases(a.rhs_dilation, count, first, a.stride, axis)


def _refuse(problem: ConvProblem) -> str | None:
    if not lhs_dilated(problem):
        return "no lhs dilation: there is one phase"
    for a in problem.axes:
        if a.stride > 1 and phases_of(a).count > MOST_SLICED:
            return f"{phases_of(a).count} phases of a strided axis are more than {MOST_SLICED}"
    return None


def _steps(problem: ConvProblem) -> list[Step]:
    found = [phases_of(a) for a in problem.axes]
    count = prod(phase.count for phase in found)
    dense = inner(problem, [phase.axis for phase in found], features=problem.features * count)
    return [Pass(2 * size(dense.rhs_extents)), Conv(dense), Pass(size(dense.out_extents) + size(problem.out_extents))]


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    found = [phases_of(a) for a in call.problem.axes]
    split = [i for i, phase in enumerate(found) if phase.count > 1 or phase.axis is not call.problem.axes[i]]
    for i in split:
        rhs = _split_kernel(rhs.spread(f"k{i}", found[i].spread), i, found[i], call.problem.axes[i].lhs_dilation)
    residues = [f"r{i}" for i in split]
    parts = {name: rhs.extent(name) for name in residues} | {"o": rhs.extent("o")}
    # A single feature leaves its phases behind the positions, where they belong.
    last = call.features_last or call.problem.features * call.problem.groups == 1
    out = convolve(call, lhs, rhs.merged((*residues, "o"), "o"), [phase.axis for phase in found], last)
    out = out.split("o", parts)
    return interleaved(out, {i: call.problem.axes[i].out for i in split}, call)


def _split_kernel(rhs: Named, i: int, phase: Phases, dilation: int) -> Named:
    """k becomes (taps, phases): k = t * dilation + first - r * step."""
    name, residue = f"k{i}", f"r{i}"
    if phase.step == 1 and phase.count == dilation:
        low = dilation - 1 - phase.first
        whole = rhs.window(name, -low, phase.axis.kernel * dilation)
        return whole.split(name, {name: phase.axis.kernel, residue: dilation}).reversed([residue])
    taken = [rhs.window(name, phase.first - r * phase.step, phase.axis.kernel, dilation) for r in range(phase.count)]
    return stacked(taken, residue, before="o")


def interleaved(out: Named, extents: dict[int, int], call: Call) -> Named:
    """Phases r0, r1, ... beside their positions: p = q * phases + r, cut to the extents."""
    order = [name for spec in _order(call) for name in spec]
    out = out.ordered([name for name in order if name in out.names or name in ("n", "o")])
    for i, extent in extents.items():
        out = out.merged((f"p{i}", f"r{i}"), f"p{i}")
        if out.extent(f"p{i}") != extent:
            out = out.window(f"p{i}", 0, extent)
    return out


def _order(call: Call) -> list[tuple[str, ...]]:
    """The order of the result's dimensions, each with what is to be beside it."""
    spec = tuple(call.numbers)[2]
    names = ["n", "o", *(f"p{i}" for i in range(len(spec) - 2))]
    placed = [""] * len(spec)
    for name, position in zip(names, spec, strict=True):
        placed[position] = name
    return [("g", "o") if name == "o" else (name, f"r{name[1:]}") if name.startswith("p") else (name,) for name in placed]


PHASES = Rewrite("phases", _refuse, _steps, _apply)
