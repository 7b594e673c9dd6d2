"""Holds a result against the reference: an error bound that a lost tap breaks, exact equality where sums are exact, and inputs for both.

The bound of a direct algorithm (standard summation analysis, Higham 2002, Accuracy and Stability of Numerical Algorithms, ch. 3-4):

    |y - ref| <= L * (eps_acc * (taps + 1) * conv(|x|, |w|) + (taps + 1) * tiny_acc) + eval + eps_out * |ref| + tiny_out

eps_acc and tiny_acc (smallest normal number) are the accumulator's: float32 for half types; taps is the number of summed
products. L is the activation's Lipschitz constant and eval = 8 * eps_acc * scale the error of evaluating it (scale: below);
both are 1 and 0 without one. Complex numbers are held per component, with the first term and the last doubled. Integers are exact.

An approximate algorithm declares another bound (`Algorithm.bound` names it). "window" has, in place of conv(|x|, |w|),

    4 * sum over c of K * (max |x| over the K taps' window) * (max |w| over the kernel)

since Winograd's transforms add neighbours before they multiply: an output errs by no more than its own window's largest numbers say.
"""

from __future__ import annotations

from math import log2, prod

import numpy as np

from fastconv.problem import ConvProblem
from fastconv.reference import Array, Reference, numpy_dtype, reference, view, wide_dtype

#: The largest slope of each activation, rounded up.
LIPSCHITZ = {None: 1.0, "relu": 1.0, "leaky_relu": 1.0, "tanh": 1.0, "sigmoid": 0.25, "silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}
#: Evaluating an activation may cost this many roundings of the accumulator's precision.
EVALUATION = 8


def is_integer(name: str) -> bool:
    """Whether a dtype name is one of the integers."""
    return name.startswith(("int", "uint"))


def accumulator(problem: ConvProblem) -> str:
    """The real type in which sums are formed: float32, or float64 where an operand or the output is."""
    wide = ("float64", "complex128")
    return "float64" if problem.dtype in wide or problem.out_dtype in wide else "float32"


def _limits(name: str) -> tuple[float, float, float]:
    """eps, smallest normal and largest number of a dtype, of its components if complex."""
    if name == "bfloat16":
        return 2.0**-7, 2.0**-126, float.fromhex("0x1.fep127")
    info = np.finfo(name)
    return float(info.eps), float(info.tiny), float(info.max)


def _magnitude(ref: Reference, kind: str) -> Array:
    """What rounding errors are relative to, for a kind of bound."""
    if kind == "direct":
        return np.abs(ref.magnitude)
    if kind == "window" and ref.peak is not None:
        return 4 * np.abs(ref.peak)
    raise ValueError(f"kind must be 'direct', or 'window' for a reference with its peak, got {kind!r}")


def bound(problem: ConvProblem, ref: Reference, kind: str = "direct") -> Array:
    """The largest error allowed at each output (per component of complex ones); zero for integers. kind: as `Algorithm.bound`."""
    if is_integer(problem.out_dtype):
        return np.zeros(ref.value.shape, np.float64)
    eps_acc, tiny_acc, _ = _limits(accumulator(problem))
    eps_out, tiny_out, _ = _limits(problem.out_dtype)
    double = 2 if problem.out_dtype.startswith("complex") else 1
    count = problem.terms + 1
    with np.errstate(all="ignore"):
        sums = LIPSCHITZ[problem.activation] * (double * eps_acc * count * _magnitude(ref, kind) + count * tiny_acc)
        return sums + EVALUATION * eps_acc * _scale(problem.activation, ref) + double * eps_out * np.abs(ref.value) + tiny_out


def _scale(activation: str | None, ref: Reference) -> Array | float:
    """What the evaluation error of an activation is relative to: its argument, capped where the function is."""
    if activation in (None, "relu"):
        return 0.0
    z = np.abs(ref.total)
    return np.minimum(z, 1) if activation == "tanh" else np.abs(ref.value) if activation == "sigmoid" else z


def spectral_bound(problem: ConvProblem, lhs: Array, rhs: Array) -> Array:
    """What a method by Fourier transforms may add to `bound`, per (g, n, o, *p) with extents of 1 over p (Higham 2002, ch. 24):

        L * eps_acc * log2(n) * ||lhs[g, n]|| * ||rhs[g, o]||, n the product over the axes of size + kernel

    An error is spread evenly over all that was transformed together, so it is relative to norms, not to the output's own sum.
    """
    x, w = (
        np.sqrt((np.abs(view(array, operand, extents).astype(wide_dtype(problem))) ** 2).sum(axis=tuple(range(2, len(extents)))))
        for array, operand, extents in ((lhs, problem.lhs, problem.lhs_extents), (rhs, problem.rhs, problem.rhs_extents))
    )
    norms = (x[:, :, None] * w[:, None, :]).reshape(problem.groups, problem.batch, problem.features, *(1 for _ in problem.axes))
    double = 2 if problem.out_dtype.startswith("complex") else 1
    length = prod(a.size + a.kernel for a in problem.axes)
    return LIPSCHITZ[problem.activation] * double * _limits(accumulator(problem))[0] * log2(max(length, 2)) * norms


def rounded(problem: ConvProblem, value: Array) -> Array:
    """A reference value in the output's dtype; integers wrap."""
    with np.errstate(all="ignore"):
        return value.astype(numpy_dtype(problem.out_dtype))


def mismatch(problem: ConvProblem, got: Array, ref: Reference, exact: bool = False, kind: str = "direct") -> str | None:
    """None, or what is wrong with `got` (shaped like problem.out_extents): the number of wrong outputs and the worst of them.

    exact: the sums were exact (`operands` drew small integers), so the only error left is the rounding to the output's dtype.
    kind: of the bound.
    """
    if got.shape != ref.value.shape:
        return f"shape {got.shape} instead of {ref.value.shape}"
    if got.dtype != numpy_dtype(problem.out_dtype):
        return f"dtype {got.dtype} instead of {problem.out_dtype}"
    if got.size == 0:
        return None
    expected = rounded(problem, ref.value)
    if is_integer(problem.out_dtype) or (exact and problem.activation in (None, "relu")):
        wrong = ~((got == expected) | ((got != got) & (expected != expected)))
        error = np.abs(_wide(got) - _wide(expected))
        return _worst(wrong, error, got, expected, np.zeros(got.shape))
    limit = bound(problem, ref, kind)
    parts = [(np.real, "")] if not problem.out_dtype.startswith("complex") else [(np.real, "real part "), (np.imag, "imaginary part ")]
    for part, label in parts:
        found = _compare(part(_wide(got)), part(ref.value), limit, _limits(problem.out_dtype)[2], bool(label))
        if found is not None:
            text = _worst(*found, got, expected, limit)
            if text is not None:
                return label + text
    return None


def _compare(got: Array, value: Array, limit: Array, largest: float, complex_parts: bool) -> tuple[Array, Array]:
    """Where a result is wrong, and by how much: inf and NaN must be where the definition has them (or where numbers overflow)."""
    with np.errstate(all="ignore"):
        error = np.abs(got - value)
        fine = error <= limit
        if complex_parts:
            special = ~np.isfinite(limit) & ~np.isfinite(got)
        else:
            special = (np.isnan(value) & np.isnan(got)) | (np.isinf(value) & (got == value))
        overflow = (np.abs(value) + limit >= largest) & np.isinf(got) & (np.signbit(got) == np.signbit(value))
        finite = np.isfinite(value) & np.isfinite(got)
    return ~np.where(finite, fine, special | overflow), np.where(np.isnan(error), np.inf, error)


def _wide(array: Array) -> Array:
    """Wide enough to subtract without a further error or wrap."""
    if array.dtype.kind == "c":
        return array.astype(np.clongdouble)
    return array.astype(np.longdouble)


def _worst(wrong: Array, error: Array, got: Array, expected: Array, limit: Array) -> str | None:
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        excess = np.where(wrong, np.nan_to_num(np.abs(error), nan=np.inf) / np.maximum(limit, np.finfo(np.float64).tiny), -1)
    at = tuple(int(i) for i in np.unravel_index(np.argmax(excess), excess.shape))
    return (
        f"{int(wrong.sum())} of {wrong.size} outputs wrong, worst at (g, n, o, *p) = {at}: "
        f"{got[at]} instead of {expected[at]}, error {float(error[at]):.3g}, allowed {float(limit[at]):.3g}"
    )


def check(problem: ConvProblem, got: Array, ref: Reference, exact: bool = False, kind: str = "direct") -> None:
    """Raises AssertionError unless `got` is within the bound of the reference (see `mismatch`)."""
    text = mismatch(problem, got, ref, exact, kind)
    if text is not None:
        raise AssertionError(f"{text}\n  {problem}")


def check_buffers(problem: ConvProblem, lhs: Array, rhs: Array, bias: Array | None, out: Array, exact: bool = False) -> None:
    """`check` on the buffers of a finished call: `out`'s first element is element 0 of the problem's output."""
    check(problem, view(out, problem.out, problem.out_extents), reference(problem, lhs, rhs, bias), exact)


def operand(rng: np.random.Generator, shape: tuple[int, ...] | int, dtype: str, exact: bool) -> Array:
    """Random data. exact: integers from -3 to 3 (0 to 3 unsigned), whose sums of products are exact in every accumulator;
    else normal numbers, and integers of the dtype's whole range (their sums wrap)."""
    target = numpy_dtype(dtype)
    if is_integer(dtype):
        low, high = (0 if dtype.startswith("uint") else -3, 3) if exact else (np.iinfo(target).min, np.iinfo(target).max)
        return rng.integers(low, high, shape, target, endpoint=True)
    real = rng.integers(-3, 4, shape).astype(np.float64) if exact else rng.standard_normal(shape)
    if dtype.startswith("complex"):
        real = real + 1j * (rng.integers(-3, 4, shape) if exact else rng.standard_normal(shape))
    return np.asarray(real).astype(target)
