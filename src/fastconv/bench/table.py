"""The table of a result, for people: built with rich from the JSON data alone."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from fastconv.bench.summary import OURS, Line, geometric_mean, lines, losses, troubles

#: Columns that a table takes when it is not written to a terminal.
PLAIN_WIDTH = 160


def console(file: Any = None) -> Console:
    """A console that wraps at the terminal's width, or is wide enough for a whole row in a file or pipe."""
    made = Console(file=file, highlight=False)
    return made if made.is_terminal else Console(file=file, highlight=False, width=PLAIN_WIDTH)


def show(result: Mapping[str, Any], out: Console) -> None:
    """Prints heading, table (two when the console is too narrow for one), geometric means, losses and troubles."""
    table = lines(result)
    for text in _heading(result):
        out.print(text, markup=False)
    present = [c["name"] for c in result["contestants"] if c["absent"] is None]
    peers = [name for name in present if name not in OURS]
    if not table:
        out.print("no row was measured")
        return
    ours = [name for name in OURS if any(c["name"] == name for c in result["contestants"])]
    tables = [_table(table, ours, peers, summary=True)]
    if _width(tables[0], out) > out.width:
        tables = [_table(table, ours, [], summary=True), _table(table, ours, peers, summary=False)]
    # A cell cut short would be worse than a line that the terminal wraps.
    out.width = max(out.width, *(_width(part, out) for part in tables))
    for part in tables:
        out.print("", part, "", sep="\n")
    _verdict(result, table, out)


def html(result: Mapping[str, Any]) -> str:
    """What `show` prints, as a page of its own."""
    out = Console(file=io.StringIO(), record=True, highlight=False, width=PLAIN_WIDTH)
    show(result, out)
    return out.export_html()


def _width(table: Table, out: Console) -> int:
    """Columns that a table needs to show every cell whole."""
    return Measurement.get(out, out.options.update(width=10_000), table).maximum


def _heading(result: Mapping[str, Any]) -> list[str]:
    machine, versions = result["machine"], result["versions"]
    cpu = f"{machine['cpu']}, {machine['isa']}, {machine['system']}"
    texts = [f"{cpu}; {result['threads']} of {machine['cores']} cores; {result['date']}"]
    texts.append(f"fastconv {versions['fastconv']}, Python {versions['python']}, NumPy {versions['numpy']}")
    if "platform" in result:
        version = next(c["version"] for c in result["contestants"] if c["name"] in OURS)
        texts.append(f"on {result['platform']}: JAX {version}; many calls a wait")
    there = [f"{c['name']} {c['version']}" for c in result["contestants"] if c["absent"] is None and c["name"] not in OURS]
    texts.append(f"peers: {', '.join(there) or 'none'}")
    texts += [f"absent: {c['name']} ({c['absent']})" for c in result["contestants"] if c["absent"] is not None]
    if not result["complete"]:
        texts.append("interrupted: not every row was measured")
    texts.append("milliseconds, medians of each contestant's faster layout; x: the best peer's time over ours, above 1 we are faster")
    return texts


def _table(table: Sequence[Line], ours: Sequence[str], peers: Sequence[str], summary: bool) -> Table:
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False, show_edge=False)
    made.add_column("row", no_wrap=True)
    made.add_column("", no_wrap=True)
    if summary:
        for name in (*ours, "best peer"):
            made.add_column(name, justify="right", no_wrap=True)
        made.add_column("which", no_wrap=True)
        for name in ours:
            made.add_column(f"x {name}", justify="right", no_wrap=True)
    for name in peers:
        made.add_column(name, justify="right", no_wrap=True)
    for line in table:
        texts: list[str | Text] = [line.name, line.direction]
        if summary:
            peer = line.best_peer
            texts += [_time(line, name) for name in ours]
            texts += [_milliseconds(peer["median"]), f"{peer['contestant']} {peer['form']}"] if peer else ["-", "-"]
            texts += [_ratio(line.ratio(name)) for name in ours]
        made.add_row(*texts, *(_time(line, name) for name in peers))
    return made


def _time(line: Line, name: str) -> str | Text:
    if name in line.best:
        return _milliseconds(line.best[name]["median"])
    state = line.state.get(name, "-")
    return Text(state, style="red") if state in ("wrong", "failed") else state


def _milliseconds(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _ratio(value: float | None) -> Text:
    if value is None:
        return Text("-")
    return Text(f"{value:.2f}", style="red" if value < 1 else "green")


def _verdict(result: Mapping[str, Any], table: Sequence[Line], out: Console) -> None:
    for name in OURS:
        mean = geometric_mean(line.ratio(name) for line in table)
        if mean is not None:
            count = sum(line.ratio(name) is not None for line in table)
            out.print(f"{name}: geometric mean of the ratios over {count} rows {mean:.2f}")
    slower = losses(table)
    if slower:
        out.print(Text(f"losses ({len(slower)}):", style="red"))
        for name, line, ratio in sorted(slower, key=lambda loss: loss[2]):
            peer = line.best_peer
            assert peer is not None
            out.print(
                Text(
                    f"  {ratio:.2f}  {name} on {line.name} {line.direction} ({line.what}), against {peer['contestant']} {peer['form']}",
                    style="red",
                )
            )
    else:
        out.print("losses: none")
    for text in troubles(result):
        out.print(Text(text, style="red"))
