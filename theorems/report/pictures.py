"""Picture of a report: how much of its tolerance each claim uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from theorems.core.claim import Verdict
from theorems.report.document import Picture
from theorems.report.record import StatementRecord
from theorems.report.svg import element
from theorems.run.result import ClaimSummary

ROW, NAMES, WIDTH = 20.0, 92.0, 340.0
"""In the picture of tolerances, in SVG units: the height of a line, the width of the column of statements' names, the
picture's width."""
FULL = 0.8
"""Position of a claim that uses its whole tolerance, as a share of the drawing's width; a claim further to the right is
falsified."""


def share_of_tolerance(claim: ClaimSummary) -> float | None:
    """Return which share of its tolerance a claim's worst slack uses; None if undecided or without a tolerance."""
    if claim.tolerance == 0 or math.isnan(claim.worst_slack) or math.isnan(claim.tolerance):
        return None
    return max(0.0, -claim.worst_slack / claim.tolerance) + 0.0


def headroom(statements: Sequence[StatementRecord]) -> Picture:
    """Return a picture with a line per statement and a dot per claim, at the share of its tolerance that is used."""
    height = ROW * (len(statements) + 2)
    whole, right = NAMES + FULL * (WIDTH - NAMES), WIDTH - 8
    parts = [f'<path class="limit" d="M{whole:g},{ROW:g}V{height - ROW:g}"/>']
    for mark, text in ((0.0, "none"), (0.5, "half"), (1.0, "all of it")):
        x = NAMES + mark * (whole - NAMES)
        parts.append(f'<text x="{x:g}" y="{height - 5:g}" text-anchor="middle">{text}</text>')
    for k, statement in enumerate(statements):
        y = ROW * (k + 1.5)
        parts.append(f'<path class="axis" d="M{NAMES:g},{y:g}H{right:g}"/>')
        parts.append(f'<text x="{NAMES - 8:g}" y="{y + 4:g}" text-anchor="end">{_short(statement.id)}</text>')
        for claim in statement.claims:
            share = share_of_tolerance(claim)
            if share is not None:
                kind = "wrong" if claim.verdict is Verdict.FALSIFIED else "claim"
                x = min(NAMES + share * (whole - NAMES), right)
                title = f"<title>{escape(statement.id)}, {escape(claim.name)}: {share:.0%}</title>"
                parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="4">{title}</circle>')
    meaning = "share of the tolerance that each claim uses, a line per statement"
    shares = [
        share for statement in statements for share in map(share_of_tolerance, statement.claims) if share is not None
    ]
    exact = sum(claim.tolerance == 0 for statement in statements for claim in statement.claims)
    caption = (
        "The share of its tolerance that each claim uses, at its worst slack:"
        f" {sum(share == 0 for share in shares)} of {len(shares)} use none, the others at most"
        f" {max(shares, default=0.0):.0%}. {exact} more have no tolerance: they are decided exactly."
    )
    return Picture((element(meaning, WIDTH, height, "".join(parts)),), caption)


def _short(id: str) -> str:
    return escape(id if len(id) <= 12 else f"{id[:11]}…")
