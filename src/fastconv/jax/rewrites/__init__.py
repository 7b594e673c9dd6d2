"""Convolutions as other programs of lax's operations that XLA and the vendors' libraries run fast: pure functions, as rows of a table.

pad, reshape, slice, reversal, transposition, product and plain convolution only: no gather and no call of foreign code, so XLA's
sharding, fusion and choice of kernels stay in force.
"""

from fastconv.jax.rewrites.call import Call
from fastconv.jax.rewrites.fold import FOLD, REGROUP
from fastconv.jax.rewrites.overlap import OVERLAP
from fastconv.jax.rewrites.patches import PATCHES
from fastconv.jax.rewrites.per_output import PER_OUTPUT
from fastconv.jax.rewrites.per_tap import PER_TAP
from fastconv.jax.rewrites.phases import PHASES
from fastconv.jax.rewrites.steps import Rewrite
from fastconv.jax.rewrites.swap import SWAP

REWRITES: tuple[Rewrite, ...] = (PHASES, OVERLAP, SWAP, PATCHES, PER_TAP, PER_OUTPUT, FOLD, REGROUP)

__all__ = ["REWRITES", "Call", "Rewrite"]
