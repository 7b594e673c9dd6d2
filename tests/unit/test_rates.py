"""Rates as data: complete, with where they are from; the fit finds rates again that made up the seconds."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import fields
from datetime import date
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fastconv.plan import overlap
from fastconv.plan.machine import ISA_LEVELS, machine_for
from fastconv.plan.rates import rates
from fastconv.problem import Axis
from fastconv.soak.draws import problem_of

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("fit", BENCHMARKS / "fit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("models", None)
    return module


@pytest.mark.parametrize("section", ["machine", "scipy", "ducc", "xla"])
def test_every_section_says_where_it_is_from(section: str) -> None:
    found = rates(section)
    assert found.rates
    assert all(0 <= rate < np.inf for rate in found.rates.values())
    assert found.problems > 10
    assert 1 < found.error < 3
    assert date.fromisoformat(found.date) >= date(2026, 11, 30)
    assert found.cpu
    assert found.isa in ISA_LEVELS
    assert found.cores >= 1


def test_a_machine_has_the_fitted_clock() -> None:
    core = rates("machine").rates
    assert machine_for("avx512", 4).gflops == pytest.approx(4 * 64 * core["gigahertz"])
    assert machine_for("avx2", 4).bandwidth == pytest.approx(4 * core["bandwidth"])


def test_the_price_of_a_layout_is_linear_in_each_rate() -> None:
    problem, _ = problem_of((Axis(300, 60, 359, lo=59), Axis(300, 60, 359, lo=59)), 1, 2, 3, 4)
    layout = overlap.layout(problem)
    assert layout is not None
    used = overlap.rates_of("scipy")
    names = [field.name for field in fields(used) if field.name != "cores"]

    def alone(name: str) -> float:
        return overlap.price(problem, layout, overlap.Rates(used.cores, **{other: float(other == name) for other in names}))

    assert sum(alone(name) * getattr(used, name) for name in names) == pytest.approx(layout.seconds)


def test_the_fit_finds_rates_again(fit: ModuleType) -> None:
    rng = np.random.default_rng(0)
    true = {"a": 3e-9, "b": 5e-6, "c": 0.0}
    counts = [{name: float(10 ** rng.uniform(0, 6)) for name in true} for _ in range(40)]
    rows = [(count, sum(count[name] * rate for name, rate in true.items())) for count in counts]
    found = fit.fitted(rows)
    assert found["a"] == pytest.approx(3e-9, rel=1e-3)
    assert found["b"] == pytest.approx(5e-6, rel=1e-3)
    assert fit.spread(rows, true) == pytest.approx(1)
    assert fit.spread([(count, 2 * seconds) for count, seconds in rows], true) == pytest.approx(1)
    noisy = [(count, seconds * np.exp(0.3 * rng.standard_normal())) for count, seconds in rows]
    assert 1.2 < fit.spread(noisy, true) < 1.6
