"""Convolution at machine speed: forward, transposed, both gradients, grouped, dilated, any number of axes, on NumPy arrays.

`fastconv.jax` does the same for unmodified JAX programs.
"""

from fastconv._core import VERSION as __version__
from fastconv._numpy import (
    conv,
    conv_general_dilated,
    conv_input_grad,
    conv_transpose,
    conv_weight_grad,
    convn,
    get_num_threads,
    info,
    plan,
    set_num_threads,
)
from fastconv.normalise import ConvDims

__all__ = [
    "ConvDims",
    "__version__",
    "conv",
    "conv_general_dilated",
    "conv_input_grad",
    "conv_transpose",
    "conv_weight_grad",
    "convn",
    "get_num_threads",
    "info",
    "plan",
    "set_num_threads",
]
