"""Parts of update rules on small examples: before the first step, and where the divisor would be zero."""

from __future__ import annotations

import numpy as np
import pytest

from generators.datasets import DATASETS
from reference_attention.risk import ScaledGradient
from theorems.benchmark.optimisers import scaled_vectors
from theorems.benchmark.optimisers.adam import Adam
from theorems.benchmark.optimisers.optimiser import Setting


def test_moments_begin_at_zero_in_every_run() -> None:
    """The first step of Adam has size η in each coordinate, against the gradient."""
    rule, start = Adam(0.1), np.zeros((1, 2))
    rule.begin(Setting((DATASETS["figure-1a"]().problem,), start, (2,)))
    moved = rule.step(start, ScaledGradient(np.zeros(1), np.array([[2.0, -4.0]])))
    assert moved == pytest.approx(np.array([[-0.1, 0.1]]))


def test_a_zero_vector_is_divided_by_one() -> None:
    sizes = scaled_vectors.size_of(ScaledGradient(np.zeros(2), np.array([[0.0, 0.0], [3.0, 4.0]])))
    assert sizes.tolist() == [1.0, 5.0]
