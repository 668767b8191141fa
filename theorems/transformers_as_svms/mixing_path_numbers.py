"""Points of the path where attention mixes tokens: their distance from the minimiser and their offset from the ray.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flint import arb, ctx, fmpq_mat

from reference_attention.svm.finite_part import Balls, offset_correction
from theorems.transformers_as_svms.mixing_numbers import Mixing, balls, inner

LEAST = 128.0
"""The least ρ of the first point of the path."""
MOST = 400.0
"""The largest ρ of the first point of the path; if a larger ρ is needed, the path is not computed."""
DEEP = 40.0
"""The least ρ·slack for tokens with margins 1 + slack > 1; their weights have the factor e^{−ρ·slack} ≤ e^{−40}."""
SETTLED = 16.0
"""The least ρ/max|⟨G_j, o₂⟩|, with the second-order offset o₂/ρ of :mod:`.mixing`; later terms are then small."""
STEP = 4.0
"""The ratio of the ρ of the second point to the ρ of the first point."""


def has_closed_form(mixing: Mixing) -> bool:
    """Return whether the offset has a closed form, decided exactly.

    The offset has a closed form if all masked tokens of margin 1 have positive duals and the rows are independent.
    """
    tight = {pair for pair, margin in mixing.svm.margins.items() if margin == 1}
    duals = {pair for pair, dual in mixing.svm.duals.items() if dual > 0}
    rows = list(mixing.level_rows.values()) + [mixing.masked_rows[pair] for pair in tight]
    return tight == duals and int(fmpq_mat(rows).rank()) == len(rows)


def path_radii(mixing: Mixing) -> list[float]:
    """Return the ρ of two points whose offset is near its limit; an empty list if this needs a ρ above :data:`MOST`.

    The points have the norm ρ‖W^mm‖.
    """
    if not has_closed_form(mixing):
        return []
    slacks = [float(margin.p) / float(margin.q) - 1 for margin in mixing.svm.margins.values() if margin != 1]
    with ctx.workprec(128):
        correction = offset_correction(mixing.svm, mixing.attention)
        depth = mixing.least_depth
        shift = max(abs(inner(balls(row), correction)) for row in mixing.masked_rows.values())
    settled, deep = SETTLED * float(shift.abs_upper()), DEEP / min(slacks, default=1.0)
    # The bounds hold from mixing.least_depth on; take at least twice this depth.
    first = max(LEAST, deep, settled, 2 * float(depth.mid()))
    return [first, STEP * first] if first <= MOST else []


@dataclass(frozen=True, eq=False)
class PathPoint:
    """A point W of the path under test, which should minimise the risk over the ball of radius R = ‖W‖.

    Attributes:
        mixing: the data.
        point: vec(W).
    """

    mixing: Mixing
    point: Balls

    @cached_property
    def multiplier(self) -> arb:
        """The multiplier η = −⟨∇ nL(W), W⟩/‖W‖² in ∇ nL(W) + ηW = 0.

        It is computed as the covariance of ν + 2λ(s − s⋆) with the margins, summed over inputs and divided by ‖W‖².
        """
        mixing, slope = self.mixing, arb(0)
        margins = mixing.margins(self.point)
        for i, shares in enumerate(mixing.weights(self.point)):
            best = mixing.attention.weights[i]
            lost = {t: arb(mixing.cost((i, t))) + 2 * arb(mixing.lam) * (s - arb(best[t])) for t, s in shares.items()}
            mean = sum((s * lost[t] for t, s in shares.items()), arb(0))
            slope += sum((s * (lost[t] - mean) * margins.get((i, t), arb(0)) for t, s in shares.items()), arb(0))
        return slope / self.radius**2

    @cached_property
    def excess(self) -> arb:
        """The excess risk n(L(W) − L_⋆)."""
        return self.mixing.excess(self.point)

    @cached_property
    def radius(self) -> arb:
        """The radius R = ‖W‖."""
        return inner(self.point, self.point).sqrt()

    @cached_property
    def distance(self) -> arb:
        """The bound (2 gap/θ)^½ of :mod:`.mixing` on the distance from the point to any minimiser over the ball."""
        weights = self.mixing.weights(self.point)
        lost = {j: arb(self.mixing.cost(j)) * weights[j[0]][j[1]] for j in self.mixing.masked_rows}
        total = sum(lost.values(), arb(0))
        shares = {j: x / total for j, x in lost.items()}
        lower = self.mixing.lower_bound(self.point, shares, self.excess, self.radius)
        gap = self.excess.log() - lower.level + lower.slope * self.radius**2
        return (2 * gap / lower.slope).abs_upper().sqrt()

    @cached_property
    def along(self) -> arb:
        """The component ⟨W, W^mm⟩/‖W^mm‖² along W^mm, near the scale ρ of the path."""
        return inner(self.point, balls(self.mixing.svm.point)) / arb(self.mixing.norm_squared)

    @property
    def correlation(self) -> tuple[arb, arb]:
        """The cosine between W and W^mm, and its lower bound (r − κ)‖W^mm‖/R, with the r and κ of :mod:`.mixing`."""
        mixing, square = self.mixing, arb(self.mixing.norm_squared)
        r = ((self.radius**2 - inner(mixing.finite, mixing.finite)) / square).sqrt()
        shares = {pair: arb(dual) / square for pair, dual in mixing.svm.duals.items()}
        D = (mixing.log_ceiling - r).exp()
        kappa = mixing.log_ceiling - mixing.lower_bound(balls(mixing.svm.point), shares, D, self.radius).level
        return self.along * square.sqrt() / self.radius, (r - kappa) * square.sqrt() / self.radius

    def offset_error(self, offset: Balls) -> arb:
        """Return ‖W_⊥ − o − o₂/ρ‖ + :attr:`distance`; o is ``offset`` and W_⊥ the part of W orthogonal to W^mm."""
        correction = offset_correction(self.mixing.svm, self.mixing.attention)
        point = balls(self.mixing.svm.point)
        difference = [
            a - self.along * w - o - b / self.along
            for a, w, o, b in zip(self.point, point, offset, correction, strict=True)
        ]
        return inner(difference, difference).abs_upper().sqrt() + self.distance
