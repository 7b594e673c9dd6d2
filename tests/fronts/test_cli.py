"""The command line as a user meets it: arguments, exit statuses, files written, and errors in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")
pytest.importorskip("rich")

import fastconv
from fastconv.cli import main
from fastconv.cli.explain import in_words, parse
from fastconv.plan import Plan
from fastconv.problem import Axis, ConvProblem, Operand

TINY: dict[str, Any] = {"family": "f", "source": "s", "op": "convn", "mode": "same", "dtype": "float32", "directions": ["fwd"]}
ECHO = "import json, os, sys\nprint(json.dumps([sys.argv, __name__]))\nsys.exit(7)\n"


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`fastconv ARGUMENTS` in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(fastconv.__file__).parents[1]), os.environ.get("PYTHONPATH")])),
    }
    return subprocess.run(
        [sys.executable, "-m", "fastconv.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env=environment,
        check=False,
    )


def status(*arguments: str) -> int:
    """The exit status of `fastconv ARGUMENTS` in this process."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return int(end.value.code or 0)


def test_run_passes_every_argument_and_the_exit_status(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    script = tmp_path / "echo.py"
    script.write_text(ECHO)
    arguments = ["--report", "x", "-m", "y", "--help", "--", "-", "", "a b"]
    done = command("run", str(script), *arguments)
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == [[str(script), *arguments], "__main__"]


def test_run_a_module_with_a_report(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    (tmp_path / "echo_module.py").write_text(ECHO)
    done = command("run", "--report", "report.json", "-m", "echo_module", "--report", "other.json", "--help", cwd=tmp_path)
    assert done.returncode == 7, done.stderr
    argv, name = json.loads(done.stdout)
    assert argv[1:] == ["--report", "other.json", "--help"]
    assert name == "__main__"
    assert (tmp_path / "report.json").exists()
    assert not (tmp_path / "other.json").exists()


def test_run_accelerates_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jax")
    monkeypatch.setenv("FASTCONV_ALGORITHM", "general")  # what is tested is the way there, not the planner's taste
    script = tmp_path / "program.py"
    script.write_text(
        "import jax, jax.numpy as jnp\n"
        "x, w = jnp.ones((4, 64, 400)), jnp.ones((32, 64, 64))\n"
        "y = jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), ((63, 63),), lhs_dilation=(32,)))(x, w)\n"
        "print(y.shape, float(y[0, 0, 6000]))\n"
    )
    done = command("run", "--report", str(tmp_path / "report.txt"), "--compare", str(script))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "(4, 32, 12832) 128.0"
    head, row, summary = (tmp_path / "report.txt").read_text().splitlines()
    assert summary.startswith("1 of 1 distinct convolutions run on fastconv, 1 calls in ")
    assert "measured us" in head
    assert "program.py:3" in row


def test_run_shows_the_programs_own_traceback(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    script = tmp_path / "broken.py"
    script.write_text("def f():\n    raise ValueError('the program fails')\nf()\n")
    done = command("run", str(script))
    assert done.returncode == 1
    assert "ValueError: the program fails" in done.stderr
    assert "fastconv/cli" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "run must be given a script or -m MODULE"),
        (["no/such/script.py"], "script must be an existing file, got 'no/such/script.py'"),
        (["-m", "no_such_module_anywhere"], "no_such_module_anywhere"),
        (["--report", "x.pdf", __file__], "x.pdf"),
        (["--report", "no/such/folder/x.json", __file__], "no/such/folder/x.json"),
        (["--compare", __file__], "compare must be given with a report"),
    ],
)
def test_run_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jax")
    import fastconv.jax

    try:
        assert status("run", *arguments) == 2
    finally:
        fastconv.jax.uninstall()
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_run_without_jax_says_what_to_install() -> None:
    code = "import sys; sys.modules['jax'] = None; from fastconv.cli import main; main(['run', 'x.py'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "fastconv: fastconv run needs jax; install it with: pip install 'fastconv[jax]'"


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_cli_extra_the_script_says_what_to_install(module: str) -> None:
    code = f"import sys; sys.modules['{module}'] = None; from fastconv.cli import main; main(['info'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == f"fastconv: the command line needs {module}; install them with: pip install 'fastconv[cli]'"


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("info") == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["fastconv"] == fastconv.__version__
    assert shown["isa"] == fastconv.info()["isa"]
    assert int(shown["threads"]) == fastconv.get_num_threads()
    assert shown["xla"] in ("yes", "no")
    assert {"numpy", "scipy", "jax", "cpu"} <= set(shown)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("explain", "conv x=1,64,56,56 w=64,64,3,3 padding=1") == 0
    text = capsys.readouterr().out
    plan = fastconv.plan((1, 64, 56, 56), (64, 64, 3, 3), padding=1)
    assert f"fastconv takes `{plan.algorithm}`" in text
    assert "output 56x56" in text
    assert all(name in text for name in plan.considered)


def test_explain_takes_words_without_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("explain", "weight_grad", "x=2,8,100", "w=8,8,5", "stride=2", "dtype=float64") == 0
    assert "float64" in capsys.readouterr().out


def test_explain_names_every_road() -> None:
    line = Operand((0, 0, 0), (1,))
    problem = ConvProblem((Axis(9, 3, 7),), 2, 1, 1, 1, line, line, line)
    plan = Plan(problem, "quick", 2e-6, 3 << 20, {"quick": 2e-6, "slow": 5e-3, "picky": "needs 4 channels, got 1"})
    assert in_words(plan).splitlines()[1:] == [
        "fastconv takes `quick`: modelled at 2 us, workspace 3 MiB.",
        "Roads not taken:",
        "  slow: would take 5 ms, 2.5e+03 times as long",
        "  picky: cannot, needs 4 channels, got 1",
    ]


def test_what_explain_reads() -> None:
    text = "conv x=1,2,9,9 w=2,2,3,3 padding=1:2,0:1 stride=2,1 flip=true layout=NC"
    expected = {"x": (1, 2, 9, 9), "w": (2, 2, 3, 3), "padding": ((1, 2), (0, 1)), "stride": (2, 1), "flip": True, "layout": "NC"}
    assert parse(text) == ("conv", expected)
    assert parse("conv_transpose x=1,2,9 w=2,2,3 padding=same groups=2")[1]["padding"] == "same"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with an operation, one of conv, conv_transpose, input_grad, weight_grad"),
        ("deconv x=1,2,3 w=2,2,3", "must begin with an operation"),
        ("conv w=2,2,3", "x must be given"),
        ("conv x=1,2,3 w=2,2,3 strid=2", "names among x, w, dtype, stride"),
        ("conv x=1,2,3 w=2,2,3 stride=two", "stride must be an integer, integers a,b or pairs a:b,c:d, got 'two'"),
        ("conv x=1,2,3 w=2,2,3 stride=1 stride=1", "stride must be given once"),
        ("conv x=1,2,3 w=2,3,3", "w must"),
        ("conv x=1,2,9 w=2,2,3 dtype=float8", "float8"),
        ("conv x=1,2,9 w=2,2,3 flip=maybe", "flip must be true or false"),
    ],
)
def test_explain_errors(text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("explain", text) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "cases.json"
    rows = [{**TINY, "name": "tiny", "size": [30, 20], "kernel": [3, 3]}, {**TINY, "name": "other", "size": [9], "kernel": [3]}]
    path.write_text(json.dumps(rows))
    return path


def test_bench_measures_one_row_and_writes_json(tiny: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    arguments = ["bench", "--suite", str(tiny), "--rows", "tiny", "--against", "scipy", "--quick", "--threads", "1", "--json", str(target)]
    done = command(*arguments, "--html", str(tmp_path / "page"))
    assert "tiny" in (tmp_path / "page" / "index.html").read_text()
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("tiny"))
    assert "scipy" in line
    assert "losses" in done.stdout
    result = json.loads(target.read_text())
    assert result["complete"]
    assert result["threads"] == 1
    assert [row["name"] for row in result["rows"]] == ["tiny"]
    found = {cell["contestant"]: cell["status"] for cell in result["rows"][0]["cells"]}
    assert found["fc"] == found["scipy"] == "ok"
    before = target.read_text()
    refused = command(*arguments)
    assert refused.returncode == 2
    assert "exists; add --force to replace it" in refused.stderr
    assert target.read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cases.json", "out.json", "page"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "sede"], "suite must be one of seed, convn"),
        (["--against", "numpy"], "against must name peers among jax, torch, scipy, opencv, onnx, got 'numpy'"),
        (["--rows", "nothing"], "rows must match a case of the suite"),
        (["--threads", "0"], "threads must lie in 1 to"),
        (["--threads", "100000"], "threads must lie in 1 to"),
        (["--cap", "0"], "cap must be above 0 seconds, got 0"),
        (["--memory", "-1"], "memory must be above 0 and at most 1048576 GiB, got -1"),
        (["--json", "no/such/folder/out.json"], "json must name a file in a folder that exists"),
    ],
)
def test_bench_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("bench", *arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_bench_json_names_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("bench", "--json", str(tmp_path), "--force") == 2
    assert "json must name a file" in capsys.readouterr().err


def test_unknown_commands_and_options_are_errors_not_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["tune"], ["bench", "--sweet", "seed"], ["run", "--reprot", "x"]):
        assert status(*arguments) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert status("bench", "--help") == 0
    assert "--against" in capsys.readouterr().out


def test_soak_holds_the_drivers_to_the_definition() -> None:
    arguments = ("--minutes", "0", "--problems", "3", "--seed", "5", "--algorithm", "direct", "--isa", "scalar", "--family", "dense")
    done = command("soak", *arguments, "--dtype", "float32")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "seed 5"
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("direct"))
    assert line.split()[1] == "scalar"
    assert int(line.split()[2]) >= 3
    assert 0 < float(line.split()[3]) <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--minutes", "-1"], "minutes must be at least 0 and finite, got -1"),
        (["--problems", "-1"], "problems must be at least 0, got -1"),
        (["--seed", "-1"], "seed must be at least 0, got -1"),
        (["--algorithm", "fastest"], "algorithm must be one of general"),
        (["--isa", "sse"], "isa must be one of scalar"),
        (["--family", "huge"], "family must be one of any, dense"),
        (["--dtype", "fp8"], "dtype must be one of float32"),
    ],
)
def test_soak_refuses_options_it_cannot_use(arguments: list[str], message: str) -> None:
    done = command("soak", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
