"""The order in which statements are listed."""

from __future__ import annotations

from attention_conformance.claims.capabilities import CAPABILITIES
from theorems.run.registry.suite import capabilities, module_order


def test_capabilities_are_listed_in_the_order_of_their_table() -> None:
    assert list(capabilities()) == [f"kernel-{capability.name}" for capability in CAPABILITIES]
    assert module_order("tests.theorems.run.registry") == {}
