"""Our kernels under automatic sharding: what a partitioner has to know of a convolution, and the convolution of each device's part.

A rule names the factors of the sum: batch, output features and groups may be split without any exchange, input channels with one
sum over devices. Spatial axes may not: neighbours would have to exchange borders, as XLA's own operation does, so they are gathered.
"""

from __future__ import annotations

import re
from functools import partial
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple

import jax
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from fastconv.jax import _compat, source

#: Whether convolutions of programs that XLA partitions are taken over; part of the key of every cache of JAX.
wanted = _compat.user_context(False)

#: One of the two outer axes of an operand: (0 lhs, 1 rhs, 2 out; 0 batch or output feature, 1 feature or input feature).
Place = tuple[int, int]


class Factor(NamedTuple):
    """An index of the sum that may be split over devices, and the axes it runs along; at places[0] its split is looked for first.

    groups: it counts groups, and shares its axes with an index that is not split. summed: results of its parts are added up.
    """

    name: str
    places: tuple[Place, ...]
    groups: str | None = None
    summed: bool = False


_BATCH = Factor("n", ((2, 0), (0, 0)))
_CHANNELS = Factor("c", ((0, 1), (1, 1)), summed=True)
_FEATURES = Factor("o", ((2, 1), (1, 0)))
_FEATURE_GROUPS = Factor("g", ((2, 1), (0, 1), (1, 0)), "feature_group_count")
_BATCH_GROUPS = Factor("b", ((2, 1), (1, 0), (0, 0)), "batch_group_count")


def factors(params: dict[str, Any]) -> tuple[Factor, ...]:
    """The factors of a convolution. Indices that share an axis with groups are split with them only."""
    if params["feature_group_count"] > 1:
        return _BATCH, _FEATURE_GROUPS
    if params["batch_group_count"] > 1:
        return _BATCH_GROUPS, _CHANNELS
    return _BATCH, _FEATURES, _CHANNELS


class Rule(NamedTuple):
    """A sharding rule in JAX's einsum-like words, the sizes of factors that never have an axis to themselves, and the kinds of factors."""

    text: str
    sizes: dict[str, Any]
    reduced: tuple[str, ...]
    whole: tuple[str, ...]


def rule(lhs: tuple[int, ...], rhs: tuple[int, ...], params: dict[str, Any]) -> Rule:
    """n batch, o features, c channels, g groups of features, b groups of the batch; s, k, p spatial axes of lhs, rhs, out."""
    numbers, groups, batch_groups = params["dimension_numbers"], params["feature_group_count"], params["batch_group_count"]
    batch, features = lhs[numbers.lhs_spec[0]] // batch_groups, rhs[numbers.rhs_spec[0]] // groups // batch_groups
    extents = {"n": batch, "c": rhs[numbers.rhs_spec[1]], "o": features, "g": groups, "b": batch_groups}
    outer = (("bn", "gc"), ("bgo", "c"), ("n", "bgo"))  # groups and what is within them share an axis
    sizes, alone, operands = {}, set(), []
    for pair, letter, spec in zip(outer, "skp", numbers, strict=True):
        placed = dict(zip(spec, (*pair, *(f"{letter}{axis}" for axis in range(len(spec) - 2))), strict=True))
        for position in spec[:2]:
            shared = [name for name in placed[position] if extents[name] > 1] or [placed[position][-1]]
            placed[position] = shared[0] if len(shared) == 1 else f"({' '.join(shared)})"
            alone |= set(shared) if len(shared) == 1 else set()
            sizes |= {name: extents[name] for name in shared}
        operands.append(" ".join(placed[position] for position in range(len(spec))))
    text = f"{operands[0]}, {operands[1]} -> {operands[2]}"
    names = list(dict.fromkeys(re.findall(r"\w+", text)))  # JAX wants special factors in the order in which they appear
    split = {factor.name: factor.summed for factor in factors(params)}
    return Rule(
        text,
        {name: size for name, size in sizes.items() if name not in alone},
        tuple(name for name in names if split.get(name)),
        tuple(name for name in names if name not in split),
    )


def take(sharded: bool) -> None:
    """Takes over convolutions of partitioned programs, for all threads, or leaves them to XLA."""
    from fastconv.jax.primitive import conv_p  # which imports the lowering that asks here

    _compat.set_globally(wanted, sharded)
    if _compat.unserved is not None:
        return
    for primitive in (_compat.conv_general_dilated_p, conv_p):
        _compat.needs_devices(primitive, sharded)


def possible(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether this program's partitioner asks rules, and the convolution has something to split."""
    avals: list[Any] = [*ctx.avals_in, *ctx.avals_out]
    return wanted.value and _compat.partitions_by_rules(ctx) and all(0 not in aval.shape for aval in avals)


def lowered(ctx: mlir.LoweringRuleContext, lhs: Any, rhs: Any, params: dict[str, Any]) -> Any:
    """The convolution as an operation that the partitioner splits by our rule, and whose parts always ask the engine."""
    from jax.experimental.custom_partitioning import custom_partitioning

    from fastconv.jax.primitive import conv_p

    x, w = (tuple(aval.shape) for aval in ctx.avals_in)  # pyright: ignore[reportAttributeAccessIssue]
    found = rule(x, w, params)
    call = custom_partitioning(lambda x, w: conv_p.bind(x, w, **params))
    call.def_partition(
        partition=partial(_partition, conv_p, params, source.line(ctx)),
        sharding_rule=found.text,
        reduction_factors=found.reduced,
        need_replication_factors=found.whole,
        **found.sizes,
    )

    def named(x: Any, w: Any) -> Any:
        return call(x, w)

    named.__name__ = name_of(params)
    return mlir.lower_fun(jax.jit(named), multiple_results=False)(ctx, lhs, rhs)


def name_of(params: dict[str, Any]) -> str:
    """A name for the function around the partitioner's operation, which itself shows shapes only: programs that JAX's compilation cache
    keeps on disk are told apart by their text."""
    text = repr(sorted((name, str(value)) for name, value in params.items()))
    return f"fastconv_{blake2b(text.encode(), digest_size=8).hexdigest()}"


def _partition(primitive: Any, params: dict[str, Any], line: str | None, mesh: Any, operands: Any, result: Any) -> Any:
    """What the partitioner asks for: each device's function, and how result and operands are to lie."""
    source.of_parts(line)
    numbers, arrays = params["dimension_numbers"], (*operands, result)
    local, axes, summed = dict(params), {}, ()
    for factor in factors(params):
        names = _split(factor, params, mesh, arrays, {name for found in axes.values() for name in found})
        axes |= dict.fromkeys(factor.places, names)
        if factor.groups is not None:
            local[factor.groups] //= prod(mesh.shape[name] for name in names)
        if factor.summed:
            summed = names

    def convolve(x: Any, w: Any) -> Any:
        y = primitive.bind(x, w, **local)
        return jax.lax.psum(y, summed) if summed else y

    placed = []
    for operand, spec in enumerate(numbers):
        entries = {spec[outer]: axes.get((operand, outer)) or None for outer in range(2)}
        placed.append(NamedSharding(mesh, PartitionSpec(*(entries.get(position) for position in range(len(spec))))))
    return mesh, convolve, placed[2], tuple(placed[:2])


def _split(factor: Factor, params: dict[str, Any], mesh: Any, arrays: tuple[Any, ...], taken: set[str]) -> tuple[str, ...]:
    """The axes of the mesh over which a factor is split: those of the first place that is, if all parts come out equal."""
    numbers = params["dimension_numbers"]
    extents = [arrays[operand].shape[numbers[operand][outer]] for operand, outer in factor.places]
    if factor.groups is not None:
        extents.append(params[factor.groups])
    for operand, outer in factor.places:
        names = _names(arrays[operand].sharding, numbers[operand][outer])
        count = prod(mesh.shape[name] for name in names)
        if names and not taken & set(names) and all(extent % count == 0 for extent in extents):
            return names
    return ()


def _names(sharding: Any, axis: int) -> tuple[str, ...]:
    """The axes of the mesh that split one axis of an array."""
    spec = () if sharding is None else tuple(sharding.spec)
    entry = spec[axis] if axis < len(spec) else None
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)
