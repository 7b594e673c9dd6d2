"""Fast and wrong: one output is off by a little more than the bound allows, and a second form returns zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastconv.bench.cases import Case
from fastconv.bench.peers import scipy as honest
from fastconv.bench.peers.base import Form, Ready


def start(threads: int) -> str:
    return "0"


def forms(case: Case, direction: str) -> list[Form]:
    return [Form("zeros", _zeros), Form("one-off", _one_off)]


def _zeros(case: Case, direction: str, first: Any, second: Any) -> Ready:
    result = np.zeros(case.result_shape(direction), case.dtype)
    return Ready(lambda: result, lambda y: y)


def _one_off(case: Case, direction: str, first: Any, second: Any) -> Ready:
    good = next(form for form in honest.forms(case, direction) if form.name == "ndimage")
    made = good.build(case, direction, first, second)
    result = made.read(made.step()).copy()
    result[(0,) * result.ndim] += 1e-3
    return Ready(lambda: result, lambda y: y)
