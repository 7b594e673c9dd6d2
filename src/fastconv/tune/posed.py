"""Hears which problems are posed while a program runs, by either front."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from fastconv import _core
from fastconv._numpy import calls
from fastconv.bench.cases import Case
from fastconv.plan import Plan
from fastconv.problem import ConvProblem
from fastconv.tune.candidates import Race, in_programs, on_arrays


@contextmanager
def hearing(heard: dict[str, Race]) -> Iterator[None]:
    """Within the block every problem that is posed goes into `heard`, once, under its key."""

    def of_arrays(problem: ConvProblem) -> None:
        race = on_arrays(problem)
        if race is not None:
            heard.setdefault(race.key, race)

    def of_programs(avals: Any, params: dict[str, Any], plan: Plan | None) -> None:
        race = None if plan is None else in_programs(avals, params, plan)
        if race is not None:
            heard.setdefault(race.key, race)

    lowering = _lowering()
    calls.posed = of_arrays
    if lowering is not None:
        lowering.posed = of_programs
    try:
        yield
    finally:
        calls.posed = None
        if lowering is not None:
            lowering.posed = None


def _lowering() -> Any:
    """The JAX front's rule, where there is JAX and the library serves it."""
    if find_spec("jax") is None or not _core.has_xla():
        return None
    from fastconv.jax import lowering

    return lowering


def by_script(path: str, argv: Sequence[str]) -> list[Race]:
    """The problems of a script that runs to its end. Raises: FileNotFoundError."""
    return _run(lambda run: run.run_script(path, argv), lambda: _plain(path, argv))


def by_module(name: str, argv: Sequence[str]) -> list[Race]:
    """The problems of `python -m NAME`. Raises: ImportError."""
    return _run(lambda run: run.run_module(name, argv), lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def _run(under_jax: Callable[[Any], object], plain: Callable[[], object]) -> list[Race]:
    heard: dict[str, Race] = {}
    with hearing(heard):
        try:
            if _lowering() is None:
                plain()
            else:
                from fastconv.jax import run

                under_jax(run)
        except SystemExit as status:
            if status.code not in (None, 0):
                print(f"fastconv: the program ended with status {status.code}; what it posed until then is measured", file=sys.stderr)
    return list(heard.values())


def _plain(path: str, argv: Sequence[str]) -> None:
    if not os.path.exists(path):
        raise FileNotFoundError(f"script must be an existing file, got {path!r}")
    sys.argv[:] = [path, *argv]
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    runpy.run_path(path, run_name="__main__")


def by_cases(cases: Sequence[Case]) -> list[Race]:
    """The problems of a suite on NumPy arrays, in both layouts."""
    from fastconv.bench.peers import fastconv as ours

    heard: dict[str, Race] = {}
    with hearing(heard):
        for case in cases:
            for direction in case.directions:
                operands = case.operands(direction)
                for form in ours.forms(case, direction):
                    form.build(case, direction, *operands).step()
    return list(heard.values())
