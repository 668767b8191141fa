"""The theorem is upheld, its fault is caught, and what is recorded replays."""

from __future__ import annotations

from a_paper.faults import FAULTS

from theorems import verify


def test_it_is_upheld() -> None:
    verify("ordered-logits-descend", examples=20).raise_if_falsified()


def test_its_fault_is_caught() -> None:
    assert verify("ordered-logits-descend", attention=FAULTS[0].implementation, examples=20).falsified_results
