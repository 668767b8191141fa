"""In which order statements stand."""

from __future__ import annotations

from attention_conformance.claims.table import CAPABILITIES
from theorems.run.registry.suite import _module_order, capabilities


def test_capabilities_stand_as_their_table_has_them() -> None:
    assert list(capabilities()) == [f"kernel-{one.name}" for one in CAPABILITIES]
    assert _module_order("tests.theorems.run.registry") == {}
