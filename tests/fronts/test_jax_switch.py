"""install, uninstall, accelerate: what is switched, when, for whom; and what is said when it cannot be."""

from __future__ import annotations

import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jaxtools import jax, records, uninstalled  # noqa: F401

import fastconv.jax as fj
from fastconv import _core
from fastconv.jax import lowering, switch

jnp = jax.numpy
TARGET = lowering.TARGET
pytestmark = pytest.mark.usefixtures("uninstalled")


def arrays():
    rng = np.random.default_rng(1)
    return rng.standard_normal((2, 3, 9, 9)).astype(np.float32), rng.standard_normal((4, 3, 3, 3)).astype(np.float32)


def convolve(x, w):
    return jax.lax.conv(x, w, (1, 1), "SAME")


def program(function=None) -> str:
    return (function or jax.jit(lambda x, w: convolve(x, w))).lower(*arrays()).as_text()


def test_code_that_ran_before_install_is_accelerated_after() -> None:
    jitted = jax.jit(convolve)
    before = jitted(*arrays()), convolve(*arrays())
    assert not records.report().convolutions
    fj.install()
    after = jitted(*arrays()), convolve(*arrays())
    rows = records.report().convolutions
    assert [(row.algorithm != "xla", row.compiled) for row in rows] == [(True, 2)]  # the jitted one and the eager one
    for old, new in zip(before, after, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)


def test_uninstall_restores_the_same_program() -> None:
    plain = program()
    assert TARGET not in plain
    jitted = jax.jit(lambda x, w: convolve(x, w))
    fj.install()
    fj.install()  # twice is once
    assert TARGET in program()
    assert TARGET in program(jitted)
    fj.uninstall()
    assert program() == plain
    assert program(jitted) == plain
    fj.uninstall()
    assert program() == plain


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: jax.grad(lambda x, w: jnp.sum(jnp.square(convolve(x, w))), (0, 1))(x, w),
        lambda x, w: jax.vmap(jax.grad(lambda x, w: jnp.sum(convolve(x[None], w)), 1), (0, None))(x, w),
        lambda x, w: jax.lax.scan(lambda total, w: (total + convolve(x, w[None]), None), jnp.zeros((2, 1, 9, 9)), w),
        lambda x, w: convolve(x.astype(jnp.complex64), w.astype(jnp.complex64)),
    ],
    ids=["gradients", "gradients of each sample", "scan", "complex"],
)
def test_uninstall_restores_every_program(function) -> None:
    lowered = lambda: jax.jit(lambda x, w: function(x, w)).lower(*arrays())  # noqa: E731
    before = lowered()
    fj.install()
    assert lowered().as_text().count(f"@{TARGET}") >= 1
    fj.uninstall()
    assert lowered().as_text() == before.as_text()


def test_a_process_that_uninstalls_lowers_as_one_that_never_knew_fastconv() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import jax, jax.numpy as jnp\n"
        "def loss(x, w): y = jax.lax.conv(x, w, (1, 1), 'SAME'); return jnp.sum(jax.lax.conv(y, w, (1, 1), 'SAME'))\n"
        "x, w = jnp.ones((2, 8, 64, 64)), jnp.ones((8, 8, 3, 3))\n"
        "def text(): return jax.jit(lambda x, w: jax.grad(loss, (0, 1))(x, w)).lower(x, w).as_text()\n"
        "before = text(); import fastconv.jax as fj\n"
        "fj.install(timing=True); assert 'fastconv' in text(); fj.uninstall(); print(text() == before)"
    )
    done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "True", done.stderr[-2000:]


def test_accelerate_counts_inside_the_block_and_on_this_thread() -> None:
    jitted = jax.jit(lambda x, w: convolve(x, w))
    with ThreadPoolExecutor(1) as other:
        with fj.accelerate():
            assert TARGET in program(jitted)
            assert TARGET not in other.submit(program).result()
            with fj.accelerate():
                assert TARGET in program(jitted)
            assert TARGET in program(jitted)
        assert TARGET not in program(jitted)
        fj.install()
        with fj.accelerate():
            pass
        assert TARGET in program(jitted)
        assert TARGET in other.submit(program).result()


def test_accelerate_leaves_the_switch_as_it_was_after_an_error() -> None:
    with pytest.raises(KeyError), fj.accelerate():
        raise KeyError
    assert TARGET not in program()


def test_accelerate_in_a_traced_function_warns_and_does_nothing() -> None:
    def traced(x, w):
        with fj.accelerate():
            return convolve(x, w)

    with pytest.warns(RuntimeWarning, match="no effect inside a function that JAX traces"):
        text = program(jax.jit(traced))
    assert TARGET not in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced(arrays()[0][:1, :, :7, :5], arrays()[1])  # not traced: no warning (and a shape that nothing has compiled before)
    assert [row.algorithm != "xla" for row in records.report().convolutions] == [True]


def test_threads_dispatch_at_once() -> None:
    fj.install()
    functions = [jax.jit(lambda x, w, s=s: jax.lax.conv(x * s, w, (1, 1), "SAME")) for s in range(1, 9)]
    x, w = (np.round(a * 4) for a in arrays())
    expected = np.asarray(jax.lax.conv(x, w, (1, 1), "SAME"))

    def work(index: int) -> bool:
        return all(np.array_equal(functions[index](x, w), (index + 1) * expected) for _ in range(200))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_many_convolutions_inside_one_program_share_xlas_threads() -> None:
    # Independent operations of one program run on XLA's pool themselves: waiting for scheduled helpers would deadlock here.
    fj.install()
    x, w = (np.round(a * 4) for a in arrays())
    many = jax.jit(lambda x, w: [jax.lax.conv(x + i, w, (1, 1), "SAME") for i in range(24)])
    for _ in range(20):
        results = many(x, w)
    fj.uninstall()
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, jax.lax.conv(x + i, w, (1, 1), "SAME"))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, w = arrays()
    results = []
    with fj.accelerate():
        for threads in (1, 2):
            _core.set_threads(threads)
            results.append(np.asarray(jax.jit(lambda x, w: convolve(x, w))(x, w)))
    _core.set_threads(0)
    np.testing.assert_array_equal(*results)


def test_a_library_without_xla_says_so_and_convolutions_are_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "has_xla", lambda: False)
    monkeypatch.setattr(switch, "_registered", False)
    monkeypatch.setattr(lowering, "register_target", lowering.register_target.__wrapped__)
    monkeypatch.setattr(switch, "mlir", SimpleNamespace(register_lowering=lambda *args, **options: None))
    monkeypatch.setattr(switch.accelerators, "register", lambda *args: None)
    for start in (fj.install, fj.accelerate().__enter__):
        monkeypatch.setattr(switch, "_registered", False)
        with pytest.warns(RuntimeWarning, match=r"built without XLA's FFI headers.*jaxlib==0\.7\.2"):
            start()
    text = program()
    assert TARGET not in text
    (row,) = records.report().convolutions
    assert row.algorithm.startswith("xla:")


def test_importing_the_front_starts_no_backend() -> None:
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; import fastconv.jax as fj; fj.install(); "
        "from jax._src import xla_bridge; print(xla_bridge.backends_are_initialized())"
    )
    done = subprocess.run([sys.executable, "-c", code, *sys.path], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "False", done.stderr[-2000:]


@pytest.mark.parametrize("arguments", [{"timing": "no"}, {"timing": 1}, {"sharded": []}])
def test_install_refuses_what_is_no_setting(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(TypeError, match=f"{name} must be True, False or None, got"):
        fj.install(**arguments)
