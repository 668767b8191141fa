"""The regularization path as the optimiser under test finds it: p̄(R) = argmin of L over ‖p‖ ≤ R.

The other claims about the path follow it themselves (:mod:`.followed_path`); these hold the one that is handed to users
to it.

References: *Max-Margin Token Selection in Attention Mechanism*, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.linalg import norm

from reference_attention.floats import EPS
from theorems.core.claim import Claim, Form, NotANumber, Verdict, at_least, undecided
from theorems.core.implementation import Implementation
from theorems.core.statement import always
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.bounded import exact
from theorems.token_selection.global_paths.path_claims import Followed

PATH_OPTIMISER = tolerance(
    "path-optimiser",
    "path-rounding + 1e-8 (|y| + 1/(κ‖p_mm‖))",
    "the optimiser ends when Newton's steps no longer shrink below 1e-8 of the offset plus 1/κ, because rounding along"
    " weak curvature keeps them there; the predicted offset and the found one carry the rounding of the path besides",
)
PATH_VALUE = tolerance(
    "path-value",
    "what both log-excesses carry, and 64 eps (1 + |log excess| + κR)",
    "the optimiser prefers the first of several minima whose risks differ by no more than the rounding of a logit",
)

RADII = 2
"""Radii at which the optimiser is asked for its path: the first and the middle one of those that it is followed to."""
STALLED = 1e-8
"""See :data:`PATH_OPTIMISER`."""


MINIMISED_CLAIMS = always("minimised-path-is-on-the-sphere") | {
    "minimised-path-is-lowest": "the optimiser says that it has converged",
    "minimised-path-offset": "the same, at a radius where the reduced program predicts the offset",
}
"""The claims of :func:`minimised_path`, and when they are made."""


def minimised_path(followed: list[Followed], under_test: Implementation) -> Iterator[Claim]:
    """On the sphere, no higher than R p̄_mm and the path followed, and where the reduced program predicts it."""
    usable = [f for f in followed if not f.undecided]
    if not usable:
        yield undecided("minimised-path-is-on-the-sphere", followed[0].undecided, Form.EXACT)
        return
    chosen = [usable[0], usable[len(usable) // 2]][: min(RADII, len(usable))]
    sphere = chosen[0].sphere
    problem, svm = sphere.problem, sphere.svm
    radii = np.array([f.rho * svm.norm for f in chosen])
    path = under_test.regularization_path(problem, radii, max_margin=svm)
    if path.points.shape != (len(radii), problem.d):
        why = f"points of shape {path.points.shape} at {len(radii)} radii"
        yield Claim("minimised-path-is-on-the-sphere", Form.EXACT, -1.0, 0.0, EXACT, why)
        return
    if not np.isfinite(path.points).all():
        raise NotANumber("minimised-path-is-on-the-sphere", "a point of the path is not finite", Form.EXACT)
    good = np.flatnonzero(path.converged)
    if not good.size:
        why = f"the optimiser found no minimum: {path.reasons[0]} at R = {radii[0]:.3g}"
        yield undecided("minimised-path-is-on-the-sphere", why, Form.EXACT)
        return
    # What the optimiser says it has not found is claimed by nobody; the report counts how often that is.
    branch = f"a minimum found at {good.size} of {len(radii)} radii"
    chosen, radii, points = [chosen[k] for k in good], radii[good], path.points[good]
    off = np.abs(norm(exact(points), axis=1) - radii)
    # The point is made of a height, a root, and an offset across it.
    allowed = exact(np.zeros(len(radii))).widened(8 * EPS * radii)
    on = at_least("minimised-path-is-on-the-sphere", Form.EXACT, allowed, off, scale=radii, points="radius")
    yield replace(on, branch=branch)
    if on.verdict is Verdict.FALSIFIED:
        return
    others: list[Any] = []
    own: list[Any] = []
    for f, p in zip(chosen, points, strict=True):
        ray = f.rho * svm.norm * svm.direction
        found: Any = f.sphere.log_excess_of(
            exact(np.stack([p, ray, f.sphere.point(f.followed)])), "minimised-path-is-lowest"
        )
        noise = 64 * EPS * (1 + np.abs(found.value[0]) + problem.key_scale * f.rho * svm.norm)
        others.append(found[1:])
        own.append(found[[0, 0]].widened(noise))
    left, right = np.concatenate(others), np.concatenate(own)
    yield at_least("minimised-path-is-lowest", Form.LIMIT, left, right, why=PATH_VALUE, points="competitor")
    # Both what is said of the offset and that of the point itself.
    offsets = np.stack([path.offsets[good] @ sphere.basis / svm.norm, [sphere.coordinates(p) for p in points]])
    apart = norm(offsets - np.array([f.predicted for f in chosen]), axis=2).max(axis=0)
    size = norm(offsets[0], axis=1)
    rounding = np.array([f.rounding for f in chosen]) + STALLED * (size + 1 / (problem.key_scale * svm.norm))
    yield at_least(
        "minimised-path-offset",
        Form.SHARP,
        0.0,
        apart,
        rounding=rounding,
        scale=np.maximum(size, 1.0),
        why=PATH_OPTIMISER,
        points="radius",
    )
