"""The choice itself: pure, and the reasons are kept in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from os import environ

from fastconv.plan import wisdom
from fastconv.plan.accelerators import PROGRAMS
from fastconv.plan.algorithms import ALGORITHMS
from fastconv.plan.machine import Machine, this_machine
from fastconv.plan.row import Algorithm, refusal
from fastconv.plan.rows.fft import FFT
from fastconv.problem import ConvProblem

#: An approximate algorithm must be so many times as fast as the best exact one: an error needs a reason.
ADVANTAGE = 1.2


def _from_environment() -> str | None:
    name = environ.get("FASTCONV_ALGORITHM") or None
    names = [*(row.name for row in (*ALGORITHMS, FFT)), *PROGRAMS]
    if name is not None and name not in names:
        raise ImportError(f"FASTCONV_ALGORITHM must be one of {', '.join(names)}, got {name!r}")
    return name


_DEFAULT: str | None = _from_environment()
_forced: ContextVar[str | None] = ContextVar("fastconv_forced_algorithm", default=_DEFAULT)


@contextmanager
def forced(name: str | None) -> Iterator[None]:
    """Within the block every plan uses the named algorithm (where it does not refuse); for tests and measurements."""
    token = _forced.set(name)
    try:
        yield
    finally:
        _forced.reset(token)


def forced_name() -> str | None:
    """The algorithm forced by `forced` or FASTCONV_ALGORITHM; part of the key of any cache of plans."""
    return _forced.get()


class Measured(float):
    """Seconds that `fastconv tune` measured, not modelled ones."""

    __slots__ = ()


@dataclass(frozen=True)
class Plan:
    """A problem with the algorithm chosen for it.

    algorithm: its name. seconds: its cost, modelled, or measured by `fastconv tune` (then a `Measured`). workspace_bytes: scratch
    memory it uses at most, all threads together. bound: the error bound that it holds (`fastconv.check`).
    considered: for every algorithm looked at, its seconds, or the reason why it was not taken.
    words: the packed problem for the library (empty for an algorithm that is not the library's own).
    """

    problem: ConvProblem
    algorithm: str
    seconds: float
    workspace_bytes: int
    considered: dict[str, str | float] = field(compare=False)
    words: tuple[int, ...] = field(repr=False, compare=False, default=())
    bound: str = "direct"

    def __str__(self) -> str:
        lines = [f"{self.algorithm}: {timing(self.seconds)}, {self.workspace_bytes} bytes of workspace"]
        for name, verdict in self.considered.items():
            text = verdict if isinstance(verdict, str) else timing(verdict)
            lines.append(f"  {name}: {text}")
        return "\n".join(lines)


def timing(seconds: float) -> str:
    """Seconds in words that say where they are from."""
    return f"{seconds * 1e6:.1f} us {'measured' if isinstance(seconds, Measured) else 'modelled'}"


def choose(
    problem: ConvProblem, machine: Machine | None = None, extra: tuple[Algorithm, ...] = (), rows: tuple[Algorithm, ...] = ALGORITHMS
) -> Plan:
    """The cheapest algorithm that does not refuse. `extra` adds rows that are not the library's own (FFT, JAX's XLA row: code < 0);
    `rows` are the library's, or none where it cannot run.

    An approximate one is taken where it is modelled ADVANTAGE times as fast as every exact one. On this machine (None) what
    `fastconv tune` measured goes before the models.
    """
    winner = None
    if machine is None:
        machine = this_machine()
        known = wisdom.table(machine)
        winner = known.get(wisdom.key(problem, extra)) if known else None
    considered: dict[str, str | float] = {}
    eligible: list[tuple[float, Algorithm]] = []
    force = _forced.get()
    for row in (*rows, *extra):
        why = refusal(row, problem, machine)
        if why is None:
            measured = None if winner is None else winner.seconds.get(row.name)
            seconds = row.seconds(problem, machine) if measured is None else Measured(measured)
            considered[row.name] = seconds
            eligible.append((seconds, row))
        else:
            considered[row.name] = why
    if not eligible:
        raise ValueError(f"no algorithm can run this problem: {considered}")
    seconds, best = _taken(eligible, force) or _taken(eligible, winner and winner.algorithm) or fastest(eligible, considered)
    words = problem.words(best.code) if best.code >= 0 else ()
    return Plan(problem, best.name, seconds, best.workspace(problem, machine), considered, words, best.bound)


def _taken(eligible: list[tuple[float, Algorithm]], name: str | None) -> tuple[float, Algorithm] | None:
    return next((pair for pair in eligible if pair[1].name == name), None)


def fastest(eligible: list[tuple[float, Algorithm]], considered: dict[str, str | float]) -> tuple[float, Algorithm]:
    """The row of the fewest seconds; approximate ones that gain too little are passed over, and `considered` says so."""
    exact = min((seconds for seconds, row in eligible if not row.approximate), default=inf)
    left = []
    for seconds, row in eligible:
        if row.approximate and seconds <= exact < seconds * ADVANTAGE:
            considered[row.name] = f"approximate, and only {exact / seconds:.2f} times as fast as the best exact algorithm"
        else:
            left.append((seconds, row))
    return min(left, key=lambda pair: pair[0])
