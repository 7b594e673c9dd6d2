"""Writes the Markdown page of a benchmark's JSON: `python benchmarks/page.py RESULT.json [MORE.json ...] > docs/benchmarks.md`.

Every loss is shown. With more results the rows of all are put together; they must be of one machine and one set of versions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastconv.bench.summary import OURS, Line, geometric_mean, lines, losses

#: The forms of ours by layout; "convn" and 1-D forms have one.
_FIRST, _LAST = ("NC", "NCHW"), ("N...C", "NHWC")
_LAYOUTS = 1.25


def page(result: Mapping[str, Any]) -> str:
    """Heading, means, losses, rows whose layouts differ, then a table per family."""
    table = lines(result)
    raw = {(row["name"], row["direction"]): row for row in result["rows"]}
    families: dict[str, list[Line]] = {}
    for line in table:
        families.setdefault(raw[line.name, line.direction]["family"], []).append(line)
    texts = [*_heading(result), "", *_means(families, table), "", *_losses(table), "", *_layouts(table, raw)]
    for family, members in families.items():
        texts += ["", f"## {family}", "", *_table(members, raw)]
    return "\n".join(texts) + "\n"


def _heading(result: Mapping[str, Any]) -> list[str]:
    machine, versions = result["machine"], result["versions"]
    there = ", ".join(f"{c['name']} {c['version']}" for c in result["contestants"] if c["absent"] is None and c["name"] not in OURS)
    timing = result["settings"]
    return [
        "# Benchmarks",
        "",
        f"Measured {result['date'][:10]} on {machine['cpu']} ({machine['isa']}, {machine['system']}), {result['threads']} of "
        f"{machine['cores']} cores; fastconv {versions['fastconv']}, Python {versions['python']}, NumPy {versions['numpy']}; "
        f"against {there or 'no peer'}. This page is written by",
        "",
        f"    fastconv bench --suite all{' --quick' if timing['rounds'] == 2 else ''} --cap {timing['cap']:g} --json benchmarks/all.json",
        "    python benchmarks/page.py benchmarks/all.json > docs/benchmarks.md",
        "",
        f"Every contestant runs in a process of its own, in turn, {timing['rounds']} rounds of {timing['slice']} s each; every result is "
        "checked against the definition before it is timed. Times are medians in milliseconds. A peer counts in its fastest layout, ours "
        "in both: `NC` and `N...C`. `ratio` is the best peer's time over that of our faster layout: above 1 fastconv is faster. `flops` "
        "and `copy` say what share of the machine our faster layout (NumPy front) used, in per cent: multiply-adds that touch data against "
        "the best register tile on all threads, and bytes of operands and result against a copy of as many bytes, both measured beside the "
        "row. Winograd and Fourier methods do fewer multiply-adds, so they can exceed 100.",
        *(["", result["note"]] if "note" in result else []),
    ]


def _means(families: Mapping[str, Sequence[Line]], table: Sequence[Line]) -> list[str]:
    texts = ["| family | rows | ratio fc | ratio jax+fastconv |", "|---|--:|--:|--:|"]
    for family, members in (*families.items(), ("all", table)):
        means = [_number(geometric_mean(line.ratio(name) for line in members), ".2f") for name in OURS]
        texts.append(f"| {family} | {len(members)} | {' | '.join(means)} |")
    return texts


def _losses(table: Sequence[Line]) -> list[str]:
    found = sorted(losses(table), key=lambda loss: loss[2])
    if not found:
        return ["No peer is faster in any row."]
    texts = [f"Losses ({len(found)}):", "", "| ratio | ours | row | | best peer |", "|--:|---|---|---|---|"]
    for ours, line, ratio in found:
        peer = line.best_peer
        assert peer is not None
        texts.append(f"| {ratio:.2f} | {ours} | {line.name} | {line.direction} | {peer['contestant']} {peer['form']} |")
    return texts


def _layouts(table: Sequence[Line], raw: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """The rows whose two layouts differ by more than the bar."""
    texts = []
    for line in table:
        for ours in OURS:
            first, last = (_median(raw[line.name, line.direction], ours, forms) for forms in (_FIRST, _LAST))
            if first is not None and last is not None and max(first, last) > _LAYOUTS * min(first, last):
                slower = "channels last" if last > first else "channels first"
                texts.append(f"| {max(first, last) / min(first, last):.2f} | {ours} | {line.name} | {line.direction} | {slower} |")
    if not texts:
        return [f"No row is more than {_LAYOUTS} times slower in one layout than in the other."]
    rule = f"Rows more than {_LAYOUTS} times slower in one layout than in the other ({len(texts)}):"
    return [
        rule,
        "",
        "| factor | ours | row | | slower |",
        "|--:|---|---|---|---|",
        *sorted(texts, key=lambda text: -float(text.split()[1])),
    ]


def _table(members: Sequence[Line], raw: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    texts = [
        "| row | | fc NC | fc N...C | jax+fastconv | best peer | | ratio fc | ratio jax+fastconv | flops | copy |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|--:|--:|",
    ]
    for line in members:
        row = raw[line.name, line.direction]
        jax = line.best.get("jax+fastconv")
        peer = line.best_peer
        cells = [
            line.name,
            line.direction,
            _milliseconds(_median(row, "fc", (*_FIRST, "convn"))),
            _milliseconds(_median(row, "fc", _LAST)),
            _milliseconds(jax["median"]) if jax else line.state.get("jax+fastconv", "-"),
            _milliseconds(peer["median"]) if peer else "-",
            f"{peer['contestant']} {peer['form']}" if peer else "",
            *(_number(line.ratio(name), ".2f") for name in OURS),
            *_shares(line, row),
        ]
        texts.append(f"| {' | '.join(cells)} |")
    return texts


def _shares(line: Line, row: Mapping[str, Any]) -> list[str]:
    """Shares of the multiply-add and copy ceilings, in per cent."""
    if "fc" not in line.best:
        return ["-", "-"]
    seconds, ceilings = line.best["fc"]["median"], row["ceilings"]
    flops = None if ceilings["flops"] is None else 100 * row["touching_flops"] / seconds / ceilings["flops"]
    return [_number(flops, ".0f"), _number(100 * row["bytes"] / seconds / ceilings["bytes"], ".0f")]


def _median(row: Mapping[str, Any], contestant: str, forms: Sequence[str]) -> float | None:
    found = [c["median"] for c in row["cells"] if c["contestant"] == contestant and c["form"] in forms and c["status"] == "ok"]
    return min((median for median in found if median is not None), default=None)


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def merged(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The rows of several results as one; ValueError when they are not of one machine and one set of versions."""
    first = results[0]
    for other in results[1:]:
        for key in ("format", "machine", "versions", "threads", "contestants"):
            if other[key] != first[key]:
                raise ValueError(f"results must agree in {key}, got {first[key]} and {other[key]}")
    return {**first, "rows": [row for result in results for row in result["rows"]]}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python benchmarks/page.py RESULT.json [MORE.json ...]")
    sys.stdout.write(page(merged([json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]])))
