"""PyTorch, on the CPU or on a GPU: functional forward, and the gradients by the operator that autograd itself calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import INPUTS, PLATFORM, Form, Ready, Unsupported, flipped_taps

#: torch calls ROCm's GPUs cuda, too.
DEVICE = "cuda" if PLATFORM in ("cuda", "rocm") else "cpu"

_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def start(threads: int) -> str:
    """Sets the threads, switches autograd off and returns the version."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise ImportError(f"torch finds no device of platform {PLATFORM!r}")
    if PLATFORM == "tpu":
        raise ImportError("torch has no TPU of its own")
    return torch.__version__


def forms(case: Case, direction: str) -> list[Form]:
    """Contiguous, and channels-last memory; one spatial axis also as two."""
    if case.out_dtype is not None:
        raise Unsupported("a result type wider than the operands")
    if case.dims > 3:
        raise Unsupported(f"{case.dims} spatial axes")
    if case.dtype.startswith("complex") and direction != "fwd":
        raise Unsupported("convolution_backward for complex types")
    return [Form("NC", _contiguous), Form("channels_last", _channels_last)]


def _contiguous(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    return _make(case, direction, _tensor(first), _tensor(_kernel(case, second)), torch.contiguous_format, lift=False)


def _channels_last(case: Case, direction: str, first: NDArray[Any], second: NDArray[Any]) -> Ready:
    lift = case.dims == 1
    tensors = (_tensor(a).unsqueeze(2) if lift else _tensor(a) for a in (first, _kernel(case, second)))
    memory_format = _FORMATS[case.dims + lift]
    first, second = (t.contiguous(memory_format=memory_format) for t in tensors)
    return _make(case, direction, first, second, memory_format, lift=lift)


def _make(case: Case, direction: str, first: Any, second: Any, memory_format: Any, lift: bool) -> Ready:
    inputs = [(first, second), *((first.clone(), second.clone()) for _ in range(INPUTS - 1 if PLATFORM else 0))]
    head = lift * (1,)
    stride, dilation = (*head, *case.stride), (*head, *case.dilation)
    padding = (*(lift * (0,)), *(max(pair) for pair in case.pads))
    extra = (*(lift * (0,)), *case.output_padding)
    if direction == "fwd":
        crop = (slice(None), slice(None), *(lift * (slice(None),)), *(slice(0, n) for n in case.y_shape[2:]))
        exact = all(lo == hi for lo, hi in case.pads)
        functional = torch.nn.functional
        if case.transposed:
            conv = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[first.dim() - 3]
            call = lambda a, b: conv(a, b, None, stride, padding, extra, case.groups, dilation)  # noqa: E731
        else:
            conv = (functional.conv1d, functional.conv2d, functional.conv3d)[first.dim() - 3]
            call = lambda a, b: conv(a, b, None, stride, padding, dilation, case.groups)  # noqa: E731
        # Padding here is the same on both sides: what the larger side brings in excess is cut off by a view.
        return _ready(call if exact else lambda a, b: call(a, b)[crop], inputs, lambda y: _array(y[crop], lift))
    shape = case.x_shape if direction == "dx" else case.w_shape
    unused = torch.zeros((*shape[:2], *head, *shape[2:]), dtype=first.dtype, device=first.device).contiguous(memory_format=memory_format)
    which, mask = (0, [True, False, False]) if direction == "dx" else (1, [False, True, False])
    backward = torch.ops.aten.convolution_backward.default
    options = (None, stride, padding, dilation, case.transposed, extra, case.groups, mask)

    def gradient(a: Any, b: Any) -> Any:
        dy, x, w = (a, unused, b) if direction == "dx" else (b, a, unused)
        return backward(dy, x, w, *options)[which]

    return _ready(gradient, inputs, lambda result: _array(result, lift))


def _ready(call: Any, inputs: list[Any], read: Any) -> Ready:
    """On a GPU calls are queued in order: a step waits for its own, a burst for the last."""
    wait = torch.cuda.synchronize if DEVICE == "cuda" else lambda: None

    def step() -> Any:
        result = call(*inputs[0])
        wait()
        return result

    def burst(count: int) -> None:
        for number in range(count):
            call(*inputs[number % len(inputs)])
        wait()

    return Ready(step, read, burst if PLATFORM else None)


def _kernel(case: Case, second: NDArray[Any]) -> NDArray[Any]:
    """True convolution is correlation with the reversed kernel."""
    return flipped_taps(second) if case.op == "convn" else second


def _tensor(array: NDArray[Any]) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16).to(DEVICE)
    return torch.from_numpy(np.ascontiguousarray(array)).to(DEVICE)


def _array(tensor: Any, lift: bool) -> NDArray[Any]:
    tensor = (tensor.squeeze(2) if lift else tensor).contiguous().cpu()
    if tensor.dtype == torch.bfloat16:
        from ml_dtypes import bfloat16

        return tensor.view(torch.uint16).numpy().view(bfloat16)
    return tensor.numpy()
