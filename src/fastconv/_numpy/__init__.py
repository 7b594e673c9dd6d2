"""The NumPy front: arrays and options in, a planned call of the library out.

defaults: option defaults that can be told from given values, and hashable keys. arrays: what an argument may be, and where
its data lies. calls: the cache of planned calls, and the call itself. family, general: the public functions. planning: plan,
info, threads.
"""

from fastconv._numpy.family import conv, conv_input_grad, conv_transpose, conv_weight_grad
from fastconv._numpy.general import conv_general_dilated, convn
from fastconv._numpy.planning import get_num_threads, info, plan, set_num_threads

__all__ = [
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
