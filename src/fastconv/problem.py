"""The one frozen value that describes a convolution: sizes, geometry and where elements lie; no arrays, no options.

Everything above (`normalise`) turns user arguments into a `ConvProblem`; everything below (`rewrite`, `plan`, the C++
library) sees nothing else. The value is

    out[g, n, o, p] = act(bias[g, o] + sum over c, k of  lhs[g, n, c, i(p, k)] * rhs[g, o, c, k])
    i(p, k) = (p * stride + k * rhs_dilation - lo) / lhs_dilation      per spatial axis

where a term whose `i` is not an integer or lies outside [0, size) is left out. `g` covers feature groups and batch groups
alike: both only change strides. Flipped kernels are negative strides. Transposed convolutions and gradients are other
values of the same type, so no layer below knows about them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod

#: First word of a packed problem; raised when the meaning of a word changes (csrc/problem.h holds the same number).
WORDS_VERSION = 1

#: Codes of the element types in packed words; the order is part of the C ABI (csrc/problem.h).
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)  # fmt: skip
DTYPE_CODES = {name: code for code, name in enumerate(DTYPES)}

#: Codes of the activations applied after the bias; the order is part of the C ABI.
ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu")
ACTIVATION_CODES = {name: code for code, name in enumerate(ACTIVATIONS)}


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis: extents of lhs, rhs and out, and the map between them. `out` is free: it need not follow from the rest."""

    size: int
    kernel: int
    out: int
    stride: int = 1
    lo: int = 0
    lhs_dilation: int = 1
    rhs_dilation: int = 1


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand's elements lie: index = offset + sum(stride * coordinate), in elements from the buffer's first one.

    `outer` holds the strides of the three non-spatial coordinates: lhs (g, n, c), rhs (g, o, c), out (g, n, o).
    """

    outer: tuple[int, int, int]
    spatial: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class ConvProblem:
    """A convolution without its data; see the module docstring for its value.

    groups, batch, channels, features: extents of g, n, c and o (channels and features are per group, batch is per batch group).
    dtype: element type of lhs, rhs and bias; out_dtype: of out. `bias_stride` is None without a bias; else
    bias[g, o] lies at (g * features + o) * bias_stride.
    precision: "default" allows an approximate algorithm within its stated bound, "highest" only direct ones.
    """

    axes: tuple[Axis, ...]
    groups: int
    batch: int
    channels: int
    features: int
    lhs: Operand
    rhs: Operand
    out: Operand
    dtype: str = "float32"
    out_dtype: str = "float32"
    bias_stride: int | None = None
    activation: str | None = None
    precision: str = "default"

    @property
    def lhs_extents(self) -> tuple[int, ...]:
        """Extents of (g, n, c, *size)."""
        return (self.groups, self.batch, self.channels, *(a.size for a in self.axes))

    @property
    def rhs_extents(self) -> tuple[int, ...]:
        """Extents of (g, o, c, *kernel)."""
        return (self.groups, self.features, self.channels, *(a.kernel for a in self.axes))

    @property
    def out_extents(self) -> tuple[int, ...]:
        """Extents of (g, n, o, *out)."""
        return (self.groups, self.batch, self.features, *(a.out for a in self.axes))

    @property
    def without_epilogue(self) -> ConvProblem:
        """The sums alone, without bias and activation."""
        return replace(self, bias_stride=None, activation=None)

    @property
    def products(self) -> int:
        """Products that touch data, all outputs together; twice this is the flop count of a real problem."""
        taps = prod(touching_pairs(a) for a in self.axes)
        return self.groups * self.batch * self.channels * self.features * taps

    @property
    def terms(self) -> int:
        """Upper bound of the products summed for one output (the error bound's `taps`)."""
        return self.channels * prod(_taps_per_output(a) for a in self.axes)

    def words(self, algorithm: int) -> tuple[int, ...]:
        """The packed form that the C++ library reads (csrc/problem.h): int64 words, version first."""
        strides = (*self.lhs.outer, *self.lhs.spatial, *self.rhs.outer, *self.rhs.spatial, *self.out.outer, *self.out.spatial)
        axes = (w for a in self.axes for w in (a.size, a.kernel, a.out, a.stride, a.lo, a.lhs_dilation, a.rhs_dilation))
        head = (
            algorithm,
            DTYPE_CODES[self.dtype],
            DTYPE_CODES[self.out_dtype],
            ACTIVATION_CODES[self.activation],
            0 if self.bias_stride is None else 1,
            self.bias_stride or 0,
            len(self.axes),
            self.groups,
            self.batch,
            self.channels,
            self.features,
            self.lhs.offset,
            self.rhs.offset,
            self.out.offset,
        )
        body = (*head, *strides, *axes)
        return (WORDS_VERSION, 2 + len(body), *body)


def touching_pairs(axis: Axis) -> int:
    """Pairs (p, k) whose input index is an integer inside [0, size), in time that does not grow with the extents."""
    common = gcd(axis.stride, axis.lhs_dilation)
    period = axis.lhs_dilation // common  # of the positions that one tap meets
    every = axis.lhs_dilation // gcd(axis.rhs_dilation, axis.lhs_dilation)  # taps that meet the same positions
    total = 0
    for k in range(min(every, axis.kernel)):
        shift = k * axis.rhs_dilation - axis.lo
        if shift % common:
            continue
        p = (-shift // common) * pow(axis.stride // common, -1, period) % period if period > 1 else 0
        positions, taps = -(-(axis.out - p) // period), -(-(axis.kernel - k) // every)
        if positions <= 0:
            continue
        first = (p * axis.stride + shift) // axis.lhs_dilation  # exact, as are the two steps
        step, tap_step = period * axis.stride // axis.lhs_dilation, every * axis.rhs_dilation // axis.lhs_dilation
        total += _below(axis.size - first, positions, taps, step, tap_step) - _below(-first, positions, taps, step, tap_step)
    return total


def _below(limit: int, n: int, m: int, a: int, b: int) -> int:
    """Pairs (i, j), 0 <= i < n, 0 <= j < m, with i * a + j * b < limit."""
    m = min(m, max(0, -(-limit // b)))  # the others have not even i = 0
    full = min(m, max(0, -(-(limit - (n - 1) * a) // b)))  # these have every i
    rest = m - full
    return full * n + _floor_sum(rest, a, b, limit - (m - 1) * b + a - 1) if rest else full * n


def _floor_sum(n: int, m: int, a: int, b: int) -> int:
    """Sum of (a * i + b) // m over 0 <= i < n, for b >= 0 (Euclid's way: Graham, Knuth, Patashnik, Concrete Mathematics, 3.5)."""
    total = 0
    while n > 0:
        total += n * (n - 1) // 2 * (a // m) + n * (b // m)
        a, b = a % m, b % m
        top = a * n + b
        n, m, a, b = top // m, a, m, top % m
        if a == 0 or m == 0:
            break
    return total


def _taps_per_output(axis: Axis) -> int:
    """The largest number of kernel taps that meet data at one output position, or a bound of it."""
    period = axis.lhs_dilation // gcd(axis.lhs_dilation, axis.rhs_dilation)
    reachable = -(-axis.kernel // period)
    return max(1, min(reachable, axis.size)) if axis.kernel else 0
