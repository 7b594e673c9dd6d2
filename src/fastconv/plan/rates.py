"""Rates that `python benchmarks/fit.py` fitted on a machine: data beside this module, with the machine, the day and the fit's error."""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

#: The file; its sections: "machine" (of one core), "scipy" and "ducc" (`overlap.Rates`), "xla" (seconds of what `jax.xla.work` counts).
PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "rates.json")


class Fit(NamedTuple):
    """One section. rates: by name. cores, cpu, isa, date: where and when. problems: how many were measured; error: the factor by which
    two thirds of them lie off the model at most (a geometric standard deviation)."""

    rates: dict[str, float]
    cores: int
    cpu: str
    isa: str
    date: str
    problems: int
    error: float


@cache
def rates(section: str) -> Fit:
    """A section of the file, read when first asked for."""
    import json  # not at import: a plan needs it, `import fastconv` does not

    with open(PATH, encoding="utf-8") as file:
        return Fit(**json.load(file)[section])
