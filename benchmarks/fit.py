"""Fits the rates of the cost models on this machine, and writes them with CPU, date and fit error to src/fastconv/plan/data/rates.json.

    python benchmarks/fit.py [--check] [machine] [scipy] [ducc] [xla]      (default: all sections; a minute each, on a machine at rest)

--check: leaves the rates as they are and measures their error.
machine: the clock that the library's own models reach, the bandwidth of a copy, the cost of a call. scipy, ducc: Fourier
transforms. xla: plain JAX. Each model is a sum of counts times rates, so rates are least squares of relative errors, none below zero.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import date
from functools import partial
from typing import Any

import numpy as np
from models import DEFAULT, directions, milliseconds
from scipy.optimize import nnls

import fastconv as fc
from fastconv import rewrite
from fastconv.bench.cases import load
from fastconv.bench.oracle import call_of
from fastconv.plan import ALGORITHMS, forced, overlap, this_machine
from fastconv.plan.rates import PATH, rates
from fastconv.problem import Axis
from fastconv.soak.draws import problem_of
from fastconv.tune.candidates import on_arrays

#: Kernels worth transforming, and some around the crossing: x and w shapes, and padding.
TRANSFORMED = (
    ((1, 1, 480_000), (1, 1, 48_000), 47_999), ((1, 1, 100_000), (1, 1, 3_000), 0), ((1, 1, 1_000_000), (1, 1, 801), 0),
    ((1, 1, 20_000), (1, 1, 20_000), 19_999), ((8, 1, 30_000), (1, 1, 500), 0), ((1, 16, 20_000), (16, 16, 512), 0),
    ((1, 64, 4_000), (64, 64, 300), 0), ((1, 1, 300, 300), (1, 1, 300, 300), 299), ((1, 1, 600, 600), (1, 1, 61, 61), 60),
    ((1, 1, 500, 500), (1, 1, 31, 31), 30), ((1, 3, 200, 200), (4, 3, 50, 50), 0), ((30, 1, 84, 84), (1, 1, 40, 40), 39),
    ((1, 1, 64, 64, 64), (1, 1, 15, 15, 15), 7), ((1, 1, 2_000), (1, 1, 100), 0), ((4, 2, 40, 60), (2, 2, 9, 9), 4),
)  # fmt: skip
#: JAX programs that are compiled and timed.
PROGRAMS = 40
Rows = list[tuple[dict[str, float], float]]


def fitted(rows: Rows) -> dict[str, float]:
    """Rates that make sum(count * rate) meet the seconds."""
    names = sorted({name for counts, _ in rows for name in counts})
    relative = np.array([[counts.get(name, 0.0) / seconds for name in names] for counts, seconds in rows])
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-300)
    found, _ = nnls(relative / scale, np.ones(len(rows)))
    return dict(zip(names, found / scale, strict=True))


def spread(rows: Rows, found: dict[str, float]) -> float:
    """The geometric standard deviation of modelled over measured time; a machine that is slower as a whole does not count."""
    return _deviation([sum(count * found[name] for name, count in counts.items()) / seconds for counts, seconds in rows])


def _deviation(ratios: list[float]) -> float:
    return float(np.exp(np.log(np.maximum(ratios, 1e-9)).std()))


def _reached(beginnings: tuple[str, ...], span: float) -> list[float]:
    """Modelled over measured time of the planner's choice, for each workload that begins so."""
    ratios = []
    for case in load():
        if case.op == "convn" or case.dtype not in ("float32", "float64") or not case.name.startswith(beginnings):
            continue
        for _, plan, call in directions(case):
            if plan.algorithm in {row.name for row in ALGORITHMS}:
                ratios.append(plan.seconds / (milliseconds(call, span) / 1e3))
    return ratios


def machine(ratios: list[float]) -> dict[str, float]:
    """The clock that the tenth of the workloads nearest to their models reach, a copy's bandwidth, and the cost of a call."""
    point, _ = problem_of((Axis(8, 3, 6),), 1, 1, 1, 1)
    race = on_arrays(point)
    assert race is not None
    calls = min(milliseconds(call) for call in race.calls().values()) / 1e3
    source = np.ones(1 << 20, np.float32)
    copied = 2 * source.nbytes / (milliseconds(partial(np.copyto, np.empty_like(source), source)) / 1e3)
    clock = rates("machine").rates["gigahertz"] * float(np.quantile(ratios, 0.9))
    return {"gigahertz": clock, "bandwidth": copied, "call_seconds": calls}


def _paced(found: dict[str, float]) -> dict[str, float]:
    """Rates as they would be at the clock of the section "machine": this machine may be slower or faster just now."""
    pace = float(np.quantile(_reached(("resnet-3x3-64", "small-3x3", "seed-conv1d"), 0.05), 0.9))
    return {name: rate * pace for name, rate in found.items()}


def scipy() -> Rows:
    """SciPy's transforms, on the layouts that the planner takes today."""
    return _transforms("scipy", _call_of_numpy)


def ducc() -> Rows:
    """XLA's transforms."""
    return _transforms("ducc", _call_of_jax)


def _transforms(library: str, call: Callable[..., Callable[[], object]]) -> Rows:
    rows: Rows = []
    for x_shape, w_shape, padding in TRANSFORMED:
        for dtype in ("float32", "float64") if library == "scipy" else ("float32",):
            problem = rewrite.touching(fc.plan(x_shape, w_shape, padding=padding, dtype=dtype).problem)
            assert problem is not None
            rows.append((_counts(problem, library), milliseconds(call(x_shape, w_shape, padding, dtype)) / 1e3))
    return rows


def _counts(problem: Any, library: str) -> dict[str, float]:
    """What each rate is multiplied by: the layout's price where that rate alone is 1."""
    used = overlap.rates_of(library)
    layout = overlap.layout(problem, used)
    assert layout is not None
    names = [field.name for field in fields(overlap.Rates) if field.name != "cores"]
    alone = {name: overlap.Rates(cores=used.cores, **{other: float(other == name) for other in names}) for name in names}
    return {name: overlap.price(problem, layout, rates) for name, rates in alone.items()}


def _call_of_numpy(x_shape: tuple[int, ...], w_shape: tuple[int, ...], padding: int, dtype: str) -> Callable[[], object]:
    x, w = (np.random.default_rng(0).standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))

    def call() -> object:
        with forced("fft"):
            return fc.conv(x, w, padding=padding)

    return call


def _call_of_jax(x_shape: tuple[int, ...], w_shape: tuple[int, ...], padding: int, dtype: str) -> Callable[[], object]:
    import jax

    from fastconv.jax import accelerate

    x, w = (np.random.default_rng(0).standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    pads = [(padding, padding)] * (len(x_shape) - 2)
    with forced("fft"), accelerate():
        program = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1,) * len(pads), pads)).lower(x, w).compile()
    return lambda: program(x, w).block_until_ready()


def xla() -> Rows:
    """Plain JAX on the workloads that it is modelled to finish in 30 ms, but for those where starting the program counts."""
    from fastconv.bench.peers import jax as plain
    from fastconv.jax.xla import seconds, work

    plain.start(this_machine().cores)
    posed = [
        (case, direction, problem)
        for case in load()
        for direction in (case.directions if case.op != "convn" and case.out_dtype is None else ())
        if 3e-4 < seconds(problem := call_of(case, direction).problem, this_machine()) < 0.03
    ]
    rows: Rows = []
    for case, direction, problem in posed[:: len(posed) // PROGRAMS + 1]:
        step = plain.forms(case, direction)[0].build(case, direction, *case.operands(direction)).step
        step()
        begin = time.perf_counter()
        step()
        if time.perf_counter() - begin < 0.1:
            counts = {name: count for name, count in work(problem).items() if name != "call"}
            rows.append((counts, milliseconds(step, 0.05) / 1e3))
    return rows


def section(name: str, check: bool) -> dict[str, Any]:
    """One section of the file."""
    before = rates(name)
    if name == "machine":
        ratios = _reached(DEFAULT, 0.1)
        found, error, count = before.rates if check else machine(ratios), _deviation(ratios), len(ratios)
    else:
        rows = {"scipy": scipy, "ducc": ducc, "xla": xla}[name]()
        new = before.rates if check else before.rates | fitted(rows)
        found, error, count = new if check else _paced(new), spread(rows, new), len(rows)
    here = this_machine()
    where = {"cores": before.cores, "cpu": before.cpu, "isa": before.isa, "date": before.date}
    if not check:
        where = {"cores": here.cores, "cpu": here.name, "isa": here.isa, "date": date.today().isoformat()}
    return {"rates": {key: float(f"{rate:.4g}") for key, rate in found.items()}, **where, "problems": count, "error": round(error, 3)}


def main(arguments: Iterable[str]) -> None:
    wanted = [word for word in arguments if word != "--check"] or ["machine", "scipy", "ducc", "xla"]
    for name in wanted:
        found = section(name, "--check" in arguments)
        print(name, found, flush=True)
        with open(PATH, encoding="utf-8") as file:
            content = json.load(file) | {name: found}
        beside = f"{PATH}.{os.getpid()}"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(json.dumps(content, indent=1) + "\n")
        os.replace(beside, PATH)


if __name__ == "__main__":
    main(sys.argv[1:])
