"""In which order statements stand."""

from __future__ import annotations

from attention_conformance.claims.capabilities import CAPABILITIES
from theorems.run.registry.suite import capabilities, module_order


def test_capabilities_stand_as_their_table_has_them() -> None:
    assert list(capabilities()) == [f"kernel-{capability.name}" for capability in CAPABILITIES]
    assert module_order("tests.theorems.run.registry") == {}
