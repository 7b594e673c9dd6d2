"""Jitted JAX with fastconv installed: the same programs as the plain contestant's."""

from __future__ import annotations

import fastconv.jax as fj
from fastconv.bench.peers import jax as plain

forms = plain.forms


def start(threads: int) -> str:
    """Installs fastconv and returns JAX's version."""
    version = plain.start(threads)
    fj.install()
    return version
