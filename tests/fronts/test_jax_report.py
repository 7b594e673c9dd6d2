"""The report: whose line, what ran, how often and how long; its forms; nothing is counted unless asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import currentframe
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtools import NO_XLA, conv, jax, records, uninstalled  # noqa: F401

import fastconv.jax as fj
from fastconv import _core
from fastconv.jax import _compat, forms, lowering, source
from fastconv.jax.xla import XLA
from fastconv.plan import forced

export = pytest.importorskip("jax.export")
jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("uninstalled")


def ones(*shapes: tuple[int, ...]) -> list[Any]:
    return [jnp.ones(shape, np.float32) for shape in shapes]


def lowered(function: Any, *shapes: tuple[int, ...]) -> str:
    return jax.jit(lambda *arrays: function(*arrays)).lower(*ones(*shapes)).as_text()


def same(x: Any, w: Any) -> Any:
    return conv(x, w, (1,) * (x.ndim - 2), "SAME")


def here(offset: int = 0) -> str:
    frame = currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno + offset}"


def only() -> forms.Convolution:
    (row,) = fj.report().convolutions
    return row


# --- forms -------------------------------------------------------------------------------------------------------------------


def test_the_report_reads_well_and_writes_three_forms(tmp_path: Path) -> None:
    assert str(fj.report()) == "no convolution was compiled under fastconv"
    fj.install()
    lowered(lambda x, w: conv(x, w, (2, 1), ((1, 2), (0, 0)), rhs_dilation=(1, 2)), (1, 2, 9, 8), (3, 2, 3, 3))
    lowered(lambda x, w: conv(x, w, (1,), "SAME", feature_group_count=2), (1, 4, 8), (6, 2, 3))
    report = fj.report()
    assert len(report.convolutions) == 2
    text = str(report)
    assert "1x2x9x8" in text
    assert "NC01,OI01->NC01 strides 2,1 padding 1:2,0:0 rhs_dilation 1,2" in text
    assert "feature_group_count 2" in text
    assert "measured us" not in text
    assert text.splitlines()[-1] == report.summary == "2 of 2 distinct convolutions run on fastconv"
    for suffix in ("json", "html", "txt"):
        report.write(tmp_path / f"r.{suffix}")
    assert [row["lhs"] for row in json.loads((tmp_path / "r.json").read_text())] == [[1, 2, 9, 8], [1, 4, 8]]
    assert (tmp_path / "r.txt").read_text() == text + "\n"
    page = (tmp_path / "r.html").read_text()
    assert page.count("<tr>") == 3
    assert "OI01-&gt;NC01" in page
    with pytest.raises(ValueError, match=r"report must be a file called .json, .html or .txt, got 'r.pdf'"):
        report.write("r.pdf")


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "r.txt"
    target.write_text("before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        fj.report().write(target)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["r.txt"]


def test_the_report_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LIMIT", 2)
    fj.install()
    for extent in (8, 9, 10):
        lowered(same, (1, 1, extent), (1, 1, 3))
    assert [row.lhs[2] for row in fj.report().convolutions] == [9, 10]


# --- lines -------------------------------------------------------------------------------------------------------------------


def test_every_line_has_a_row_of_its_own() -> None:
    def two(x: Any, w: Any) -> Any:
        y = conv(x, w, (1,), "SAME")
        return conv(y, w, (1,), "SAME")

    first, second = here(-3), here(-2)
    fj.install()
    lowered(two, (1, 2, 8), (2, 2, 3))
    assert [(row.source, row.compiled) for row in fj.report().convolutions] == [(first, 1), (second, 1)]
    records.clear()
    lowered(jax.grad(lambda x, w: jnp.sum(two(x, w)), (0, 1)), (1, 2, 8), (2, 2, 3))
    found = sorted((row.direction, row.source) for row in fj.report().convolutions)
    assert found == [(way, line) for way in ("dw", "dx", "fwd") for line in (first, second) if (way, line) != ("fwd", second)]


def test_eager_calls_and_librarys_own_jits_are_known_by_the_callers_line() -> None:
    fj.install()
    conv(*ones((1, 1, 11), (1, 1, 5)), (1,), "SAME")
    eager = here(-1)
    jnp.convolve(*ones((13,), (5,)))
    library = here(-1)
    assert [row.source for row in fj.report().convolutions] == [eager, library]


def test_a_layers_line_is_the_users() -> None:
    nn = pytest.importorskip("flax.linen")
    layer, x = nn.Conv(3, (3,)), jnp.ones((2, 9, 2))
    params = jax.eval_shape(layer.init, jax.random.key(0), x)
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), params)
    fj.install()
    jax.jit(lambda params, x: jnp.sum(layer.apply(params, x))).lower(params, x)
    assert only().source == here(-1)


SITE = "/usr/lib/python3/site-packages"


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([f"{SITE}/flax/linen.py", f"{SITE}/model/net.py", "train.py"], "train.py:2"),
        ([f"{SITE}/flax/linen.py", f"{SITE}/model/net.py", f"{SITE}/model/__main__.py"], f"{SITE}/model/net.py:1"),
        ([f"{SITE}/jax/numpy.py", os.path.join(os.path.dirname(os.__file__), "runpy.py"), "<frozen runpy>"], None),
        ([os.path.join(os.path.dirname(fj.__file__), "functions.py"), "/home-made/dist-packages.py"], "/home-made/dist-packages.py:1"),
        ([], None),
    ],
)
def test_the_line_is_the_innermost_outside_libraries(frames: list[str], expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_compat, "frames", lambda ctx: [(file, number) for number, file in enumerate(frames)])
    monkeypatch.setattr(source, "_stack", lambda: iter(()))
    assert source.line(None) == expected


def test_a_line_is_shown_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    assert source.shown(str(tmp_path / "inside" / "a.py") + ":3") == "a.py:3"
    assert source.shown(str(tmp_path / "b.py") + ":3") == str(tmp_path / "b.py") + ":3"
    assert source.shown(None) == "?"


# --- calls and time ----------------------------------------------------------------------------------------------------------


def test_calls_are_counted_only_when_asked_for() -> None:
    function, (x, w) = jax.jit(same), ones((2, 3, 40), (4, 3, 3))
    fj.install()
    plain = function.lower(x, w).as_text()
    function(x, w)
    assert lowering.TARGET in plain
    assert lowering.COUNTED not in plain
    assert (only().calls, only().total) == (None, None)
    fj.install(timing=True)
    fj.install()  # by the program itself: changes nothing
    for _ in range(5):
        function(x, w).block_until_ready()
    row = only()
    assert row.compiled == 2  # without counting, and with it
    assert row.calls == 5
    assert row.total is not None
    assert 0 < row.total < 60
    assert fj.report().summary.startswith("1 of 1 distinct convolutions run on fastconv, 5 calls in ")
    fj.install(timing=False)
    function(x, w).block_until_ready()
    assert only().calls == 5
    assert function.lower(x, w).as_text() == plain
    fj.install(timing=True)
    fj.uninstall()
    fj.install()
    assert function.lower(x, w).as_text() == plain


def test_every_run_of_a_loops_body_counts() -> None:
    fj.install(timing=True)
    x, w = ones((1, 2, 16), (2, 2, 3))
    jax.block_until_ready(jax.jit(lambda x, w: jax.lax.scan(lambda c, _: (same(c, w), None), x, None, length=7)[0])(x, w))
    assert only().calls == 7
    records.clear()
    assert _core.counted(records.key_of(only_after(x, w))) == (1, pytest.approx(0, abs=60))
    assert _core.counted(12345) == (0, 0.0)


def only_after(x: Any, w: Any) -> forms.Convolution:
    """The row of one eager call."""
    same(x[:, :, :9], w).block_until_ready()
    return next(iter(records._seen))


def test_what_xla_runs_has_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "XLA", XLA)
    fj.install(timing=True)
    x, w = ones((1, 1, 8), (1, 1, 3))
    same(x, w).block_until_ready()
    row = only()
    assert (row.algorithm, row.kind, row.calls, row.total) == ("xla", "slower", None, None)
    cells = dict(zip(*fj.report()._cells(), strict=True))
    assert (cells["calls"], cells["total ms"], cells["ran"]) == ("-", "-", "xla")
    assert cells["reason"].startswith("slower: XLA is modelled faster (")


def test_transforms_have_no_calls() -> None:
    fj.install(timing=True)
    with forced("fft"):
        same(*ones((1, 1, 3000), (1, 1, 2000))).block_until_ready()
    assert (only().algorithm, only().calls) == ("fft", None)


CACHED = """
import sys
sys.path[:0] = sys.argv[2:]
import jax, jax.numpy as jnp
import fastconv.jax as fj
from jaxtools import NO_XLA, lowering
lowering.XLA = NO_XLA
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
fj.install(timing=True)
if sys.argv[2] == "more":
    jax.lax.conv(jnp.ones((1, 1, 20)), jnp.ones((1, 1, 3)), (1,), "SAME")
f = jax.jit(lambda x, w: jax.lax.conv(x, w, (1,), "SAME"))
for _ in range(3):
    f(jnp.ones((1, 2, 30)), jnp.ones((3, 2, 3))).block_until_ready()
print(fj.report().convolutions[-1].calls, "/jax/compilation_cache/cache_hits" in hits)
"""


def test_a_program_from_the_compilation_cache_counts_right(tmp_path: Path) -> None:
    """The key of a convolution does not depend on the process that compiled it."""
    results = []
    for extra in ("first", "more"):
        command = [sys.executable, "-c", CACHED, str(tmp_path), extra, os.path.dirname(__file__), *sys.path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-2000:]
        results.append(done.stdout.split())
    assert results == [["3", "False"], ["3", "True"]]


# --- comparison --------------------------------------------------------------------------------------------------------------


def test_compare_times_each_shape_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastconv.jax import compare

    monkeypatch.setattr(compare, "SECONDS", 0.02)
    (b,) = export.symbolic_shape("b")
    fj.install()
    lowered(same, (1, 2, 64), (2, 2, 3))
    lowered(lambda x, w: conv(x, w, (1,), "SAME"), (1, 2, 64), (2, 2, 3))  # another line, the same shape: timed once
    monkeypatch.setattr(lowering, "XLA", XLA)
    lowered(same, (1, 1, 8), (1, 1, 3))
    jax.jit(same).lower(*(jax.ShapeDtypeStruct(shape, jnp.float8_e4m3fn) for shape in ((1, 2, 8), (2, 2, 3))))
    export.export(jax.jit(same))(jax.ShapeDtypeStruct((b, 2, 8), np.float32), *ones((2, 2, 3)))
    before = fj.report()
    report = fj.report(compare=True)
    assert fj.report() == before
    engine, again, slower, dtype, symbolic = report.convolutions
    assert (engine.engine_median, engine.xla_median) == (again.engine_median, again.xla_median)
    for row in (engine, slower):
        assert row.engine_median is not None
        assert row.xla_median is not None
        assert 0 < row.engine_median < 10
        assert 0 < row.xla_median < 10
    assert (dtype.kind, dtype.engine_median) == ("dtype", None)
    assert dtype.xla_median is not None
    assert (symbolic.kind, symbolic.engine_median, symbolic.xla_median) == ("symbolic", None, None)
    assert "measured xla us" in str(report)


def test_compare_runs_transforms_and_other_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastconv.jax import compare

    monkeypatch.setattr(compare, "SECONDS", 0.0)
    fj.install()
    with forced("fft"):
        lowered(same, (1, 1, 3000), (1, 1, 2000))
    with _compat.double_precision():
        jax.jit(same).lower(jnp.ones((1, 2, 9), np.complex128), jnp.ones((1, 2, 3), np.complex128))
        jax.jit(same).lower(jnp.ones((1, 2, 9), np.int64), jnp.ones((1, 2, 3), np.int64))
    rows = fj.report(compare=True).convolutions
    assert [row.algorithm == "fft" for row in rows] == [True, False, False]
    assert all(row.engine_median and row.xla_median for row in rows)


def test_a_shape_that_cannot_be_compared_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastconv.jax import compare

    monkeypatch.setattr(compare, "SECONDS", 0.0)
    fj.install()
    lowered(same, (1, 2, 9), (2, 2, 3))
    with forced("xla:per_tap"):
        lowered(same, (1, 2, 11), (2, 2, 3))
    pair, broken = compare._pair, [True]
    monkeypatch.setattr(compare, "_pair", lambda *arguments: 1 / 0 if broken and broken.pop() else pair(*arguments))
    with pytest.warns(RuntimeWarning, match="could not compare a convolution: ZeroDivisionError"):
        first, second = fj.report(compare=True).convolutions
    assert (first.engine_median, first.xla_median) == (None, None)
    assert second.engine_median is not None
    assert second.xla_median is not None
