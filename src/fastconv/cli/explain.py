"""`fastconv explain`: a convolution typed by hand, its plan and the roads not taken, in words."""

from __future__ import annotations

from typing import Any

import fastconv
from fastconv.plan import BOUNDS, Measured, Plan

OPS = ("conv", "conv_transpose", "input_grad", "weight_grad")
#: Options besides the shapes x and w.
OPTIONS = ("dtype", "stride", "padding", "dilation", "groups", "flip", "output_padding", "transposed", "layout", "precision")
SYNTAX = f"write: {' | '.join(OPS)} x=1,64,56,56 w=64,64,3,3 [{' '.join(f'{name}=' for name in OPTIONS)}]"


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """`conv x=1,64,56,56 w=64,64,3,3 padding=1` -> the operation and keyword arguments of `fastconv.plan`.

    Values: an integer, integers `2,2`, pairs `1:2,0:0`, true, false, or a word. Raises: ValueError.
    """
    words = text.split()
    if not words or words[0] not in OPS:
        raise ValueError(
            f"the problem must begin with an operation, one of {', '.join(OPS)}, got {words[0] if words else text!r}; {SYNTAX}"
        )
    options: dict[str, Any] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals or name not in ("x", "w", *OPTIONS):
            raise ValueError(f"after the operation must come name=value, names among x, w, {', '.join(OPTIONS)}, got {word!r}")
        if name in options:
            raise ValueError(f"{name} must be given once, got it again in {word!r}")
        options[name] = _value(name, value)
    for name in ("x", "w"):
        if name not in options:
            raise ValueError(f"{name} must be given; {SYNTAX}")
        if isinstance(options[name], int):
            options[name] = (options[name],)
    return words[0], options


def _value(name: str, text: str) -> Any:
    if name in ("dtype", "layout", "precision"):
        return text
    if name in ("flip", "transposed"):
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, got {text!r}")
        return text.lower() == "true"
    if name == "padding" and text.replace("_", "").isalpha():
        return text
    parts = text.split(",")
    try:
        if ":" in text:
            return tuple(tuple(int(n) for n in part.split(":")) for part in parts)
        return int(text) if len(parts) == 1 else tuple(int(part) for part in parts)
    except ValueError:
        raise ValueError(f"{name} must be an integer, integers a,b or pairs a:b,c:d, got {text!r}") from None


def explain(text: str) -> str:
    """The plan of a problem typed by hand, in words. Raises: ValueError, TypeError."""
    op, options = parse(text)
    x, w = options.pop("x"), options.pop("w")
    return in_words(fastconv.plan(x, w, op=op, **options))


def in_words(plan: Plan) -> str:
    """The algorithm chosen, what it is modelled to cost, and for each other one why not."""
    problem = plan.problem
    size = "x".join(str(axis.out) for axis in problem.axes)
    groups = f" in {problem.groups} groups" if problem.groups > 1 else ""
    lines = [
        f"{problem.dtype}: {2 * problem.products / 1e6:.3g} million operations, {problem.channels} -> {problem.features} channels{groups}, "
        f"batch {problem.batch}, output {size}, at most {problem.terms} products a sum.",
        f"fastconv takes `{plan.algorithm}`: {'measured' if isinstance(plan.seconds, Measured) else 'modelled'} at "
        f"{_duration(plan.seconds)}, workspace {_memory(plan.workspace_bytes)}.",
    ]
    if plan.bound != "direct":
        lines.append(f"It is approximate: {BOUNDS[plan.bound]}; precision=highest rules it out.")
    if isinstance(plan.seconds, Measured):
        lines.append("`fastconv tune` measured this problem on this machine.")
    others = {name: verdict for name, verdict in plan.considered.items() if name != plan.algorithm}
    if not others:
        return "\n".join([*lines, "No other algorithm is there to choose from."])
    lines.append("Roads not taken:")
    for name, verdict in others.items():
        if isinstance(verdict, str):
            lines.append(f"  {name}: {'no' if verdict.startswith('approximate') else 'cannot'}, {verdict}")
        else:
            would = "took" if isinstance(verdict, Measured) else "would take"
            lines.append(f"  {name}: {would} {_duration(verdict)}, {verdict / plan.seconds:.3g} times as long")
    return "\n".join(lines)


def _duration(seconds: float) -> str:
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _memory(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {unit}"
    return f"{count} bytes"
