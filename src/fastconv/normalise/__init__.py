"""User arguments -> `ConvProblem`: shapes, strides, dtypes and options in, a checked problem out; no arrays.

arguments: integers, pairs and names with their errors. dims: the geometry of the `fc.conv` family (`ConvDims`).
family: the four operations of that family. lax: `conv_general_dilated`. full: `convn`.
"""

from fastconv.normalise.arguments import Spec
from fastconv.normalise.dims import ConvDims
from fastconv.normalise.family import OPERATIONS, Call, Epilogue, family
from fastconv.normalise.full import convn
from fastconv.normalise.lax import conv_general_dilated

__all__ = ["OPERATIONS", "Call", "ConvDims", "Epilogue", "Spec", "conv_general_dilated", "convn", "family"]
