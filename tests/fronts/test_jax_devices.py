"""Programs over many devices: by default XLA partitions as without fastconv; local parts run on the engine; and so do all, where wanted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from jaxtools import jax

from fastconv.jax import _compat
from fastconv.jax.sharded import name_of, rule


def run(mode: str) -> dict[str, Any]:
    script = os.path.join(os.path.dirname(__file__), "devices.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, script, mode], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return run("plain")


@pytest.fixture(scope="module")
def sharded() -> dict[str, Any]:
    found = run("sharded")
    assert found["explicit"] == [True, True]  # jax#31798
    assert found["calls"] == [8]  # two calls on four devices
    return found["partitioned"]


def test_by_default_xla_partitions_as_ever(plain: dict[str, Any]) -> None:
    for name, found in plain["partitioned"].items():
        assert found["ours"]["right"], name
        assert found["ours"]["same program"], name
        assert {tuple(row[2:]) for row in found["ours"]["rows"]} == {(False, "partitioned")}, name


def test_nothing_is_replicated_in_silence(plain: dict[str, Any]) -> None:
    """What splits without an exchange takes every device a quarter of the whole."""
    for name in ("batch", "features", "channels", "batch and features", "depthwise"):
        found = plain["partitioned"][name]
        for mode in ("plain", "ours"):
            assert found[mode]["flops"] < 0.3 * found["plain"]["whole flops"], name
            assert "all-gather" not in found[mode]["collectives"], name
    for name in ("spatial", "batch and length"):
        found = plain["partitioned"][name]["ours"]
        assert set(found["collectives"]) == {"collective-permute"}, name  # neighbours exchange borders
    assert plain["partitioned"]["batch"]["ours"]["shards"] == [[2, 12, 8, 8]]


def test_programs_split_by_hand_run_on_the_engine(plain: dict[str, Any]) -> None:
    """Also jax#16249, #18737: shard_map had no rule for convolutions."""
    assert plain["local"] == {"shard_map": [True, True, 2, 4], "pmap": [True, True, 2, 4], "one of four": [True, True, 8, 1]}


def test_explicit_functions_have_gradients_in_a_shard_map(plain: dict[str, Any]) -> None:
    assert plain["mapped"] == [True, True, True]


def test_jax_31798_gradients_on_an_explicit_mesh(plain: dict[str, Any]) -> None:
    assert plain["explicit"] == [True, True]


def test_jax_32157_per_sample_gradients_of_replicated_arrays(plain: dict[str, Any], sharded: dict[str, Any]) -> None:
    if "nothing is split" not in sharded:
        pytest.skip("this release of JAX has the defect")
    assert plain["partitioned"]["nothing is split"]["ours"]["right"]
    assert sharded["nothing is split"]["ours"]["right"]


def test_jax_28090_a_batch_and_a_length_that_are_split(plain: dict[str, Any], sharded: dict[str, Any]) -> None:
    assert plain["partitioned"]["batch and length"]["ours"]["shards"] == [[8, 64, 11]]
    assert sharded["batch and length"]["ours"]["right"]


#: name: what each device convolves, and the collectives of the whole program.
PARTS = {
    "batch": ([[[2, 8, 8, 8], [12, 8, 3, 3]]], {}),
    "features": ([[[8, 8, 8, 8], [3, 8, 3, 3]]], {}),
    "channels": ([[[8, 2, 8, 8], [12, 2, 3, 3]]], {"all-reduce": 1}),
    "groups": ([[[8, 2, 8, 8], [3, 2, 3, 3]]], {}),
    "depthwise": ([[[8, 8, 8, 2], [3, 3, 1, 2]]], {}),
    "batch and features": ([[[4, 8, 8, 8], [6, 8, 3, 3]]], {}),
    "gradients by batch": ([[[2, 12, 8, 8], [12, 8, 3, 3]], [[2, 8, 8, 8], [2, 12, 8, 8]]], {"all-reduce": 1}),
    "gradients of groups by batch": ([[[2, 12, 8, 8], [3, 8, 3, 3]], [[2, 8, 8, 8], [2, 12, 8, 8]]], {"all-reduce": 1}),
    "gradients of groups": ([[[8, 3, 8, 8], [3, 2, 3, 3]], [[8, 2, 8, 8], [8, 3, 8, 8]]], {}),
    "gradients per sample": ([[[2, 8, 8, 8], [1, 24, 8, 8]]], {}),
    "uneven": ([[[6, 2, 5], [9, 2, 3]]], {"all-reduce": 1}),
}


def test_where_wanted_every_part_runs_on_the_engine(sharded: dict[str, Any]) -> None:
    for name, found in sharded.items():
        assert found["ours"]["right"], name
        assert {tuple(row[2:]) for row in found["ours"]["rows"]} == {(True, None)}, name
        assert found["ours"]["calls"] >= 1, name
        assert found["ours"]["lines"] == ["devices.py"], name


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_what_the_split_leaves(name: str, sharded: dict[str, Any]) -> None:
    parts, collectives = PARTS[name]
    if name not in sharded:
        pytest.skip("this release of JAX fails on it")
    found = sharded[name]["ours"]
    assert sorted({json.dumps(row[:2]) for row in found["rows"]}) == sorted(map(json.dumps, parts))
    assert found["collectives"] == collectives
    assert sum(found["collectives"].values()) <= sum(sharded[name]["plain"]["collectives"].values())


NUMBERS = jax.lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


@pytest.mark.parametrize(
    ("groups", "batch_groups", "channels", "text", "sizes", "summed", "whole"),
    [
        (1, 1, (6, 6, 4), "n s0 s1 c, k0 k1 c o -> n p0 p1 o", {}, "c", "s0 s1 k0 k1 p0 p1"),
        (3, 1, (6, 2, 12), "n s0 s1 (g c), k0 k1 c (g o) -> n p0 p1 (g o)", {"g": 3, "o": 4}, "", "s0 s1 c k0 k1 o p0 p1"),
        (6, 1, (6, 1, 6), "n s0 s1 g, k0 k1 c g -> n p0 p1 g", {}, "", "s0 s1 k0 k1 c p0 p1"),
        (1, 2, (6, 6, 4), "(b n) s0 s1 c, k0 k1 c (b o) -> n p0 p1 (b o)", {"b": 2, "o": 2}, "c", "n s0 s1 k0 k1 o p0 p1"),
    ],
)
def test_rules_in_words(
    groups: int, batch_groups: int, channels: tuple[int, ...], text: str, sizes: dict[str, int], summed: str, whole: str
) -> None:
    params = {"dimension_numbers": NUMBERS, "feature_group_count": groups, "batch_group_count": batch_groups}
    assert tuple(rule((4, 8, 8, channels[0]), (3, 3, *channels[1:]), params)) == (text, sizes, tuple(summed.split()), tuple(whole.split()))


def test_programs_that_differ_in_parameters_only_have_different_texts() -> None:
    params = {"window_strides": (1, 1), "padding": ((1, 1), (1, 1)), "precision": None}
    names = {name_of(params), name_of({**params, "padding": ((0, 2), (1, 1))}), name_of({**params, "precision": jax.lax.Precision.HIGHEST})}
    assert len(names) == 3
    assert name_of(dict(reversed(params.items()))) in names


def test_without_a_mesh_the_partitioner_is_xlas(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nothing:
        module_context = type("M", (), {"axis_context": object()})()

    assert not _compat.partitions_by_rules(Nothing())  # pyright: ignore[reportArgumentType]
