"""The machine's ceilings: measured for float types, absent for others, and of a believable size."""

from __future__ import annotations

from fastconv.bench.ceilings import Ceilings


def test_ceilings() -> None:
    with Ceilings(2) as ceilings:
        single, double = ceilings.flops("float32"), ceilings.flops("float64")
        assert single is not None
        assert double is not None
        assert double > 1e8
        assert 1e8 < single < 1e14
        assert ceilings.flops("int8") is None
        assert 1e7 < ceilings.copied(1 << 20) < 1e13
        assert ceilings.copied(0) > 0
