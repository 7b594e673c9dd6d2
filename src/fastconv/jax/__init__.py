"""The JAX front: a switch that sends every convolution of a JAX program to the engine, and explicit functions.

switch: install, uninstall, accelerate. lowering: the rule that decides per convolution. xla: plain JAX's row in the planner.
accelerators, rewrites: the rule and the programs for GPUs, TPUs and unknown platforms.
records, source, forms, compare: what `report` shows. primitive, fused, epilogue, functions: the explicit functions.
exporting: programs for other machines. run: `fastconv run`. _compat: all that depends on the version of JAX.
"""

from fastconv.jax.exporting import export, register
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
    "export",
    "install",
    "register",
    "report",
    "uninstall",
]
