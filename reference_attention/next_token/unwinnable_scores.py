"""Attention where no prompt selects all optimal tokens: the tokens that stay tied, and the limit of the prompt.

C = {p : (k_iα − k_it)·p ≥ 0 for all t} are the prompts at which no token has a larger logit than the optimal token α_i.
Where ATT-SVM of α is infeasible, some tokens tie with α on all of C, and a single U ∈ C separates all others from α.
The tied tokens are the extended supports Ŝ_i of next-token prediction (:mod:`.extended_supports`) with a_it = k_it and
α_i as the token that followed; they are computed exactly, with a proof.

With F the span of the k_iα − k_it, t ∈ Ŝ_i, let x = P_F p and let L_F(x) be the risk of attention restricted to the
tokens of Ŝ_i. Ratios of weights within Ŝ_i depend on x only. The weights outside Ŝ_i vanish along U, and moving along U
does not change x. So

    L(x + rU) → L_F(x) as r → ∞,  and  L(p) ≥ L_F(P_F p) for every p

if every token outside Ŝ_i scores at most as high as every token of Ŝ_i: removing the tokens outside Ŝ_i then does not
lower the mixture of scores, and ℓ decreases. Then inf L = inf L_F. L_F need not be convex, and its infimum may lie at
infinity; L_F is a convex function of σ(x), so that a point of slope zero is a minimum, if ℓ is convex, each Ŝ_i has at
most one token t besides α_i, and all these rows k_iα − k_it are equal up to sign (:attr:`ScoreSplit.convex`).

Along a flow p = x + y with y across F, x comes to rest where ∇L_F = 0 while y grows without bound, and the gradient in
y falls far below the rounding of the gradient in x. Therefore x and y are followed separately. With x at rest, −∇L in y
is a combination of the rows P_⊥(k_iα − k_it), t ∉ Ŝ_i, with the weights |ℓ'| s_it (o_i − γ_it) > 0, where o_i is the
score of the mixture. This is the form of −∇L for separable data, so y/‖y‖ is expected to converge to the max-margin
direction on F^⊥.

Reference: derived here; arXiv 2402.18551 for next-token prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq
from jaxtyping import Bool, Float64

from reference_attention.exact import products, to_float, to_floats
from reference_attention.next_token.extended_supports import ExtendedSupports, extended_supports
from reference_attention.next_token.master_problem import MasterProblem, Vector
from reference_attention.next_token.next_token_svm import NextTokenSvm, next_token_svm
from reference_attention.next_token.subspace_split import orthogonalize
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, log_excess_risk
from reference_attention.svm.max_margin import Infeasible
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow

GONE = 1e-6
"""Total weight of the tokens outside Ŝ_i below which x and y are followed separately; later changes of x are of about
this size."""
AT_REST = 2.0**-6
"""Largest distance of x from its rest point, in logits, at which the two parts may be separated."""
STEPS = 60
"""Largest number of Newton steps from the point of separation to the rest point."""
SETTLED = 1e-12
"""Largest change of a logit in the last step; coordinates that move every logit by less are set to 0."""


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """The tokens tied with α on all of C, and the tokens that some prompt of C separates from α.

    Attributes:
        problem: keys and scores; a single token of each input has the highest score.
        master: the master problem with the rows k_iα − k_it.
        supports: Ŝ_i with its proof.
        svm: the U of least norm that ties Ŝ_i and gives all other tokens margin 1, exact; 0 if there are no other
            tokens.
    """

    problem: Problem
    master: MasterProblem
    supports: ExtendedSupports
    svm: NextTokenSvm

    @property
    def sets(self) -> Bool[np.ndarray, "n T"]:
        """Return Ŝ_i as a mask."""
        return np.asarray(self.supports.sets)

    @property
    def error(self) -> str:
        """Check the proof and return its first error; empty if it is valid."""
        return self.supports.error(self.master) or self.svm.error(self.master)

    @cached_property
    def tied_inputs(self) -> list[int]:
        """Return the inputs in which some token ties with α_i on all of C."""
        return np.flatnonzero(self.sets.sum(axis=1) > 1).tolist()

    @cached_property
    def bounds_risk(self) -> bool:
        """Return whether all tokens outside Ŝ_i score ≤ all tokens of Ŝ_i, so that L(p) ≥ L_F(P_F p)."""
        lowest = np.min(np.where(self.sets, self.problem.scores, np.inf), axis=1)
        return bool(np.all(self.sets | (self.problem.scores <= lowest[:, None])))

    @cached_property
    def convex(self) -> bool:
        """Return whether L_F is proven convex in σ(x): a point where ∇L_F = 0 is then its minimum."""
        rows = [self.master.differences[pair] for pair in self.master.pairs if self.sets[pair]]
        one_rival = bool((self.sets.sum(axis=1) <= 2).all())
        same = all(row == rows[0] or [-c for c in row] == rows[0] for row in rows)
        return one_rival and same and self.problem.loss.steepening(*self.problem.score_range) == 0

    @cached_property
    def _bases(self) -> tuple[list[Vector], list[Vector]]:
        """Return rational orthogonal bases of F, and of the part that the other rows add to F."""
        rows = self.master.differences
        level = orthogonalize([row for pair, row in rows.items() if self.sets[pair]], [])
        extended_basis = orthogonalize([row for pair, row in rows.items() if not self.sets[pair]], level)
        return level, extended_basis[len(level) :]

    @cached_property
    def level(self) -> Float64[np.ndarray, "r d"]:
        """Return an orthonormal basis of F, as rows."""
        return _unit_rows(self._bases[0], self.problem.d)

    @cached_property
    def across(self) -> Float64[np.ndarray, "s d"]:
        """Return an orthonormal basis of the part that all other rows k_iα − k_it add to F, as rows."""
        return _unit_rows(self._bases[1], self.problem.d)

    @cached_property
    def inside(self) -> Float64[np.ndarray, "n T r"]:
        """Return the coordinates of P_F(k_iα − k_it); each is the exact coordinate rounded once."""
        return self._coordinates(self._bases[0])

    @cached_property
    def outside(self) -> Float64[np.ndarray, "n T s"]:
        """Return the coordinates of P_⊥(k_iα − k_it), exactly 0 on Ŝ_i."""
        return self._coordinates(self._bases[1])

    @cached_property
    def direction(self) -> Float64[np.ndarray, "d"]:
        """Return the max-margin direction on F^⊥."""
        return np.asarray(self.svm.floats / (float(np.linalg.norm(self.svm.floats)) or 1.0))

    def _coordinates(self, basis: list[Vector]) -> Float64[np.ndarray, "n T m"]:
        """Return the coordinates of all rows k_iα − k_it in the normalized basis, (n, T, r)."""
        out = np.zeros((*self.sets.shape, len(basis)))
        sizes = np.array([to_float(sum((x * x for x in b), fmpq(0))) ** 0.5 for b in basis])
        for pair, row in self.master.differences.items():
            out[pair] = to_floats(products(basis, row)) / sizes
        return out

    def weights_within(self, x: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "n T"]:
        """Return the softmax over Ŝ_i at x, with weight 0 on tokens outside Ŝ_i."""
        logits = np.where(self.sets, -(self.inside @ x), -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def risk_within(self, x: Float64[np.ndarray, "r"]) -> float:
        """Return L_F(x)."""
        mixture = np.sum(self.weights_within(x) * self.problem.scores, axis=1)
        return float(np.mean(self.problem.loss.value(mixture)))

    def derivatives_within(
        self, x: Float64[np.ndarray, "r"]
    ) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "r r"]]:
        """Return ∇L_F and ∇²L_F."""
        loss, weights = self.problem.loss, self.weights_within(x)
        mixture = np.sum(weights * self.problem.scores, axis=1)
        weighted_gaps = weights * (self.problem.scores - mixture[:, None])
        centred = self.inside - np.einsum("nt,ntr->nr", weights, self.inside)[:, None]
        slopes = np.asarray(loss.derivative(mixture)) / self.problem.n
        by_x = -np.einsum("nt,ntr->nr", weighted_gaps, self.inside)
        bends = np.asarray(loss.relative_curvature(mixture)) * np.abs(slopes)
        second = np.einsum("n,nt,ntr,nts->rs", slopes, weighted_gaps, centred, centred)
        return slopes @ by_x, second + np.einsum("n,nr,ns->rs", bends, by_x, by_x)

    def rest_near(self, x: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "r"] | None:
        """Return the minimum of L_F that Newton's method reaches from x; None if it reaches none."""
        reach = float(np.linalg.norm(self.inside, axis=-1).max())
        for _ in range(STEPS):
            slope, second = self.derivatives_within(x)
            values, vectors = np.linalg.eigh(second)
            if not (np.isfinite(second).all() and (values > 0).all()):
                return None
            step = vectors @ ((vectors.T @ slope) / values)
            size = reach * float(np.linalg.norm(step))
            x = x - step / max(1.0, size)
            if size < SETTLED:
                return np.asarray(np.where(reach * np.abs(x) < SETTLED, 0.0, x))
        return None


@dataclass(frozen=True, eq=False)
class SplitFlow:
    """A flow p = x + y whose part in F came to rest.

    Attributes:
        split: F, and the tied tokens.
        flow: p at the recorded norms.
        rest: x, in coordinates of F.
        apart_from: the norm ‖p‖ beyond which the two parts were followed separately.
        one_minus_cosine: 1 − cos between y and the max-margin direction on F^⊥ at the end; components that never move
            are not part of y.
    """

    split: ScoreSplit
    flow: Flow
    rest: Float64[np.ndarray, "r"]
    apart_from: float
    one_minus_cosine: float

    @property
    def finite_part(self) -> Float64[np.ndarray, "d"]:
        """Return x as a prompt."""
        return np.asarray(self.rest @ self.split.level)

    @property
    def weights(self) -> Float64[np.ndarray, "n T"]:
        """Return the softmax weights in the limit, 0 outside Ŝ_i."""
        return self.split.weights_within(self.rest)

    @property
    def risk(self) -> float:
        """Return L_F(x), the limit of the risk."""
        return self.split.risk_within(self.rest)


def score_split(problem: Problem) -> ScoreSplit | None:
    """Return Ŝ and F of the optimal tokens, or None.

    The result is None where several tokens of an input have the highest score, where keys are rounded products, where
    all optimal tokens can be selected at once, or where no weights prove the solver's answer.
    """
    highest = problem.scores == problem.scores.max(axis=1, keepdims=True)
    rounded = problem.factors is not None and not problem.factors.short
    if rounded or (highest.sum(axis=1) > 1).any():
        return None
    master = MasterProblem(problem.keys, highest.astype(np.int64))
    supports = extended_supports(master)
    if (supports.sets == highest).all():
        return None
    svm = next_token_svm(master, supports.sets)
    if isinstance(svm, Infeasible):
        return None
    split = ScoreSplit(problem, master, supports, svm)
    return None if split.error else split


def follow_split_flow(split: ScoreSplit, flow: Flow, records: Float64[np.ndarray, "m"], norm: float) -> SplitFlow | str:
    """Continue a flow in two parts from the point where tokens outside Ŝ_i have lost their weight.

    Args:
        split: F, and the tied tokens.
        flow: the flow from p(0); it may have failed later.
        records: norms at which p is recorded.
        norm: the norm at which to stop.

    Returns:
        The flow to that norm, or the reason why it could not be continued.
    """
    weights = np.where(split.sets, 0.0, _weights(split, flow.points)).sum(axis=-1).max(axis=-1)
    weightless = np.flatnonzero((weights <= GONE) & (np.arange(len(weights)) > 0))
    if not split.across.size or not weightless.size:
        return "tokens outside the tied sets keep their softmax weight"
    first = int(weightless[0])
    p = flow.points[first]
    x = split.rest_near(p @ split.level.T)
    logits = np.inf if x is None else float(np.abs(split.inside @ (x - p @ split.level.T)).max())
    if x is None or not logits <= AT_REST:
        return "between tied tokens the flow has not come to rest"
    y = p @ split.across.T
    constant_part = p - (p @ split.level.T) @ split.level - y @ split.across
    inner_point = x @ split.level + constant_part
    mixture = np.sum(split.weights_within(x) * split.problem.scores, axis=1)
    if not (split.sets | (split.problem.scores < mixture[:, None])).all():
        return "a token outside the tied sets scores at least as much as the mixture of the tied tokens"
    # p is the sum of three orthogonal parts: x, y, and the components that never move.
    square = float(inner_point @ inner_point)
    beyond = np.sqrt(np.maximum(np.append(records[records < norm], norm) ** 2 - square, 0.0))
    begin = float(np.linalg.norm(y))
    beyond = beyond[beyond > begin * (1 + 1e-9)]
    if not beyond.size:
        return "the finite part alone is longer than the requested norm"
    keys = -split.outside
    moving = Problem(keys, split.problem.scores, split.problem.loss)
    further = gradient_flow(
        moving, y, norm=float(beyond.max()), record=np.unique(beyond), gradient=_gradient_across(split, x)
    )
    if not further.reached_norm:
        return f"across the tied tokens {further.reason}"
    points = np.concatenate([flow.points[: first + 1], inner_point + further.points @ split.across])
    problem = split.problem
    sign, log_risk = log_excess_risk(problem.keys, problem.scores, problem.loss, points, problem.optimal)
    complete_flow = Flow(
        points=points,
        norms=np.linalg.norm(points, axis=1),
        arc_length=np.append(flow.arc_length[: first + 1], flow.arc_length[first] + further.arc_length),
        log_gradient_norm=np.append(flow.log_gradient_norm[: first + 1], further.log_gradient_norm),
        sign=np.asarray(sign),
        log_risk=np.asarray(log_risk),
        stop=Stop.NORM,
        reason="",
        method=further.method,
        relative=further.relative,
        absolute=further.absolute,
        evaluations=flow.evaluations + further.evaluations,
        _times=lambda: np.append(flow.log_time[: first + 1], np.logaddexp(flow.log_time[first], further.log_time)),
    )
    end = further.final
    target = split.across @ split.direction
    cosine = float(end @ target) / float(np.linalg.norm(end) * (np.linalg.norm(target) or 1.0))
    difference = end / float(np.linalg.norm(end)) - target
    return SplitFlow(
        split,
        complete_flow,
        x,
        float(flow.norms[first]),
        float(difference @ difference) / 2 if cosine > 0 else 1 - cosine,
    )


def _weights(split: ScoreSplit, points: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "m n T"]:
    """Return the softmax weights at the points, computed in coordinates in which ties are exact."""
    logits = -np.einsum("ntr,mr->mnt", split.inside, points @ split.level.T)
    logits -= np.einsum("nts,ms->mnt", split.outside, points @ split.across.T)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _gradient_across(split: ScoreSplit, x: Float64[np.ndarray, "r"]) -> Any:
    """Return a function that computes ∇L along F^⊥, with x at rest.

    Only tokens outside Ŝ_i contribute to this gradient, so nothing cancels as their weights vanish.
    """
    problem, sets = split.problem, split.sets
    level = np.logaddexp.reduce(np.where(sets, -(split.inside @ x), -np.inf), axis=1)
    lead = -(split.inside @ x) - level[:, None]
    within = split.weights_within(x)
    mixture = np.sum(within * problem.scores, axis=1)
    with np.errstate(divide="ignore"):
        sizes = np.log(np.where(sets, 1.0, np.linalg.norm(split.outside, axis=-1)))

    def gradient(keys: Any, scores: Any, loss: Any, y: Any) -> ScaledGradient:
        logs = np.where(sets, -np.inf, lead + np.einsum("nts,...s->...nt", keys, y))
        total = np.logaddexp(0.0, np.logaddexp.reduce(logs, axis=-1))
        logs = logs - total[..., None]
        shares = np.exp(logs)
        out = mixture + np.sum(shares * (scores - mixture[:, None]), axis=-1)
        gaps = out[..., None] - scores
        slope = np.asarray(loss.log_slope(out)) - np.log(len(scores))
        with np.errstate(divide="ignore"):
            terms = np.where(sets, -np.inf, logs + np.log(np.abs(gaps)) + slope[..., None])
        log_scale = np.max(terms + sizes, axis=(-2, -1))
        shift = np.maximum(log_scale, -1e300)
        coefficients = np.sign(gaps) * np.exp(terms - shift[..., None, None])
        return ScaledGradient(log_scale, np.einsum("...nt,nts->...s", coefficients, keys))

    return gradient


def _unit_rows(basis: list[Vector], d: int) -> Float64[np.ndarray, "m d"]:
    """Return rational vectors as rows of length one in floats, (r, d)."""
    rows = np.array([to_floats(row) for row in basis]).reshape(len(basis), d)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
