"""Sublevel sets of a joint problem: the risk at pairs (v, p) of head and prompt with its rounding error, and a search.

A sublevel set contains the pairs in two balls whose risk is at most that of a given pair, the *competitor*. Heads are v
= r v̄_mm + w, outputs are rΓ + E_i with the label margin Γ of v_mm, and α are the chosen tokens.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, (ERM) with logistic loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64

from reference_attention.floats import EPS
from reference_attention.paths.joint_risk import relative_log_risk, retract
from reference_attention.risk import softmax_weights
from theorems.bounded import either, exact
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.rounding.attention_at import AttentionAt, Numbers
from theorems.rounding.weights_under_test import weights_of
from theorems.token_selection.joint_paths.joint_setup import NON_OPTIMALITY, JointSetup

LARGEST_EXPONENT = 690.0
"""The logarithm of the largest radius of heads; a larger radius is replaced by e^690, which changes no result here."""


NEGLIGIBLE, NOTHING = 600.0, 2.0**-860
"""NEGLIGIBLE is an exponent u whose e^{−u} is negligible, and NOTHING is a number above e^{−600}."""
SERIES = 2.0**-40
"""The y = e^{−u} below which log(log(1 + y)/y) is computed as −y/2, since the term in y² is below float64's rounding.
"""
LARGE = 700.0
"""The value of −u above which log ℓ(u) is computed directly, because the formula relative to e^{−u} would overflow."""


def largest(x: Numbers) -> Float64[np.ndarray, "*b"]:
    """Return an upper bound of |x| in floats for a bounded array x."""
    return np.asarray((np.abs(x.value) + x.error) * (1 + 4 * EPS))


@dataclass(frozen=True, eq=False)
class Points:
    """Pairs (r v̄_mm + w, p) of head and prompt with their softmax weights under test and log-risk Λ = log L + rΓ.

    Attributes:
        w: the offsets of the heads from r v̄_mm, (m, d).
        p: the prompts, (m, k).
        weights: the softmax weights s_it, (m, n, T).
        value: the log-risks Λ, (m,).
    """

    w: Float64[np.ndarray, "m d"]
    p: Float64[np.ndarray, "m k"]
    weights: Numbers
    value: Numbers

    def where(self, mask: Bool[np.ndarray, "m"]) -> Points:
        """Return the pairs for which the mask is True."""
        return Points(self.w[mask], self.p[mask], self.weights[mask], self.value[mask])

    @classmethod
    def together(cls, parts: Iterable[Points]) -> Points:
        """Concatenate several batches of pairs."""
        parts = list(parts)
        return cls(*(np.concatenate([getattr(x, name) for x in parts]) for name in ("w", "p", "weights", "value")))


@dataclass(frozen=True, eq=False)
class SublevelSet:
    """The pairs (v, p) with ‖v‖ ≤ r, ‖p‖ ≤ R and at most the risk of (r v̄_mm, p_c), with p_c = ``competitor``."""

    setup: JointSetup
    under_test: Implementation
    log_r: float
    R: float
    competitor: Float64[np.ndarray, "k"]

    @cached_property
    def r(self) -> float:
        """The radius r of the head, or e^{690} if it is larger."""
        return math.exp(min(self.log_r, LARGEST_EXPONENT))

    def feasible(
        self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]
    ) -> tuple[Float64[np.ndarray, "m d"], Float64[np.ndarray, "m k"]]:
        """Return heads, as offsets w from r v̄_mm, and prompts p moved into the balls ‖v‖ ≤ r, ‖p‖ ≤ R."""
        norms = np.linalg.norm(p, axis=1, keepdims=True)
        shorter = self.R * (1 - 2 * EPS) / np.maximum(norms, self.R)
        return retract(self.setup.joint, self.log_r, w), p * np.where(norms > self.R, shorter, 1.0)

    def points(self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]) -> Points:
        """Move heads and prompts into the balls; return them with their weights under test and log-risks Λ."""
        w, p = self.feasible(w, p)
        at = AttentionAt(self.setup.problem, p, self.under_test.textbook_eps)
        weights = weights_of(at, self.under_test, NON_OPTIMALITY)
        return Points(w, p, weights, self.log_risk(w, weights))

    def nonoptimality(self, points: Points) -> Numbers:
        """Return q_i = 1 − s_iα, the softmax weight that is not on the chosen token, (m, n)."""
        return np.sum(np.where(self.setup.joint.others, points.weights, 0.0), axis=-1)

    def log_risk(self, w: Float64[np.ndarray, "m d"], weights: Numbers) -> Numbers:
        """Return Λ = log mean_i ℓ(rΓ + E_i) + rΓ for the outputs rΓ + E_i of heads within their ball, (m,).

        A head v = r v̄_mm + w that rounding puts outside its ball, ‖v‖ = r + o, is shortened by the factor 1/(1 + o/r),
        with 2r o ≤ ‖v‖² − r² = 2r v̄_mm·w + ‖w‖². This changes an output by at most (o/r)|rΓ + E_i|, which the error of
        the result contains.
        """
        s, r = self.setup, self.r
        drops = r * s.drops + np.vecdot(s.sides, w[:, None, None])
        drop = np.sum(np.where(s.joint.others, weights * drops, 0.0), axis=-1)
        E = r * s.slack + np.vecdot(exact(s.joint.chosen_tokens), w[:, None]) - drop
        outside = np.maximum(exact(w) @ s.u + np.vecdot(exact(w), w) / (2 * r), 0.0)
        E = E.widen(largest(outside)[:, None] * (largest(s.margin) + largest(E) / r))
        return np.logaddexp.reduce(_log_losses(r * s.margin, E), axis=-1) - np.log(exact(E.shape[-1]))

    def inside(self, w: Float64[np.ndarray, "m d"], p: Float64[np.ndarray, "m k"]) -> Bool[np.ndarray, "m"]:
        """Return the mask of the pairs that, moved into the balls, belong to the set as far as floats can decide."""
        w, p = self.feasible(w, p)
        weights = np.maximum(self.under_test[softmax_weights](self.setup.joint.keys, p), np.finfo(np.float64).tiny)
        return np.asarray(
            relative_log_risk(self.setup.joint, self.log_r, w, np.log(weights)) < float(self.start.value.value[0])
        )

    @cached_property
    def start(self) -> Points:
        """The pair (r v̄_mm, p_c) of the competitor p_c, as a batch of one pair."""
        return self.points(np.zeros((1, self.setup.joint.tokens.shape[2])), self.competitor[None])

    def search_points(self, rng: np.random.Generator, *, rays: int = 20, rounds: int = 3) -> Points:
        """Return pairs of the set found along rays, most of them near the ends of the rays, where bounds are tight.

        In the first round rays start at the competitor, later at pairs from earlier rays. Along each ray, step sizes
        from far below one logit to far beyond the balls are tried (the set need not be convex), then step sizes around
        the largest that stays inside the set.
        """
        joint = self.setup.joint
        d, k = joint.tokens.shape[2], joint.keys.shape[2]
        rows = joint.rows[joint.others]
        unit = float(np.max(np.linalg.norm(rows, axis=1)))
        origin_w, origin_p = np.zeros((rays, d)), np.repeat(self.competitor[None], rays, axis=0)
        kept_w, kept_p = [np.zeros((1, d))], [self.competitor[None]]
        coarse = np.logspace(-5, math.log10(8 * unit * self.R + 8), 22)
        for _ in range(rounds):
            by_w, by_p = self._directions(rng, rays, rows, unit)
            steps = np.repeat(coarse[:, None], rays, axis=1)
            for _ in range(2):
                g = len(steps)
                w = (origin_w + steps[..., None] * by_w).reshape(-1, d)
                p = (origin_p + steps[..., None] * by_p).reshape(-1, k)
                inside = self.inside(w, p)
                kept_w.append(w[inside])
                kept_p.append(p[inside])
                last = np.max(np.where(inside.reshape(g, rays), steps, 0.0), axis=0)
                steps = np.maximum(last, coarse[0]) * np.linspace(1.0, coarse[1] / coarse[0], 10)[:, None]
            w, p = np.concatenate(kept_w), np.concatenate(kept_p)
            chosen = rng.integers(len(w), size=rays)
            chosen[: rays // 2] = rng.integers(max(0, len(w) - 40), len(w), size=rays // 2)
            origin_w, origin_p = w[chosen], p[chosen]
        points = self.points(w[1:], p[1:])
        # The competitor belongs to the set, and may be the only pair that float64 can show to belong to it.
        return Points.together([self.start, points.where(np.asarray(points.value <= self.start.value))])

    def _directions(
        self, rng: np.random.Generator, rays: int, rows: Float64[np.ndarray, "m k"], unit: float
    ) -> tuple[Float64[np.ndarray, "b d"], Float64[np.ndarray, "b k"]]:
        """Draw directions for head, prompt or both: random, opposite to key differences, or along the competitor."""
        joint = self.setup.joint
        d, k = joint.tokens.shape[2], rows.shape[1]
        by_p = rng.normal(size=(rays, k)) / unit
        single = rng.integers(len(rows), size=rays)
        kind = rng.integers(4, size=rays)
        by_p = np.where((kind == 1)[:, None], -rows[single] / unit**2, by_p)
        by_p = np.where((kind == 2)[:, None], rng.choice([-1, 1], (rays, 1)) * self.competitor / self.R / unit, by_p)
        by_w = rng.normal(size=(rays, d)) / max(float(np.abs(joint.chosen_tokens).max()), 1e-300)
        by_w *= np.exp(rng.uniform(-8, max(1.0, min(self.log_r / 2, 40.0)), (rays, 1)))
        block = rng.integers(3, size=(rays, 1))
        return np.where(block == 1, 0.0, by_w), np.where(block == 2, 0.0, by_p)


def at_pairs(name: str, sides: Iterable[tuple[Numbers, Numbers]]) -> Iterator[Claim]:
    """Yield the claim ``name``, left ≥ right, at the pairs (v, p) of all sets; ``sides`` are both sides for each set.

    If there are no pairs, no claim is made, except :data:`NON_OPTIMALITY`, which is then undecided.
    """
    flat_sides: list[Any] = []
    for pair in sides:
        shape = np.broadcast_shapes(*(x.shape for x in pair))
        flat_sides.append([np.ravel(np.broadcast_to(x, shape)) for x in pair])
    if not flat_sides:
        return
    left, right = (np.concatenate(side) for side in zip(*flat_sides, strict=True))
    if left.size or name == NON_OPTIMALITY:
        yield at_least(name, Form.EFFECTIVE, left, right, points="pair (v, p)")


def _log_losses(base: Numbers, E: Numbers) -> Numbers:
    """Return log ℓ(u) + rΓ for outputs u = rΓ + E_i, with rΓ = ``base``.

    With y = e^{−u} the result is −E_i + log(log(1 + y)/y); if y overflows, log ℓ(u) is computed directly. For u > 600
    the second term, which is negligible there, is replaced by its value at u = 600.
    """
    u = base + E
    y = np.exp(-np.minimum(np.maximum(u, -LARGE), NEGLIGIBLE))
    losses = with_series(np.log(np.log1p(y) / y), y)
    if (u.value < -LARGE).any():
        low = np.minimum(u, -LARGE)
        losses = either(u >= -LARGE, u < -LARGE, losses, np.log(np.logaddexp(0.0, -low)) + low)
    return losses - E


def with_series(x: Numbers, y: Numbers) -> Numbers:
    """Return x = log(log(1 + y)/y), replaced by −y/2 with an error of at most y² where y > 0 is small.

    The error also covers y below e^{−600}, where x has no correct digits.
    """
    small = y.value < SERIES
    return np.where(small, -y / 2, x).widen(np.where(small, y.value**2 + NOTHING, 0.0))
