"""Programs over four devices of this machine, plain and under fastconv: prints what became of each, as JSON. Run by test_jax_devices.py.

Argument: "plain" (XLA partitions, as by default), "sharded" (`install(sharded=True)`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtools import NO_XLA, conv

import fastconv.jax as fj
from fastconv.jax import lowering, records

COLLECTIVES = ("all-gather", "all-reduce", "collective-permute", "all-to-all")
NHWC, NWC = ("NHWC", "HWIO", "NHWC"), ("NWC", "WIO", "NWC")

MESH = Mesh(np.array(jax.devices()), ("d",))
SQUARE = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes]


def same(x: Any, w: Any, **options: Any) -> Any:
    return conv(x, w, (1,) * (x.ndim - 2), "SAME", **options)


def grouped(x: Any, w: Any) -> Any:
    return same(x, w, feature_group_count=4)


def depthwise(x: Any, w: Any) -> Any:
    return same(x, w, feature_group_count=8, dimension_numbers=NHWC)


def gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, w, c: jax.vjp(function, x, w)[1](c)


def per_sample(x: Any, w: Any, c: Any) -> Any:
    return jax.vmap(lambda x, c: gradients(same)(x[None], w, c[None])[1])(x, c)


def causal(x: Any, w: Any) -> Any:
    return conv(x, w, (1,), ((2, 0),), dimension_numbers=NWC)


X, W, C = (8, 8, 8, 8), (12, 8, 3, 3), (8, 12, 8, 8)
V = (12, 2, 3, 3)
#: name: function, shapes, mesh, how each operand is split.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], Mesh, tuple[Any, ...]]] = {
    "batch": (same, (X, W), MESH, (P("d"), P())),
    "features": (same, (X, W), MESH, (P(), P("d"))),
    "channels": (same, (X, W), MESH, (P(None, "d"), P(None, "d"))),
    "spatial": (same, (X, W), MESH, (P(None, None, "d"), P())),
    "groups": (grouped, (X, V), MESH, (P(None, "d"), P("d"))),
    "depthwise": (depthwise, (X, (3, 3, 1, 8)), MESH, (P(None, None, None, "d"), P(None, None, None, "d"))),
    "batch and features": (same, (X, W), SQUARE, (P("a"), P("b"))),
    "batch and length": (lambda x, w: same(x, w, dimension_numbers=NWC), ((16, 128, 7), (5, 7, 11)), SQUARE, (P("a", "b"), P())),
    "gradients by batch": (gradients(same), (X, W, C), MESH, (P("d"), P(), P("d"))),
    "gradients of groups by batch": (gradients(grouped), (X, V, C), MESH, (P("d"), P(), P("d"))),
    "gradients of groups": (gradients(grouped), (X, V, C), MESH, (P(None, "d"), P("d"), P(None, "d"))),
    "gradients per sample": (per_sample, (X, W, C), MESH, (P("d"), P(), P("d"))),
    "nothing is split": (per_sample, ((8, 1, 4, 4), (1, 1, 3, 3), (8, 1, 4, 4)), MESH, (P(), P(), P())),
    "uneven": (same, ((6, 8, 5), (9, 8, 3)), MESH, (P(None, "d"), P())),
}

if jax.__version_info__ < (0, 8):  # vmap(grad) of sharded arrays fails in JAX itself (jax#32157)
    PROGRAMS = {name: program for name, program in PROGRAMS.items() if program[0] is not per_sample}


def flops(compiled: Any) -> float | None:
    cost = compiled.cost_analysis()
    return (cost[0] if isinstance(cost, list) else cost).get("flops")


def told(function: Callable[..., Any], arrays: list[Any], expected: Any) -> dict[str, Any]:
    """Compiles and runs: is it right, which collectives are in it, how do its results lie, what became of its convolutions."""
    records.clear()
    compiled = jax.jit(lambda *values: function(*values)).lower(*arrays).compile()
    results, text = jax.tree.leaves(compiled(*arrays)), compiled.as_text() or ""
    return {
        "right": all(np.array_equal(mine, value) for mine, value in zip(results, jax.tree.leaves(expected), strict=True)),
        "collectives": {name: count for name in COLLECTIVES if (count := text.count(f" {name}("))},
        "calls": len(re.findall(r'custom_call_target="fastconv_\w+"', text)),
        "shards": [list(result.addressable_shards[0].data.shape) for result in results],
        "flops": flops(compiled),
        "program": re.sub(r", metadata=\{[^}]*\}|FileNames\n.*", "", text, flags=re.DOTALL if "FileNames" in text else 0),
        "rows": [[row.lhs, row.rhs, row.algorithm != "xla", row.kind] for row in records.report().convolutions],
        "lines": sorted({os.path.basename((row.source or "?").rpartition(":")[0]) for row in records.report().convolutions}),
    }


def partitioned(sharded: bool) -> dict[str, Any]:
    found = {}
    for name, (function, shapes, mesh, specs) in PROGRAMS.items():
        arrays = draw(*shapes)
        expected = jax.tree.map(np.asarray, function(*arrays))
        placed = [jax.device_put(array, NamedSharding(mesh, spec)) for array, spec in zip(arrays, specs, strict=True)]
        plain = told(function, placed, expected)
        plain["whole flops"] = flops(jax.jit(lambda *values, f=function: f(*values)).lower(*arrays).compile())
        fj.install(sharded=sharded)
        ours = told(function, placed, expected)
        fj.uninstall()
        ours["same program"] = ours.pop("program") == plain.pop("program")
        found[name] = {"plain": plain, "ours": ours}
    return found


def local() -> dict[str, Any]:
    """Programs that are split by hand: every device has a convolution of its own."""
    x, w = draw(X, W)
    expected = np.asarray(same(x, w))
    sharded, whole = jax.device_put(x, NamedSharding(MESH, P("d"))), jax.device_put(w, NamedSharding(MESH, P()))
    runs = {
        "shard_map": lambda: jax.jit(jax.shard_map(same, mesh=MESH, in_specs=(P("d"), P()), out_specs=P("d")))(sharded, whole),
        "pmap": lambda: jax.pmap(same, in_axes=(0, None))(x.reshape(4, 2, *X[1:]), w).reshape(expected.shape),
        "one of four": lambda: jax.jit(same)(jax.device_put(x, jax.devices()[2]), jax.device_put(w, jax.devices()[2])),
    }
    found = {}
    for name, run in runs.items():
        records.clear()
        fj.install(timing=True)
        right = np.array_equal(run(), expected)
        fj.uninstall()
        (row,) = records.report().convolutions
        found[name] = [right, row.algorithm != "xla", row.lhs[0], row.calls]
    return found


def mapped_gradients() -> list[bool]:
    """The explicit function in a shard_map, with a kernel and a bias that every device has whole: gradients as lax's."""
    x, w, b = draw(X, W, (W[0],))
    found = []
    for layer in (
        lambda x, w, b: jax.nn.relu(same(x, w) + b[:, None, None]),
        lambda x, w, b: fj.conv(x, w, (1, 1), "SAME", bias=b, activation="relu"),
    ):
        mapped = jax.shard_map(layer, mesh=MESH, in_specs=(P("d"), P(), P()), out_specs=P("d"))
        found.append(jax.jit(jax.grad(lambda *operands, f=mapped: (f(*operands) ** 2).sum(), (0, 1, 2)))(x, w, b))
    return [bool(np.array_equal(ours, theirs)) for theirs, ours in zip(*found, strict=True)]


def explicit(sharded: bool) -> list[bool]:
    """jax#31798: gradients on a mesh whose axes are part of types."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    x, w, c = draw((64, 32, 1), (3, 1, 16), (64, 32, 16))
    expected = gradients(causal)(x, w, c)
    enter = getattr(jax, "set_mesh", None) or getattr(jax.sharding, "use_mesh")  # noqa: B009
    with enter(mesh):
        placed = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((x, P("d")), (w, P()), (c, P("d")))]
        fj.install(sharded=sharded)
        got = jax.jit(gradients(causal))(*placed)
        fj.uninstall()
    return [bool(np.array_equal(mine, value)) for mine, value in zip(got, expected, strict=True)]


def counted() -> list[int | None]:
    x, w = draw(X, W)
    placed = jax.device_put(x, NamedSharding(MESH, P("d"))), jax.device_put(w, NamedSharding(MESH, P()))
    records.clear()
    fj.install(sharded=True, timing=True)
    function = jax.jit(lambda x, w: same(x, w))
    for _ in range(2):
        function(*placed).block_until_ready()
    fj.uninstall()
    return [row.calls for row in records.report().convolutions]


if __name__ == "__main__":
    lowering.XLA = NO_XLA
    if sys.argv[1] == "plain":
        told_of = {"partitioned": partitioned(False), "local": local(), "explicit": explicit(False), "mapped": mapped_gradients()}
        print(json.dumps(told_of))
    else:
        print(json.dumps({"partitioned": partitioned(True), "explicit": explicit(True), "calls": counted()}))
