"""Never comes back from its first call in one form; answers at once, and right, in the other."""

from __future__ import annotations

import time
from typing import Any

from fastconv.bench.cases import Case
from fastconv.bench.peers import scipy as honest
from fastconv.bench.peers.base import Form, Ready

start = honest.start


def forms(case: Case, direction: str) -> list[Form]:
    good = next(form for form in honest.forms(case, direction) if form.name == "ndimage")
    return [good, Form("sleeps", _sleeps)]


def _sleeps(case: Case, direction: str, first: Any, second: Any) -> Ready:
    return Ready(lambda: time.sleep(600), lambda result: first)
