"""SciPy and NumPy: scipy.signal, scipy.ndimage and, for one axis, numpy.correlate; few-channel rows without stride."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
import scipy.fft
import scipy.ndimage
import scipy.signal
from numpy.typing import NDArray

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported, flipped, flipped_taps

Pads = tuple[tuple[int, int], ...]
#: A method takes (array, kernel, pads) to the correlation of the padded array: it returns the step's function of no arguments.
Method = Callable[[NDArray[Any], NDArray[Any], Pads], Callable[[], NDArray[Any]]]

#: Most pairs of channels that are looped over.
PAIRS = 8


def start(threads: int) -> str:
    """Lets scipy.fft use the threads and returns the version."""
    scipy.fft.set_workers(threads).__enter__()
    return scipy.__version__


def forms(case: Case, direction: str) -> list[Form]:
    """Every method of SciPy that computes the row."""
    if case.transposed or case.groups > 1 or any(s > 1 for s in (*case.stride, *case.dilation)):
        raise Unsupported("stride, dilation, groups or transposition")
    if np.dtype(case.dtype if case.dtype != "bfloat16" else "V2").kind != "f" or case.dtype == "float16":
        raise Unsupported(f"{case.dtype} here")
    if (pairs := case.n * case.cin * case.cout) > PAIRS:
        raise Unsupported(f"channels other than by a Python loop of {pairs} calls")
    found = [Form("signal", _form(_signal), fft=True), Form("oaconvolve", _form(_overlap_add), fft=True)]
    if pairs == 1 and direction == "fwd":
        found.append(Form("ndimage", _form(_ndimage)))
    if case.dims == 1:
        found.append(Form("numpy", _form(_numpy)))
    return found


def _form(method: Method) -> Callable[[Case, str, NDArray[Any], NDArray[Any]], Ready]:
    """A direction as sums of one-channel correlations: out[a, b] is the sum over c of method(image[a, c], kernel[b, c])."""

    def build(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
        image, kernel, pads = first, second, case.pads
        if case.op == "convn":
            kernel = flipped_taps(second)
        elif direction == "dx":
            kernel = flipped_taps(second).swapaxes(0, 1)
            pads = tuple((k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(case.kernel, pads, strict=True))
        elif direction == "dw":
            image, kernel = first.swapaxes(0, 1), second.swapaxes(0, 1)
        image, kernel = np.ascontiguousarray(image), np.ascontiguousarray(kernel)
        steps = [[[method(i, k, pads) for i, k in zip(a, b, strict=True)] for b in kernel] for a in image]
        if case.n == case.cin == case.cout == 1:
            return Ready(steps[0][0][0], lambda y: y[None, None])
        read = (lambda y: y.swapaxes(0, 1)) if direction == "dw" else (lambda y: y)
        return Ready(lambda: np.array([[_sum(terms) for terms in row] for row in steps]), read)

    return build


def _sum(steps: list[Callable[[], NDArray[Any]]]) -> NDArray[Any]:
    total = steps[0]()
    for step in steps[1:]:
        total = total + step()
    return total


def _mode(kernel: NDArray[Any], pads: Pads) -> tuple[str, Pads | None]:
    """SciPy's mode of these pads, and what must be padded by hand before it (then "valid")."""
    modes = {
        "valid": tuple((0, 0) for _ in pads),
        "same": tuple((k - 1 - (k - 1) // 2, (k - 1) // 2) for k in kernel.shape),
        "full": tuple((k - 1, k - 1) for k in kernel.shape),
    }
    for mode, expected in modes.items():
        if pads == expected:
            return mode, None
    return "valid", pads


def _signal(image: NDArray[Any], kernel: NDArray[Any], pads: Pads) -> Callable[[], NDArray[Any]]:
    mode, by_hand = _mode(kernel, pads)
    reverse = flipped(kernel)
    if by_hand is None:
        return lambda: scipy.signal.convolve(image, reverse, mode=mode, method="auto")
    return lambda: scipy.signal.convolve(np.pad(image, by_hand), reverse, mode=mode, method="auto")


def _overlap_add(image: NDArray[Any], kernel: NDArray[Any], pads: Pads) -> Callable[[], NDArray[Any]]:
    mode, by_hand = _mode(kernel, pads)
    reverse = flipped(kernel)
    if by_hand is None:
        return lambda: scipy.signal.oaconvolve(image, reverse, mode=mode)
    return lambda: scipy.signal.oaconvolve(np.pad(image, by_hand), reverse, mode=mode)


def _ndimage(image: NDArray[Any], kernel: NDArray[Any], pads: Pads) -> Callable[[], NDArray[Any]]:
    """ndimage gives as many outputs as inputs: with the kernel's centre at k // 2 that is right, else a padded image is cropped."""
    sizes = tuple(n + lo + hi - k + 1 for n, (lo, hi), k in zip(image.shape, pads, kernel.shape, strict=True))
    if sizes == image.shape and all(lo == k // 2 for (lo, _), k in zip(pads, kernel.shape, strict=True)):
        return lambda: scipy.ndimage.correlate(image, kernel, mode="constant")
    crop = tuple(slice(k // 2, k // 2 + n) for k, n in zip(kernel.shape, sizes, strict=True))
    return lambda: scipy.ndimage.correlate(np.pad(image, pads), kernel, mode="constant")[crop]


def _numpy(image: NDArray[Any], kernel: NDArray[Any], pads: Pads) -> Callable[[], NDArray[Any]]:
    mode, by_hand = _mode(kernel, pads)
    if mode == "full" and by_hand is None:
        return lambda: np.correlate(image, kernel, mode="full")
    return lambda: np.correlate(np.pad(image, pads), kernel, mode="valid")
