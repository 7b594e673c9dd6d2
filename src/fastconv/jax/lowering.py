"""Lowers one convolution: to a call of the engine where that is possible and modelled faster, else by JAX's own rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from threading import local
from typing import Any

import jax.ffi
import numpy as np
from jax.interpreters import mlir
from numpy.typing import NDArray

from fastconv import _core
from fastconv.jax import _compat, sharded, spectral
from fastconv.jax.epilogue import finish
from fastconv.jax.records import record, timing
from fastconv.jax.rewrites import table
from fastconv.jax.spectral import FFT
from fastconv.jax.xla import XLA
from fastconv.normalise import Epilogue, Spec, conv_general_dilated
from fastconv.normalise.lax import precision_name
from fastconv.plan import ALGORITHMS, Plan, choose, forced_name, this_machine
from fastconv.plan.row import refusal
from fastconv.problem import DTYPE_CODES, ConvProblem
from fastconv.rewrite import flipped

#: The symbol of the handler and its name at XLA. The number changes with the meaning of the words, so that a program compiled
#: against another version is refused, never misread.
TARGET = "fastconv_conv_v1"
#: The same handler for programs whose calls are counted: it takes the convolution's key as well.
COUNTED = "fastconv_counted_v1"

#: Whether programs that are exported may hold the engine's calls (`exporting.export`); part of the key of JAX's caches.
calls_exported = _compat.user_context(False)

#: What `fastconv tune` hears of every convolution: operands' avals, the primitive's parameters, and the plan if there was one.
posed: Callable[[Any, dict[str, Any], Plan | None], None] | None = None


@dataclass(frozen=True, slots=True)
class Decline:
    """Why a convolution is left to XLA. kind: one of KINDS, for counting; text: for reading."""

    kind: str
    text: str
    plan: Plan | None = None


KINDS = ("dtype", "symbolic", "export", "partitioned", "unsupported", "slower", "library", "error")


def lower(
    original: _compat.Rule, ctx: mlir.LoweringRuleContext, lhs: Any, rhs: Any, *bias: Any, activation: str | None = None, **params: Any
) -> Any:
    """The lowering rule. Whatever goes wrong before the engine is chosen ends in JAX's own rule, with the reason on record.

    A bias and an activation (of `fused`'s convolution) go with the sum into the engine, or are added behind it.
    """
    bare = ctx.replace(avals_in=ctx.avals_in[:2])
    epilogue = partial(finish, params["dimension_numbers"].out_spec[1], activation)

    def behind(sums: Any) -> Any:
        """The operations that put the bias and the activation behind a convolution's."""
        if not bias and activation is None:
            return sums
        return mlir.lower_fun(epilogue, multiple_results=False)(ctx.replace(avals_in=[*ctx.avals_out, *ctx.avals_in[2:]]), *sums, *bias)

    try:
        decision = _decided(ctx, params, activation)
        if isinstance(decision, Decline) and decision.kind == "partitioned" and sharded.possible(ctx):
            return behind(sharded.lowered(bare, lhs, rhs, params))  # its parts come here one by one
    except Exception as error:
        decision = Decline("error", f"an error of fastconv: {type(error).__name__}: {error}")
        warnings.warn(f"fastconv.jax left a convolution to XLA because of {decision.text}", RuntimeWarning, stacklevel=2)
    counted = not isinstance(decision, Decline) and bool(decision.words)  # what runs as XLA's operations has no words
    counts = timing.value and counted and not _compat.for_export(ctx)
    key = record(bare, params, decision, counts)
    if posed is not None:
        posed(bare.avals_in, params, decision.plan if isinstance(decision, Decline) else decision)
    if isinstance(decision, Decline):
        return behind(original(bare, lhs, rhs, **params))
    if decision.algorithm.startswith(table.PREFIX):
        return behind(table.lowered(decision, bare, lhs, rhs, params))
    if decision.algorithm == FFT.name:
        problem = decision.problem.without_epilogue
        by_transforms = partial(spectral.conv, problem, params["dimension_numbers"], partial(_by_library, ctx, problem))
        whole = lambda x, w, *b: epilogue(by_transforms(x, w), *b)  # noqa: E731
        return mlir.lower_fun(whole, multiple_results=False)(ctx, lhs, rhs, *bias)
    words, rhs = _read_backwards(decision, rhs, params)
    if counts:
        return jax.ffi.ffi_lowering(COUNTED)(ctx, lhs, rhs, *bias, words=words, key=np.int64(key))
    return jax.ffi.ffi_lowering(TARGET)(ctx, lhs, rhs, *bias, words=words)


def _read_backwards(plan: Plan, rhs: Any, params: dict[str, Any]) -> tuple[NDArray[np.int64], Any]:
    """The words and the kernel of a call: one that the program reverses, as input gradients do, is read backwards and never copied."""
    kernel, reversed_dims = _compat.reversal(rhs)
    taps = params["dimension_numbers"].rhs_spec[2:]
    (row,) = (row for row in ALGORITHMS if row.name == plan.algorithm)
    if reversed_dims and reversed_dims <= set(taps):
        flips = [dim in reversed_dims for dim in taps]
        extents = [axis.kernel if flip else 1 for axis, flip in zip(plan.problem.axes, flips, strict=True)]
        backwards = flipped(plan.problem.rhs, tuple(extents))
        steps = zip(plan.problem.rhs.spatial, backwards.spatial, flips, strict=True)
        backwards = replace(backwards, spatial=tuple(back if flip else step for step, back, flip in steps))
        problem = replace(plan.problem, rhs=backwards)
        if refusal(row, problem, this_machine()) is None:
            return np.array(problem.words(row.code), np.int64), kernel
    return np.array(plan.words, np.int64), rhs


def _by_library(ctx: mlir.LoweringRuleContext, problem: ConvProblem, lhs: Any, rhs: Any) -> Any:
    """The convolution by the engine, as an operation of a traced function."""
    out: Any = ctx.avals_out[0]
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(out.shape, out.dtype))
    return call(lhs, rhs, words=np.array(choose(replace(problem, precision="highest")).words, np.int64))


_latest = local()


def _decided(ctx: mlir.LoweringRuleContext, params: dict[str, Any], activation: str | None) -> Plan | Decline:
    """`decide`, once for equal convolutions of one program: they are lowered one by one, each with its own line."""
    program = _compat.program_of(ctx)
    if getattr(_latest, "program", None) is not program:
        _latest.program, _latest.found = program, {}
    avals: list[Any] = [*ctx.avals_in, *ctx.avals_out]
    shown = tuple((aval.shape, str(aval.dtype)) for aval in avals), tuple(sorted(params.items())), activation
    key = shown, _compat.devices_shared(ctx), calls_exported.value, forced_name()
    if key not in _latest.found:
        _latest.found[key] = decide(ctx, params, activation)
    return _latest.found[key]


def decide(ctx: mlir.LoweringRuleContext, params: dict[str, Any], activation: str | None = None) -> Plan | Decline:
    """The plan of a convolution, or the reason why XLA gets it."""
    avals: list[Any] = [*ctx.avals_in, *ctx.avals_out]
    for name in (np.dtype(aval.dtype).name for aval in avals):
        if name not in DTYPE_CODES:
            return Decline("dtype", f"dtype {name} is not one of fastconv's")
    if not all(isinstance(extent, (int, np.integer)) for aval in avals for extent in aval.shape):
        return Decline("symbolic", "sizes are symbolic")
    try:
        problem = problem_of(avals, params, activation)
    except (TypeError, ValueError) as error:
        return Decline("unsupported", str(error))
    if (forced_name() or "").startswith(table.PREFIX):  # lax's own operations: they can be exported and partitioned
        plan = choose(problem.without_epilogue, extra=(XLA, FFT, *table.ROWS))
        if plan.algorithm == forced_name():
            return plan
    if _compat.for_export(ctx) and not calls_exported.value:
        return Decline("export", "the program is exported, and must run without fastconv")
    devices = _compat.devices_shared(ctx)
    if devices != 1:
        return Decline("partitioned", f"XLA partitions the program over {devices} devices")
    if (trouble := register_target()) is not None:
        plan = choose(problem.without_epilogue, extra=(XLA,), rows=table.ROWS)
        return plan if plan.algorithm != XLA.name else Decline("library", trouble, plan)
    plan = choose(problem, extra=(XLA, FFT))
    if plan.algorithm != XLA.name:
        return plan
    ours = {name: verdict for name, verdict in plan.considered.items() if name != XLA.name}
    times = {name: verdict for name, verdict in ours.items() if not isinstance(verdict, str)}
    if not times:
        return Decline("unsupported", "; ".join(f"{name}: {verdict}" for name, verdict in ours.items()), plan)
    best = min(times, key=lambda name: times[name])
    return Decline("slower", f"XLA is modelled faster ({plan.seconds * 1e6:.1f} us against {times[best] * 1e6:.1f} us of {best})", plan)


def problem_of(avals: list[Any], params: dict[str, Any], activation: str | None = None) -> ConvProblem:
    """The convolution as the engine's problem, on the row-major buffers that XLA passes to a call. avals: lhs, rhs, perhaps bias, out."""
    lhs, rhs, *bias, out = (Spec.contiguous(tuple(map(int, aval.shape)), np.dtype(aval.dtype).name) for aval in avals)
    call = conv_general_dilated(
        lhs,
        rhs,
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        tuple(params["dimension_numbers"]),
        params["feature_group_count"],
        params["batch_group_count"],
        preferred_element_type=out.dtype,
        epilogue=Epilogue(bias[0] if bias else None, activation, precision_name(params["precision"])),
    )
    if call.out.shape != out.shape:
        raise LookupError(f"{call.out.shape} was worked out where JAX has {out.shape}")
    return call.problem


@cache
def register_target() -> str | None:
    """Makes the handlers known to XLA, once; the reason where XLA refuses them.

    Done at the first convolution and not at import: a handler that is refused while the CPU backend starts takes the backend down.
    """
    if not _core.has_xla():
        return "the library was built without XLA's FFI headers"
    try:
        for target in (TARGET, COUNTED):
            jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(_core.library(), target)), platform="cpu")
    except Exception as error:
        warnings.warn(f"fastconv.jax leaves every convolution to XLA, which refused its handler: {error}", RuntimeWarning, stacklevel=2)
        return f"XLA refused the handler: {error}"
    return None
