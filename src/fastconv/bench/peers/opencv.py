"""OpenCV's filter2D: one channel, two axes."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported, flipped


def start(threads: int) -> str:
    """Sets the threads and returns the version."""
    cv2.setNumThreads(threads)
    return cv2.__version__


def forms(case: Case, direction: str) -> list[Form]:
    """One form; filter2D turns to the discrete Fourier transform by itself for kernels above 11x11."""
    if direction != "fwd" or case.transposed or case.dims != 2 or (case.n, case.cin, case.cout) != (1, 1, 1):
        raise Unsupported("anything but one-channel images, forward")
    if any(s > 1 for s in (*case.stride, *case.dilation)) or case.dtype not in ("float32", "float64"):
        raise Unsupported("stride, dilation or this type")
    return [Form("filter2D", _filter, fft=max(case.kernel) > 11)]


def _filter(case: Case, direction: str, x: NDArray[Any], w: NDArray[Any]) -> Ready:
    """filter2D gives as many outputs as inputs, with zeros outside: a `same` row needs no padding, others pad first, which is timed."""
    image = x[0, 0]
    kernel = flipped(w[0, 0]) if case.op == "convn" else w[0, 0]
    height, width = case.y_shape[2:]
    (top, _), (left, _) = case.pads
    zero = cv2.BORDER_CONSTANT
    if (height, width) == image.shape:
        step = lambda: cv2.filter2D(image, -1, kernel, anchor=(left, top), borderType=zero)  # noqa: E731
    else:
        bottom, right = max(0, height - image.shape[0] - top), max(0, width - image.shape[1] - left)

        def step() -> Any:
            padded = cv2.copyMakeBorder(image, top, bottom, left, right, zero)
            return cv2.filter2D(padded, -1, kernel, anchor=(0, 0), borderType=zero)[:height, :width]

    return Ready(step, lambda y: np.asarray(y)[None, None])
