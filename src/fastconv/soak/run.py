"""The soak: rounds of random problems until the time is up and every driver has had its share; a failure is shrunk by Hypothesis."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from fastconv.plan import ALGORITHMS
from fastconv.problem import ConvProblem
from fastconv.rewrite import input_gradient, weight_gradient
from fastconv.soak.child import in_child
from fastconv.soak.draws import SHAPES, fill, geometries, shapes, with_dtype
from fastconv.soak.hold import Elements, Engine, Held, Local, algorithms, hold

FAMILIES = ("any", *SHAPES)
#: Problems of one round: a family of shapes and a dtype.
ROUND = 40
DTYPES = ("float32", "float64", "float32", "bfloat16", "float32", "float16", "float64", "complex64", "int8", "int32", "complex128")


@dataclass
class Tally:
    """Problems that a driver ran at a level, and the worst error over its bound."""

    problems: int = 0
    ratio: float = 0.0


@dataclass
class Result:
    """What a soak did: tallies by (algorithm, level), the seed to begin with to see it again, and the text of a failure."""

    seed: int
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)
    failure: str | None = None

    def add(self, held: Held) -> None:
        tally = self.tallies.setdefault((held.algorithm, held.level), Tally())
        tally.problems += 1
        tally.ratio = max(tally.ratio, held.ratio)

    def problems(self, name: str, level: str) -> int:
        """Problems that a driver ran at a level."""
        return self.tallies.get((name, level), Tally()).problems

    def poorest(self, names: Collection[str], levels: Collection[str]) -> tuple[str, str]:
        """The driver and level with the fewest problems."""
        return min(((name, level) for level in levels for name in names), key=lambda key: self.problems(*key))


@st.composite
def problems(draw: st.DrawFn, family: str, dtype: str) -> tuple[ConvProblem, Elements]:
    """A problem of a family ("any" or one of SHAPES), or one of its gradients, in a dtype."""
    wide = dtype in ("float32", "float64")  # the others' references are slow
    role = draw(st.sampled_from(("forward", "forward", "input gradient", "weight gradient"))) if wide else "forward"
    epilogue = role == "forward"
    if family == "any":
        forward, (lhs, rhs, out) = draw(geometries(1 << 18 if wide else 1 << 15, epilogue, repeats=epilogue))
    else:
        forward, (lhs, rhs, out) = draw(shapes(family, 1 << 20 if wide else 1 << 16, epilogue))
    problem = with_dtype(forward, dtype, "int32" if dtype == "int8" and draw(st.booleans()) else None)
    if role == "input gradient":
        return input_gradient(problem), (out, rhs, lhs)
    if role == "weight gradient":
        return weight_gradient(problem), (lhs, out, rhs)
    return problem, (lhs, rhs, out)


def soak(
    *,
    minutes: float,
    seed: int,
    least: int = 0,
    fences: bool = False,
    engine: Engine | None = None,
    names: Collection[str] = (),
    levels: Collection[str] = (),
    families: Collection[str] = (),
    dtypes: Collection[str] = (),
    progress: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Draws problems from `seed` on for `minutes`, and on until every driver has run `least` at every level.

    fences: buffers lie between inaccessible pages, flush left and flush right, and each problem runs in a process of its own.
    engine: whose library runs; this process's by default. names, levels, families, dtypes: only these drivers, levels, families of
    shapes, dtypes. progress: called after each round.
    The first failure ends it, shrunk.
    """
    names = names or [row.name for row in ALGORITHMS]
    engine = engine or Local()
    levels = levels or engine.isas
    result = Result(seed)
    end = time.monotonic() + 60 * minutes
    pairs = [(dtype, family) for dtype in dtypes or DTYPES for family in families or FAMILIES]
    yields: dict[tuple[str, str], int] = {}  # problems that a pair's last round gave to the poorest driver
    lacking: Collection[str] = names  # from when all have had their time on, only these run
    for turn in count():
        dtype, family = pairs[turn % len(pairs)]
        if time.monotonic() >= end and (turn >= len(pairs) or (minutes > 0 and least == 0)):
            poorest = result.poorest(names, levels)
            if result.problems(*poorest) >= least:
                return result
            dtype, family = max(pairs, key=lambda pair: yields.get(pair, 0))
            lacking = {name for name in names if any(result.problems(name, level) < least for level in levels)}
        poorest = result.poorest(names, levels)
        before = result.problems(*poorest)
        result.failure = _round(result, family, dtype, seed + turn, lacking, levels, fences, engine)
        yields[dtype, family] = result.problems(*poorest) - before
        progress(result)
        if result.failure is not None:
            return result
    raise AssertionError("unreachable: the loop has no end of its own")


def _round(
    result: Result, family: str, dtype: str, seed: int, names: Collection[str], levels: Collection[str], fences: bool, engine: Engine
) -> str | None:
    """ROUND problems; None or what went wrong, with the smallest problem that shows it."""

    @seeded(seed)
    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        phases=(Phase.generate, Phase.shrink),
    )
    @given(drawn=problems(family, dtype), values=st.integers(0, 999), exact=st.booleans())
    def each(drawn: tuple[ConvProblem, Elements], values: int, exact: bool) -> None:
        for held in held_by(*drawn, values, exact, fences, names, levels, engine):
            result.add(held)

    try:
        with np.errstate(all="ignore"):
            each()
    except AssertionError as error:
        again = f"--seed {seed} --family {family!r} --dtype {dtype}{' --fences' if fences else ''}"
        return f"{error}\nseen again with: fastconv soak {again}"
    return None


def held_by(
    problem: ConvProblem,
    elements: Elements,
    values: int,
    exact: bool,
    fences: bool,
    names: Collection[str],
    levels: Collection[str],
    engine: Engine,
) -> list[Held]:
    """`hold` on random operands; with fences in a process of its own."""
    if not algorithms(problem, names):
        return []
    data = fill(problem, elements, values, exact)
    if not fences:
        return hold(problem, elements, data, exact, levels=levels, names=names, engine=engine)

    def fenced(say: Callable[[str], None]) -> list[Held]:
        return hold(problem, elements, data, exact, levels=levels, names=names, engine=engine, places=("left", "right"), starting=say)

    try:
        return in_child(fenced)
    except AssertionError as error:
        raise AssertionError(f"between fences: {error}\n{problem}") from None
