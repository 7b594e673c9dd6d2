"""The report and the forms it is written in: a table of text, JSON, a page of HTML."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

from fastconv.jax import source


@dataclass(frozen=True, slots=True)
class Convolution:
    """One distinct convolution on one line of the program.

    source: FILE:LINE of the user's own code, None where JAX kept no trace of it.
    direction: "fwd", "dx" (input gradient) or "dw" (weight gradient), as far as the operation shows it: a transposed convolution
    written over a forward kernel looks like an input gradient, because it is one.
    algorithm: the engine's, or "xla" with the `kind` of reason and its text. products: multiplications that touch data.
    seconds: the algorithm's modelled time; xla_seconds: XLA's. None where no plan was made. compiled: how often it was compiled.
    calls, total: how often the library's kernel ran, and seconds in it; None where XLA's did, or where nothing was counted.
    engine_median, xla_median: measured seconds of one call alone, on the engine and in XLA; None where not compared.
    """

    source: str | None
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
    compiled: int = 0
    calls: int | None = None
    total: float | None = None
    engine_median: float | None = None
    xla_median: float | None = None


#: Columns of the table and what stands in them.
_COLUMNS: dict[str, Callable[[Convolution], str]] = {
    "source": lambda row: source.shown(row.source),
    "direction": lambda row: row.direction,
    "lhs": lambda row: _shape(row.lhs),
    "rhs": lambda row: _shape(row.rhs),
    "out": lambda row: _shape(row.out),
    "dtype": lambda row: row.dtype,
    "geometry": lambda row: row.geometry,
    "ran": lambda row: row.algorithm,
    "calls": lambda row: "-" if row.calls is None else str(row.calls),
    "total ms": lambda row: _scaled(row.total, 1e3, 2),
    "compiled": lambda row: str(row.compiled),
    "modelled us": lambda row: _scaled(row.seconds, 1e6, 1),
    "modelled xla us": lambda row: _scaled(row.xla_seconds, 1e6, 1),
    "measured us": lambda row: _scaled(row.engine_median, 1e6, 1),
    "measured xla us": lambda row: _scaled(row.xla_median, 1e6, 1),
    "reason": lambda row: "" if row.reason is None else f"{row.kind}: {row.reason}",
}
_MEASURED = ("measured us", "measured xla us")


@dataclass(frozen=True, slots=True)
class Report:
    """The convolutions compiled so far, oldest first. `str()` is a table; `write` picks the form by the file's suffix."""

    convolutions: tuple[Convolution, ...]

    def __str__(self) -> str:
        if not self.convolutions:
            return "no convolution was compiled under fastconv"
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
        return "\n".join([*lines, self.summary])

    @property
    def summary(self) -> str:
        """One line: how many run on the engine, and what it took where that was counted."""
        ours = sum(row.algorithm != "xla" for row in self.convolutions)
        text = f"{ours} of {len(self.convolutions)} distinct convolutions run on fastconv"
        counted = [(row.calls, row.total) for row in self.convolutions if row.calls is not None and row.total is not None]
        if counted:
            text += f", {sum(calls for calls, _ in counted)} calls in {sum(total for _, total in counted):.3f} s"
        return text

    def json(self) -> str:
        """A list with one object per convolution."""
        return json.dumps([asdict(row) for row in self.convolutions], indent=1)

    def html(self) -> str:
        """A page of its own."""
        head, *body = self._cells()
        rows = "\n".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in body)
        style = "body{font-family:sans-serif}td,th{padding:.2em .7em;text-align:left;border-bottom:1px solid #ccc}"
        return (
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>fastconv report</title><style>{style}</style>\n'
            f"<h1>Convolutions</h1>\n<p>{escape(self.summary)}</p>\n<table>\n"
            f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>\n{rows}\n</table>\n</html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Writes the report as .json, .html or .txt, whole or not at all. Raises: ValueError on another suffix, OSError."""
        check_suffix(path)
        text = {".json": self.json, ".html": self.html}.get(Path(path).suffix, self.__str__)()
        target = Path(path).resolve()
        beside = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            beside.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
            os.replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)

    def _cells(self) -> list[list[str]]:
        """The headings and one line per convolution; columns that were not asked for are left out."""
        compared = any(row.engine_median or row.xla_median for row in self.convolutions)
        names = [name for name in _COLUMNS if compared or name not in _MEASURED]
        return [names, *([_COLUMNS[name](row) for name in names] for row in self.convolutions)]


def check_suffix(path: str | Path) -> None:
    """Refuses a report file whose suffix names no form."""
    if Path(path).suffix not in (".json", ".html", ".txt"):
        raise ValueError(f"report must be a file called .json, .html or .txt, got {str(path)!r}")


def check_place(path: str | Path) -> None:
    """Refuses a report file that could not be written: known before a program runs for hours."""
    check_suffix(path)
    place = Path(path).resolve()
    if place.is_dir() or not place.parent.is_dir() or not os.access(place.parent, os.W_OK):
        raise ValueError(f"report must be a file that can be written, got {str(path)!r}")


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def _scaled(seconds: float | None, scale: float, digits: int) -> str:
    return "-" if seconds is None else f"{seconds * scale:.{digits}f}"
