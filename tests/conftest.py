"""Hypothesis profiles: the same draws on every run, or other ones on each under FASTCONV_FUZZ=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large], "print_blob": True}
settings.register_profile("fixed", derandomize=True, database=None, **COMMON)
settings.register_profile("fuzz", **COMMON)
settings.load_profile("fuzz" if os.environ.get("FASTCONV_FUZZ") == "1" else "fixed")
