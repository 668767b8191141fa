"""In which order statements stand."""

from __future__ import annotations

from theorems.run.registry.suite import _module_order, capabilities


def test_capabilities_stand_as_their_room_names_them() -> None:
    named = _module_order("theorems.capabilities")
    assert min(named.values()) >= 0
    places = [named[one.conclusion.__module__] for one in capabilities.__wrapped__().values()]
    assert len(places) > 10
    assert places == sorted(places)
    assert _module_order("tests.theorems.run.registry") == {}
