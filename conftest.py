"""Set-up of a test session: Hypothesis profiles, and a line of pytest's header that names the implementation tested."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", max_examples=40, derandomize=True, database=None, **_COMMON)
settings.register_profile("dev", max_examples=40, **_COMMON)
settings.register_profile("deep", max_examples=2000, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_report_header(config: pytest.Config) -> str:
    """Return the header line with the profile: a derandomized run and a deep run are different evidence."""
    profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")
    return f"theorems: Hypothesis profile {profile!r}, implementation under test: reference"
