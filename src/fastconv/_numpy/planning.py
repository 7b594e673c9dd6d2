"""plan, info, and the number of threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastconv import _core
from fastconv._numpy.general import dtype_name
from fastconv.normalise import OPERATIONS, ConvDims, Epilogue, Spec, family
from fastconv.normalise.arguments import integer, one_of
from fastconv.plan import FFT, Plan, choose


def plan(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *,
    dtype: Any = "float32",
    op: str = "conv",
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] | Sequence[tuple[int, int]] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    flip: bool = False,
    transposed: bool = False,
    output_padding: int | Sequence[int] = 0,
    layout: str = "NC",
    precision: str | None = None,
) -> Plan:
    """The algorithm that a call on C-ordered arrays would use, why, and what it is expected to cost; nothing is computed.

    x_shape, w_shape: the shapes of the forward call's x and w. op: "conv", "conv_transpose", "input_grad" or "weight_grad";
    transposed=True makes a gradient that of a transposed convolution. The other options are those of `conv`.
    Returns a `Plan` with .algorithm, .seconds, .workspace_bytes, .bound and .considered: for each algorithm its seconds, modelled or
    measured by `fastconv tune`, or the reason why it was not taken; str(plan) lists them. docs/design.md says what each
    algorithm is; the approximate ones, "winograd" and "fft", are never taken with precision="highest".

    Raises: ValueError, TypeError as `conv`.

    >>> plan((1, 1, 8), (1, 1, 3), padding=1).problem.axes[0].out
    8

    Reference: Frigo and Johnson 2005, The Design and Implementation of FFTW3 (plans as values).
    """
    op = one_of("op", op, OPERATIONS)
    dims = ConvDims(
        x_shape,
        w_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        flip=flip,
        transposed=True if op == "conv_transpose" else transposed,
        output_padding=output_padding,
        layout=layout,
    )
    shapes = {
        "input_grad": (dims.output_shape, dims.w_shape),
        "weight_grad": (dims.x_shape, dims.output_shape),
    }.get(op, (dims.x_shape, dims.w_shape))
    element = dtype_name("dtype", dtype)
    first, second = (Spec.contiguous(shape, element) for shape in shapes)
    return choose(family(op, dims, first, second, Epilogue(precision=precision)).problem, extra=(FFT,))


def set_num_threads(n: int | None) -> None:
    """Sets how many threads a call may use from now on, the caller included; None restores the default.

    The default is FASTCONV_NUM_THREADS, else the number of CPUs this process may run on. Results do not depend on it.

    Raises: ValueError, TypeError unless n is None or an int of at least 1.

    >>> set_num_threads(2); get_num_threads()
    2
    """
    _core.set_threads(0 if n is None else integer("n", n, 1))


def get_num_threads() -> int:
    """How many threads a call may use, the caller included."""
    return _core.get_threads()


def info() -> dict[str, Any]:
    """What this installation is and runs on: versions, CPU, ISA level, threads, kernels, XLA handler, library file.

    >>> info()["threads"] == get_num_threads()
    True
    """
    return {
        "fastconv": _core.VERSION,
        "numpy": np.__version__,
        "cpu": _core.cpu(),
        "isa": _core.isa(),
        "isas": _core.isas(),
        "threads": _core.get_threads(),
        "default_threads": _core.default_threads(),
        "kernels": len(_core.kernels()),
        "xla": _core.has_xla(),
        "library": _core.library_path(),
    }
