"""The cells of benchmarks/gpu.sh: what public reports found slow on GPUs, and layers that must not suffer."""

from __future__ import annotations

from typing import Any

from fastconv.bench.cases import Case

ALL = ("fwd", "dx", "dw")
BOTH = ("float32", "bfloat16")


def _row(
    name: str, source: str, op: str, n: int, cin: int, size: list[int], cout: int, kernel: list[int], *, dtypes=("float32",),
    directions=ALL, **options: Any,
) -> list[Case]:  # fmt: skip
    """One case for each dtype; float32 runs in XLA's default precision."""
    return [
        Case.from_json(
            {
                "name": name if dtype == "float32" else f"{name}-bf16",
                "family": "gpu",
                "source": source,
                "op": op,
                "n": n,
                "cin": cin,
                "size": size,
                "cout": cout,
                "kernel": kernel,
                "dtype": dtype,
                "directions": directions,
                **options,
            }
        )
        for dtype in dtypes
    ]


UP, DOWN = "conv_transpose", "conv"
CASES: tuple[Case, ...] = tuple(
    case
    for rows in (
        _row("synthesis", "jax#23783", UP, 16, 129, [400], 1, [256], stride=[64], dtypes=BOTH),
        _row("analysis", "jax#23783", DOWN, 16, 1, [25600], 129, [256], stride=[64], padding=[256]),
        _row("istft", "torch#120982", UP, 1, 1026, [224], 1, [1024], stride=[256], directions=("fwd", "dw")),
        _row("separation", "TensorRT-RTX-EP-ABI#8", UP, 12, 2049, [340], 1, [4096], stride=[1024], directions=("fwd",), dtypes=BOTH),
        _row("depthwise-up", "torch#47341", UP, 16, 512, [32], 512, [6], stride=[3], padding=[2], output_padding=[1], groups=512),
        _row(
            "volume-up",
            "jax#31662",
            UP,
            1,
            64,
            [64, 64, 32],
            1,
            [3] * 3,
            stride=[2] * 3,
            padding=[1] * 3,
            output_padding=[1] * 3,
            dtypes=BOTH,
        ),
        _row("volume-k2s2", "oneDNN#262", UP, 1, 256, [20] * 3, 128, [2] * 3, stride=[2] * 3),
        _row("depthwise-1d", "jax#13800", DOWN, 32, 512, [1024], 512, [5], padding=[2], groups=512),
        _row("depthwise-dilated", "jax#26266", DOWN, 32, 256, [1024], 256, [5], padding=[32], dilation=[16], groups=256),
        _row("depthwise-2d", "torch#157334, 8 images", DOWN, 8, 256, [124] * 2, 256, [3] * 2, padding=[1] * 2, groups=256),
        _row("depthwise-short", "torch#192902, a third", DOWN, 1, 4096, [4096], 4096, [4], padding=[3], groups=4096, dtypes=("bfloat16",)),
        _row("grouped", "ResNeXt", DOWN, 16, 128, [28] * 2, 128, [3] * 2, padding=[1] * 2, groups=32),
        _row("video-patch", "transformers#45750", DOWN, 576, 3, [2, 14, 14], 1280, [2, 14, 14], stride=[2, 14, 14], dtypes=("bfloat16",)),
        _row("patch-16", "jax#23085", DOWN, 16, 3, [224] * 2, 768, [16] * 2, stride=[16] * 2, dtypes=BOTH),
        _row("four-axes", "torch#72850", DOWN, 1, 4, [12] * 4, 16, [3] * 4, padding=[1] * 4, directions=("fwd", "dw")),
        _row("generator", "DCGAN", UP, 16, 128, [16] * 2, 64, [4] * 2, stride=[2] * 2, padding=[1] * 2),
        _row("resnet-3x3", "must not suffer", DOWN, 16, 64, [56] * 2, 64, [3] * 2, padding=[1] * 2, dtypes=BOTH),
    )
    for case in rows
)
CELLS = [(case, direction) for case in CASES for direction in case.directions]
