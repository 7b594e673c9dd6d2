"""fastconv itself, called from NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastconv as fc
from fastconv.bench.cases import Case
from fastconv.bench.oracle import call_of
from fastconv.bench.peers.base import Form, Ready, channels_first, channels_last, taps_first
from fastconv.plan import FFT, choose


def start(threads: int) -> str:
    """Sets the threads and returns the version."""
    fc.set_num_threads(threads)
    return fc.__version__


def forms(case: Case, direction: str) -> list[Form]:
    """Channels first, and channels last with the weights as HWIO."""
    fft = choose(call_of(case, direction).problem, extra=(FFT,)).algorithm == FFT.name
    if case.op == "convn":
        return [Form("convn", _convn, fft)]
    return [Form("NC", _channels_first, fft), Form("N...C", _channels_last, fft)]


def _convn(case: Case, direction: str, x: NDArray[Any], k: NDArray[Any]) -> Ready:
    image, kernel, mode = x[0, 0], k[0, 0], str(case.mode)
    return Ready(lambda: fc.convn(image, kernel, mode=mode), lambda y: y[None, None])


def _channels_first(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    return Ready(_step(case, direction, first, second, "NC"), lambda result: result)


def _channels_last(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    second = channels_last(second) if direction == "dw" else taps_first(second)
    step = _step(case, direction, channels_last(first), second, "N...C")
    return Ready(step, lambda result: result if direction == "dw" else channels_first(result))


def _step(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any], layout: str) -> Any:
    geometry: dict[str, Any] = {
        "stride": case.stride,
        "padding": case.pads,
        "dilation": case.dilation,
        "groups": case.groups,
        "layout": layout,
    }
    if case.transposed:
        geometry["output_padding"] = case.output_padding
    if direction == "fwd":
        if case.out_dtype is not None:
            return _widened(case, first, second, layout)
        conv = fc.conv_transpose if case.transposed else fc.conv
        return lambda: conv(first, second, **geometry)
    geometry["transposed"] = case.transposed
    if direction == "dx":
        shape = case.x_shape if layout == "NC" else (case.n, *case.size, case.cin)
        return lambda: fc.conv_input_grad(first, second, shape, **geometry)
    return lambda: fc.conv_weight_grad(first, second, case.w_shape, **geometry)


def _widened(case: Case, x: NDArray[Any], w: NDArray[Any], layout: str) -> Any:
    """A forward convolution with a result type of its own: only conv_general_dilated offers one."""
    axes = tuple(range(case.dims))
    spatial = tuple(a + 2 for a in axes)
    image = (0, 1, *spatial) if layout == "NC" else (0, case.dims + 1, *(a + 1 for a in axes))
    numbers = (image, (0, 1, *spatial), image)
    wide = np.dtype(case.out_dtype)
    return lambda: fc.conv_general_dilated(
        x,
        w,
        case.stride,
        case.pads,
        rhs_dilation=case.dilation,
        dimension_numbers=numbers,
        feature_group_count=case.groups,
        preferred_element_type=wide,
    )
