"""Tests of the theorem: it is upheld, its fault is caught, and its records can be replayed."""

from __future__ import annotations

from a_paper.faults import FAULTS

from theorems import verify


def test_it_is_upheld() -> None:
    """Check that the theorem is upheld."""
    verify("ordered-logits-descend", examples=20).raise_if_falsified()


def test_its_fault_is_caught() -> None:
    """Check that the theorem catches its fault."""
    assert verify("ordered-logits-descend", attention=FAULTS[0].implementation, examples=20).falsified_results
