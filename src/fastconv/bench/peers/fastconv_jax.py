"""Jitted JAX with fastconv installed: the same programs as the plain contestant's."""

from __future__ import annotations

from dataclasses import replace

import fastconv.jax as fj
from fastconv.bench.cases import Case
from fastconv.bench.oracle import call_of
from fastconv.bench.peers import jax as plain
from fastconv.bench.peers.base import PLATFORM, Form
from fastconv.jax.spectral import FFT
from fastconv.plan import choose


def start(threads: int) -> str:
    """Installs fastconv and returns JAX's version."""
    version = plain.start(threads)
    fj.install()
    return version


def forms(case: Case, direction: str) -> list[Form]:
    """Those of plain JAX; by transforms where the planner takes them."""
    if PLATFORM:  # rewrites are sums as XLA's own
        return plain.forms(case, direction)
    fft = choose(call_of(case, direction).problem, extra=(FFT,)).algorithm == FFT.name
    return [replace(form, fft=form.fft or fft) for form in plain.forms(case, direction)]
