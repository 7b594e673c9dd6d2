"""The algorithms of the library; codes are part of the C ABI (csrc/engine.cc)."""

from __future__ import annotations

from fastconv.plan.converted import through_reals
from fastconv.plan.row import Algorithm
from fastconv.plan.rows.block import BLOCK
from fastconv.plan.rows.depthwise import DEPTHWISE
from fastconv.plan.rows.direct import DIRECT
from fastconv.plan.rows.dots import DOTS
from fastconv.plan.rows.general import GENERAL
from fastconv.plan.rows.grouped import GROUPED
from fastconv.plan.rows.outer import OUTER
from fastconv.plan.rows.points import POINTS
from fastconv.plan.rows.reduce import REDUCE
from fastconv.plan.rows.stencil import STENCIL
from fastconv.plan.rows.winograd import WINOGRAD

#: Those of real numbers, which serve other types on copies.
_REAL = (DIRECT, STENCIL, REDUCE, OUTER, BLOCK, WINOGRAD, DEPTHWISE, POINTS, GROUPED)

ALGORITHMS: tuple[Algorithm, ...] = (GENERAL, *map(through_reals, _REAL), DOTS)
