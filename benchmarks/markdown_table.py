"""Writes the Markdown table of a benchmark's JSON: `python benchmarks/markdown_table.py RESULT.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastconv.bench.summary import OURS, Line, geometric_mean, lines


def markdown(result: Mapping[str, Any]) -> str:
    """Heading, one line per row and direction in milliseconds, and the geometric means."""
    machine, versions, table = result["machine"], result["versions"], lines(result)
    peers = ", ".join(f"{c['name']} {c['version']}" for c in result["contestants"] if c["absent"] is None and c["name"] not in OURS)
    texts = [
        f"{machine['cpu']}, {machine['isa']}, {result['threads']} of {machine['cores']} cores, {result['date'][:10]}; "
        f"fastconv {versions['fastconv']} against {peers or 'no peer'}. Medians in ms, faster layout; ratio: best peer over fastconv.",
        "",
        "| row | | fc | jax+fastconv | best peer | | ratio fc | ratio jax+fastconv |",
        "|---|---|--:|--:|--:|---|--:|--:|",
        *(_row(line) for line in table),
    ]
    means = (geometric_mean(line.ratio(name) for line in table) for name in OURS)
    texts.append(f"| geometric mean | | | | | | {' | '.join(_number(mean, '.2f') for mean in means)} |")
    return "\n".join(texts)


def _row(line: Line) -> str:
    peer = line.best_peer
    ours = [_number(line.best[name]["median"] * 1e3, ".3g") if name in line.best else line.state.get(name, "-") for name in OURS]
    best = [_number(peer["median"] * 1e3, ".3g"), f"{peer['contestant']} {peer['form']}"] if peer else ["-", "-"]
    return f"| {' | '.join([line.name, line.direction, *ours, *best, *(_number(line.ratio(name), '.2f') for name in OURS)])} |"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python benchmarks/markdown_table.py RESULT.json")
    print(markdown(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
