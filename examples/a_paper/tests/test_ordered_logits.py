"""Tests of the theorem: the reference upholds it, and a faulty implementation falsifies it."""

from __future__ import annotations

from a_paper.faults import FAULTS

from theorems import verify


def test_it_is_upheld() -> None:
    """Check that the reference upholds the theorem."""
    verify("ordered-logits-descend", examples=20).raise_if_falsified()


def test_its_fault_is_caught() -> None:
    """Check that the planted fault, softmin in place of softmax, falsifies the theorem."""
    assert verify("ordered-logits-descend", attention=FAULTS[0].implementation, examples=20).falsified_results
