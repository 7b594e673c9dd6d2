"""What a contestant offers: forms, each of which turns a case into a step to time and a way to read its result."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastconv.bench.cases import Case

#: The device that contestants compute on, as JAX calls it; empty: the CPU, a call at a time.
PLATFORM = os.environ.get("FASTCONV_BENCH_PLATFORM", "")
#: Sets of inputs that a burst of calls goes round, so that none finds what it needs where the last one left it.
INPUTS = 4


class Ready(NamedTuple):
    """A form made ready for one case: `step()` computes the result and waits for it; `read(result)` gives it as a NumPy array
    in the layout of the case (N C spatial, weights O I/g k). On a device `burst(n)` starts n calls and waits for the last."""

    step: Callable[[], Any]
    read: Callable[[Any], NDArray[Any]]
    burst: Callable[[int], Any] | None = None


@dataclass(frozen=True)
class Form:
    """One way a contestant can do the job: a layout or a method.

    build(case, direction, first, second) makes everything ready that a user would make once (layout of the operands, compilation).
    fft: the method may use Fourier transforms, whose error has a bound of its own.
    """

    name: str
    build: Callable[[Case, str, NDArray[Any], NDArray[Any]], Ready]
    fft: bool = False


class Unsupported(Exception):
    """A contestant does not offer what a row asks for; the text says what is missing."""


def channels_last(array: NDArray[Any]) -> NDArray[Any]:
    """N C spatial to N spatial C, C-order."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def channels_first(array: NDArray[Any]) -> NDArray[Any]:
    """N spatial C to N C spatial; a view."""
    return np.moveaxis(array, -1, 1)


def taps_first(array: NDArray[Any]) -> NDArray[Any]:
    """The same weights (a b k), stored k b a: the transposed view of weights kept as HWIO."""
    order = (*range(2, array.ndim), 1, 0)
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def flipped(kernel: NDArray[Any]) -> NDArray[Any]:
    """A kernel with every axis reversed, C-order."""
    return np.ascontiguousarray(kernel[(slice(None, None, -1),) * kernel.ndim])


def flipped_taps(weights: NDArray[Any]) -> NDArray[Any]:
    """Weights (a b k) with every spatial axis reversed, C-order."""
    return np.ascontiguousarray(weights[(slice(None), slice(None), *(slice(None, None, -1),) * (weights.ndim - 2))])
