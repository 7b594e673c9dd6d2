"""Measuring on a GPU or TPU: who takes part, and how far its results may be from the definition."""

from __future__ import annotations

from collections.abc import Iterable

from fastconv.bench.process import Contestant

#: Devices that can be asked for, as JAX calls them. "cpu" times as the others do, to try that out.
PLATFORMS = ("cuda", "rocm", "tpu", "cpu")
_MODULES = {"jax+fastconv": "fastconv_jax", "jax": "jax", "torch": "torch"}
#: What a product of float32 may err by in XLA's default precision: operands are rounded to TF32's 10 bits of fraction on NVIDIA's tensor
#: cores, and to bfloat16's 7 on TPUs.
_ROUNDED = {"cuda": 2.0**-10, "tpu": 2.0**-7}


def contestants(platform: str, against: Iterable[str] | None = None) -> tuple[Contestant, ...]:
    """fastconv in JAX, and the peers that can use the device (`against` chooses among them).

    Raises: ValueError on a platform or a peer that is not known.
    """
    if platform not in PLATFORMS:
        raise ValueError(f"platform must be one of {', '.join(PLATFORMS)}, got {platform!r}")
    peers = ("jax", "torch") if against is None else tuple(dict.fromkeys(against))
    for name in peers:
        if name not in ("jax", "torch"):
            raise ValueError(f"against must name peers among jax, torch on a platform, got {name!r}")
    return tuple(Contestant(name, f"fastconv.bench.peers.{_MODULES[name]}", platform) for name in ("jax+fastconv", *peers))


def product_error(platform: str, dtype: str) -> float:
    """The relative error allowed of each product, beyond that of its dtype."""
    return _ROUNDED.get(platform, 0.0) if dtype in ("float32", "complex64") else 0.0
