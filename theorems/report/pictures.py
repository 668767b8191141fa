"""Pictures of a report: a curve and its distance from its limit, and how much of its tolerance each claim uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from reference_attention.floats import EPS
from theorems.core.claim import Verdict
from theorems.figures.limit_curve import Limit
from theorems.report.document import Picture
from theorems.report.record import StatementRecord
from theorems.report.svg import Plot, Range, element
from theorems.run.result import ClaimSummary

NEAR = 8.0
"""Largest norm ‖p‖ up to which a curve of prompts p is drawn in the plane; beyond this norm the curve is nearly
straight."""
ROW, NAMES, WIDTH = 20.0, 92.0, 340.0
"""In the picture of tolerances, in SVG units: the height of a line, the width of the column of statements' names, the
picture's width."""
FULL = 0.8
"""Position of a claim that uses its whole tolerance, as a share of the drawing's width; a claim further to the right is
falsified."""


def limit_picture(title: str, limit: Limit) -> Picture:
    """Return two plots: a curve in the plane, and the curve's distance from the line of its limit direction.

    The plane is spanned by the limit direction and the curve's largest deviation from this direction.
    """
    angle, offset, norm = limit.one_minus_cosine, limit.offset[-1], limit.norms[-1]
    near = f"= {angle:.0e}" if angle > EPS else "below one rounding error"
    sentences = [f"1 − cos {near} and offset {offset:.3f} at ‖p‖ = {norm:.0f}"]
    if limit.predicted is not None:
        sentences.append(f"the closed form predicts an offset of {limit.predicted:.3f}")
    caption = f"{title}: {limit.curve} on {limit.data}, limit {limit.limit}; {', '.join(sentences)}."
    return Picture((_plane(limit), _offset(limit)), caption)


def _plane(limit: Limit) -> str:
    points = limit.plane[limit.norms <= NEAR]
    plot = Plot(
        f"{limit.curve} near the origin, converging in direction to {limit.limit}",
        _around(points[:, 0]),
        _around(points[:, 1]),
        f"along {limit.limit}",
        "orthogonal to it",
    )
    plot.line([(0.0, 0.0), (plot.x[1], 0.0)], "limit")
    plot.line(list(map(tuple, points.tolist())), "curve")
    plot.dot(float(points[0, 0]), float(points[0, 1]), "start", "the first point")
    plot.name(plot.x[1], 0.04 * (plot.y[1] - plot.y[0]), limit.limit, "limit")
    return plot.svg()


def _offset(limit: Limit) -> str:
    moved = limit.norms > 0
    logs, offset = np.log10(limit.norms[moved]), limit.offset[moved]
    highest = max(1.15 * float(offset.max()), 1.15 * (limit.predicted or 0.0), 1e-3)
    plot = Plot(
        f"distance from {limit.limit} against the norm of p; it stays bounded",
        (float(np.floor(logs.min())), float(np.ceil(logs.max()))),
        (0.0, highest),
        "‖p‖",
        f"distance from {limit.limit}",
        x_is_log=True,
    )
    if limit.predicted is not None:
        plot.line([(plot.x[0], limit.predicted), (plot.x[1], limit.predicted)], "limit")
        plot.name(plot.x[1], limit.predicted - 0.08 * highest, "predicted", "limit")
    plot.line(list(zip(logs.tolist(), offset.tolist(), strict=True)), "curve")
    return plot.svg()


def _around(values: np.ndarray) -> Range:
    """Return a range that contains the values and 0, with a margin on both sides."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    room = 0.12 * max(high - low, 0.1)
    return low - room, high + room


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
