"""Each distinct shape of a report alone, on the engine and in XLA: medians of calls on fresh random operands, on the CPU."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from fastconv.jax import _compat, spectral
from fastconv.jax.lowering import TARGET, register_target
from fastconv.jax.switch import unaccelerated
from fastconv.plan import Plan, choose

if TYPE_CHECKING:
    from fastconv.jax.records import Seen

#: Seconds that a shape is measured for, once each engine has run once.
SECONDS = 0.5
Pair = tuple[float | None, float | None]


def medians(convolutions: Sequence[Seen], seconds: float = SECONDS) -> list[Pair]:
    """Per convolution the seconds of one call on the engine and in XLA; None for what the engine cannot run, or has symbolic sizes."""
    found: dict[Hashable, Pair] = {}
    keys = [_key(seen) for seen in convolutions]
    for key, seen in zip(keys, convolutions, strict=True):
        if key not in found:
            try:
                found[key] = _pair(seen, seconds)
            except Exception as error:
                found[key] = None, None
                warnings.warn(
                    f"fastconv.jax could not compare a convolution: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=3
                )
    return [found[key] for key in keys]


def _key(seen: Seen) -> Hashable:
    """What makes two measurements the same."""
    return tuple((aval.shape, str(aval.dtype)) for aval in seen.avals), tuple(
        sorted((name, repr(value)) for name, value in seen.params.items())
    )


def _pair(seen: Seen, seconds: float) -> Pair:
    lhs, rhs, out = seen.avals
    if not all(isinstance(extent, (int, np.integer)) for aval in seen.avals for extent in aval.shape):
        return None, None
    with _compat.double_precision(), jax.default_device(jax.devices("cpu")[0]), unaccelerated():
        operands = [_drawn(aval, seed) for seed, aval in enumerate((lhs, rhs))]
        in_xla = _compiled(partial(_compat.conv_general_dilated_p.bind, **seen.params), operands)
        if (plan := _engines(seen.plan)) is None:
            return None, _race([in_xla], seconds)[0]
        on_engine = _compiled(partial(_by_engine, plan, seen.params["dimension_numbers"], out), operands)
        ours, xla = _race([on_engine, in_xla], seconds)
        return ours, xla


def _drawn(aval: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    whole = jnp.issubdtype(aval.dtype, jnp.integer) or aval.dtype == bool
    return jnp.asarray(rng.integers(0, 2, aval.shape) if whole else rng.standard_normal(aval.shape), aval.dtype)


def _engines(plan: Plan | None) -> Plan | None:
    """The plan that ran, or the engine's best for a convolution that became operations of XLA; None where the engine has none. Without
    an epilogue: XLA's convolution has none."""
    if plan is None or register_target() is not None:
        return None
    sums = plan.problem.without_epilogue
    return plan if sums == plan.problem and (plan.words or plan.algorithm == spectral.FFT.name) else choose(sums)


def _by_engine(plan: Plan, numbers: Any, out: Any, lhs: Any, rhs: Any) -> Any:
    def call(plan: Plan, lhs: Any, rhs: Any) -> Any:
        return jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(out.shape, out.dtype))(lhs, rhs, words=np.array(plan.words, np.int64))

    if plan.algorithm == spectral.FFT.name:
        return spectral.conv(plan.problem, numbers, partial(call, choose(replace(plan.problem, precision="highest"))), lhs, rhs)
    return call(plan, lhs, rhs)


def _compiled(function: Callable[..., Any], operands: list[Any]) -> Callable[[], Any]:
    run = jax.jit(lambda *arrays: function(*arrays)).lower(*operands).compile()
    return lambda: jax.block_until_ready(run(*operands))


def _race(runs: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """Medians, in turns, so that a machine that slows down does so for all. One that takes long is not called often."""
    times = [[_timed(run)] for run in runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for run, taken in zip(runs, times, strict=True):
            if sum(taken) < seconds:
                taken.append(_timed(run))
        if all(sum(taken) >= seconds for taken in times):
            break
    return [median(taken[1:] or taken) for taken in times]  # the first call meets cold caches


def _timed(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
