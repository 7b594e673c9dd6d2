"""Orchestrates a benchmark: contestants in turn within a row, every cell checked before it is timed, results as plain data."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import fastconv
from fastconv.bench.cases import Case
from fastconv.bench.ceilings import Ceilings
from fastconv.bench.devices import product_error
from fastconv.bench.oracle import BUDGET, Oracle
from fastconv.bench.process import Contestant, Died, Overrun, Worker
from fastconv.check import numpy_dtype
from fastconv.reference import Array

#: Version of the layout of a result; raised when the meaning of a key changes.
FORMAT = 2
#: Ours: always measured. Peers: what `--against` chooses from.
OURS = (Contestant("fc", "fastconv.bench.peers.fastconv"), Contestant("jax+fastconv", "fastconv.bench.peers.fastconv_jax"))
PEERS = tuple(Contestant(name, f"fastconv.bench.peers.{name}") for name in ("jax", "torch", "scipy", "opencv", "onnx"))

#: A form this many times slower than its contestant's best one is not timed again, nor is one whose calls take LONG seconds.
HOPELESS, LONG = 1.5, 1.0
#: Seconds that importing a contestant, and writing a result for the check, may take.
START, SAVE = 120.0, 60.0


@dataclass(frozen=True)
class Settings:
    """rounds x slice: how often, and for how many seconds, each form is timed. cap: the longest a call may take, in seconds.

    threads: of every contestant. memory: bytes that a contestant may hold. platform: the device that all compute on, as JAX calls
    it; empty: the CPU. budget: products of the definition, per piece that a result is checked on.
    """

    threads: int
    rounds: int = 4
    slice: float = 0.12
    cap: float = 10.0
    memory: int = 8 << 30
    platform: str = ""
    budget: int = BUDGET

    @property
    def build(self) -> float:
        """Seconds that making a form ready (compilation) may take."""
        return 3 * self.cap


@dataclass
class Cell:
    """One form of one contestant on one row. status: ok | wrong | capped | memory | failed | unsupported."""

    worker: Worker
    form: str
    fft: bool = False
    status: str = "ok"
    note: str = ""
    error: float | None = None
    generation: int = -1
    done: bool = False
    seconds: list[float] = field(default_factory=list)

    def end(self, status: str, note: str) -> None:
        """Nothing more will be measured."""
        self.status, self.note = status, note

    def to_json(self) -> dict[str, Any]:
        """The cell as plain data; times in seconds, error in units of what is allowed."""
        timed = self.status == "ok" and bool(self.seconds)
        return {
            "contestant": self.worker.contestant.name,
            "form": self.form,
            "status": self.status,
            "median": median(self.seconds) if timed else None,
            "minimum": min(self.seconds) if timed else None,
            "calls": len(self.seconds),
            "error": None if self.error is None or not np.isfinite(self.error) else self.error,
            "note": self.note,
        }


def chosen_peers(names: Iterable[str] | None) -> tuple[Contestant, ...]:
    """The peers of these names; all of them for None."""
    if names is None:
        return PEERS
    known = {peer.name: peer for peer in PEERS}
    wanted = tuple(names)
    for name in wanted:
        if name not in known:
            raise ValueError(f"against must name peers among {', '.join(known)}, got {name!r}")
    return tuple(known[name] for name in dict.fromkeys(wanted))


def available_threads() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_memory() -> int:
    """Half of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def bench(
    cases: Sequence[Case],
    contestants: Sequence[Contestant],
    settings: Settings,
    notify: Callable[[str], None] = lambda text: None,
    wanted: Callable[[Case, str], bool] = lambda case, direction: True,
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Measures and returns the result as plain data. `notify` hears what begins: one call per row and direction, and at the start.

    wanted: whether a row and direction is to be measured, asked when its turn comes; one that is not leaves the result incomplete.
    keep: is given the result after each row. An interrupt (Ctrl-C) ends the measurement: what is complete is returned, with
    "complete" false. Raises: ValueError when fastconv finds no device of the platform.
    """
    result = _header(settings)
    skipped = 0
    workers = [Worker(contestant, settings.threads, settings.memory) for contestant in contestants]
    try:
        notify("starting the contestants")
        present = [worker for worker in workers if _started(worker, result["contestants"])]
        if settings.platform:
            _check_device(settings.platform, result["contestants"])
        with tempfile.TemporaryDirectory(prefix="fastconv-bench-") as folder, Ceilings(settings.threads) as ceilings:
            for case in cases:
                for direction in case.directions:
                    if not wanted(case, direction):
                        skipped += 1
                        continue
                    notify(f"{case.name} {direction}")
                    row = _row(case, direction, present, settings, Path(folder) / "result.npy")
                    found = {"flops": None, "bytes": None} if settings.platform else _ceilings(case, direction, ceilings)
                    result["rows"].append({**row, "ceilings": found})
                    keep(result)
        result["complete"] = not skipped
    except KeyboardInterrupt:
        result["complete"] = False
    finally:
        for worker in workers:
            worker.stop()
    return result


def _check_device(platform: str, contestants: list[dict[str, Any]]) -> None:
    """Without a device nothing can be measured; the peers may be absent, fastconv may not."""
    for contestant in contestants:
        if contestant["name"] == OURS[1].name and contestant["absent"] is not None:
            raise ValueError(f"platform must be one that JAX finds a device of, got {platform!r} ({contestant['absent']})")


def _header(settings: Settings) -> dict[str, Any]:
    info = fastconv.info()
    machine = {"cpu": info["cpu"], "isa": info["isa"], "cores": available_threads(), "system": f"{platform.system()} {platform.machine()}"}
    versions = {"fastconv": fastconv.__version__, "python": platform.python_version(), "numpy": np.__version__}
    timing = {"rounds": settings.rounds, "slice": settings.slice, "cap": settings.cap, "memory": settings.memory}
    device = {"platform": settings.platform} if settings.platform else {}
    return {
        **device,
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "complete": False,
        "machine": machine,
        "versions": versions,
        "threads": settings.threads,
        "settings": timing,
        "contestants": [],
        "rows": [],
    }


def _started(worker: Worker, listed: list[dict[str, Any]]) -> bool:
    """Starts a contestant and lists it, with its version or why it is absent."""
    try:
        hello = worker.start(START)
    except (Overrun, Died) as error:
        hello = {"event": "absent", "why": f"did not start: {error}"}
    absent = hello["event"] == "absent"
    if absent:
        worker.stop()
    listed.append({"name": worker.contestant.name, "version": hello.get("version"), "absent": hello["why"] if absent else None})
    return not absent


def _row(case: Case, direction: str, workers: Sequence[Worker], settings: Settings, scratch: Path) -> dict[str, Any]:
    """One row: the forms of everybody, the check of each, then the rounds."""
    row = _Row(case, direction, settings, scratch)
    for worker in workers:
        row.enter(worker)
    row.check()
    for number in range(settings.rounds):
        turn = number % max(1, len(workers))
        for worker in (*workers[turn:], *workers[:turn]):
            with _alone(worker, workers):
                row.time(worker)
    for worker in workers:
        worker.forget()
    return {
        "name": case.name,
        "family": case.family,
        "direction": direction,
        "what": case.describe(),
        "flops": case.flops,
        "touching_flops": case.touching_flops,
        "bytes": case.bytes(direction),
        "cells": [cell.to_json() for cell in row.cells],
    }


@contextmanager
def _alone(worker: Worker, workers: Sequence[Worker]) -> Iterator[None]:
    """The others are paused: threads that wait for work by spinning would take cores from whoever comes next."""
    others = [other for other in workers if other is not worker]
    for other in others:
        other.pause()
    try:
        yield
    finally:
        for other in others:
            other.resume()


def _ceilings(case: Case, direction: str, ceilings: Ceilings) -> dict[str, float | None]:
    """What the machine could do in the moment of a row: flops per second (None for a dtype without tiles), and bytes copied per second."""
    return {"flops": ceilings.flops(case.dtype), "bytes": ceilings.copied(case.bytes(direction))}


class _Row:
    """The cells of one case and direction while they are measured."""

    def __init__(self, case: Case, direction: str, settings: Settings, scratch: Path) -> None:
        self.case, self.direction, self.settings, self.scratch = case, direction, settings, scratch
        self.cells: list[Cell] = []
        self._what = {"case": case.to_json(), "direction": direction}

    def enter(self, worker: Worker) -> None:
        """Adds a cell for each form that a contestant has for this row, or one that says why there is none."""
        cell = Cell(worker, "")
        answer = self._ask(cell, {"do": "forms", **self._what}, self.settings.build)
        if answer is None:
            self.cells.append(cell)
        else:
            self.cells += [Cell(worker, name, fft) for name, fft in answer["forms"]]

    def check(self) -> None:
        """Makes every form ready and judges its first result."""
        cells = self._running()
        if not cells:
            return
        oracle = Oracle(self.case, self.direction, self.settings.budget, product_error(self.settings.platform, self.case.dtype))
        for cell in cells:
            if not self._prepare(cell):
                continue
            cell.error = oracle.error(_loaded(self.scratch, oracle.dtype), cell.fft)
            if cell.error > 1:
                cell.end("wrong", f"error is {cell.error:.3g} times the bound")

    def time(self, worker: Worker) -> None:
        """One round of one contestant: each of its forms for a slice of time."""
        mine = [cell for cell in self._running() if cell.worker is worker and not cell.done]
        for cell in mine:
            if cell.generation != worker.generation and not self._prepare(cell):
                continue
            limit = self.settings.slice + 4 * self.settings.cap
            answer = self._ask(cell, {"do": "time", "form": cell.form, "seconds": self.settings.slice}, limit)
            if answer is not None:
                cell.seconds += answer["seconds"]
        timed = [cell for cell in mine if cell.status == "ok"]
        best = min((median(cell.seconds) for cell in timed), default=0.0)
        for cell in timed:
            cell.done = median(cell.seconds) > min(LONG, HOPELESS * best)

    def _running(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.status == "ok"]

    def _prepare(self, cell: Cell) -> bool:
        """Builds a form in the contestant's process and makes its first call; false if the cell ended."""
        request = {"do": "prepare", **self._what, "form": cell.form, "save": str(self.scratch)}
        if self._ask(cell, request, self.settings.build) is None:
            return False
        called = self._await(cell, self.settings.cap)
        if called is None or self._await(cell, SAVE) is None:
            return False
        cell.generation = cell.worker.generation
        return True

    def _ask(self, cell: Cell, request: dict[str, Any], limit: float) -> dict[str, Any] | None:
        return self._answer(cell, lambda: cell.worker.ask(request, limit), limit)

    def _await(self, cell: Cell, limit: float) -> dict[str, Any] | None:
        return self._answer(cell, lambda: cell.worker.receive(limit), limit)

    def _answer(self, cell: Cell, receive: Callable[[], dict[str, Any]], limit: float) -> dict[str, Any] | None:
        """An answer, or None after it ended the cell."""
        try:
            answer = receive()
        except Overrun as error:
            text = f"> {limit:g} s" if error.what == "time" else f"> {self.settings.memory / 2**30:.3g} GiB"
            cell.end("capped" if error.what == "time" else "memory", text)
        except Died as error:
            cell.end("failed", str(error))
        else:
            status = {"unsupported": "unsupported", "memory": "memory", "error": "failed"}.get(answer["event"])
            if status is None:
                return answer
            cell.end(status, answer["why"])
        return None


def _loaded(path: Path, dtype: str) -> Array:
    """A result that a worker wrote."""
    array = np.load(path)
    return array.view(numpy_dtype(dtype)) if dtype == "bfloat16" and array.dtype == np.uint16 else array
