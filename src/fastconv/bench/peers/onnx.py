"""ONNX Runtime on the CPU: forward, channels first. The weights are an input, as for everybody else, not a prepacked constant."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplemented_

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported, flipped_taps

#: Element types of ONNX.
_TYPES = {"float32": 1, "float16": 10, "float64": 11}
_threads = 1


def start(threads: int) -> str:
    """Remembers the threads for the sessions and returns the version."""
    global _threads
    _threads = threads
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.__version__


def forms(case: Case, direction: str) -> list[Form]:
    """One form."""
    if direction != "fwd":
        raise Unsupported("gradients")
    if case.dtype not in _TYPES:
        raise Unsupported(f"Conv of {case.dtype}")
    return [Form("NCHW", _session)]


def _session(case: Case, direction: str, x: NDArray[Any], w: NDArray[Any]) -> Ready:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _threads
    options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(_model(case), options, providers=["CPUExecutionProvider"])
    except NotImplemented_ as error:
        raise Unsupported(f"{case.op} of {case.dtype}") from error
    feed = {"x": x, "w": flipped_taps(w) if case.op == "convn" else w}
    return Ready(lambda: session.run(None, feed)[0], lambda y: np.asarray(y))


def _model(case: Case) -> bytes:
    """A graph of one Conv or ConvTranspose, written straight as protocol buffers (field numbers of onnx.proto)."""
    pads = [lo for lo, _ in case.pads] + [hi for _, hi in case.pads]
    attributes = {"strides": case.stride, "dilations": case.dilation, "pads": pads}
    if case.transposed:
        attributes["output_padding"] = case.output_padding
    node = [_text(1, "x"), _text(1, "w"), _text(2, "y"), _text(4, "ConvTranspose" if case.transposed else "Conv")]
    node += [_bytes(5, _text(1, name) + b"".join(_integer(8, v) for v in values) + _integer(20, 7)) for name, values in attributes.items()]
    node.append(_bytes(5, _text(1, "group") + _integer(3, case.groups) + _integer(20, 2)))
    kind = _TYPES[case.dtype]
    shapes = ((11, "x", case.x_shape), (11, "w", case.w_shape), (12, "y", case.y_shape))
    graph = [_bytes(1, b"".join(node)), _text(2, "conv"), *(_bytes(field, _value(name, kind, shape)) for field, name, shape in shapes)]
    return _integer(1, 8) + _bytes(8, _integer(2, 17)) + _bytes(7, b"".join(graph))


def _value(name: str, kind: int, shape: Iterable[int]) -> bytes:
    dims = b"".join(_bytes(1, _integer(1, n)) for n in shape)
    return _text(1, name) + _bytes(2, _bytes(1, _integer(1, kind) + _bytes(2, dims)))


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value % (1 << 64))


def _bytes(field: int, payload: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(payload)) + payload


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))
