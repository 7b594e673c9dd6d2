"""What `fastconv soak` checks of its options and shows of its result."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection

from fastconv.plan import ALGORITHMS
from fastconv.problem import DTYPES
from fastconv.soak.hold import Local
from fastconv.soak.remote import Remote
from fastconv.soak.run import FAMILIES, Result, soak


def run(
    minutes: float,
    problems: int,
    seed: int | None,
    fences: bool,
    runner: str | None,
    names: Collection[str],
    levels: Collection[str],
    families: Collection[str],
    dtypes: Collection[str],
) -> bool:
    """Runs the soak and prints its table; False when a driver was wrong."""
    if not 0 <= minutes < float("inf"):
        raise ValueError(f"minutes must be at least 0 and finite, got {minutes:g}")
    if problems < 0:
        raise ValueError(f"problems must be at least 0, got {problems}")
    if seed is not None and seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    rows = [row.name for row in ALGORITHMS]
    if fences and runner is not None:
        raise ValueError("fences must be left out with a runner: its process has its own memory")
    engine = Local() if runner is None else Remote(runner)
    for option, given, known in (
        ("algorithm", names, rows),
        ("isa", levels, engine.isas),
        ("family", families, FAMILIES),
        ("dtype", dtypes, DTYPES),
    ):
        for value in given:
            if value not in known:
                raise ValueError(f"{option} must be one of {', '.join(known)}, got {value!r}")
    first = int(time.time()) if seed is None else seed
    print(f"seed {first}", flush=True)
    result = soak(
        minutes=minutes,
        seed=first,
        least=problems,
        fences=fences,
        engine=engine,
        names=names,
        levels=levels,
        families=families,
        dtypes=dtypes,
        progress=_progress if sys.stderr.isatty() else lambda result: None,
    )
    show(result)
    return result.failure is None


def _progress(result: Result) -> None:
    done = sum(tally.problems for tally in result.tallies.values())
    print(f"\r{done} runs", end="", file=sys.stderr, flush=True)


def show(result: Result) -> None:
    """The table: problems and worst error over its bound, per driver and level; then the failure, if any."""
    print(f"{'algorithm':<12} {'level':<8} {'problems':>8} {'worst error / bound':>20}")
    for (name, level), tally in sorted(result.tallies.items()):
        print(f"{name:<12} {level:<8} {tally.problems:>8} {tally.ratio:>20.3f}")
    print("no error above its bound, no stray access" if result.failure is None else f"FAILED\n{result.failure}")
