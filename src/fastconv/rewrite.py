"""Problems into other problems: gradients, transposed convolutions, phases, residues, merged axes. Pure functions, shared by CPU and GPU.

They transpose the linear maps that a problem holds; for complex numbers the adjoint also needs a conjugate, which is the
caller's (the fronts conjugate an operand). A bias and an activation follow the sum, so the gradients here are those of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import gcd

from fastconv.problem import Axis, ConvProblem, Operand


def flipped(operand: Operand, extents: tuple[int, ...]) -> Operand:
    """a'[k] = a[K - 1 - k] on every spatial axis: negative strides from the far corner."""
    shift = sum((extent - 1) * stride for extent, stride in zip(extents, operand.spatial, strict=True) if extent)
    return Operand(operand.outer, tuple(-stride for stride in operand.spatial), operand.offset + shift)


def input_gradient(problem: ConvProblem) -> ConvProblem:
    """dx[i] = sum over k of dy[p] * w[k] with p * stride = i * lhs_dilation - k * rhs_dilation + lo; its own inverse.

    lhs is dy (where the problem's out lies), rhs the flipped kernel with o and c swapped, out is dx (where lhs lies); stride
    and lhs_dilation change places and lo becomes (kernel - 1) * rhs_dilation - lo. Applied to a convolution from y to x it is
    the transposed convolution from x to y.
    """
    axes = tuple(
        Axis(a.out, a.kernel, a.size, a.lhs_dilation, (a.kernel - 1) * a.rhs_dilation - a.lo, a.stride, a.rhs_dilation)
        for a in problem.axes
    )
    rhs = flipped(problem.rhs, tuple(a.kernel for a in problem.axes))
    g, o, c = rhs.outer
    return replace(
        _sum_only(problem),
        axes=axes,
        channels=problem.features,
        features=problem.channels,
        lhs=problem.out,
        rhs=replace(rhs, outer=(g, c, o)),
        out=problem.lhs,
    )


def weight_gradient(problem: ConvProblem) -> ConvProblem:
    """dw[k] = sum over n, p of x[i] * dy[p] with i * lhs_dilation = k * rhs_dilation + p * stride - lo: dy is the kernel.

    lhs is x with n and c swapped, rhs is dy (where the problem's out lies) dilated by the stride, out is dw (where rhs lies).
    """
    axes = tuple(Axis(a.size, a.out, a.kernel, a.rhs_dilation, a.lo, a.lhs_dilation, a.stride) for a in problem.axes)
    (xg, xn, xc), (wg, wo, wc), (yg, yn, yo) = problem.lhs.outer, problem.rhs.outer, problem.out.outer
    return replace(
        _sum_only(problem),
        axes=axes,
        batch=problem.channels,
        channels=problem.batch,
        lhs=replace(problem.lhs, outer=(xg, xc, xn)),
        rhs=replace(problem.out, outer=(yg, yo, yn)),
        out=replace(problem.rhs, outer=(wg, wc, wo)),
    )


def _sum_only(problem: ConvProblem) -> ConvProblem:
    return replace(problem, bias_stride=None, activation=None, out_dtype=problem.dtype)


def undilated(problem: ConvProblem) -> ConvProblem:
    """A long sum over a dilated input as the same sum without, lhs and rhs having changed places; other problems as they are.

    So is the weight gradient of a transposed convolution often posed (csrc/drivers/exchange.h has the same rule): taps adjoin, and are
    more than the outputs. With k = i * lhs_dilation - p * stride + lo the inputs become the taps, and outputs are counted from their end.
    """
    dilated = [a for a in problem.axes if a.lhs_dilation > 1]
    if not dilated or problem.bias_stride is not None or problem.activation is not None:
        return problem
    if any(a.rhs_dilation != 1 or a.kernel < a.out or not a.size or not a.out for a in problem.axes):
        return problem
    if any(a.kernel == a.out for a in dilated):
        return problem
    axes = tuple(Axis(a.kernel, a.size, a.out, a.stride, (a.out - 1) * a.stride - a.lo, 1, a.lhs_dilation) for a in problem.axes)
    out = flipped(problem.out, tuple(a.out for a in problem.axes))
    g, n, o = out.outer
    return replace(
        problem,
        axes=axes,
        batch=problem.features,
        features=problem.batch,
        lhs=problem.rhs,
        rhs=problem.lhs,
        out=replace(out, outer=(g, o, n)),
    )


@dataclass(frozen=True, slots=True)
class _Phase:
    """The outputs r, r + step, ... of one axis: their own axis without lhs dilation, and the taps first, first + every, ..."""

    axis: Axis
    first: int
    every: int
    residue: int
    step: int


def phases(problem: ConvProblem) -> tuple[ConvProblem, ...]:
    """out[r + q * M] for each residue r: sub-problems without lhs dilation that together write every output once.

    With M = lhs_dilation / gcd(lhs_dilation, stride), only every lhs_dilation / gcd(lhs_dilation, rhs_dilation)-th tap meets
    data in a phase; a phase that no tap meets has a kernel of 0 taps (its outputs are zero before bias and activation).
    """
    result = []
    for chosen in product(*(tuple(_axis_phases(axis)) for axis in problem.axes)):
        rhs = _sliced(problem.rhs, [(phase.first, phase.every) for phase in chosen])
        out = _sliced(problem.out, [(phase.residue, phase.step) for phase in chosen])
        result.append(replace(problem, axes=tuple(phase.axis for phase in chosen), rhs=rhs, out=out))
    return tuple(result)


def axis_phases(axis: Axis) -> list[Axis]:
    """The axes, without lhs dilation, that stand in for `axis` in each of its phases."""
    return [phase.axis for phase in _axis_phases(axis)]


def _axis_phases(a: Axis) -> Iterator[_Phase]:
    if a.lhs_dilation == 1:
        yield _Phase(a, 0, 1, 0, 1)
        return
    step = a.lhs_dilation // gcd(a.lhs_dilation, a.stride)
    common = gcd(a.lhs_dilation, a.rhs_dilation)
    every = a.lhs_dilation // common
    for residue in range(min(step, a.out)):
        out = -(-(a.out - residue) // step)
        need = a.lo - residue * a.stride  # taps with k * rhs_dilation = need modulo lhs_dilation meet data
        first = need // common * pow(a.rhs_dilation // common, -1, every) % every if every > 1 else 0
        kernel = max(0, -(-(a.kernel - first) // every)) if need % common == 0 else 0
        if kernel == 0:
            yield _Phase(Axis(a.size, 0, out), 0, 1, residue, step)
            continue
        lo = (need - first * a.rhs_dilation) // a.lhs_dilation
        axis = Axis(a.size, kernel, out, step * a.stride // a.lhs_dilation, lo, 1, a.rhs_dilation // common)
        yield _Phase(axis, first, every, residue, step)


def _sliced(operand: Operand, slices: list[tuple[int, int]]) -> Operand:
    """a'[j] = a[first + every * j] per spatial axis."""
    offset = operand.offset + sum(first * stride for (first, _), stride in zip(slices, operand.spatial, strict=True))
    return replace(operand, spatial=tuple(every * s for (_, every), s in zip(slices, operand.spatial, strict=True)), offset=offset)


def residues(problem: ConvProblem) -> tuple[ConvProblem, ...]:
    """Sub-problems without dilation that together write every output once; an input dilation has gone before (`phases`).

    Output r + q * M, M = rhs_dilation / gcd(rhs_dilation, stride), reads one residue of the input modulo rhs_dilation, whatever q is.
    """
    result = []
    for chosen in product(*(tuple(_axis_residues(axis)) for axis in problem.axes)):
        lhs = _sliced(problem.lhs, [(first, axis.rhs_dilation) for (_, first, _, _), axis in zip(chosen, problem.axes, strict=True)])
        out = _sliced(problem.out, [(residue, step) for _, _, residue, step in chosen])
        result.append(replace(problem, axes=tuple(axis for axis, _, _, _ in chosen), lhs=lhs, out=out))
    return tuple(result)


def _axis_residues(a: Axis) -> Iterator[tuple[Axis, int, int, int]]:
    """(axis without dilation, its first input, its first output, the step of its outputs)."""
    step = a.rhs_dilation // gcd(a.rhs_dilation, a.stride)
    for residue in range(min(step, a.out)):
        jump, first = divmod(residue * a.stride - a.lo, a.rhs_dilation)
        size, out = max(0, -(-(a.size - first) // a.rhs_dilation)), -(-(a.out - residue) // step)
        yield Axis(size, a.kernel, out, step * a.stride // a.rhs_dilation, -jump), first if size else 0, residue, step


@dataclass(frozen=True, slots=True)
class Touching:
    """What of an axis meets data: an axis of its own, and the first input, tap and output of it."""

    axis: Axis
    first: int
    tap: int
    begin: int


def touching(problem: ConvProblem) -> ConvProblem | None:
    """The problem of the outputs that meet data, with the inputs and taps that they meet; None if there are none.

    For axes without dilation. The outputs left out are sums of nothing. Afterwards 0 <= lo < kernel.
    """
    found = [touching_of(axis) for axis in problem.axes]
    met = [part for part in found if part is not None]
    if len(met) < len(found):
        return None
    return replace(
        problem,
        axes=tuple(part.axis for part in met),
        lhs=_sliced(problem.lhs, [(part.first, 1) for part in met]),
        rhs=_sliced(problem.rhs, [(part.tap, 1) for part in met]),
        out=_sliced(problem.out, [(part.begin, 1) for part in met]),
    )


def touching_of(a: Axis) -> Touching | None:
    """What of one axis without dilation meets data."""
    begin = max(0, -((a.kernel - 1 - a.lo) // a.stride))
    end = min(a.out, (a.size - 1 + a.lo) // a.stride + 1)
    if end <= begin or not a.size or not a.kernel:
        return None
    lo, last = a.lo - begin * a.stride, (end - 1 - begin) * a.stride
    tap, taps = max(0, lo - last), min(a.kernel, a.size + lo)
    lo, kernel = lo - tap, taps - tap
    first = max(0, -lo)
    size = min(a.size, last + kernel - lo) - first
    return Touching(Axis(size, kernel, end - begin, a.stride, lo + first), first, tap, begin)


def merged(problem: ConvProblem) -> ConvProblem:
    """The same sums over the same elements with as few axes as strides allow.

    Pointwise axes (one tap, input position = output position) merge with each other and with the batch; axes that are summed
    away (one output, tap position = input position) merge with each other and with the channels; axes of one input, one tap
    and one output go. So a 1x1 convolution and one whose kernel covers the input become matrix products.
    """
    problem = _drop_points(_plain_axes(problem))
    free = [_Loop(problem.batch, (problem.lhs.outer[1], problem.out.outer[1]), None)]
    summed = [_Loop(problem.channels, (problem.lhs.outer[2], problem.rhs.outer[2]), None)]
    for position, a in enumerate(problem.axes):
        x, w, y = (operand.spatial[position] for operand in (problem.lhs, problem.rhs, problem.out))
        if a.kernel == 1 and a.lo == 0 and a.stride == a.lhs_dilation == 1 and a.size == a.out:
            free.append(_Loop(a.size, (x, y), position))
        elif a.out == 1 and a.lo == 0 and a.rhs_dilation == a.lhs_dilation == 1 and a.size == a.kernel:
            summed.append(_Loop(a.size, (x, w), position))
    batch, *pointwise = _merge_loops(free)
    channels, *covering = _merge_loops(summed)
    pointwise_at = {loop.position: loop for loop in pointwise}
    covering_at = {loop.position: loop for loop in covering}
    merging = {loop.position for loop in (*free, *summed)}
    axes: list[Axis] = []
    spatial: list[tuple[int, int, int]] = []
    for position, a in enumerate(problem.axes):
        x, w, y = (operand.spatial[position] for operand in (problem.lhs, problem.rhs, problem.out))
        if position not in merging:
            axes.append(a)
            spatial.append((x, w, y))
        elif position in pointwise_at:
            loop = pointwise_at[position]
            axes.append(Axis(loop.extent, 1, loop.extent))
            spatial.append((loop.strides[0], w, loop.strides[1]))
        elif position in covering_at:
            loop = covering_at[position]
            axes.append(Axis(loop.extent, loop.extent, 1))
            spatial.append((loop.strides[0], loop.strides[1], y))
    (xg, _, _), (wg, wo, _), (yg, _, yo) = problem.lhs.outer, problem.rhs.outer, problem.out.outer
    x_spatial, w_spatial, y_spatial = zip(*spatial, strict=True) if spatial else ((), (), ())
    return replace(
        problem,
        axes=tuple(axes),
        batch=batch.extent,
        channels=channels.extent,
        lhs=Operand((xg, batch.strides[0], channels.strides[0]), x_spatial, problem.lhs.offset),
        rhs=Operand((wg, wo, channels.strides[1]), w_spatial, problem.rhs.offset),
        out=Operand((yg, batch.strides[1], yo), y_spatial, problem.out.offset),
    )


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop over two operands: extent, stride in each, and the axis it came from (None: batch or channels)."""

    extent: int
    strides: tuple[int, int]
    position: int | None


def _merge_loops(loops: list[_Loop]) -> list[_Loop]:
    """Joins loops of which one continues the other; the first stays first, so that batch and channels can be told."""
    for first, second in combinations(range(len(loops)), 2):
        both = _joined(loops[first], loops[second])
        if both is not None:
            return _merge_loops([*loops[:first], both, *loops[first + 1 : second], *loops[second + 1 :]])
    return loops


def _joined(a: _Loop, b: _Loop) -> _Loop | None:
    """One loop over both, if the outer one steps by what the inner one covers in both operands; it takes a's place."""
    for outer, inner in ((a, b), (b, a)):
        if outer.extent == 1:
            return replace(inner, position=a.position)
        if all(s == inner.extent * t for s, t in zip(outer.strides, inner.strides, strict=True)):
            return _Loop(outer.extent * inner.extent, inner.strides, a.position)
    return None


def _plain_axes(problem: ConvProblem) -> ConvProblem:
    """Steps that no second element follows become 1: stride of one output, dilation of one tap or of one input."""
    axes = tuple(
        replace(
            a,
            stride=1 if a.out <= 1 else a.stride,
            lhs_dilation=1 if a.size <= 1 else a.lhs_dilation,
            rhs_dilation=1 if a.kernel <= 1 else a.rhs_dilation,
        )
        for a in problem.axes
    )
    return replace(problem, axes=axes)


def _drop_points(problem: ConvProblem) -> ConvProblem:
    """Leaves out the axes on which one tap meets one input for one output."""
    keep, offset = [], problem.lhs.offset
    for position, a in enumerate(problem.axes):
        if a.kernel == a.out == 1 and -a.lo % a.lhs_dilation == 0 and 0 <= -a.lo // a.lhs_dilation < a.size:
            offset += -a.lo // a.lhs_dilation * problem.lhs.spatial[position]
        else:
            keep.append(position)

    def kept(operand: Operand) -> Operand:
        return replace(operand, spatial=tuple(operand.spatial[position] for position in keep))

    axes = tuple(problem.axes[position] for position in keep)
    return replace(problem, axes=axes, lhs=replace(kept(problem.lhs), offset=offset), rhs=kept(problem.rhs), out=kept(problem.out))
