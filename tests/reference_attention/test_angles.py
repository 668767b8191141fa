"""1 − cos of the angle between a point and a direction: accurate for tiny angles and at any length of the point."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference_attention.angles import one_minus_cosine, one_minus_cosine_along


@pytest.mark.parametrize("angle", [1e-9, 1e-3, 1.0, 3.0])
@pytest.mark.parametrize("length", [1e-100, 1.0, 1e100])
def test_one_minus_cosine_agrees_with_the_angle(angle: float, length: float) -> None:
    p, unit = length * np.array([math.cos(angle), math.sin(angle)]), np.array([1.0, 0.0])
    expected = 2 * math.sin(angle / 2) ** 2
    assert one_minus_cosine(p, unit) == pytest.approx(expected, rel=1e-6)
    along = one_minus_cosine_along(np.array([p, 0 * p]), np.array([length, 0.0]), unit)
    assert along[0] == pytest.approx(expected, rel=1e-6)
    assert math.isnan(along[1])
