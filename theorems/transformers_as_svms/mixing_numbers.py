"""Rows, constants, risk and a lower bound of the risk by duality, for the statement on attention that mixes tokens.

Input i has optimal weights s⋆_it with multipliers ν_it ≥ 0. O_i are the tokens with s⋆_it > 0, all others are masked,
and α_i is one token of O_i. E and G are the rows (x_iα − x_it) z_iᵀ of the tokens in O_i and of the masked tokens. W^mm
solves Gen-SVM, and W_fin is the W of least norm that gives the ratios s⋆_it/s⋆_iα inside O_i. :mod:`.mixing` has the
definitions.

The module computes rows, constants and risks itself from tokens and queries; from the solvers it takes only their
results.

References: *Transformers as Support Vector Machines*, Section 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flint import arb, arb_mat, fmpq, fmpq_mat

from generators.margin_assumptions import Vector, exact_vector
from reference_attention.optimal_attention import OptimalAttention
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.finite_part import Balls
from reference_attention.svm.general_svm import GeneralSvm, Pair


def inner(a: Balls, b: Balls) -> arb:
    """Return the inner product ⟨a, b⟩."""
    return sum((x * y for x, y in zip(a, b, strict=True)), arb(0))


def balls(exact: Vector) -> Balls:
    """Convert rationals to balls with the current precision."""
    return [arb(x) for x in exact]


@dataclass(frozen=True, eq=False)
class ExcessBound:
    """The bound log n(L(W) − L_⋆) ≥ level − slope·⟨target, W⟩ for all W in a sublevel set that lie in a ball.

    :meth:`Mixing.lower_bound` derives it for a given matrix, the target.
    """

    level: arb
    slope: arb


@dataclass(frozen=True, eq=False)
class Mixing:
    """Optimal attention s⋆, the sets O_i, W^mm and W_fin of a data set, with the notation of the module.

    Attributes:
        data: tokens and queries.
        lam: the penalty λ of the head h(x) = vᵀx − λ‖x‖².
        attention: the optimal attention s⋆ and its multipliers ν.
        svm: the solution W^mm of Gen-SVM.
        finite: vec(W_fin).
    """

    data: QueryDataset
    lam: fmpq
    attention: OptimalAttention
    svm: GeneralSvm
    finite: Balls

    @cached_property
    def rows(self) -> dict[Pair, Vector]:
        """The rows vec((x_iα − x_it) z_iᵀ) of all t ≠ α_i, by the pair (i, t)."""
        rows = {}
        for i, tokens in enumerate(self.data.X):
            query, chosen = exact_vector(self.data.queries[i]), exact_vector(tokens[self.svm.alpha[i]])
            for t, token in enumerate(tokens):
                if t != self.svm.alpha[i]:
                    apart = [a - b for a, b in zip(chosen, exact_vector(token), strict=True)]
                    rows[i, t] = [a * b for a in apart for b in query]
        return rows

    @cached_property
    def level_rows(self) -> dict[Pair, Vector]:
        """The rows E of the tokens in O_i other than α_i."""
        return {pair: row for pair, row in self.rows.items() if self.attention.weights[pair[0]][pair[1]] > 0}

    @cached_property
    def masked_rows(self) -> dict[Pair, Vector]:
        """The rows G of the masked tokens, those outside O_i."""
        return {pair: row for pair, row in self.rows.items() if pair not in self.level_rows}

    @property
    def norm_squared(self) -> fmpq:
        """The squared norm ‖W^mm‖²."""
        return sum((x * x for x in self.svm.point), fmpq(0))

    @property
    def least_weight(self) -> fmpq:
        """The smallest weight s⋆_min over all t ∈ O_i and all i."""
        return min(w for row in self.attention.weights for w in row if w > 0)

    def best(self, pair: Pair) -> fmpq:
        """Return the weight s⋆_iα for the input i of the pair (i, t)."""
        return self.attention.weights[pair[0]][int(self.svm.alpha[pair[0]])]

    def cost(self, pair: Pair) -> fmpq:
        """Return the multiplier ν_iτ of the optimal weights s⋆_i for the masked token τ, by the pair (i, τ)."""
        return self.attention.multipliers[pair[0]][pair[1]]

    def log_ratio(self, pair: Pair) -> arb:
        """Return the log-ratio log(s⋆_iα/s⋆_it) of the pair (i, t), t ∈ O_i."""
        return arb(self.best(pair) / self.attention.weights[pair[0]][pair[1]]).log()

    def on_the_ray(self, r: arb) -> Balls:
        """Return the point W_fin + r W^mm."""
        return [a + r * arb(b) for a, b in zip(self.finite, self.svm.point, strict=True)]

    def margins(self, W: Balls) -> dict[Pair, arb]:
        """Return the margins (x_iα − x_it)ᵀ W z_i of all t ≠ α_i, by the pair (i, t)."""
        return {pair: inner(balls(row), W) for pair, row in self.rows.items()}

    def weights(self, W: Balls) -> list[dict[int, arb]]:
        """Return the attention weights of each input at W, by token."""
        margins = self.margins(W)
        shares = []
        for i, a in enumerate(self.svm.alpha.tolist()):
            odds = {t: (-h).exp() for (k, t), h in margins.items() if k == i} | {a: arb(1)}
            total = sum(odds.values(), arb(0))
            shares.append({t: x / total for t, x in odds.items()})
        return shares

    def excess(self, W: Balls) -> arb:
        """Return the excess risk n(L(W) − L_⋆) = Σ_i [Σ_t ν_it s_it + λ‖s_i − s⋆_i‖²]."""
        total = arb(0)
        for i, shares in enumerate(self.weights(W)):
            for t, s in shares.items():
                difference = s - arb(self.attention.weights[i][t])
                total += arb(self.cost((i, t))) * s + arb(self.lam) * difference * difference
        return total

    @cached_property
    def log_ceiling(self) -> arb:
        """The logarithm of the B for which the excess risk n(L − L_⋆) at W_fin + r W^mm is at most B e^{−r}."""
        at_finite = {pair: inner(balls(row), self.finite) for pair, row in self.masked_rows.items()}
        parts = [arb((self.cost(pair) + 2 * self.lam) * self.best(pair)) * (-h).exp() for pair, h in at_finite.items()]
        return sum(parts, arb(0)).log()

    @property
    def least_depth(self) -> arb:
        """The least r at which attention at W_fin + r W^mm is certainly close to s⋆: log(4B/(λ s⋆_min²)).

        B e^{−r} bounds the excess risk (:attr:`log_ceiling`); attention is then within ε = s⋆_min/2 of s⋆.
        """
        return self.log_ceiling + arb(4 / (self.lam * self.least_weight**2)).log()

    def spread(self, excess: arb) -> arb:
        """Return the bound ε = (D/λ)^½ on the distance of attention from s⋆ where n(L − L_⋆) ≤ D = ``excess``."""
        return (excess / arb(self.lam)).sqrt()

    def deviation(self, epsilon: arb) -> arb:
        """Return δ = 2√2 ε/s⋆_min, which bounds |logit difference − log-ratio| inside O_i if ε ≤ s⋆_min/2."""
        return arb(8).sqrt() * epsilon / arb(self.least_weight)

    def lost_by_ratios(self, m: Balls, epsilon: arb) -> arb:
        """Return the bound ‖m‖₁δ of |mᵀEW − mᵀb| for coefficients m of E, log-ratios b and δ = :meth:`deviation`."""
        return sum((abs(x) for x in m), arb(0)) * self.deviation(epsilon)

    @cached_property
    def independent(self) -> list[Pair]:
        """The pairs (i, t) of a maximal linearly independent set of the rows E."""
        pairs: list[Pair] = []
        for pair in self.level_rows:
            if fmpq_mat([self.level_rows[other] for other in [*pairs, pair]]).rank() > len(pairs):
                pairs.append(pair)
        return pairs

    @cached_property
    def _solver(self) -> fmpq_mat:
        """The matrix (EEᵀ)⁻¹E, where E has only the independent rows."""
        matrix = fmpq_mat([self.level_rows[pair] for pair in self.independent])
        return (matrix * matrix.transpose()).inv() * matrix

    def across(self, vector: Balls) -> tuple[Balls, Balls]:
        """Split a vector into Eᵀm + remainder, the remainder orthogonal to the rows of E; return (m, remainder)."""
        if not self.independent:
            return [], vector
        m = list((arb_mat(self._solver) * arb_mat(len(vector), 1, vector)).entries())
        remainder = vector
        for coefficient, pair in zip(m, self.independent, strict=True):
            remainder = [a - coefficient * arb(b) for a, b in zip(remainder, self.level_rows[pair], strict=True)]
        return m, remainder

    def lower_bound(self, target: Balls, shares: Mapping[Pair, arb], excess: arb, radius: arb) -> ExcessBound:
        """Return the lower bound of log n(L − L_⋆) that the shares w prove for all W with n(L − L_⋆) ≤ D and ‖W‖ ≤ R.

        With M = Σ w_j G_j = θ·target + Eᵀm + remainder,

            log n(L − L_⋆) ≥ Σ w_j log(ν_j(s⋆_α − ε)/w_j) − mᵀb − ‖m‖₁δ − ‖remainder‖R − θ⟨target, W⟩.

        Args:
            target: W^mm, or a point of the path.
            shares: the shares w_j > 0 of masked tokens j, of sum 1.
            excess: the bound D of n(L − L_⋆).
            radius: the bound R of ‖W‖.
        """
        epsilon = self.spread(excess)
        k = len(target)
        M = [sum((w * arb(self.masked_rows[j][a]) for j, w in shares.items()), arb(0)) for a in range(k)]

        m_shares, flat_shares = self.across(M)
        m_target, flat_target = self.across(target)
        slope = inner(flat_shares, flat_target) / inner(flat_target, flat_target)
        remainder = [a - slope * b for a, b in zip(flat_shares, flat_target, strict=True)]
        m = [a - slope * b for a, b in zip(m_shares, m_target, strict=True)]
        value = arb(0)
        for j, w in shares.items():
            value += w * (arb(self.cost(j)) * (arb(self.best(j)) - epsilon) / w).log()
        value -= sum((a * self.log_ratio(pair) for a, pair in zip(m, self.independent, strict=True)), arb(0))
        value -= self.lost_by_ratios(m, epsilon)
        return ExcessBound(value - inner(remainder, remainder).abs_upper().sqrt() * radius, slope)
