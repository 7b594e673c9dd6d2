"""The algorithms of a problem as calls: of the library and of transforms on NumPy buffers, and of compiled JAX programs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fastconv import _core
from fastconv.check import operand as drawn
from fastconv.plan import ALGORITHMS, FFT, Plan, choose, forced, this_machine, wisdom
from fastconv.plan.row import Algorithm, refusal
from fastconv.problem import ConvProblem, Operand
from fastconv.reference import numpy_dtype

#: Algorithms modelled at more than this many times the cheapest do not run.
HOPELESS = 10.0

Calls = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Race:
    """One problem: its wisdom key, the planner's choice by its models, the rows that may run, and how they are called."""

    key: str
    text: str
    before: str
    rows: tuple[Algorithm, ...]
    calls: Callable[[], Calls]


def on_arrays(problem: ConvProblem) -> Race | None:
    """The race of a problem of the NumPy front; None where there is no choice."""
    return _race(problem, (FFT,), lambda names: _array_calls(problem, names))


def in_programs(avals: Any, params: dict[str, Any], plan: Plan) -> Race | None:
    """The race of a convolution of a JAX program."""
    from fastconv.jax.spectral import FFT as XLA_FFT
    from fastconv.jax.xla import XLA

    return _race(plan.problem, (XLA, XLA_FFT), lambda names: _program_calls(avals, params, names))


def _race(problem: ConvProblem, extra: tuple[Algorithm, ...], calls: Callable[[list[str]], Calls]) -> Race | None:
    machine = this_machine()
    rows = [row for row in (*ALGORITHMS, *extra) if refusal(row, problem, machine) is None]
    costs = {row.name: row.seconds(problem, machine) for row in rows}
    rows = [row for row in rows if costs[row.name] <= HOPELESS * min(costs.values())]
    if len(rows) < 2:
        return None
    before = choose(problem, machine, extra).algorithm
    lhs, rhs, out = ("x".join(map(str, extents)) for extents in (problem.lhs_extents, problem.rhs_extents, problem.out_extents))
    text = f"{problem.dtype} {lhs} * {rhs} -> {out}"
    return Race(wisdom.key(problem, extra), text, before, tuple(rows), lambda: calls([row.name for row in rows]))


def _array_calls(problem: ConvProblem, names: list[str]) -> Calls:
    rng = np.random.default_rng(0)
    laid = [
        _laid(operand, extents)
        for operand, extents in (
            (problem.lhs, problem.lhs_extents),
            (problem.rhs, problem.rhs_extents),
            (problem.out, problem.out_extents),
        )
    ]
    problem = replace(problem, lhs=laid[0][0], rhs=laid[1][0], out=laid[2][0])
    lhs, rhs = (drawn(rng, elements, problem.dtype, False) for _, elements in laid[:2])
    out = np.zeros(laid[2][1], numpy_dtype(problem.out_dtype))
    bias = None
    if problem.bias_stride is not None:
        bias = drawn(rng, problem.groups * problem.features * problem.bias_stride, problem.dtype, False)
    calls: Calls = {}
    for row in ALGORITHMS:
        if row.name in names:
            calls[row.name] = _library_call(problem.words(row.code), lhs, rhs, bias, out)
    if FFT.name in names:
        from fastconv._numpy.spectral import Prepared

        calls[FFT.name] = partial(Prepared(problem).run, lhs, rhs, bias, out)
    return calls


def _laid(where: Operand, extents: tuple[int, ...]) -> tuple[Operand, int]:
    """The operand moved so that its lowest element is element 0 of a buffer, and the elements of that buffer."""
    reach = [(extent - 1) * stride for extent, stride in zip(extents, (*where.outer, *where.spatial), strict=True)]
    low, high = sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach)
    return replace(where, offset=-low), high - low + 1


def _library_call(words: tuple[int, ...], lhs: Any, rhs: Any, bias: Any, out: Any) -> Callable[[], object]:
    arrays = (lhs, rhs, bias, out)
    memory = (ctypes.c_int64 * (len(words) + 8))(*words, *(bound for a in arrays for bound in (0, 0 if a is None else a.size)))
    at = ctypes.addressof(memory)
    where = (ctypes.c_void_p(at), len(words), *(None if a is None else a.ctypes.data for a in arrays), ctypes.c_void_p(at + 8 * len(words)))

    def call(alive: object = (memory, arrays)) -> None:
        """`alive`: what the addresses point to."""
        if _core.conv(*where):
            raise _core.error()

    return call


def _program_calls(avals: Any, params: dict[str, Any], names: list[str]) -> Calls:
    import jax

    from fastconv.jax import _compat, accelerate

    rng = np.random.default_rng(0)
    operands = [jax.device_put(drawn(rng, tuple(map(int, aval.shape)), np.dtype(aval.dtype).name, False)) for aval in avals]
    calls: Calls = {}
    for name in names:
        with forced(name), accelerate():
            compiled = jax.jit(lambda lhs, rhs: _compat.conv_general_dilated_p.bind(lhs, rhs, **params)).lower(*operands).compile()
        calls[name] = partial(_waited, compiled, *operands)
    return calls


def _waited(compiled: Any, *operands: Any) -> None:
    compiled(*operands).block_until_ready()
