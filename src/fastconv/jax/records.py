"""What became of each convolution: kept while programs are compiled, shown by `report`.

Nothing is done while they run, unless they are compiled under `timing`: their calls then go through a handler that counts them by
a key made of the convolution and its line. The key is the same in every process, so a compiled program that JAX keeps on disk
counts right wherever it is loaded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import Any

from fastconv import _core
from fastconv.jax import _compat, source
from fastconv.jax.forms import Convolution, Report
from fastconv.plan import Plan
from fastconv.problem import ConvProblem

#: Convolutions remembered; the oldest are forgotten first, so that a program that keeps compiling does not keep growing.
LIMIT = 4096

#: Whether calls of programs compiled from now on are counted; part of the key of every cache of JAX.
timing = _compat.user_context(False)


@dataclass(slots=True)
class Seen:
    """What is remembered beside a row. counted: some program counts its calls. plan: the one made, if any."""

    compiled: int
    counted: bool
    avals: tuple[Any, Any, Any]
    params: dict[str, Any]
    plan: Plan | None


_lock = Lock()
_seen: OrderedDict[Convolution, Seen] = OrderedDict()


def report(*, compare: bool = False) -> Report:
    """What ran where: per distinct convolution compiled under `install` its source line, shapes, direction, and algorithm, or why XLA
    got it; after `install(timing=True)` also calls and time of the library's kernels, once what is still running has ended.

    compare: times each distinct shape alone, on the engine and in XLA, on fresh random operands; takes about a second a shape, longer
    where a single call does.

    >>> import fastconv.jax as fj
    >>> print(fj.report().summary)  # doctest: +SKIP
    3 of 3 distinct convolutions run on fastconv
    """
    if timing.value:
        _compat.finish_running()
    with _lock:
        rows = [(row, replace(seen)) for row, seen in _seen.items()]
    shown = [_with_counts(row, seen) for row, seen in rows]
    if compare:
        from fastconv.jax.compare import medians

        found = medians([seen for _, seen in rows])
        shown = [replace(row, engine_median=ours, xla_median=xla) for row, (ours, xla) in zip(shown, found, strict=True)]
    return Report(tuple(shown))


def _with_counts(row: Convolution, seen: Seen) -> Convolution:
    calls, total = _core.counted(key_of(row)) if seen.counted else (None, None)
    return replace(row, compiled=seen.compiled, calls=calls, total=total)


def clear() -> None:
    """Forgets the convolutions seen so far, and their calls."""
    with _lock:
        _seen.clear()
        _core.clear_counts()


def key_of(row: Convolution) -> int:
    """The number that the library counts a convolution's calls under: 63 bits of a digest."""
    return int.from_bytes(blake2b(repr(row).encode(), digest_size=8).digest(), "little") >> 1


def record(ctx: Any, params: dict[str, Any], decision: Any, counts: bool = False) -> int:
    """Remembers a decision of `lowering.decide` (a Plan, or a Decline that may carry one), and returns the convolution's key.

    counts: the program counts its calls.
    """
    kind, reason = getattr(decision, "kind", None), getattr(decision, "text", None)
    plan = decision if kind is None else decision.plan
    xla = None if plan is None else plan.considered.get("xla")
    lhs, rhs, aval_out = *ctx.avals_in, ctx.avals_out[0]
    row = Convolution(
        source=source.line(ctx),
        direction=direction(params["dimension_numbers"]),
        lhs=_shape(lhs),
        rhs=_shape(rhs),
        out=_shape(aval_out),
        dtype=str(lhs.dtype) if lhs.dtype == aval_out.dtype else f"{lhs.dtype}->{aval_out.dtype}",
        geometry=_geometry(params) + ("" if plan is None else _epilogue(plan.problem)),
        algorithm=plan.algorithm if kind is None and plan is not None else "xla",
        kind=kind,
        reason=reason,
        products=None if plan is None else plan.problem.products,
        seconds=None if plan is None else plan.seconds,
        xla_seconds=xla if isinstance(xla, float) else None,
    )
    with _lock:
        seen = _seen.setdefault(row, Seen(0, False, (lhs, rhs, aval_out), params, plan))
        seen.compiled += 1
        seen.counted |= counts
        while len(_seen) > LIMIT:
            _seen.popitem(last=False)
    return key_of(row)


def direction(numbers: Any) -> str:
    """JAX's derivatives are convolutions whose dimension numbers are turned round: batch and feature of lhs in the weight gradient,
    output and input feature of rhs in the input gradient. Judged against the usual orders: N first; OI before or IO behind the taps."""
    if numbers.lhs_spec[0] != 0:
        return "dw"
    out_feature, in_feature = numbers.rhs_spec[:2]
    taps_first = min(numbers.rhs_spec[2:], default=len(numbers.rhs_spec)) == 0
    return "dx" if (out_feature < in_feature) == taps_first else "fwd"


def _shape(aval: Any) -> tuple[Any, ...]:
    return tuple(extent if isinstance(extent, int) else str(extent) for extent in aval.shape)


def _geometry(params: dict[str, Any]) -> str:
    """Dimension numbers and whatever differs from the plainest convolution."""
    numbers = params["dimension_numbers"]
    text = ["".join(_letters(spec, first)) for spec, first in zip(numbers, ("NC", "OI", "NC"), strict=True)]
    parts = [f"{text[0]},{text[1]}->{text[2]}"]
    for name, plain in (("window_strides", 1), ("padding", (0, 0)), ("lhs_dilation", 1), ("rhs_dilation", 1)):
        values = tuple(params[name])
        if any(value != plain for value in values):
            shown = ",".join(f"{value[0]}:{value[1]}" if isinstance(value, (tuple, list)) else str(value) for value in values)
            parts.append(f"{name.removeprefix('window_')} {shown}")
    parts += [f"{name} {params[name]}" for name in ("feature_group_count", "batch_group_count") if params[name] != 1]
    return " ".join(parts)


def _epilogue(problem: ConvProblem) -> str:
    return "".join([" bias" if problem.bias_stride is not None else "", f" {problem.activation}" if problem.activation else ""])


def _letters(spec: Sequence[int], first: str) -> list[str]:
    letters = [""] * len(spec)
    for letter, position in zip([*first, *map(str, range(len(spec) - 2))], spec, strict=True):
        letters[position] = letter
    return letters
