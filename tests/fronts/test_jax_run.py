"""`fastconv run` as Python itself: arguments, paths, `__main__`, tracebacks, exit status; and the report at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fastconv

pytest.importorskip("jax")

SOURCE = str(Path(fastconv.__path__[0]).parent)  # wherever the tests have it from
SHOW = """
import json, sys, pickle
class Local: pass
print(json.dumps([__name__, __file__, sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals(), __package__,
                  __spec__ and __spec__.name, type(pickle.loads(pickle.dumps(Local()))).__module__]))
"""
CONVOLVE = """
import jax, jax.numpy as jnp
print(float(jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"))(jnp.ones((8, 8, 64, 64)), jnp.ones((8, 8, 3, 3))).sum()))
"""


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (SOURCE, os.environ.get("PYTHONPATH"))))}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def run(
    kind: str, name: str, *arguments: str, cwd: Path, report: str | None = None, compare: bool = False
) -> subprocess.CompletedProcess[str]:
    call = f"run_{kind}(sys.argv[1], sys.argv[2:], report={report!r}, compare={compare})"
    code = f"import sys; from fastconv.jax.run import run_{kind}; {call}"
    return python("-c", code, name, *arguments, cwd=cwd)


def test_a_script_sees_what_python_would_show_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "show.py").write_text("import beside\n" + SHOW)
    (tmp_path / "folder" / "beside.py").write_text("")
    path = os.path.join("folder", "show.py")
    ours, theirs = run("script", path, "a", "--b=1", cwd=tmp_path), python(path, "a", "--b=1", cwd=tmp_path)
    assert ours.returncode == 0, ours.stderr
    assert json.loads(ours.stdout) == json.loads(theirs.stdout)


def test_a_package_and_a_module_see_what_python_would_show_them(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    for file in ("package/__main__.py", "package/inner.py"):
        (tmp_path / file).write_text(SHOW)
    (tmp_path / "package" / "__init__.py").write_text("")
    for name in ("package", "package.inner"):
        ours, theirs = run("module", name, "a", "b", cwd=tmp_path), python("-m", name, "a", "b", cwd=tmp_path)
        assert ours.returncode == 0, ours.stderr
        assert json.loads(ours.stdout) == json.loads(theirs.stdout)


def test_a_folder_with_a_main_runs(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "__main__.py").write_text("import sys; print(__name__, sys.argv)")
    assert run("script", "program", "x", cwd=tmp_path).stdout == python("program", "x", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("source", "status"), [("raise SystemExit(7)", 7), ("import sys; sys.exit('bad')", 1), ("1 / 0", 1), ("raise KeyboardInterrupt", 130)]
)
def test_exit_status_and_traceback_pass_through(source: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(f"def f():\n    {source}\nf()\n")
    ours, theirs = run("script", "ends.py", cwd=tmp_path), python("ends.py", cwd=tmp_path)
    assert ours.returncode == status
    assert ours.stderr.replace(str(tmp_path) + os.sep, "") == theirs.stderr.replace(str(tmp_path) + os.sep, "")


def test_convolutions_are_accelerated_and_reported_even_when_the_program_fails(tmp_path: Path) -> None:
    (tmp_path / "convolve.py").write_text(CONVOLVE + "raise SystemExit(3)")
    done = run("script", "convolve.py", cwd=tmp_path, report="out.json")
    assert done.returncode == 3, done.stderr
    assert done.stdout == python("convolve.py", cwd=tmp_path).stdout
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["lhs"] == [8, 8, 64, 64]
    assert row["compiled"] == row["calls"] == 1
    assert row["total"] > 0
    assert row["source"] == f"{tmp_path / 'convolve.py'}:3"
    assert row["engine_median"] is None


def test_a_comparison_follows_the_program(tmp_path: Path) -> None:
    (tmp_path / "convolve.py").write_text(CONVOLVE)
    (tmp_path / "out.json").write_text("before")
    done = run("script", "convolve.py", cwd=tmp_path, report="out.json", compare=True)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "out.json").read_text())
    assert row["calls"] == 1
    assert row["engine_median"] > 0
    assert row["xla_median"] > 0


def test_a_report_that_cannot_be_written_leaves_the_programs_status(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "moves.py").write_text("import os; os.rmdir('out'); raise SystemExit(5)")
    done = run("script", "moves.py", cwd=tmp_path, report="out/r.txt")
    assert done.returncode == 5
    assert done.stderr.startswith("fastconv: the report could not be written: ")


def test_what_cannot_start_is_refused_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text("print('started')")
    for done, message in (
        (run("script", "missing.py", cwd=tmp_path), "FileNotFoundError: script must be an existing file, got 'missing.py'"),
        (run("module", "missing_module", cwd=tmp_path), "got 'missing_module'"),
        (run("module", "json.no_such", cwd=tmp_path), "got 'json.no_such'"),
        (run("script", "prints.py", cwd=tmp_path, report="out.doc"), "got 'out.doc'"),
        (run("script", "prints.py", cwd=tmp_path, report="no/such/folder/out.json"), "got 'no/such/folder/out.json'"),
        (run("script", "prints.py", cwd=tmp_path, compare=True), "compare must be given with a report"),
    ):
        assert done.returncode == 1
        assert message in done.stderr
        assert not done.stdout


def test_the_report_counts_what_still_runs_and_stays_where_it_was_asked_for(tmp_path: Path) -> None:
    """The program ends while its last calls run, in another folder than it began in."""
    away = tmp_path / "away"
    away.mkdir()
    calls = "y = f(x, w)\nfor _ in range(4): y = f(x, w)\n"
    source = "import os, jax, jax.numpy as jnp\nf = jax.jit(lambda x, w: jax.lax.conv(x, w, (1, 1), 'SAME'))\n"
    source += f"x, w = jnp.ones((8, 8, 96, 96)), jnp.ones((8, 8, 5, 5))\nos.chdir({str(away)!r})\n{calls}"
    (tmp_path / "script.py").write_text(source)
    assert run("script", "script.py", cwd=tmp_path, report="report.json").returncode == 0
    (row,) = json.loads((tmp_path / "report.json").read_text())
    assert row["calls"] == 5
    assert not list(away.iterdir())
