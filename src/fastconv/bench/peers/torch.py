"""PyTorch on the CPU: functional forward, and the gradients by the operator that autograd itself calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported, flipped_taps

_FORMATS = {2: torch.channels_last, 3: torch.channels_last_3d}


def start(threads: int) -> str:
    """Sets the threads, switches autograd off and returns the version."""
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
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
            step = lambda: conv(first, second, None, stride, padding, extra, case.groups, dilation)  # noqa: E731
        else:
            conv = (functional.conv1d, functional.conv2d, functional.conv3d)[first.dim() - 3]
            step = lambda: conv(first, second, None, stride, padding, dilation, case.groups)  # noqa: E731
        # Padding here is the same on both sides: what the larger side brings in excess is cut off by a view.
        return Ready(step if exact else lambda: step()[crop], lambda y: _array(y[crop], lift))
    shape = case.x_shape if direction == "dx" else case.w_shape
    unused = torch.zeros((*shape[:2], *head, *shape[2:]), dtype=first.dtype).contiguous(memory_format=memory_format)
    dy, x, w = (first, unused, second) if direction == "dx" else (second, first, unused)
    which, mask = (0, [True, False, False]) if direction == "dx" else (1, [False, True, False])
    backward = torch.ops.aten.convolution_backward.default
    arguments = (dy, x, w, None, stride, padding, dilation, case.transposed, extra, case.groups, mask)
    return Ready(lambda: backward(*arguments)[which], lambda gradient: _array(gradient, lift))


def _kernel(case: Case, second: NDArray[Any]) -> NDArray[Any]:
    """True convolution is correlation with the reversed kernel."""
    return flipped_taps(second) if case.op == "convn" else second


def _tensor(array: NDArray[Any]) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def _array(tensor: Any, lift: bool) -> NDArray[Any]:
    tensor = (tensor.squeeze(2) if lift else tensor).contiguous()
    if tensor.dtype == torch.bfloat16:
        from ml_dtypes import bfloat16

        return tensor.view(torch.uint16).numpy().view(bfloat16)
    return tensor.numpy()
