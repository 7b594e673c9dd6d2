"""GPUs and TPUs as machines of the planner: what their makers' data sheets say, data beside this module (`data/accelerators.json`).

No rate was measured: they rank programs of the same work, whose shares of the peak are much alike.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from fastconv.plan.machine import Machine

PLATFORMS = ("cuda", "rocm", "tpu")

#: The programs of lax's operations that JAX's front offers for a convolution (fastconv.jax.rewrites), as `forced` and
#: FASTCONV_ALGORITHM name them.
PROGRAMS = tuple(
    f"xla:{name}"
    for name in ("phases", "overlap_add", "swap_roles", "patches", "per_tap", "per_output", "fold_axes", "feature_groups")
)  # fmt: skip

_PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "accelerators.json")


@cache
def _data() -> dict[str, Any]:
    import json  # not at import: a plan for an accelerator needs it, `import fastconv` does not

    with open(_PATH, encoding="utf-8") as file:
        return json.load(file)


def devices() -> tuple[dict[str, Any], ...]:
    """All that is known, with the source of the figures."""
    return tuple(_data()["devices"])


@cache
def accelerator(platform: str, kind: str = "") -> Machine:
    """The machine of a device kind as JAX calls it ("NVIDIA H100 80GB HBM3"), or the platform's plainest one for a kind that is not known.

    A platform that is not known is taken for a small GPU.
    """
    data = _data()
    known = platform if platform in PLATFORMS else "cuda"
    found = [row for row in data["devices"] if row["platform"] == known and any(_names(kind, name) for name in row["kinds"])]
    row = found[0] if found else next(row for row in data["devices"] if row["name"] == data["default"][known])
    return Machine(
        name=row["name"] if found else f"{kind or platform}, taken for {row['name']}",
        isa=known,
        cores=row["cores"],
        vector_bytes=512 if known == "tpu" else 128,
        gflops=row["single"] * 1e3,
        bandwidth=row["bandwidth"] * 1e9,
        call_seconds=data["launch"][known],
        matrix_gflops=row["matrix"] * 1e3,
        half_gflops=row["half"] * 1e3,
        double_gflops=row["double"] * 1e3,
    )


def _names(kind: str, name: str) -> bool:
    """Whether a device kind holds a name as whole words ("L4" is not in "L40S")."""
    words, wanted = kind.replace("-", " ").replace(":", " ").split(), name.split()
    starts = range(len(words) - len(wanted) + 1)
    return any(
        all(word == want or (want[:2] in ("MI", "gf") and word.startswith(want)) for word, want in zip(words[at:], wanted, strict=False))
        for at in starts
    )
