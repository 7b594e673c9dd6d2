"""The JAX front: a switch that sends every convolution of a JAX program to the engine, and explicit functions.

switch: install, uninstall, accelerate. lowering: the rule that decides per convolution. xla: plain JAX's row in the planner.
accelerators, rewrites: the rule and the programs for GPUs, TPUs and unknown platforms.
records, source, forms, compare: what `report` shows. primitive, functions: the explicit functions. run: `fastconv run`.
_compat: all that depends on the version of JAX.
"""

from fastconv.jax.forms import Report
from fastconv.jax.functions import conv, conv_general_dilated, conv_transpose, conv_with_general_padding
from fastconv.jax.records import report
from fastconv.jax.switch import accelerate, install, uninstall

__all__ = [
    "Report",
    "accelerate",
    "conv",
    "conv_general_dilated",
    "conv_transpose",
    "conv_with_general_padding",
    "install",
    "report",
    "uninstall",
]
