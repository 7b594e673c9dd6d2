"""Plain jitted JAX, on its CPU backend or on a device."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import INPUTS, PLATFORM, Form, Ready, channels_first, channels_last, flipped_taps

os.environ["JAX_PLATFORMS"] = PLATFORM or "cpu"  # before the import below reads it

import jax
import jax.numpy as jnp
import jax.scipy.signal


def start(threads: int) -> str:
    """Allows 64-bit types and returns the version; the size of XLA's pool follows the CPU mask."""
    jax.config.update("jax_enable_x64", True)
    if not PLATFORM:
        return jax.__version__
    try:
        device = jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # which of them depends on what of the platform is installed
        why = (str(error).splitlines() or ["its backend does not start"])[0]
        raise ImportError(f"JAX finds no device of platform {PLATFORM!r}: {why}") from error
    return f"{jax.__version__} on {device.device_kind}"


def forms(case: Case, direction: str) -> list[Form]:
    """Both dimension orders; for convn jax.scipy.signal's two methods."""
    if case.op == "convn":
        return [Form("direct", _convn), Form("fft", _convn_fft, fft=True)]
    return [Form("NCHW", _channels_first), Form("NHWC", _channels_last)]


def _convn(case: Case, direction: str, x: NDArray[Any], k: NDArray[Any], method: str = "direct") -> Ready:
    image, kernel = jnp.asarray(x[0, 0]), jnp.asarray(k[0, 0])
    mode: Any = case.mode
    step = jax.jit(lambda a, b: jax.scipy.signal.convolve(a, b, mode=mode, method=method))
    return _ready(step, image, kernel, lambda y: np.asarray(y)[None, None])


def _convn_fft(case: Case, direction: str, x: NDArray[Any], k: NDArray[Any]) -> Ready:
    return _convn(case, direction, x, k, "fft")


def _channels_first(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    return _make(case, direction, first, second, last=False)


def _channels_last(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    return _make(case, direction, first, second, last=True)


def _make(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any], last: bool) -> Ready:
    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, dimension_numbers=numbers, **geometry)

    def input_gradient(dy: Any, w: Any) -> Any:
        return jax.vjp(lambda x: conv(x, w), jnp.zeros(x_shape, dy.dtype))[1](dy)[0]

    def weight_gradient(x: Any, dy: Any) -> Any:
        return jax.vjp(lambda w: conv(x, w), jnp.zeros(w_shape, dy.dtype))[1](dy)[0]

    geometry, numbers = _geometry(case), _numbers(case.dims, last)
    image = channels_last if last else np.ascontiguousarray
    x_shape = (case.n, *case.size, case.cin) if last else case.x_shape
    kernel = (case.cout, case.cin // case.groups, *case.kernel)
    w_shape = (*kernel[2:], kernel[1], kernel[0]) if last else kernel
    if direction == "dx":  # JAX transposes; the gradient of the list is the adjoint, which conjugates
        second = second.conj()
    elif direction == "dw":
        first = first.conj()
    operands = image(first), image(second) if direction == "dw" else _weights(case, second, last)
    function = {"fwd": conv, "dx": input_gradient, "dw": weight_gradient}[direction]

    def read(result: Any) -> NDArray[Any]:
        array = np.asarray(result)
        if direction == "dw":
            return _weights_back(case, array, last)
        return channels_first(array) if last else array

    a, b = (jnp.asarray(operand) for operand in operands)
    return _ready(jax.jit(function), a, b, read)


def _ready(step: Any, a: Any, b: Any, read: Any) -> Ready:
    """Compiles here, so that the first timed call is a call like the others."""
    step.lower(a, b).compile()
    return Ready(lambda: step(a, b).block_until_ready(), read, _bursts(step, a, b) if PLATFORM else None)


def _bursts(step: Any, a: Any, b: Any) -> Any:
    """Calls are queued on the device in order, so waiting for the last is waiting for all."""
    inputs = [(a, b), *((a + 0, b + 0) for _ in range(INPUTS - 1))]

    def burst(count: int) -> None:
        for call in range(count - 1):
            step(*inputs[call % INPUTS])
        step(*inputs[(count - 1) % INPUTS]).block_until_ready()

    return burst


def _geometry(case: Case) -> dict[str, Any]:
    if case.transposed:
        reach = [d * (k - 1) for d, k in zip(case.dilation, case.kernel, strict=True)]
        padding = [(r - lo, r - hi + extra) for r, (lo, hi), extra in zip(reach, case.pads, case.output_padding, strict=True)]
        strides: dict[str, Any] = {"window_strides": (1,) * case.dims, "lhs_dilation": case.stride}
    else:
        padding, strides = list(case.pads), {"window_strides": case.stride}
    wide = None if case.out_dtype is None else np.dtype(case.out_dtype)
    common = {"padding": padding, "rhs_dilation": case.dilation, "feature_group_count": case.groups, "preferred_element_type": wide}
    return {**strides, **common}


def _numbers(dims: int, last: bool) -> Any:
    """NCHW, OIHW, NCHW or NHWC, HWIO, NHWC for any number of axes."""
    if last:
        image, kernel = (0, dims + 1, *range(1, dims + 1)), (dims + 1, dims, *range(dims))
    else:
        image = kernel = (0, 1, *range(2, dims + 2))
    return jax.lax.ConvDimensionNumbers(image, kernel, image)


def _weights(case: Case, w: NDArray[Any], last: bool) -> NDArray[Any]:
    """Weights as JAX keeps them: O I/g k (or k I/g O), already reversed for a transposed convolution."""
    if case.transposed:
        g, inner = case.groups, case.cout // case.groups
        grouped = w.reshape(g, case.cin // g, inner, *case.kernel).swapaxes(1, 2)
        w = flipped_taps(grouped.reshape(case.cout, case.cin // g, *case.kernel))
    return np.ascontiguousarray(w.transpose(*range(2, w.ndim), 1, 0)) if last else w


def _weights_back(case: Case, w: NDArray[Any], last: bool) -> NDArray[Any]:
    """The inverse of `_weights`."""
    if last:
        w = w.transpose(w.ndim - 1, w.ndim - 2, *range(w.ndim - 2))
    if not case.transposed:
        return w
    g, inner = case.groups, case.cout // case.groups
    w = w[(slice(None), slice(None), *(slice(None, None, -1),) * case.dims)]
    return w.reshape(g, inner, case.cin // g, *case.kernel).swapaxes(1, 2).reshape(case.w_shape)
