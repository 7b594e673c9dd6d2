"""The commands: run, bench, tune, explain, soak, info."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, help="Convolution at machine speed for Python.")


def start(arguments: Sequence[str]) -> None:
    """Runs the command that the arguments name; always ends in SystemExit."""
    # The command itself, not `app()`: that would put an exception hook of its own before the program that `run` runs.
    typer.main.get_command(app).main(list(arguments), prog_name="fastconv")


@contextmanager
def refusing(*kinds: type[Exception]) -> Iterator[None]:
    """Shows an error of these kinds in one line and exits with 2: what the user typed was at fault, not the program."""
    try:
        yield
    except kinds as error:
        print(f"fastconv: {error}", file=sys.stderr)
        raise SystemExit(2) from None


class _ProgramCommand(TyperCommand):
    """A command whose own options end where the program begins; everything after it is the program's, untouched."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, ctx.obj = _split(args)
        return super().parse_args(ctx, own)


#: Options of `run` and `tune` that are followed by a value.
_WITH_VALUE = ("--report", "--suite", "--rows", "--seconds")


def _split(args: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and what follows: `-m MODULE ARGS` leaves MODULE with us, `SCRIPT ARGS` goes as a whole."""
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--":
            return args[:at], args[at + 1 :]
        if word == "-m":
            return args[: at + 2], args[at + 2 :]
        if word.startswith("-m"):
            return [*args[:at], "-m", word[2:]], args[at + 1 :]
        if not word.startswith("-"):
            return args[:at], args[at:]
        at += 2 if word in _WITH_VALUE else 1
    return args, []


@app.command(
    cls=_ProgramCommand,
    options_metavar="[--report FILE [--compare]]",
    epilog="fastconv run [--report FILE [--compare]] [-m MODULE | SCRIPT] ARGS...",
)
def run(
    ctx: typer.Context,
    module: Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as python -m does.")] = None,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write what ran where: .txt, .json or .html.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Then time each shape alone on both engines, for the report.")] = False,
) -> None:
    """Run any JAX program, unmodified, with its convolutions on fastconv. ARGS are the program's own."""
    program: list[str] = ctx.obj
    with refusing(ImportError, ValueError, RuntimeError, FileNotFoundError):
        _require("jax", "fastconv run", "jax")
        from fastconv.jax.run import run_module, run_script

        if module is not None:
            run_module(module, program, report, compare)
        elif program:
            run_script(program[0], program[1:], report, compare)
        else:
            raise ValueError("run must be given a script or -m MODULE")


def _require(module: str, what: str, extra: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise ImportError(f"{what} needs {module}; install it with: pip install 'fastconv[{extra}]'")


@app.command()
def bench(
    suite: Annotated[
        str, typer.Option(help="seed, vision, audio, volume, filter, lowp, dtype, convn, all, or a JSON list of cases.")
    ] = "seed",
    against: Annotated[str | None, typer.Option(metavar="NAMES", help="Peers, comma-separated: torch,jax,scipy,opencv,onnx.")] = None,
    platform: Annotated[
        str | None, typer.Option(metavar="NAME", help="Measure on a device: cuda, rocm, tpu; cpu times the CPU as if it were one.")
    ] = None,
    rows: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only cases whose name matches or holds this.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter rounds.")] = False,
    threads: Annotated[int | None, typer.Option(help="Threads of every contestant; default: all cores of the affinity mask.")] = None,
    cap: Annotated[float, typer.Option(help="Seconds that one call may take before its process is killed.")] = 10.0,
    memory: Annotated[float | None, typer.Option(help="GiB that a contestant may hold; default: half of the machine's.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the table as DIR/index.html.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
) -> None:
    """Measure fastconv against its peers: checked against float64, each in a process of its own, in turn."""
    from fastconv.bench import cases, devices, run, table

    with refusing(ValueError, OSError):
        chosen = cases.matching(cases.suite(suite), rows)
        names = None if against is None else [name.strip() for name in against.split(",")]
        contestants = (*run.OURS, *run.chosen_peers(names)) if platform is None else devices.contestants(platform, names)
        most = run.available_threads()
        if threads is not None and not 1 <= threads <= most:
            raise ValueError(f"threads must lie in 1 to {most}, the CPUs of the affinity mask, got {threads}")
        if not cap > 0:
            raise ValueError(f"cap must be above 0 seconds, got {cap:g}")
        if memory is not None and not 0 < memory <= 2**20:
            raise ValueError(f"memory must be above 0 and at most 1048576 GiB, got {memory:g}")
        if json_file is not None:
            _check_writable(json_file, force)
        if html is not None:
            html.mkdir(parents=True, exist_ok=True)
            _check_writable(html / "index.html", force, "html")
    pace = {"rounds": 2, "slice": 0.05} if quick else {}
    limit = run.default_memory() if memory is None else int(memory * 2**30)
    settings = run.Settings(threads=threads or most, cap=cap, memory=limit, platform=platform or "", **pace)
    with refusing(ValueError):
        result = _with_progress(chosen, contestants, settings)
    table.show(result, table.console())
    if json_file is not None:
        _write(json_file, json.dumps(result, indent=1) + "\n")
        print(f"written to {json_file}")
    if html is not None:
        _write(html / "index.html", table.html(result))
        print(f"written to {html / 'index.html'}")
    if not result["complete"]:
        raise SystemExit(130)
    from fastconv.bench.summary import ours_are_right

    if not ours_are_right(result):
        raise SystemExit(1)


def _with_progress(chosen: Sequence[Any], contestants: Sequence[Any], settings: Any) -> dict[str, Any]:
    """The measurement behind a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from fastconv.bench.run import bench as measure

    total = sum(len(case.directions) for case in chosen)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        begun = -1

        def notify(text: str) -> None:
            nonlocal begun
            begun += 1
            progress.update(task, description=text, completed=max(begun - 1, 0))

        return measure(chosen, contestants, settings, notify)


def _check_writable(path: Path, force: bool, option: str = "json") -> None:
    if path.exists() and not force:
        raise ValueError(f"{option} must name a new file, {str(path)!r} exists; add --force to replace it")
    if path.is_dir() or not path.resolve().parent.is_dir() or not os.access(path.resolve().parent, os.W_OK):
        raise ValueError(f"{option} must name a file in a folder that exists and is writable, got {str(path)!r}")


def _write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


@app.command(cls=_ProgramCommand, options_metavar="[OPTIONS]", epilog="fastconv tune [OPTIONS] [--suite S | -m MODULE | SCRIPT] ARGS...")
def tune(
    ctx: typer.Context,
    module: Annotated[str | None, typer.Option("-m", metavar="MODULE", help="Hear a module, as python -m runs it.")] = None,
    suite: Annotated[str | None, typer.Option(help="Hear a suite of `fastconv bench` on NumPy arrays.")] = None,
    rows: Annotated[str | None, typer.Option(metavar="PATTERN", help="Only cases of the suite whose name matches or holds this.")] = None,
    seconds: Annotated[float, typer.Option(help="How long each algorithm of each problem is measured.")] = 0.2,
) -> None:
    """Measure the algorithms on the problems that a script or a suite poses, and remember the fastest on this machine."""
    from fastconv import tune as tuning
    from fastconv.plan import this_machine, wisdom
    from fastconv.tune import posed

    program: list[str] = ctx.obj
    with refusing(ImportError, ValueError, OSError):
        if not 0 < seconds <= 60:
            raise ValueError(f"seconds must be above 0 and at most 60, got {seconds:g}")
        if (suite is not None) + (module is not None) + (bool(program) and module is None) != 1:
            raise ValueError("tune must be given one of a script, -m MODULE and --suite S")
        if rows is not None and suite is None:
            raise ValueError("rows must be given with a suite")
        wisdom.check_writable(this_machine())
        if suite is not None:
            from fastconv.bench import cases

            races = posed.by_cases(cases.matching(cases.suite(suite), rows))
        else:
            races = posed.by_script(program[0], program[1:]) if module is None else posed.by_module(module, program)
        changed = 0

        def show(found: tuning.Measurement) -> None:
            nonlocal changed
            changed += found.winner != found.before
            times = ", ".join(f"{name} {value * 1e3:.3g} ms" for name, value in sorted(found.seconds.items(), key=lambda pair: pair[1]))
            print(f"{found.text}: {times}{'' if found.winner == found.before else f' -> {found.winner} in place of {found.before}'}")

        count = tuning.tune(races, seconds, show)
    print(f"{count} problems measured, {changed} choices changed, kept in {wisdom.path(this_machine())}")


@app.command()
def explain(
    problem: Annotated[list[str], typer.Argument(metavar="PROBLEM", help='"conv x=1,64,56,56 w=64,64,3,3 padding=1"')],
) -> None:
    """Say which algorithm a convolution gets, and why not the others."""
    from fastconv.cli import explain as words

    with refusing(ValueError, TypeError):
        print(words.explain(" ".join(problem)))


@app.command()
def soak(
    minutes: Annotated[float, typer.Option(help="How long to draw problems.")] = 1.0,
    problems: Annotated[int, typer.Option(help="Go on until every driver has run this many at every level.")] = 0,
    seed: Annotated[int | None, typer.Option(help="First seed; default: from the clock.")] = None,
    fences: Annotated[bool, typer.Option("--fences", help="Put every operand and result between inaccessible pages.")] = False,
    runner: Annotated[str | None, typer.Option(metavar="COMMAND", help="Use the library behind this program (tests/runner).")] = None,
    algorithm: Annotated[list[str] | None, typer.Option(help="Only this driver (may be repeated).")] = None,
    isa: Annotated[list[str] | None, typer.Option(help="Only this instruction-set level (may be repeated).")] = None,
    family: Annotated[list[str] | None, typer.Option(help="Only this family of shapes (may be repeated).")] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Only this dtype (may be repeated).")] = None,
) -> None:
    """Hold every driver against the definition on random problems; a failure is shrunk to the smallest problem that shows it."""
    with refusing(ImportError, ValueError):
        _require("hypothesis", "fastconv soak", "soak")
        from fastconv.cli.soak import run as run_soak

        if not run_soak(minutes, problems, seed, fences, runner, algorithm or (), isa or (), family or (), dtype or ()):
            raise SystemExit(1)


@app.command()
def info() -> None:
    """Show CPU, instruction set, threads, versions, and whether the library serves JAX."""
    import fastconv

    lines = dict(fastconv.info())
    for name in ("numpy", "scipy", "jax", "jaxlib"):
        try:
            lines.setdefault(name, version(name))
        except PackageNotFoundError:
            lines.setdefault(name, "not installed")
    width = max(map(len, lines))
    for name, value in lines.items():
        shown = {True: "yes", False: "no"}.get(value, value) if isinstance(value, bool) else value
        print(f"{name:<{width}}  {', '.join(map(str, shown)) if isinstance(shown, (tuple, list)) else shown}")
