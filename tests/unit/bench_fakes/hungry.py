"""Takes memory until it is stopped."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready


def start(threads: int) -> str:
    return "0"


def forms(case: Case, direction: str) -> list[Form]:
    return [Form("eats", _eats)]


def _eats(case: Case, direction: str, first: Any, second: Any) -> Ready:
    def step() -> None:
        held = []
        while len(held) < 64:  # 2 GiB in all: far above the test's limit, and an end if nobody stops it
            held.append(np.ones(1 << 22))
            time.sleep(0.02)

    return Ready(step, lambda y: first)
