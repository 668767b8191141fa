"""The pictures of a report: curves turn to their limits, nothing is drawn outside, and used shares of tolerances are
right.
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from generators.datasets import dataset_named
from reference_attention.paths.joint_path import JointPath
from reference_attention.paths.scheduled_direction import scheduled_direction
from theorems.core.claim import Form, Verdict
from theorems.core.implementation import REFERENCE
from theorems.figures.limit_curve import Limit
from theorems.report.pictures import headroom, limit_picture, share_of_tolerance
from theorems.report.record import StatementRecord
from theorems.report.svg import Plot
from theorems.run.result import ClaimSummary
from theorems.token_selection.figures import limits
from theorems.token_selection.figures.limits import LIMITS
from theorems.token_selection.joint_paths.joint_setup import joint_setup


@cache
def quick(id: str) -> Limit:
    """Return the curve that illustrates a statement's limit, with fewer points than the report draws."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RADII", limits.RADII[::8])
        patch.setattr(limits, "STEPS", 1000)
        return LIMITS[id]()


@pytest.mark.parametrize("id", LIMITS)
def test_every_curve_turns_to_its_limit(id: str) -> None:
    result = quick(id)
    assert np.isclose(np.linalg.norm(result.direction), 1, rtol=0, atol=1e-12)
    assert result.norms[-1] > (50 if id.startswith("conjecture") else 1e5)
    assert result.one_minus_cosine < 2 * (result.offset.max() / result.norms[-1]) ** 2
    away = replace(result, direction=result.direction[::-1].copy())
    assert away.one_minus_cosine > 1e-3  # but not to another direction
    if result.predicted is not None:
        assert np.isclose(result.offset[-1], result.predicted, rtol=1e-4)
    along, beside = result.plane.T
    assert np.allclose(
        np.hypot(along, beside), result.norms
    )  # in two dimensions the norm is that of the two coordinates


def test_only_theorem_1_has_a_predicted_limit() -> None:
    assert [id for id in LIMITS if quick(id).predicted is not None] == ["theorem-1"]


@pytest.mark.parametrize("id", ["theorem-1", "conjecture-joint-descent"])
def test_drawings_lie_inside_their_picture(id: str) -> None:
    picture = limit_picture(id, quick(id))
    assert picture.caption.startswith(f"{id}: ")
    for image in picture.images:
        root = xml.etree.ElementTree.fromstring(image)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        drawn = [line.attrib["points"] for line in root.iter("polyline")]
        assert drawn
        for x, y in (map(float, point.split(",")) for line in drawn for point in line.split()):
            assert 0 < x < width
            assert 0 < y < height
        assert sum(bool(re.fullmatch("[−0-9.⁰-⁹⁻²³¹]+", text.text or "")) for text in root.iter("text")) >= 6


def test_a_point_is_drawn_at_its_coordinates() -> None:
    plot = Plot("a line", (0.0, 10.0), (-1.0, 1.0), "x", "p_mm(α)", width=156.0, height=148.0)
    plot.line([(0.0, -1.0), (5.0, 0.0), (10.0, 1.0), (11.0, 0.0)], "curve")
    assert 'points="44.0,112.0 94.0,62.0 144.0,12.0"' in plot.svg()
    assert '<tspan class="sub" dy="3">mm</tspan><tspan dy="-3">(α)</tspan>' in plot.svg()


def claim(slack: float, tolerance: float) -> ClaimSummary:
    verdict = Verdict.UPHELD if slack >= -tolerance else Verdict.FALSIFIED
    return ClaimSummary(f"slack {slack:g}", Form.EXACT, slack, tolerance, "rounding", verdict)


@pytest.mark.parametrize(
    ("slack", "tolerance", "share"),
    [(0.25, 1e-15, 0.0), (0.0, 1e-15, 0.0), (-1e-15, 4e-15, 0.25), (-8e-15, 4e-15, 2.0), (0.0, 0.0, None)],
)
def test_a_negative_slack_uses_its_share_of_the_tolerance(slack: float, tolerance: float, share: float | None) -> None:
    assert share_of_tolerance(claim(slack, tolerance)) == share
    assert share_of_tolerance(claim(math.nan, tolerance)) is None


def test_every_claim_with_a_tolerance_is_drawn_as_a_dot() -> None:
    claims = *(claim(slack, 4e-15) for slack in (1.0, -1e-15, -8e-15)), claim(0.0, 0.0)
    one = StatementRecord("lemma-3", "", Verdict.FALSIFIED, 1, {}, claims, "")
    picture = headroom([one, replace(one, id="<long-name-of-a-statement>")])
    root = xml.etree.ElementTree.fromstring(picture.images[0])
    dots = [(dot.attrib["class"], float(dot.attrib["cx"])) for dot in root.iter("circle")]
    assert [kind for kind, _ in dots] == 2 * ["claim", "claim", "wrong"]
    (none, quarter, beyond), whole = (x for _, x in dots[:3]), float(re.findall(r"M([\d.]+),", picture.images[0])[0])
    assert none < quarter < whole < beyond
    assert math.isclose(quarter - none, (whole - none) / 4, abs_tol=0.1)
    assert picture.caption.endswith(
        "2 of 6 use none, the others at most 200%. 2 more have no tolerance: they are decided exactly."
    )


def first_point(start: list[float]) -> tuple[str, str]:
    """Return the place at which a curve begins in the picture."""
    points = np.array([start, [-5.0, -5.0], [5.0, 5.0], [400.0, 3.0]])
    picture = limit_picture("theorem-1", Limit("a curve", "p_mm", "figure-1a", points, np.array([1.0, 0.0])))
    assert "offset 3.000 at ‖p‖ = 400" in picture.caption
    result = re.search(r'<circle class="start" cx="([^"]*)" cy="([^"]*)" r="3.2"><title>the first', picture.images[0])
    assert result is not None
    return result[1], result[2]


def test_a_curve_begins_at_its_first_point() -> None:
    x, y = first_point([0.5, 0.25])
    assert first_point([0.5, 2.0])[0] == x != first_point([2.0, 0.25])[0]
    assert first_point([2.0, 0.25])[1] == y != first_point([0.5, 2.0])[1]


def test_joint_curves_have_their_own_limits() -> None:
    """Without a critical ratio the joint path of Figure 3 has r = R; joint descent tends to the direction of equal
    radii.
    """
    case = dataset_named("figure-3b")
    setup = joint_setup(case, REFERENCE)
    assert np.allclose(
        quick.__wrapped__("conjecture-joint-descent").direction, scheduled_direction(setup.joint, 1.0), atol=1e-12
    )
    records: list[float] = []

    def path(joint: object, schedule: Callable[[float], float], radii: object, start: object) -> JointPath:
        records.append(math.exp(schedule(8.0)) / 8)
        raise KeyError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "joint_path", path)
        for share in (1.0, 3.0):
            with pytest.raises(KeyError):
                limits._joint("figure-3a", "p_mm", share)
    assert records == pytest.approx([1.0, 3.0])
