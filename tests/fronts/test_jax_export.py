"""Programs that outlive their process: exported with and without the engine's calls, compiled and kept, found in JAX's cache on disk."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jax import export
from jaxtools import accelerate, jax, records, x64

import fastconv.jax as fj
from fastconv.jax import lowering

jnp = jax.numpy

X, W = (4, 16, 64), (32, 16, 5)


def convolve(x, w):
    return jax.lax.conv(x, w, (1,), "SAME")


def arrays(dtype=np.float32):
    rng = np.random.default_rng(0)
    return rng.integers(-3, 4, X).astype(dtype), rng.integers(-3, 4, W).astype(dtype)


def test_a_program_is_exported_with_the_engines_call_where_that_is_asked_for() -> None:
    x, w = arrays()
    expected = convolve(x, w)
    records.clear()
    exported = fj.export(jax.jit(convolve))(x, w)
    assert lowering.TARGET in exported.mlir_module()
    assert [row.kind for row in records.report().convolutions] == [None]
    np.testing.assert_array_equal(export.deserialize(exported.serialize()).call(x, w), expected)
    with accelerate():
        assert lowering.TARGET not in export.export(jax.jit(convolve))(x, w).mlir_module()
    assert lowering.TARGET not in export.export(jax.jit(convolve))(x, w).mlir_module()
    assert [row.kind for row in records.report().convolutions] == [None, "export"]


def test_gradients_are_exported_too() -> None:
    x, w = arrays()
    loss = lambda x, w: jnp.sum(jnp.square(fj.conv(x, w, (1,), "SAME", activation="relu")))  # noqa: E731
    gradient = jax.jit(jax.grad(loss, (0, 1)))
    exported = fj.export(gradient)(x, w)
    assert exported.mlir_module().count(f"@{lowering.TARGET}") == 3
    for ours, theirs in zip(exported.call(x, w), gradient(x, w), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("ours", [True, False])
def test_a_program_for_several_platforms(ours: bool) -> None:
    x, w = arrays()
    with accelerate():
        exported = (fj.export if ours else export.export)(jax.jit(convolve), platforms=("cpu", "cuda", "tpu"))(x, w)
    text = exported.mlir_module()
    assert "stablehlo.convolution" in text
    assert (lowering.TARGET in text) == ours
    np.testing.assert_array_equal(export.deserialize(exported.serialize()).call(x, w), convolve(x, w))


@pytest.mark.parametrize("strides", [(1,), (2,)])
def test_symbolic_sizes_stay_with_xla(strides: tuple[int, ...]) -> None:
    x, w = arrays()
    n, length = export.symbolic_shape("n, length")
    function = jax.jit(lambda x, w: jax.lax.conv(x, w, strides, "SAME"))
    records.clear()
    exported = fj.export(function)(jax.ShapeDtypeStruct((n, X[1], length), np.float32), w)
    assert [row.kind for row in records.report().convolutions] == ["symbolic"]
    np.testing.assert_array_equal(exported.call(x, w), function(x, w))


def test_a_call_that_xla_refuses_is_an_error_of_register(monkeypatch: pytest.MonkeyPatch) -> None:
    fj.register()
    monkeypatch.setattr("fastconv.jax.exporting.register_target", lambda: "XLA refused the handler: too old")
    with pytest.raises(RuntimeError, match="cannot serve JAX: XLA refused the handler: too old"):
        fj.register()


PROGRAM = """
import pickle, sys
role, folder = sys.argv[1:3]
sys.path[:0] = sys.argv[3:]
import jax, numpy as np
from jax.experimental import serialize_executable
jax.config.update("jax_compilation_cache_dir", folder + "/cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
x, w, expected = (np.load(f"{folder}/{name}.npy") for name in ("x", "w", "expected"))
function = jax.jit(lambda x, w: jax.lax.conv(x, w, (1,), "SAME"))
if role == "make":
    import fastconv.jax as fj
    with fj.accelerate():
        assert np.array_equal(function(x, w), expected)
        kept = {"plain": jax.export.export(function)(x, w).serialize()}
        kept["compiled"] = serialize_executable.serialize(function.lower(x, w).compile())
    kept["ours"] = fj.export(function)(x, w).serialize()
    assert "fastconv_conv_v1" in function.lower(x, w).as_text() or fj.report().convolutions[0].algorithm != "xla"
    pickle.dump(kept, open(folder + "/kept", "wb"))
else:
    import jax.export
    kept = pickle.load(open(folder + "/kept", "rb"))
    assert np.array_equal(jax.export.deserialize(kept["plain"]).call(x, w), expected)
    assert "fastconv" not in sys.modules
    import fastconv.jax as fj
    fj.register()
    assert np.array_equal(jax.export.deserialize(kept["ours"]).call(x, w), expected)
    assert np.array_equal(serialize_executable.deserialize_and_load(*kept["compiled"])(x, w), expected)
    hits.clear()
    fj.install()
    assert np.array_equal(function(x, w), expected)
    assert [row.algorithm != "xla" for row in fj.report().convolutions] == [True]
print(role, len(hits))
"""


def test_programs_in_another_process(tmp_path: Path) -> None:
    x, w = arrays()
    for name, array in (("x", x), ("w", w), ("expected", convolve(x, w))):
        np.save(tmp_path / f"{name}.npy", array)
    for role, hits in (("make", 0), ("use", 1)):
        arguments = [sys.executable, "-c", PROGRAM, role, str(tmp_path), *sys.path]
        done = subprocess.run(arguments, env=dict(os.environ), capture_output=True, text=True, timeout=300)
        assert done.stdout.split() == [role, str(hits)], done.stderr[-2000:]


def test_words_of_64_bits_survive_without_x64() -> None:
    def words() -> list[str]:
        return re.findall(r"words = dense<(\[.*?\])> : tensor<\d+xi64>", fj.export(jax.jit(convolve))(*arrays()).mlir_module())

    plain = words()
    assert len(plain) == 1
    with x64():
        assert words() == plain
