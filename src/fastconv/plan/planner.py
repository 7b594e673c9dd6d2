"""The choice itself: pure, and the reasons are kept in the plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from os import environ

from fastconv.plan.algorithms import ALGORITHMS
from fastconv.plan.machine import Machine, this_machine
from fastconv.plan.row import Algorithm, refusal
from fastconv.plan.rows.fft import FFT
from fastconv.problem import ConvProblem

#: An approximate algorithm must be so many times as fast as the best exact one: an error needs a reason.
ADVANTAGE = 1.2


def _from_environment() -> str | None:
    name = environ.get("FASTCONV_ALGORITHM") or None
    names = [row.name for row in (*ALGORITHMS, FFT)]
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


@dataclass(frozen=True)
class Plan:
    """A problem with the algorithm chosen for it.

    algorithm: its name. seconds: its modelled cost. workspace_bytes: scratch memory it uses at most, all threads together.
    considered: for every algorithm looked at, its modelled seconds, or the reason why it refused.
    words: the packed problem for the library (empty for an algorithm that is not the library's own).
    """

    problem: ConvProblem
    algorithm: str
    seconds: float
    workspace_bytes: int
    considered: dict[str, str | float] = field(compare=False)
    words: tuple[int, ...] = field(repr=False, compare=False, default=())

    def __str__(self) -> str:
        lines = [f"{self.algorithm}: {self.seconds * 1e6:.1f} us modelled, {self.workspace_bytes} bytes of workspace"]
        for name, verdict in self.considered.items():
            text = verdict if isinstance(verdict, str) else f"{verdict * 1e6:.1f} us modelled"
            lines.append(f"  {name}: {text}")
        return "\n".join(lines)


def choose(problem: ConvProblem, machine: Machine | None = None, extra: tuple[Algorithm, ...] = ()) -> Plan:
    """The cheapest algorithm that does not refuse. `extra` adds rows that are not the library's own (FFT, JAX's XLA row: code < 0).

    An approximate one is taken where it is modelled ADVANTAGE times as fast as every exact one.
    """
    machine = this_machine() if machine is None else machine
    considered: dict[str, str | float] = {}
    eligible: list[tuple[float, Algorithm]] = []
    force = _forced.get()
    for row in (*ALGORITHMS, *extra):
        why = refusal(row, problem, machine)
        if why is None:
            seconds = row.seconds(problem, machine)
            considered[row.name] = seconds
            eligible.append((seconds, row))
        else:
            considered[row.name] = why
    if force is not None and any(row.name == force for _, row in eligible):
        eligible = [(seconds, row) for seconds, row in eligible if row.name == force]
    else:
        exact = min((seconds for seconds, row in eligible if not row.approximate), default=inf)
        for seconds, row in [pair for pair in eligible if pair[1].approximate and pair[0] <= exact < pair[0] * ADVANTAGE]:
            eligible.remove((seconds, row))
            considered[row.name] = f"approximate, and only {exact / seconds:.2f} times as fast as the best exact algorithm"
    if not eligible:
        raise ValueError(f"no algorithm can run this problem: {considered}")
    seconds, best = min(eligible, key=lambda pair: pair[0])
    words = problem.words(best.code) if best.code >= 0 else ()
    return Plan(problem, best.name, seconds, best.workspace(problem, machine), considered, words)
