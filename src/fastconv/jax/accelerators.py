"""Lowers one convolution for a GPU, a TPU or a platform nobody has heard of: to a rewrite of lax's own operations where that is modelled
faster, else by JAX's rule. No native code of ours takes part, so exported and partitioned programs are served as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from jax.interpreters import mlir

from fastconv.jax import _compat
from fastconv.jax.lowering import Decline, problem_of
from fastconv.jax.records import record
from fastconv.jax.rewrites import table
from fastconv.plan import Plan, choose, forced_name
from fastconv.plan.accelerators import PLATFORMS, accelerator
from fastconv.problem import DTYPE_CODES

#: How many times as fast as XLA a rewrite must be modelled: the models are from data sheets, and what works is better left alone.
PAYS = 1.25


def lower(original: _compat.Rule, platform: str, ctx: mlir.LoweringRuleContext, lhs: Any, rhs: Any, **params: Any) -> Any:
    """The lowering rule of a platform. Whatever goes wrong ends in JAX's own rule, with the reason on record."""
    lowered = None
    try:
        reversed_dims = _compat.reversal(rhs)[1]
        decision = decide(platform, ctx, reversed_dims == set(params["dimension_numbers"].rhs_spec[2:]), params)
        if isinstance(decision, Plan):
            lowered = table.lowered(decision, ctx, lhs, rhs, params)
    except Exception as error:
        decision = Decline("error", f"an error of fastconv: {type(error).__name__}: {error}")
        warnings.warn(f"fastconv.jax left a convolution to XLA because of {decision.text}", RuntimeWarning, stacklevel=2)
    record(ctx, params, decision)
    return original(ctx, lhs, rhs, **params) if lowered is None else lowered


def decide(platform: str, ctx: mlir.LoweringRuleContext, reversed_kernel: bool, params: dict[str, Any]) -> Plan | Decline:
    """The plan of a convolution, or the reason why XLA gets it."""
    avals: list[Any] = [*ctx.avals_in, *ctx.avals_out]
    names = [np.dtype(aval.dtype).name for aval in avals]
    for name in names:
        if name not in DTYPE_CODES:
            return Decline("dtype", f"dtype {name} is not one of fastconv's")
    if not all(isinstance(extent, (int, np.integer)) for aval in avals for extent in aval.shape):
        return Decline("symbolic", "sizes are symbolic")
    try:
        problem = problem_of(avals, params)
    except (TypeError, ValueError) as error:
        return Decline("unsupported", str(error))
    machine = accelerator(platform, _compat.device_kind(ctx, platform))
    try:
        plan = choose(problem, machine, extra=(table.xla_row(reversed_kernel),), rows=table.ROWS)
    except ValueError as error:  # XLA's row refuses where XLA is known to fail
        return Decline("unsupported", str(error))
    if plan.algorithm == "xla":
        times = {name: verdict for name, verdict in plan.considered.items() if name != "xla" and not isinstance(verdict, str)}
        if not times:
            return Decline(
                "unsupported", "; ".join(f"{name}: {verdict}" for name, verdict in plan.considered.items() if name != "xla"), plan
            )
        best = min(times, key=lambda name: times[name])
        return Decline("slower", f"XLA is modelled faster ({plan.seconds * 1e6:.1f} us against {times[best] * 1e6:.1f} us of {best})", plan)
    own = plan.considered["xla"]
    if plan.algorithm != forced_name() and isinstance(own, float) and own < PAYS * plan.seconds:
        return Decline("slower", f"{plan.algorithm} is modelled only {own / plan.seconds:.2f} times as fast as XLA", plan)
    return plan


def register(primitive: Any, guard: Callable[..., Any]) -> None:
    """Puts the rule in front of JAX's on every platform but CPUs: guard(lower, original, ctx, lhs, rhs, **params).

    Platforms with a rule of JAX's keep it as `original`, and those with a rule from elsewhere keep that alone; a common rule serves
    platforms that nobody has heard of.
    """
    originals = _compat.rules()
    common = originals[None]
    for name in (*PLATFORMS, *(name for name in originals if name not in (None, "cpu", *PLATFORMS))):
        original = originals.get(name, common)
        if not _compat.is_jaxs_own(original, common):
            continue
        rule = partial(guard, partial(lower, original, name), original)
        try:
            mlir.register_lowering(primitive, rule, platform=name)
        except NotImplementedError:  # this JAX does not know the platform
            continue
    mlir.register_lowering(primitive, partial(guard, partial(lower, common, ""), common))
