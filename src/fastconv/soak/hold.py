"""One problem through every algorithm that takes it: each level, one thread and two, against the definition."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np

from fastconv import _core
from fastconv.check import bound, is_integer, mismatch
from fastconv.plan import ALGORITHMS, Algorithm, this_machine
from fastconv.problem import ConvProblem
from fastconv.reference import Array, Reference, reference, view, with_peak
from fastconv.soak.draws import Buffers
from fastconv.soak.memory import Cells, copied

Elements = tuple[int, int, int]


class Held(NamedTuple):
    """A run that was right. ratio: its worst error over the bound allowed there (0 where sums were exact)."""

    algorithm: str
    level: str
    ratio: float


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    _core.set_threads(n)
    try:
        yield
    finally:
        _core.set_threads(0)


def algorithms(problem: ConvProblem, names: Collection[str] = ()) -> list[Algorithm]:
    """The rows that do not refuse the problem; of `names` only, where any are given."""
    return [row for row in ALGORITHMS if (not names or row.name in names) and row.refuse(problem, this_machine()) is None]


class Engine(Protocol):
    """A library that runs problems: `Local`, or one in another process (`remote.Remote`)."""

    isas: tuple[str, ...]

    def run(self, problem: ConvProblem, code: int, level: str, threads: int, data: Buffers, cells: Cells) -> str | None:
        """Fills `cells`; the message of a call that failed, or None."""
        ...


class Local:
    """The library of this process."""

    def __init__(self) -> None:
        self.isas = _core.isas()

    def run(self, problem: ConvProblem, code: int, level: str, threads: int, data: Buffers, cells: Cells) -> str | None:
        """One call at a level with a number of threads."""
        with _core.isa_level(level), using_threads(threads):
            return called(problem, code, data, cells)


def called(problem: ConvProblem, code: int, data: Buffers, cells: Cells) -> str | None:
    """One call of this process's library as it is set; the message of a call that failed, or None."""
    words = problem.words(code)
    sizes = (data.lhs.size, data.rhs.size, 0 if data.bias is None else data.bias.size, cells.array.size)
    failed = _core.conv(
        (ctypes.c_int64 * len(words))(*words),
        len(words),
        data.lhs.ctypes.data,
        data.rhs.ctypes.data,
        None if data.bias is None else data.bias.ctypes.data,
        cells.array.ctypes.data,
        (ctypes.c_int64 * 8)(*[bound for size in sizes for bound in (0, size)]),
    )
    return str(_core.error()) if failed else None


def run(problem: ConvProblem, code: int, data: Buffers, elements: int, place: str = "guarded") -> Array:
    """The output buffer after one call of the library as it is set; all cells that are no output are found untouched."""
    cells = Cells(problem.out_dtype, elements, place)
    return _held_cells(problem, called(problem, code, data, cells), cells)


def _held_cells(problem: ConvProblem, message: str | None, cells: Cells) -> Array:
    assert message is None, f"{message}\n{problem}"
    assert cells.untouched(lambda like: view(like, problem.out, problem.out_extents)), f"cells that are no output were written\n{problem}"
    return cells.array


def hold(
    problem: ConvProblem,
    elements: Elements,
    data: Buffers,
    exact: bool,
    *,
    levels: Collection[str] = (),
    names: Collection[str] = (),
    places: Collection[str] = ("guarded",),
    engine: Engine | None = None,
    starting: Callable[[str], None] = lambda text: None,
) -> list[Held]:
    """Runs every algorithm at every level, and raises AssertionError unless each result is within its bound of the definition and
    bitwise the same for one thread and two. exact: the sums are (`fill` drew small integers). places: how buffers lie (`Cells`).
    engine: whose library runs. starting: told which run comes next, for whoever finds a dead process."""
    rows = algorithms(problem, names)
    if not rows:
        return []
    expected = reference(problem, *data)
    if any(row.bound == "window" for row in rows):
        expected = with_peak(expected, problem, *data)
    laid = {place: data if place == "guarded" else _copied(data, place) for place in places}
    held = []
    engine = engine or Local()
    for level, row in product(levels or engine.isas, rows):
        ratio = 0.0
        for place, buffers in laid.items():
            what = f"{row.name} on {level}, buffers {place}"
            starting(what)
            alone, shared = (_run(engine, problem, row.code, level, threads, buffers, elements[2], place) for threads in (1, 2))
            assert alone.tobytes() == shared.tobytes(), f"{what}: 2 threads differ from 1\n{problem}"
            got = view(alone, problem.out, problem.out_extents)
            wrong = mismatch(problem, got, expected, exact, row.bound)
            assert wrong is None, f"{what}: {wrong}\n{problem}"
            ratio = max(ratio, 0.0 if exact else _ratio(problem, got, expected, row.bound))
        held.append(Held(row.name, level, ratio))
    return held


def _copied(data: Buffers, place: str) -> Buffers:
    return Buffers(*(None if array is None else copied(array, place) for array in data))  # type: ignore[arg-type]


def _run(engine: Engine, problem: ConvProblem, code: int, level: str, threads: int, data: Buffers, elements: int, place: str) -> Array:
    cells = Cells(problem.out_dtype, elements, place)
    return _held_cells(problem, engine.run(problem, code, level, threads, data, cells), cells)


def _ratio(problem: ConvProblem, got: Array, expected: Reference, kind: str) -> float:
    if got.size == 0 or is_integer(problem.out_dtype):
        return 0.0
    with np.errstate(all="ignore"):
        wide = got.astype(np.clongdouble if got.dtype.kind == "c" else np.longdouble)
        ratio = np.abs(wide - expected.value) / bound(problem, expected, kind)
    return float(np.max(ratio, where=np.isfinite(ratio), initial=0.0))
