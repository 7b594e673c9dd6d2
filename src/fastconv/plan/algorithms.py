"""The algorithms of the library as rows: a refusal (text or None) and predicted seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fastconv.plan.machine import Machine
from fastconv.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Algorithm:
    """`refuse` says why the algorithm cannot run a problem, or None; `seconds` is its modelled cost; `workspace` its scratch bytes."""

    name: str
    code: int
    refuse: Callable[[ConvProblem, Machine], str | None]
    seconds: Callable[[ConvProblem, Machine], float]
    workspace: Callable[[ConvProblem, Machine], int]


def _general_seconds(problem: ConvProblem, machine: Machine) -> float:
    return machine.call_seconds + 2 * problem.products / (machine.gflops * 1e9) * 40


ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("general", 0, lambda problem, machine: None, _general_seconds, lambda problem, machine: 1 << 16),
)
