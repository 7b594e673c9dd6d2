"""What became of each convolution: kept while programs are compiled, shown by `report`; nothing is done while they run."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from threading import Lock
from typing import Any

#: Convolutions remembered; the oldest are forgotten first, so that a program that keeps compiling does not keep growing.
LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Convolution:
    """One distinct convolution.

    direction: "fwd", "dx" (input gradient) or "dw" (weight gradient), as far as the operation shows it: a transposed convolution
    written over a forward kernel looks like an input gradient, because it is one.
    algorithm: the engine's, or "xla" with the `kind` of reason and its text. products: multiplications that touch data.
    seconds: the algorithm's modelled time; xla_seconds: XLA's. None where no plan was made. compiled: how often it was compiled.
    """

    direction: str
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]
    dtype: str
    geometry: str
    algorithm: str
    kind: str | None
    reason: str | None
    products: int | None
    seconds: float | None
    xla_seconds: float | None
    compiled: int


@dataclass(frozen=True, slots=True)
class Report:
    """The convolutions compiled so far, oldest first. `str()` is a table; `write` picks the form by the file's suffix."""

    convolutions: tuple[Convolution, ...]

    def __str__(self) -> str:
        if not self.convolutions:
            return "no convolution was compiled under fastconv"
        cells = [_HEADINGS, *(_cells(row) for row in self.convolutions)]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: how many run on the engine."""
        ours = sum(row.algorithm != "xla" for row in self.convolutions)
        return f"{ours} of {len(self.convolutions)} distinct convolutions run on fastconv"

    def json(self) -> str:
        """A list with one object per convolution."""
        return json.dumps([asdict(row) for row in self.convolutions], indent=1)

    def html(self) -> str:
        """A page of its own."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in _HEADINGS)
        rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) + "</tr>" for row in self.convolutions)
        style = "body{font-family:sans-serif}td,th{padding:.2em .7em;text-align:left;border-bottom:1px solid #ccc}"
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>fastconv report</title><style>{style}</style>\n'
            f"<h1>Convolutions</h1>\n<p>{escape(self.summary)}</p>\n<table>\n<tr>{head}</tr>\n{rows}\n</table>\n</html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Writes the report as .json, .html or .txt. Raises: ValueError on another suffix."""
        check_suffix(path)
        text = {".json": self.json, ".html": self.html}.get(Path(path).suffix, self.__str__)()
        Path(path).write_text(text if text.endswith("\n") else text + "\n")


_HEADINGS = ("where", "direction", "lhs", "rhs", "out", "dtype", "geometry", "compiled", "modelled us", "xla us", "reason")


def _cells(row: Convolution) -> tuple[str, ...]:
    shapes = ("x".join(map(str, shape)) for shape in (row.lhs, row.rhs, row.out))
    times = ("-" if seconds is None else f"{seconds * 1e6:.1f}" for seconds in (row.seconds, row.xla_seconds))
    return (row.algorithm, row.direction, *shapes, row.dtype, row.geometry, str(row.compiled), *times, row.reason or "")


def check_suffix(path: str | Path) -> None:
    """Refuses a report file whose suffix names no form."""
    if Path(path).suffix not in (".json", ".html", ".txt"):
        raise ValueError(f"report must be a file called .json, .html or .txt, got {str(path)!r}")


def check_place(path: str | Path) -> None:
    """Refuses a report file that could not be written: known before a program runs for hours."""
    check_suffix(path)
    place = Path(path)
    if place.is_dir() or not place.parent.is_dir() or not os.access(place if place.exists() else place.parent, os.W_OK):
        raise ValueError(f"report must be a file that can be written, got {str(path)!r}")


_lock = Lock()
_counts: OrderedDict[Convolution, int] = OrderedDict()  # keyed by a Convolution whose `compiled` is 0


def report() -> Report:
    """What ran where: per distinct convolution compiled under `install` its shapes, direction, and algorithm, or why XLA got it.

    >>> import fastconv.jax as fj
    >>> print(fj.report().summary)  # doctest: +SKIP
    3 of 3 distinct convolutions run on fastconv
    """
    with _lock:
        return Report(tuple(replace(row, compiled=count) for row, count in _counts.items()))


def clear() -> None:
    """Forgets the convolutions seen so far."""
    with _lock:
        _counts.clear()


def record(avals_in: Sequence[Any], aval_out: Any, params: dict[str, Any], decision: Any) -> None:
    """Remembers a decision of `lowering.decide` (a Plan, or a Decline that may carry one)."""
    kind, reason = getattr(decision, "kind", None), getattr(decision, "text", None)
    plan = decision if kind is None else decision.plan
    xla = None if plan is None else plan.considered.get("xla")
    lhs, rhs = avals_in
    row = Convolution(
        direction=direction(params["dimension_numbers"]),
        lhs=_shape(lhs),
        rhs=_shape(rhs),
        out=_shape(aval_out),
        dtype=str(lhs.dtype) if lhs.dtype == aval_out.dtype else f"{lhs.dtype}->{aval_out.dtype}",
        geometry=_geometry(params),
        algorithm=plan.algorithm if kind is None and plan is not None else "xla",
        kind=kind,
        reason=reason,
        products=None if plan is None else plan.problem.products,
        seconds=None if plan is None else plan.seconds,
        xla_seconds=xla if isinstance(xla, float) else None,
        compiled=0,
    )
    with _lock:
        _counts[row] = _counts.get(row, 0) + 1
        while len(_counts) > LIMIT:
            _counts.popitem(last=False)


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


def _letters(spec: Sequence[int], first: str) -> list[str]:
    letters = [""] * len(spec)
    for letter, position in zip([*first, *map(str, range(len(spec) - 2))], spec, strict=True):
        letters[position] = letter
    return letters
