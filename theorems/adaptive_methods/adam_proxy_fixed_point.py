"""Adam on batches of b of n samples follows, as β2 → 1, a direction between the ℓ2 and the ℓ∞ max-margin directions.

Main result: the fixed point c of the sample weights is enclosed in balls; its direction solves an SVM in a norm that c
defines; and the direction's margins in ℓ2 and ℓ∞ have lower bounds, as shares of the largest ones, for every b.

References: Baek, Song, Yun, arXiv 2510.26303, Theorem 4.8 (b = 1; we have not read the text); Kim, Song, Yun 2026,
(7).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat, fmpq
from jaxtyping import Float64, Int64

from generators.adaptive_methods import FULL_FEATURES, full_feature_cases
from generators.labelled_features import SEPARABLE_LABELS, LabelledFeatures
from reference_attention.exact import combination, products, rational, to_float, to_floats
from reference_attention.floats import EPS
from reference_attention.svm.ball_matrices import above, balls, identity, midpoints, precision
from reference_attention.svm.norm_max_margin import NormMaxMargin
from theorems.adaptive_methods.batches import label_samples
from theorems.adaptive_methods.proxy_fixed_point import ProxyFixedPoint, proxy_direction, proxy_fixed_point
from theorems.bounded import Bounded, exact, value_of, with_rounding
from theorems.core.claim import Claim, Ended, Form, NotANumber, Undecided, Verdict, at_least
from theorems.core.claim_name import premise, sharper
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import SVM_ONLY
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT, tolerance
from theorems.rounding.attention_at import Numbers
from theorems.steepest_descent.geometry import certify_norm_margin
from theorems.steepest_descent.margin_claim import NORM_MARGIN
from theorems.steepest_descent.norms import norm_of
from theorems.steepest_descent.steepest_multiclass import NEEDS

PROXY_LEVEL = tolerance(
    "proxy-level",
    "1e-11 of the smallest margin F; 0 for equal moduli and b = 1",
    "Newton's method in floats ends at the rounding of F, about 1e-15; then the exact solution is enclosed in balls",
)
PROXY_ROUNDING = tolerance(
    "proxy-rounding",
    "the radii of balls, and eps (40 + 4 max|x·W|) Σ c_i|x_ij|/P_j for a step in floats",
    "a step is a quotient of two sums over samples, whose weights are exponentials of margins",
)
NEARLY_LEVEL = 1e-11
"""The relative difference of entries of F(c) that Newton's method in floats cannot tell from 0; see ``PROXY_LEVEL``."""
LEVEL = premise("weights-level-their-margins")
SOLVES = sharper("weights-solve-their-svm")
EUCLIDEAN = sharper("euclidean-margin-is-near")
UNIFORM = sharper("uniform-margin-is-near", when="batches have more than one sample")
KEEPS = sharper("proxy-keeps-the-direction")
RADII = (2.0, 8.0, 30.0)
"""The factors r of the statement's points W = rw + v, from which steps of the proxy are taken."""
Rows = Float64[np.ndarray, "n d"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Distinct samples x_i, their multiplicities, and the batch size (other symbols: the statement below).

    Attributes:
        rows: x_i, in units in which the largest entry is between 1 and 2, (n, d).
        counts: k_i, how often x_i occurs, (n,).
        batch: b, the number of samples in a batch.
    """

    rows: Rows
    counts: Int64[np.ndarray, "n"]
    batch: int

    @property
    def total(self) -> int:
        """The number of samples, Σk."""
        return int(self.counts.sum())

    @property
    def share(self) -> fmpq:
        """The weight a = (b − 1)/(Σk − 1) of u_j² in P_j²."""
        return fmpq(self.batch - 1, self.total - 1) if self.total > 1 else fmpq(0)

    @property
    def is_scalar(self) -> bool:
        """True if P is a multiple of the identity: |x_ij| does not depend on j, and batches have one sample."""
        return self.batch == 1 and bool((np.abs(self.rows) == np.abs(self.rows[:, :1])).all())

    @property
    def spread(self) -> Numbers:
        """The largest ratio κ = |x_ij|/|x_ik| of two entries of a sample."""
        sizes = np.abs(self.rows)
        return np.max(exact(sizes.max(axis=1)) / exact(sizes.min(axis=1)))

    @property
    def longest(self) -> Numbers:
        """The largest norm R = max ‖x_i‖_1 of a sample."""
        return np.max(np.sum(np.abs(exact(self.rows)), axis=1))

    @property
    def sensitivity(self) -> Numbers:
        """The factor 1 + h in the bound of how much a step turns, where h = (a + (1 − a)/n)^{−1/2} bounds |u_j|/P_j."""
        a = exact(float(self.batch - 1)) / max(self.total - 1, 1)
        return 1 + 1 / np.sqrt(a + (1 - a) / self.total)

    def exact_balls(self) -> Any:
        """Return x_ij as exact balls, an array of objects, (n, d)."""
        return np.array([[arb(x) for x in row] for row in self.rows.tolist()], dtype=object)

    def margins(self, c: list[arb]) -> tuple[Any, Any, Any]:
        """Return u = Xᵀc, (d,), P(c), (d,), and F(c), (n,), of the statement, as object arrays of balls."""
        X, a, weights = self.exact_balls(), arb(self.share), np.array(c, dtype=object)
        u = weights @ X
        squares = ((weights[:, None] * X) ** 2 / self.counts.astype(object)[:, None]).sum(axis=0)
        P = np.sqrt(a * u * u + (1 - a) * squares)
        return u, P, (X * u / P).sum(axis=1)

    def exact_margins(self, c: list[fmpq]) -> list[fmpq]:
        """Return XXᵀc over the rationals; F(c) is proportional to this vector if P(c) is a multiple of the identity."""
        rows = [[rational(x) for x in row] for row in self.rows.tolist()]
        return products(rows, combination(rows, c, len(rows[0])))

    def slopes(self, c: list[arb], support: list[int]) -> list[list[arb]]:
        """Return the derivatives ∂F_i/∂c_k for i and k in the support, the samples of positive weight, in balls."""
        X, a, (u, P, _) = self.exact_balls()[support], arb(self.share), self.margins(c)
        weights, counts = (np.array(part, dtype=object)[support, None] for part in (c, self.counts))
        moved = (a * u * X + (1 - a) * weights * X * X / counts) / P
        slopes: list[list[arb]] = (X[:, None] * (X - u * moved / P) / P).sum(axis=2).tolist()
        return slopes


@statement(
    "adam-proxy-fixed-point",
    "Adam on small batches as β2 → 1: the direction between ℓ2 and ℓ∞",
    source="own; arXiv 2510.26303, Theorem 4.8; Kim, Song, Yun 2026, (7)",
    claims=(NORM_MARGIN, LEVEL, SOLVES, EUCLIDEAN, UNIFORM, KEEPS),
    assumptions=(SEPARABLE_LABELS, FULL_FEATURES),
    about=LabelledFeatures,
    cases=full_feature_cases,
    kernel=SVM_ONLY,
    needs=NEEDS,
    varies={
        "reflected": "an entry of a reflected sample may be 0",
        "coordinate-of-zero": "a coordinate of zeros has entries that are 0",
    },
)
def adam_proxy_fixed_point(case: LabelledFeatures, under_test: Implementation) -> Iterator[Claim]:
    """Let separable samples x_i of two classes, seen k_i times, have no entry 0; batches have b < n = Σk or b = n = 1.

    For weights c of the samples, Σc = 1, let a = (b−1)/(n−1), u = Xᵀc and

        P_j(c)² = a u_j² + (1−a) Σ_i c_i² x_ij²/k_i,    F(c) = X P(c)⁻¹ u.

    If sample i has the share c_i of the slopes, P is, up to a factor, the root of the squared gradient's mean over
    batches of b samples; the proxy of Adam as β2 → 1 moves by d = u/P. There is a c ≥ 0 that is positive only where
    F_i(c) has its smallest value μ, and μ > 0. For any such c, w = P(c)⁻¹u/μ is the solution of min wᵀP(c)w, x_i·w ≥ 1,
    with duals proportional to c. With κ the largest |x_ij|/|x_ik| and R = max ‖x_i‖_1, γ_2 and γ_∞ the largest margins,

        m(w)/‖w‖_2 ≥ γ_2 [κ √(b(n−1)/(n−b))]^{−1/2},    m(w)/‖w‖_∞ ≥ γ_∞/(1 + √((n−b)/(b−1)) R/γ_∞).

    So if b = 1 and the entries of each sample have one modulus, w is the ℓ2 solution and c are its duals; as b → n, w
    tends to the ℓ∞ solution.

    At any W let the slopes of the samples be proportional to c', Δ_j = Σ_i |c'_i − c_i||x_ij| and h² = 1/(a + (1−a)/n);
    then

        |d_j(W) − μw_j| ≤ (1 + h)Δ_j/P_j(c).

    On the line W = rw + v with x_i·v = −log(c_i/k_i) where c_i > 0, Δ falls like e^{−r} (and like e^{−r(x_i·w − 1)} for
    the other samples): there the proxy moves along w.

    **Derivation.** As no entry is 0, P > 0 on the simplex and F is continuous: the variational inequality of F on it
    has a solution (Brouwer). As the data are separable, u ≠ 0 and μ = cᵀF = Σu²/P > 0; the other claims on w are its
    KKT conditions. ‖w‖_P ≤ ‖w_2‖_P gives the first bound, as √(1−a) v_j ≤ P_j ≤ √(an + 1 − a) v_j by Cauchy and
    Schwarz, v_j² = Σc_i²x_ij²/k_i, and v_j ≤ κv_k. For the second, |w_j| ≤ 1/(μ√a), and (Σ|u|)² ≤ μΣP with ΣP ≤ √a‖u‖_1
    + √(1−a)‖v‖_1, ‖u‖_1 ≥ γ_∞, ‖v‖_1 ≤ R. For the third, |P' − P| ≤ Δ by the triangle inequality and |u'| ≤ hP'.

    arXiv 2510.26303 proves that the proxy and incremental Adam tend to this direction if their directions converge. If
    equal samples share their weight equally, c was unique in all cases that we tried; this is not proved.
    """
    samples, context = samples_of(case)
    keys = np.stack([samples.rows, np.zeros_like(samples.rows)], axis=1)
    first = np.zeros(len(samples.rows), dtype=np.int64)
    euclidean = yield from certify_norm_margin(keys, first, 2.0, under_test)
    uniform = yield from certify_norm_margin(keys, first, math.inf, under_test)
    point = under_test[proxy_fixed_point](samples.rows, samples.counts, samples.batch)
    if point is None:
        raise Undecided(LEVEL, "the solver found no fixed point of the weights", not_found=True)
    yield (claim := level_claim(samples, point))
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    enclosed = enclose(samples, point)
    if not samples.is_scalar and -NEARLY_LEVEL <= float(np.min(enclosed.spare.value)) < 0:
        why = f"a weight or a spare margin is within {NEARLY_LEVEL:g} of 0, too close for floats to tell the support"
        raise Undecided(SOLVES, why, Form.EXACT, not_found=True)
    yield at_least(
        SOLVES, Form.EXACT, enclosed.spare, 0.0, why=PROXY_ROUNDING, scale=1.0, points="weight, or spare margin,"
    )
    yield from margin_claims(samples, enclosed.w, largest_margin(euclidean), largest_margin(uniform))
    yield keeping_claim(case, samples, context, enclosed, under_test)


@dataclass(frozen=True, eq=False)
class Enclosed:
    """The fixed point c of the statement, as floats with error bounds from balls.

    Attributes:
        weights: c, (n,).
        u, P, w: Xᵀc, P(c) and P⁻¹u/μ, (d,).
        spare: numbers that must be positive: the weights of the samples in the support, and for each other sample the
            excess of its margin x_i·w over 1.
    """

    weights: Numbers
    u: Numbers
    P: Numbers
    w: Numbers
    spare: Numbers


def samples_of(case: LabelledFeatures) -> tuple[Samples, Int64[np.ndarray, "m"]]:
    """Return the distinct samples, with a batch size, and for each feature the index of its sample."""
    rows = case.features * np.where(case.labels == 0, 1.0, -1.0)[:, None]
    rows, context = np.unique(rows / unit_of(case), axis=0, return_inverse=True)
    counts = np.bincount(context.ravel(), weights=case.counts).astype(np.int64)
    rng = case.rng()
    batch = 1 if len(rows) < 3 or rng.random() < 0.5 else int(rng.integers(2, len(rows)))
    return Samples(rows, counts, batch), context.ravel()


def unit_of(case: LabelledFeatures) -> float:
    """Return the largest power of two that is at most the largest modulus of an entry."""
    return float(2.0 ** math.floor(math.log2(np.abs(case.features).max())))


def largest_margin(solution: NormMaxMargin) -> Numbers:
    """Return a lower bound of the largest margin γ: the least margin of the solution p, divided by ‖p‖."""
    least = min(products(solution.rows, solution.exact_p))
    return with_rounding(to_floats([least]))[0] / norm_of(with_rounding(to_floats(solution.exact_p)), solution.norm)


def level_claim(samples: Samples, point: ProxyFixedPoint) -> Claim:
    """Claim that weights c sum to 1, are positive exactly on the support, and make F_i(c) nearly equal there."""
    support, c = point.support, point.weights
    wrong = ""
    if len(c) != len(samples.rows) or not support or not all(0 <= i < len(c) for i in support):
        wrong = "weights or support do not fit the number of samples"
    elif any((x > 0) != (i in support) or x < 0 for i, x in enumerate(c)):
        wrong = "a weight is negative, 0 in the support, or positive outside it"
    elif abs(sum(c, fmpq(0)) - 1) > rational(NEARLY_LEVEL):
        wrong = "the weights do not sum to 1"
    if wrong:
        return Claim(LEVEL, Form.EXACT, -np.inf, 0.0, EXACT, wrong)
    if samples.is_scalar:
        exact_level = [samples.exact_margins(c)[i] for i in support]
        slack = -to_float((max(exact_level) - min(exact_level)) / max(map(abs, exact_level)))
        return Claim(LEVEL, Form.EXACT, slack, 0.0, PROXY_LEVEL, "margins over the rationals")
    with precision():
        F = samples.margins([arb(x) for x in c])[2]
        low, high = min(float(F[i].lower()) for i in support), max(float(F[i].upper()) for i in support)
    return Claim(
        LEVEL, Form.EXACT, low / high - 1, NEARLY_LEVEL, PROXY_LEVEL, f"margins from {low:.17g} to {high:.17g}"
    )


def enclose(samples: Samples, point: ProxyFixedPoint) -> Enclosed:
    """Return an enclosure, by Krawczyk's method, of a fixed point that is near ``point`` and has the same support S.

    If the weights c of ``point`` are exact, they are enclosed without the following proof.

    With E = (F_S(c) − μ, Σc − 1) and Y an approximate inverse of its derivative, ‖YE‖ + ‖1 − YE'‖ρ ≤ ρ on the box of
    radius ρ about the weights proves that the box contains exactly one zero of E.

    Raises:
        Undecided: the inequality cannot be proven in balls.
    """
    support, s = point.support, len(point.support)
    with precision():
        c = [arb(x) for x in point.weights]
        mu = _sum(samples.margins(c)[2][i] for i in support) / s
        if not samples.is_scalar:
            radius = _radius(samples, c, mu, support)
            if radius is None:
                raise Undecided(
                    LEVEL, "balls do not prove that there is a fixed point near the weights", not_found=True
                )
            c = [x + arb(0, radius) if i in support else x for i, x in enumerate(c)]
            mu = mu + arb(0, radius)
        u, P, F = samples.margins(c)
        others = [i for i in range(len(c)) if i not in support]
        beyond = [F[i] / mu - 1 for i in others]
        if samples.is_scalar:
            level = samples.exact_margins(point.weights)
            beyond = [arb(level[i] / level[support[0]] - 1) for i in others]
        w = u / (P * mu)
        numbers = [_bounded(x) for x in (c, u, P, w, [c[i] for i in support] + beyond)]
    return Enclosed(*numbers)


def _radius(samples: Samples, c: list[arb], mu: arb, support: list[int]) -> float | None:
    s = len(support)
    F = samples.margins(c)[2]
    error = arb_mat([[F[i] - mu] for i in support] + [[_sum(c) - 1]])
    inverse = _derivative(samples, c, support)
    with np.errstate(all="ignore"):
        try:
            Y = balls(np.linalg.inv(midpoints(inverse)))
        except np.linalg.LinAlgError:
            return None
    residual = max(above(abs(x)) for x in (Y * error).entries())
    radius = 2 * residual + 1e-40
    box = [x + arb(0, radius) if i in support else x for i, x in enumerate(c)]
    deviation = identity(s + 1) - Y * _derivative(samples, box, support)
    lost = max(above(_sum(abs(x) for x in row)) for row in deviation.tolist())
    return radius if residual + lost * radius <= radius * (1 - 1e-9) else None


def _derivative(samples: Samples, c: list[arb], support: list[int]) -> arb_mat:
    rows = [[*row, arb(-1)] for row in samples.slopes(c, support)]
    return arb_mat([*rows, [arb(1)] * len(support) + [arb(0)]])


def margin_claims(samples: Samples, w: Numbers, euclidean: Numbers, uniform: Numbers) -> Iterator[Claim]:
    """Claim the statement's bounds on the margin of w in ℓ2 and, for batches of more than one sample, in ℓ∞."""
    n, b = samples.total, samples.batch
    apart = samples.spread * np.sqrt(exact(float(b * (n - 1))) / (n - b) if n > 1 else exact(1.0))
    share = 1 / np.linalg.norm(w)
    yield at_least(EUCLIDEAN, Form.EFFECTIVE, share, euclidean / np.sqrt(apart), why=PROXY_ROUNDING)
    if b > 1:
        lost = np.sqrt(exact(float(n - b)) / (b - 1)) * samples.longest / uniform
        yield at_least(UNIFORM, Form.EFFECTIVE, 1 / np.max(np.abs(w)), uniform / (1 + lost), why=PROXY_ROUNDING)


def keeping_claim(
    case: LabelledFeatures,
    samples: Samples,
    context: Int64[np.ndarray, "m"],
    enclosed: Enclosed,
    under_test: Implementation,
) -> Claim:
    """Claim that the proxy of Adam nearly keeps the direction w: |d_j(W) − μw_j| ≤ (1 + h)Δ_j/P_j(c) for its steps d.

    The steps start at points W = rw + v. The statement defines the symbols.
    """
    c, unit, d = enclosed.weights, unit_of(case), samples.rows.shape[1]
    active = value_of(c) > 0
    offset = np.linalg.lstsq(samples.rows[active], -np.log(value_of(c)[active] / samples.counts[active]), rcond=None)[0]
    points = (np.outer(RADII, value_of(enclosed.w)) + offset) / unit
    W = np.concatenate([points, -points], axis=1) / 2
    slopes = under_test[label_samples](case.problem, W)
    moved = np.asarray(under_test[proxy_direction](slopes, case.counts, samples.batch))
    if moved.shape != W.shape or not np.isfinite(moved).all():
        raise NotANumber(KEEPS, "an entry of a step is missing or not finite")
    margins = (exact(W[:, :d]) - W[:, d:]) @ (samples.rows * unit).T
    weights = np.exp(exact(np.array(RADII))[:, None] - np.logaddexp(margins, 0.0)) * samples.counts
    n, a = samples.total, float(samples.batch - 1) / max(samples.total - 1, 1)
    away = np.abs(weights - c) @ np.abs(samples.rows)
    step_error = np.abs(-exact(np.stack([moved[:, :d], -moved[:, d:]])) - enclosed.u / enclosed.P)
    logits = np.abs(value_of(margins)).max()
    rounding = EPS * (40 + 4 * logits) * math.sqrt(n / (1 - a))
    kept = samples.sensitivity * away / enclosed.P
    return at_least(
        KEEPS, Form.EFFECTIVE, kept, step_error.widen(rounding), why=PROXY_ROUNDING, points="entry of a step"
    )


def _sum(terms: Iterable[arb]) -> arb:
    return sum(terms, arb(0))


def _bounded(numbers: Iterable[arb]) -> Numbers:
    """Return balls as floats with error bounds."""
    listed = list(numbers)
    values = np.array([float(x.mid()) for x in listed])
    errors = [above(abs(x - arb(v))) for x, v in zip(listed, values.tolist(), strict=True)]
    return Bounded(values, np.array(errors))
