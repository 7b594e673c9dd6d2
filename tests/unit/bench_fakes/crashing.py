"""Ends its own process in one form, raises in another, and declines rows with more than one axis of kernel extent 3."""

from __future__ import annotations

import os
import sys
from typing import Any

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported


def start(threads: int) -> str:
    print("a library that chatters on standard output")
    return "0"


def forms(case: Case, direction: str) -> list[Form]:
    if case.kernel.count(3) > 1:
        raise Unsupported("3x3")
    return [Form("dies", _dies), Form("raises", _raises)]


def _dies(case: Case, direction: str, first: Any, second: Any) -> Ready:
    print("last words", file=sys.stderr, flush=True)
    os._exit(7)


def _raises(case: Case, direction: str, first: Any, second: Any) -> Ready:
    raise RuntimeError("no such kernel\nand a second line")
