"""Checks and races the cells of gpu_cases.py on one device, in a time that is given; `benchmarks/gpu.sh` runs it.

Every result is checked against the definition in float64 on the CPU before it is timed. What is measured is written after every cell, so
a run that ends early is gone on with by starting it again. Nothing is built: the checkout's `src` or an installed fastconv is used.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from gpu_cases import CASES, CELLS

from fastconv.bench import devices, table
from fastconv.bench.cases import Case
from fastconv.bench.run import Settings, available_threads, bench, default_memory
from fastconv.bench.summary import lines

#: Seconds that one cell takes where nothing is capped: operands, check, compilation in each contestant, rounds.
USUAL = 6.0


def main() -> None:
    """Plans, measures, writes."""
    arguments = _arguments()
    out = Path(arguments.json)
    earlier = json.loads(out.read_text()) if out.exists() else None
    if earlier is not None and earlier.get("platform") != arguments.platform:
        raise SystemExit(f"gpu: --json must name a new file or one of platform {arguments.platform}, got {str(out)!r}")
    done = {(row["name"], row["direction"]) for row in earlier["rows"]} if earlier else set()
    cells = [(case, direction) for case, direction in CELLS if arguments.rows in case.name]
    if not cells:
        raise SystemExit(f"gpu: --rows must be part of a cell's name, got {arguments.rows!r}")
    if not arguments.minutes > 0:
        raise SystemExit(f"gpu: --minutes must be above 0, got {arguments.minutes:g}")
    left = [(case, direction) for case, direction in cells if (case.name, direction) not in done]
    contestants = devices.contestants(arguments.platform)
    print(_plan(len(cells), len(left), len(contestants), arguments.minutes))
    if arguments.plan or not left:
        return
    deadline = time.monotonic() + 60 * arguments.minutes
    settings = Settings(
        threads=available_threads(),
        rounds=2,
        slice=0.15,
        cap=arguments.cap,
        memory=default_memory(),
        platform=arguments.platform,
        budget=20_000_000,
    )
    wanted = {(case.name, direction) for case, direction in left}

    def is_wanted(case: Case, direction: str) -> bool:
        return (case.name, direction) in wanted and time.monotonic() + USUAL < deadline

    def keep(result: dict[str, Any]) -> None:
        beside = out.with_name(f".{out.name}.{os.getpid()}")
        beside.write_text(json.dumps(_together(earlier, result), indent=1) + "\n")
        os.replace(beside, out)
        row = result["rows"][-1]
        best = {cell["contestant"]: cell["median"] for cell in row["cells"] if cell["median"]}
        print(row["name"], row["direction"], {name: f"{seconds * 1e3:.3g} ms" for name, seconds in best.items()}, flush=True)

    try:
        bench(CASES, contestants, settings, wanted=is_wanted, keep=keep)
    except ValueError as error:
        raise SystemExit(f"gpu: {error}") from None
    if not out.exists():
        raise SystemExit("gpu: no cell was measured")
    result = json.loads(out.read_text())
    result["complete"] = len(result["rows"]) == len(CELLS)
    out.write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".md").write_text(markdown(result))
    table.show(result, table.console())
    print(f"{len(result['rows'])} of {len(CELLS)} cells, in {out} and {out.with_suffix('.md')}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", default="cuda", choices=devices.PLATFORMS)
    parser.add_argument("--json", default="gpu.json", help="result, gone on with where it exists; the table lies beside it as .md")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--cap", type=float, default=4.0, help="seconds that one call may take; compiling may take three times that")
    parser.add_argument("--rows", default="", help="only cells whose name holds this")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and end")
    return parser.parse_args()


def _plan(cells: int, left: int, contestants: int, minutes: float) -> str:
    forms, rows = 2 * (contestants - 1), f"{left} of {cells} cells to be measured"
    compilations = f"{left} cells x {forms} JAX programs (two layouts each of fastconv and plain JAX) = {left * forms} compilations"
    return f"{rows}, at most {minutes:g} minutes (usually {left * USUAL / 60:.1f}): {compilations}"


def markdown(result: dict[str, Any]) -> str:
    """A table for the manual: milliseconds, and how many times as fast as plain JAX and as torch fastconv is."""
    names = ("jax+fastconv", "jax", "torch")
    versions = ", ".join(f"{c['name']} {c['version']}" for c in result["contestants"] if c["absent"] is None)
    texts = [
        f"{result['platform']}, {result['date'][:10]}; fastconv {result['versions']['fastconv']}, {versions}. Medians in ms.",
        "",
        "| cell | | what | fastconv | plain JAX | torch | x JAX | x torch |",
        "|---|---|---|--:|--:|--:|--:|--:|",
    ]
    for line in lines(result):
        own, *peers = (line.best.get(name) for name in names)
        times = [f"{line.best[name]['median'] * 1e3:.3g}" if name in line.best else line.state.get(name, "-") for name in names]
        ratios = [f"{peer['median'] / own['median']:.2f}" if peer and own else "-" for peer in peers]
        texts.append(f"| {' | '.join((line.name, line.direction, line.what, *times, *ratios))} |")
    return "\n".join(texts) + "\n"


def _together(earlier: dict[str, Any] | None, result: dict[str, Any]) -> dict[str, Any]:
    """An earlier result with the new rows behind its own."""
    return result if earlier is None else {**result, "rows": [*earlier["rows"], *result["rows"]]}


if __name__ == "__main__":
    main()
