"""The picture of a report: used shares of tolerances are right."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree
from dataclasses import replace

import pytest

from theorems.core.claim import Form, Verdict
from theorems.report.pictures import headroom, share_of_tolerance
from theorems.report.record import StatementRecord
from theorems.run.result import ClaimSummary


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
