"""Attention where no prompt selects all optimal tokens: which tokens remain tied, and which part of p stays finite.

Main result: rational weights prove which tokens tie, and along a direction U the risk tends to that of attention to the
tied tokens alone, with a bound at every radius.

References: derived here; Farkas' lemma; arXiv 2402.18551 for next-token prediction.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.tied_cases import tied_cases
from reference_attention.exact import to_floats
from reference_attention.floats import EPS
from reference_attention.next_token.master_problem import MasterProblem
from reference_attention.next_token.unwinnable_scores import SETTLED, ScoreSplit, score_split
from reference_attention.problem import Problem
from theorems.bounded import exact, value_of, with_rounding
from theorems.core.claim import Claim, Ended, Form, Refuted, Undecided, Verdict, at_least
from theorems.core.claim_name import premise, sharper
from theorems.core.equality import equal
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import BELOW_ROUNDING
from theorems.core.points import affordable, probe_points
from theorems.core.statement import statement
from theorems.core.tolerances import EXACT
from theorems.rounding.attention_at import AttentionAt, Numbers

TIED = premise("tied-tokens-are-proven")
SVM = premise("direction-solves-its-svm")
DIRECTION = premise("direction-is-of-length-one")
WITHIN = sharper("risk-within-is-a-function-of-the-part-in-f")
SLOPE = sharper("slope-within-lies-in-f", when="where F ≠ {0}")
COMES_DOWN = sharper("risk-comes-to-that-within")
AT_LEAST = sharper(
    "risk-is-at-least-that-within", when="no separated token scores above the lowest tied token of its input"
)
AT_REST = sharper("finite-part-is-at-rest", when="Newton's method from 0 finds a minimum")
LEAST = sharper(
    "finite-part-has-the-least-risk", when="a minimum is found, F is a line and the risk is convex in σ along it"
)

POINTS = 30
RADII = np.array([0.0, 0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


@statement(
    "unwinnable-scores",
    "Where scores cannot all be won: a finite part and a direction",
    source="own",
    claims=(TIED, SVM, DIRECTION, WITHIN, SLOPE, COMES_DOWN, AT_LEAST, AT_REST, LEAST),
    assumptions=("well-behaved-loss", "optimal-tokens-tied"),
    cases=tied_cases,
    kernel=BELOW_ROUNDING,
    needs={
        "well-behaved-loss": "the bound at every radius depends on the largest |ℓ'|",
        "optimal-tokens-tied": "rows are differences from one best token per input; if all are selected, F = {0}",
    },
)
def unwinnable_scores(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let each input have one best token α_i, and ATT-SVM(α) be infeasible.

    With g_it = k_iα − k_it and C = {p : g_it·p ≥ 0 for all i, t}, let Ŝ_i be α_i and all t with g_it·p = 0 on all of C,
    F = span{g_it : t ∈ Ŝ_i}, U = argmin ‖p‖ over g_it·p = 0 on Ŝ, g_it·p ≥ 1 off Ŝ, and L_F(p) the risk of attention to
    only the tokens of Ŝ. Then

    1. Ŝ is not {α}; some λ_it > 0 on all of Ŝ∖α have Σλg = 0, and some p ∈ C separates the tokens off Ŝ: U exists, lies
       in F^⊥, and solves its SVM;
    2. L_F depends only on P_F p, and its gradient (1/n)Σ|ℓ'(õ_i)|Σ_{t∈Ŝ_i} s̃_it(γ_it − õ_i)g_it lies in F, s̃ the
       softmax on Ŝ_i, õ = Σs̃γ;
    3. at every p and r ≥ 0, with x_i = Σ_{t∉Ŝ_i} s_it/Σ_{t∈Ŝ_i} s_it at p, c_i the largest |ℓ'| on the scores of input
       i and Γ_i their range,

           |L(p + rU) − L_F(p)| ≤ (1/n)Σc_iΓ_i x_i e^{−r}/(1 + x_i e^{−r});

    4. L(p) ≥ L_F(p) at every p, and so inf L = inf L_F, if no token off Ŝ_i scores more than the lowest of Ŝ_i;
    5. if L_F is convex in σ(D·) along F, a line, with slope L_F'(x) at x, then at every p

           L_F(p) ≥ L_F(x) − |L_F'(x)|/(D σ(1 − σ)),

       and at the x that Newton's method finds from 0, ∇L_F is zero up to a last step of SETTLED logits.

    *Derivation.* **1.** C is a cone: a sum of prompts that separate single pairs of tokens separates all these pairs.
    Farkas' λ tie the tokens of Ŝ: each g·p ≥ 0 and Σλg·p = 0. The KKT conditions of U, the solution of a convex
    problem, are checked over the rationals like these sums. **2.** Logits of Ŝ_i relative to each other are products
    with rows of F. **3.** Moving along U leaves them unchanged and multiplies x_i's terms by e^{−r g·U} ≤ e^{−r}. With
    ε the weight off Ŝ_i, o_i = (1 − ε)õ_i + ε·(a mean of other scores), |o_i − õ_i| ≤ εΓ_i. **4.** Then that mean is at
    most õ_i, and ℓ decreases. **5.** All rows of F are ±g, D = ‖g‖; the tangent in σ bounds L_F from below, and σ moves
    by less than 1. With δ the last step, |∇L_F| ≤ ‖∇²L_F‖‖δ‖, ‖δ‖ ≤ SETTLED/G, G = max‖g‖ over Ŝ; coordinates of less
    than that may be put to 0. ‖∇²L_F‖ ≤ G²·mean of c̃A(4 + |ℓ''/ℓ'|A), c̃ = |ℓ'(õ_i)|, A_i = Σs̃|γ − õ_i|, as centred rows
    are at most 2G long.

    Not claimed: that the part of a flow in F converges, or converges to the x of 5, or that its part orthogonal to F
    turns to U. L_F need not be convex.
    """
    split = yield from certify_split(case.problem, under_test)
    problem, rng = case.problem, case.rng()
    points = probe_points(rng, problem, split.svm.floats, m=affordable(problem, POINTS))
    finite_part = None if not len(split.level) else split.rest_near(np.zeros(len(split.level)))
    if finite_part is not None:
        points = np.concatenate([points, [finite(finite_part, "finite part") @ split.level]])
    at = TiedAttention(split, points)
    yield from tied_attention_claims(at)
    yield from risk_claims(at)
    if finite_part is not None:
        yield from finite_part_claims(at)


def certify_split(problem: Problem, under_test: Implementation) -> Generator[Claim, None, ScoreSplit]:
    """Yield the claims that the tied tokens Ŝ and the direction U have their defining properties; return both.

    The returned object is called the split; Ŝ and U are those of :func:`unwinnable_scores`.

    Raises:
        Ended: Ŝ or U does not have these properties.
        Undecided: the implementation does not report Ŝ and U.
    """
    split: ScoreSplit | None = under_test[score_split](problem)
    if split is None:
        raise Undecided(
            TIED,
            "it is not decided which tokens tie: keys are rounded products, or no weights prove the ties",
            not_found=True,
        )
    best = (problem.scores == problem.scores.max(axis=1, keepdims=True)).astype(np.int64)
    master = MasterProblem(problem.keys, best)
    error = split.supports.error(master)
    if not error and split.supports.separable(master):
        error = "no token ties with the optimal tokens"
    yield from _require(TIED, error)
    svm_error = "U was computed for other tied tokens than Ŝ" if not np.array_equal(split.svm.sets, split.sets) else ""
    yield from _require(SVM, svm_error or split.svm.error(master))
    length: Any = np.linalg.norm(with_rounding(split.svm.floats))
    unit = with_rounding(split.svm.floats) / length if any(split.svm.point) else exact(np.zeros(problem.d))
    yield equal(DIRECTION, exact(finite(split.direction, "direction")).widen(2 * unit.error), unit, points="coordinate")
    return split


def _require(name: str, wrong: str) -> Iterator[Claim]:
    """Yield the exact claim ``name``, falsified if ``wrong`` states an error; raise Ended if it is falsified."""
    claim = Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(name)


def finite(value: Any, quantity: str) -> Float64[np.ndarray, "..."]:
    """Return ``value``, a quantity under test, as a float64 array.

    Raises:
        Refuted: an entry of the array is not finite.
    """
    array = np.asarray(value, dtype=np.float64)
    if not np.isfinite(array).all():
        raise Refuted(WITHIN, f"the {quantity} is not finite")
    return array


@dataclass(frozen=True, eq=False)
class TiedAttention:
    """Attention to only the tied tokens Ŝ at points p, computed from the keys, with its rounding error in float64.

    Symbols are those of :func:`unwinnable_scores`.

    Attributes:
        split: the tied tokens Ŝ, the span F of their rows and the direction U.
        points: the prompts p, (b, d).
    """

    split: ScoreSplit
    points: Float64[np.ndarray, "b d"]

    @cached_property
    def attention(self) -> AttentionAt:
        """Attention to all tokens at the points."""
        return AttentionAt(self.split.problem, exact(self.points))

    @cached_property
    def log_tied(self) -> Numbers:
        """The logarithm of the total softmax weight of the tied tokens Ŝ_i of each input, (b, n)."""
        return np.logaddexp.reduce(np.where(self.split.sets, self.attention.log_weights, -np.inf), axis=-1)

    @cached_property
    def log_odds(self) -> Numbers:
        """The logarithm of x_i, the softmax weight outside Ŝ_i over that of Ŝ_i; −∞ if no token is outside; (b, n)."""
        log_weights_outside: Any = np.where(self.split.sets, -np.inf, self.attention.log_weights)
        return np.logaddexp.reduce(log_weights_outside, axis=-1) - self.log_tied

    @cached_property
    def weights(self) -> Numbers:
        """The softmax weights s̃ of attention to the tied tokens Ŝ alone, 0 elsewhere, (b, n, T)."""
        logs: Any = np.where(self.split.sets, self.attention.log_weights - self.log_tied[..., None], -np.inf)
        return np.exp(logs)

    @cached_property
    def outputs(self) -> Numbers:
        """The outputs õ_i = Σ_t s̃_it γ_it of attention to the tied tokens alone, (b, n)."""
        return mixture(self.split.problem, self.weights)

    @cached_property
    def risk(self) -> Numbers:
        """The risk L_F of attention to the tied tokens alone, (b,)."""
        return np.mean(self.split.problem.loss.value(self.outputs), axis=-1)

    @cached_property
    def rows(self) -> Numbers:
        """The rows g_it = k_iα − k_it of the tied tokens, 0 elsewhere; (n, T, d)."""
        out = np.zeros(self.split.problem.keys.shape)
        for pair, row in self.split.master.differences.items():
            out[pair] = to_floats(row) if self.split.sets[pair] else 0.0
        return with_rounding(out)

    @cached_property
    def slopes(self) -> Numbers:
        """The slopes |ℓ'(õ_i)| at the outputs of attention to the tied tokens alone, (b, n)."""
        return np.exp(self.split.problem.loss.log_slope(self.outputs))

    @cached_property
    def shares(self) -> Numbers:
        """The products s̃_it(γ_it − õ_i) of weights and centred scores of tied tokens, as in ∇L_F, (b, n, T)."""
        return self.weights * (exact(self.split.problem.scores) - self.outputs[..., None])

    @cached_property
    def gradient(self) -> Numbers:
        """The gradient ∇L_F of the risk of attention to the tied tokens alone, (b, d)."""
        return np.einsum("bnt,ntd->bd", self.slopes[..., None] * self.shares, self.rows) / self.split.problem.n


def mixture(problem: Problem, weights: Numbers) -> Numbers:
    """Return the outputs Σ_t s_it γ_it for weights s, (b, n), computed as the best score minus a mean score gap."""
    best = problem.scores.max(axis=1)
    return best + np.sum(weights * (exact(problem.scores) - best[:, None]), axis=-1)


def tied_attention_claims(at: TiedAttention) -> Iterator[Claim]:
    """Yield the claims of part 2: the reported L_F and its gradient, in coordinates of F, equal those from the keys.

    The reported split's formulas are evaluated once more on its own rows and its own basis of F, to bound its rounding
    errors.
    """
    split, problem = at.split, at.split.problem
    relative = (problem.d + 8) * EPS
    basis, inside = (exact(rows).widen(relative * np.abs(rows)) for rows in (split.level, split.inside))
    x = at.points @ split.level.T
    logits: Any = -np.einsum("ntr,br->bnt", inside, exact(at.points) @ basis.T)
    logs: Any = np.where(split.sets, logits, -np.inf)
    weights = np.exp(logs - np.logaddexp.reduce(logs, axis=-1, keepdims=True))
    outputs = mixture(problem, weights)
    rounding = np.mean(problem.loss.value(outputs), axis=-1).error
    risk = finite([split.risk_within(point) for point in x], "risk within")
    yield equal(WITHIN, exact(risk).widen(2 * rounding), at.risk)
    if not len(split.level):
        return
    weighted_gaps = weights * (exact(problem.scores) - outputs[..., None])
    slopes: Any = np.exp(problem.loss.log_slope(outputs))[..., None] * weighted_gaps
    rounding = (np.einsum("bnt,ntr->br", slopes, inside) / problem.n).error
    slope = finite([split.derivatives_within(point)[0] for point in x], "slope within")
    # The slope is mapped from F to the space of prompts, so that a part of the gradient orthogonal to F would be
    # noticed.
    slope_as_prompt = exact(slope).widen(2 * rounding) @ basis
    yield equal(SLOPE, slope_as_prompt, at.gradient, points="coordinate")


def risk_claims(at: TiedAttention) -> Iterator[Claim]:
    """Yield the claims of parts 3 and 4 of :func:`unwinnable_scores`, at the points p and at p + rU for several r."""
    split, problem = at.split, at.split.problem
    out = exact(at.points)[:, None] + RADII[:, None] * with_rounding(split.svm.floats)
    risk = AttentionAt(problem, out.reshape(-1, problem.d)).risk.reshape(len(at.points), len(RADII))
    within: Any = at.risk[:, None]
    bound: Any = np.mean(losses_across(problem) * share_off(at.log_odds[:, None] - exact(RADII)[:, None]), axis=-1)
    yield at_least(COMES_DOWN, Form.EFFECTIVE, bound, np.abs(risk - within))
    if split.bounds_risk:
        yield at_least(AT_LEAST, Form.EFFECTIVE, risk, within)


def losses_across(problem: Problem) -> Numbers:
    """Return c_iΓ_i for each input i: the largest |ℓ'| on its scores times the range Γ_i of these scores, (n,)."""
    low, high = problem.scores.min(axis=1), problem.scores.max(axis=1)
    steepest = [problem.loss.log_bound(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]
    return np.exp(with_rounding(steepest)) * (exact(high) - low)


def share_off(log_odds: Numbers) -> Numbers:
    """Return the weight x/(1 + x) of the tokens that are not tied, from log x, the logarithm of their odds."""
    share: Numbers = np.exp(log_odds - np.logaddexp(0.0, log_odds))
    return share


def finite_part_claims(at: TiedAttention) -> Iterator[Claim]:
    """Yield the claims of part 5 of :func:`unwinnable_scores`; the last point is the x of Newton's method."""
    split, problem = at.split, at.split.problem
    # The rounding error of the gradient is counted twice, because the reported minimum has such an error, too.
    slope = np.linalg.norm(at.gradient[-1].widen(at.gradient[-1].error))
    reach = np.max(np.linalg.norm(at.rows, axis=-1))
    step = (1 + len(split.level) ** 0.5) * SETTLED
    yield at_least(AT_REST, Form.EFFECTIVE, step * reach * curvature(at)[-1], slope, points="finite part")
    if split.convex:
        pair = next(pair for pair in split.master.pairs if split.sets[pair])
        chances = at.weights[-1, pair[0]]
        moves: Any = reach * chances[pair[1]] * chances[int(problem.optimal[pair[0]])]
        yield at_least(LEAST, Form.EFFECTIVE, at.risk, at.risk[-1] - slope / moves)


def curvature(at: TiedAttention) -> Numbers:
    """Return the bound of ‖∇²L_F‖/G² of part 5 of :func:`unwinnable_scores`, G the largest norm of a row, (b,)."""
    spread = np.sum(np.abs(at.shares), axis=-1)
    bend = np.abs(at.split.problem.loss.relative_curvature(value_of(at.outputs)))
    return np.mean(at.slopes * spread * (4 + bend * spread), axis=-1)
