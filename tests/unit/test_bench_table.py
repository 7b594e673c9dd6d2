"""The table comes from the JSON alone: what it shows of a canned result."""

from __future__ import annotations

import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from fastconv.bench.summary import geometric_mean, lines, losses, ours_are_right

pytest.importorskip("rich")
from fastconv.bench import table


def cell(contestant: str, form: str, median: float | None, status: str = "ok", note: str = "") -> dict[str, Any]:
    return {
        "contestant": contestant,
        "form": form,
        "status": status,
        "median": median,
        "minimum": median,
        "calls": 9,
        "error": 0.1,
        "note": note,
    }


def row(name: str, *cells: dict[str, Any]) -> dict[str, Any]:
    sizes = {"flops": 10**9, "touching_flops": 9 * 10**8, "bytes": 10**7, "ceilings": {"flops": 2e12, "bytes": 5e10}}
    return {"name": name, "family": "f", "direction": "fwd", "what": "conv N1", **sizes, "cells": list(cells)}


def result(*rows: dict[str, Any], complete: bool = True) -> dict[str, Any]:
    made = {
        "format": 2,
        "date": "2026-01-02T03:04:05+00:00",
        "complete": complete,
        "machine": {"cpu": "Some CPU", "isa": "avx2", "cores": 4, "system": "Linux x86_64"},
        "versions": {"fastconv": "0.1.0", "python": "3.12.0", "numpy": "2.0"},
        "threads": 2,
        "settings": {"rounds": 4, "slice": 0.1, "cap": 10.0, "memory": 1},
        "contestants": [
            {"name": "fc", "version": "0.1.0", "absent": None},
            {"name": "jax+fastconv", "version": "0.9", "absent": None},
            {"name": "jax", "version": "0.9", "absent": None},
            {"name": "torch", "version": "2.13", "absent": None},
            {"name": "onnx", "version": None, "absent": "ModuleNotFoundError: No module named 'onnxruntime'"},
        ],
        "rows": list(rows),
    }
    return json.loads(json.dumps(made))


WIN = row(
    "win",
    cell("fc", "NC", 2e-3),
    cell("fc", "N...C", 1e-3),
    cell("jax+fastconv", "NCHW", 1.6e-3),
    cell("jax", "NCHW", None, "capped", "> 10 s"),
    cell("jax", "NHWC", None, "capped", "> 10 s"),
    cell("torch", "NC", 5e-3),
    cell("torch", "channels_last", 4e-3),
)
LOSS = row(
    "loss",
    cell("fc", "NC", 4e-3),
    cell("jax+fastconv", "NCHW", 2e-3),
    cell("jax", "NCHW", 3e-3),
    cell("torch", "NC", 1e-4, "wrong", "error is 9 times the bound"),
)


def shown(data: dict[str, Any], width: int = 200) -> str:
    out = io.StringIO()
    from rich.console import Console

    table.show(data, Console(file=out, width=width))
    return out.getvalue()


def test_the_best_form_and_the_best_peer_are_taken() -> None:
    (line,) = lines(result(WIN))
    assert line.best["fc"]["form"] == "N...C"
    assert line.best_peer is not None
    assert (line.best_peer["contestant"], line.best_peer["form"]) == ("torch", "channels_last")
    assert line.ratio("fc") == pytest.approx(4)
    assert line.ratio("jax+fastconv") == pytest.approx(2.5)


def test_a_wrong_contestant_is_never_the_best() -> None:
    (line,) = lines(result(LOSS))
    assert line.best_peer is not None
    assert line.best_peer["contestant"] == "jax"
    assert line.state["torch"] == "wrong"


def test_losses_and_mean() -> None:
    data = lines(result(WIN, LOSS))
    assert [(ours, line.name) for ours, line, _ in losses(data)] == [("fc", "loss")]
    assert geometric_mean(line.ratio("fc") for line in data) == pytest.approx((4 * 0.75) ** 0.5)
    assert geometric_mean([None]) is None


def test_a_wrong_result_of_ours_is_known() -> None:
    assert ours_are_right(result(WIN, LOSS))
    assert not ours_are_right(result(row("bad", cell("fc", "NC", None, "wrong", "error is 2 times the bound"))))


def test_the_printed_table() -> None:
    text = shown(result(WIN, LOSS))
    assert "Some CPU, avx2, Linux x86_64; 2 of 4 cores" in text
    assert "absent: onnx (ModuleNotFoundError: No module named 'onnxruntime')" in text
    (win,) = (line for line in text.splitlines() if line.startswith("win"))
    assert win.split() == ["win", "fwd", "1", "1.6", "4", "torch", "channels_last", "4.00", "2.50", ">", "10", "s", "4"]
    (loss,) = (line for line in text.splitlines() if line.startswith("loss "))
    assert loss.split() == ["loss", "fwd", "4", "2", "3", "jax", "NCHW", "0.75", "1.50", "3", "wrong"]
    assert "fc: geometric mean of the ratios over 2 rows 1.73" in text
    assert "losses (1):" in text
    assert "0.75  fc on loss fwd (conv N1), against jax NCHW" in text
    assert "torch NC on loss fwd: wrong, error is 9 times the bound" in text


def test_a_narrow_console_gets_two_tables_and_no_truncated_cell() -> None:
    text = shown(result(WIN, LOSS), width=84)
    assert len([line for line in text.splitlines() if line.startswith("win")]) == 2
    assert "…" not in text


def test_the_markdown_of_a_result() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "markdown_table.py"
    if not script.exists():
        pytest.skip("the benchmarks folder is not here")
    text = runpy.run_path(str(script))["markdown"](result(WIN, LOSS))
    assert "| win | fwd | 1 | 1.6 | 4 | torch channels_last | 4.00 | 2.50 |" in text
    assert "| geometric mean | | | | | | 1.73 | 1.94 |" in text


def test_the_page_of_results() -> None:
    script = Path(__file__).resolve().parents[2] / "benchmarks" / "page.py"
    if not script.exists():
        pytest.skip("the benchmarks folder is not here")
    names = runpy.run_path(str(script))
    text = names["page"](names["merged"]([result(WIN), result(LOSS)]))
    assert "| f | 2 | 1.73 | 1.94 |" in text
    assert "Losses (1):" in text
    assert "| 0.75 | fc | loss | fwd | jax NCHW |" in text
    assert "| 2.00 | fc | win | fwd | channels first |" in text
    assert "| win | fwd | 2 | 1 | 1.6 | 4 | torch channels_last | 4.00 | 2.50 | 45 | 20 |" in text
    other = result(WIN)
    other["versions"]["numpy"] = "1.0"
    with pytest.raises(ValueError, match="results must agree in versions"):
        names["merged"]([result(WIN), other])


def test_the_html_of_a_result() -> None:
    assert "Some CPU" in table.html(result(WIN))
    assert "losses: none" in table.html(result(WIN))


def test_no_losses_an_interrupt_and_no_rows() -> None:
    assert "losses: none" in shown(result(WIN))
    assert "interrupted" in shown(result(WIN, complete=False))
    assert "no row was measured" in shown(result(complete=False))
