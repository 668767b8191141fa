"""Attention where no prompt selects all optimal tokens: which tokens stay tied, and the limit of the prompt.

The set C = {p : (k_iα − k_it)·p ≥ 0 for all i and t} contains the prompts at which no token has a larger logit than the
optimal token α_i. If ATT-SVM of α is infeasible, some tokens tie with α_i (have the same logit) at every p ∈ C, and
some U ∈ C gives all other tokens smaller logits than α_i. α_i and the tokens tied with it are the extended support Ŝ_i
of next-token prediction (:mod:`.extended_supports`), with a_it = k_it and α_i as the token that followed context i; it
is computed exactly, with a proof.

Let F be the span of the k_iα − k_it with t ∈ Ŝ_i, x = P_F p the projection of p on F, P_⊥ the projection on F^⊥, and
L_F(x) the risk of attention restricted to the tokens of Ŝ_i. Ratios of softmax weights within Ŝ_i depend only on x.
Moving p along U does not change x, and makes the weights outside Ŝ_i vanish. So

    L(x + rU) → L_F(x) as r → ∞,  and  L(p) ≥ L_F(P_F p) for every p

if every token outside Ŝ_i scores at most as high as every token of Ŝ_i: removing the tokens outside Ŝ_i then does not
lower the output γ_iᵀs_i, and ℓ decreases. Then inf L = inf L_F. L_F need not be convex, and its infimum may lie at
infinity. But if ℓ is convex, each Ŝ_i has at most one token t besides α_i, and all these rows k_iα − k_it are equal up
to sign (:attr:`ScoreSplit.convex`), then L_F is a convex function of the softmax weight of one α_i, so that a
stationary point is a minimum.

Along a flow p = x + y with y ∈ F^⊥, x comes to rest where ∇L_F = 0, while y grows without bound and the gradient in y
falls far below the rounding error of the gradient in x. Therefore x and y are followed separately. With x at rest, −∇L
in y is a combination of the rows P_⊥(k_iα − k_it), t ∉ Ŝ_i, with the weights |ℓ'| s_it (o_i − γ_it) > 0, where o_i =
γ_iᵀs_i is the output. For separable data −∇L has the same form, so y/‖y‖ is expected to converge to the max-margin
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
"""Total softmax weight of the tokens outside Ŝ_i below which the parts x ∈ F and y ∈ F^⊥ of p are followed separately;
later changes of x are of about this size."""
AT_REST = 2.0**-6
"""x and y may be followed separately if no logit differs by more than this number between x and its rest point."""
STEPS = 60
"""Largest number of Newton steps from the x at which x and y are separated to the rest point of x."""
SETTLED = 1e-12
"""Newton's method stops after a step that changes every logit by less than this number; the coordinates of x that
contribute less to every logit are then set to 0."""


@dataclass(frozen=True, eq=False)
class ScoreSplit:
    """The tokens tied with α_i at all prompts of C, and the other tokens (symbols: see the module).

    Attributes:
        problem: the keys and scores; a single token α_i of each input has the highest score.
        master: the problem of next-token prediction with the rows k_iα − k_it, one context per input.
        supports: the sets Ŝ_i with their proof.
        svm: the exact U of least norm with equal logits on each Ŝ_i and margins of at least 1 at all other tokens; 0 if
            there are no other tokens.
    """

    problem: Problem
    master: MasterProblem
    supports: ExtendedSupports
    svm: NextTokenSvm

    @property
    def sets(self) -> Bool[np.ndarray, "n T"]:
        """Return a mask of the tokens in Ŝ_i, (n, T)."""
        return np.asarray(self.supports.sets)

    @property
    def error(self) -> str:
        """Check the proofs of Ŝ_i and U, and return the first error; empty if they are valid."""
        return self.supports.error(self.master) or self.svm.error(self.master)

    @cached_property
    def tied_inputs(self) -> list[int]:
        """Return the inputs i in which some token besides α_i is in Ŝ_i."""
        return np.flatnonzero(self.sets.sum(axis=1) > 1).tolist()

    @cached_property
    def bounds_risk(self) -> bool:
        """Return whether no token outside Ŝ_i scores more than a token of Ŝ_i, so that L(p) ≥ L_F(P_F p)."""
        lowest = np.min(np.where(self.sets, self.problem.scores, np.inf), axis=1)
        return bool(np.all(self.sets | (self.problem.scores <= lowest[:, None])))

    @cached_property
    def convex(self) -> bool:
        """Return whether the condition of the module holds under which a point with ∇L_F = 0 is a minimum of L_F."""
        rows = [self.master.differences[pair] for pair in self.master.pairs if self.sets[pair]]
        one_rival = bool((self.sets.sum(axis=1) <= 2).all())
        same = all(row == rows[0] or [-c for c in row] == rows[0] for row in rows)
        return one_rival and same and self.problem.loss.steepening(*self.problem.score_range) == 0

    @cached_property
    def _bases(self) -> tuple[list[Vector], list[Vector]]:
        """Return rational orthogonal bases of F, and of what the rows k_iα − k_it, t ∉ Ŝ_i, add to the span F."""
        rows = self.master.differences
        level = orthogonalize([row for pair, row in rows.items() if self.sets[pair]], [])
        extended_basis = orthogonalize([row for pair, row in rows.items() if not self.sets[pair]], level)
        return level, extended_basis[len(level) :]

    @cached_property
    def level(self) -> Float64[np.ndarray, "r d"]:
        """Return an orthonormal basis of F, as rows, (r, d)."""
        return _unit_rows(self._bases[0], self.problem.d)

    @cached_property
    def across(self) -> Float64[np.ndarray, "s d"]:
        """Return an orthonormal basis, as rows, of what the rows k_iα − k_it, t ∉ Ŝ_i, add to the span F, (s, d)."""
        return _unit_rows(self._bases[1], self.problem.d)

    @cached_property
    def inside(self) -> Float64[np.ndarray, "n T r"]:
        """Return the coordinates of P_F(k_iα − k_it) in the basis :attr:`level`, (n, T, r)."""
        return self._coordinates(self._bases[0])

    @cached_property
    def outside(self) -> Float64[np.ndarray, "n T s"]:
        """Return the coordinates of P_⊥(k_iα − k_it) in the basis :attr:`across`, (n, T, s), exactly 0 for t ∈ Ŝ_i."""
        return self._coordinates(self._bases[1])

    @cached_property
    def direction(self) -> Float64[np.ndarray, "d"]:
        """Return the max-margin direction on F^⊥, U/‖U‖; 0 if U = 0."""
        return np.asarray(self.svm.floats / (float(np.linalg.norm(self.svm.floats)) or 1.0))

    def _coordinates(self, basis: list[Vector]) -> Float64[np.ndarray, "n T m"]:
        """Return the coordinates of all rows k_iα − k_it in the basis, normalized, (n, T, m)."""
        out = np.zeros((*self.sets.shape, len(basis)))
        sizes = np.array([to_float(sum((x * x for x in b), fmpq(0))) ** 0.5 for b in basis])
        for pair, row in self.master.differences.items():
            out[pair] = to_floats(products(basis, row)) / sizes
        return out

    def weights_within(self, x: Float64[np.ndarray, "r"]) -> Float64[np.ndarray, "n T"]:
        """Return the softmax weights restricted to Ŝ_i at x, 0 outside Ŝ_i, (n, T)."""
        logits = np.where(self.sets, -(self.inside @ x), -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    def risk_within(self, x: Float64[np.ndarray, "r"]) -> float:
        """Return the restricted risk L_F(x)."""
        mixture = np.sum(self.weights_within(x) * self.problem.scores, axis=1)
        return float(np.mean(self.problem.loss.value(mixture)))

    def derivatives_within(
        self, x: Float64[np.ndarray, "r"]
    ) -> tuple[Float64[np.ndarray, "r"], Float64[np.ndarray, "r r"]]:
        """Return ∇L_F and ∇²L_F at x, in coordinates of F."""
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
        """Return the minimiser of L_F that Newton's method reaches from x; None if it reaches none."""
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
    """A flow p = x + y whose part x ∈ F came to rest (symbols: see the module).

    Attributes:
        split: F, and the sets Ŝ_i.
        flow: the flow of p = x + y, at the recorded norms.
        rest: the rest point of x, in coordinates of F, (r,).
        apart_from: the norm ‖p‖ beyond which x and y were followed separately.
        one_minus_cosine: 1 − cos of the angle between y and the max-margin direction on F^⊥ at the end; y does not
            include components of p that never move.
    """

    split: ScoreSplit
    flow: Flow
    rest: Float64[np.ndarray, "r"]
    apart_from: float
    one_minus_cosine: float

    @property
    def finite_part(self) -> Float64[np.ndarray, "d"]:
        """Return the rest point of x as a prompt, (d,)."""
        return np.asarray(self.rest @ self.split.level)

    @property
    def weights(self) -> Float64[np.ndarray, "n T"]:
        """Return the softmax weights in the limit of the flow, 0 outside Ŝ_i, (n, T)."""
        return self.split.weights_within(self.rest)

    @property
    def risk(self) -> float:
        """Return L_F at the rest point of x, the limit of the risk."""
        return self.split.risk_within(self.rest)


def score_split(problem: Problem) -> ScoreSplit | None:
    """Return the sets Ŝ_i and the subspace F of the optimal tokens, or None.

    The result is None if several tokens of an input have the highest score, if keys are rounded products, if a prompt
    selects all optimal tokens, or if the proof fails.
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
    """Continue a flow, x and y separately, from the point where tokens outside Ŝ_i have lost their softmax weight.

    Args:
        split: F, and the sets Ŝ_i.
        flow: the flow from p(0); it may have failed after this point.
        records: the norms ‖p‖ at which p is recorded.
        norm: the norm ‖p‖ at which to stop.

    Returns:
        The flow to this norm, or the reason why the flow could not be continued.
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
    # p is the sum of three orthogonal parts: x, y, and a part orthogonal to all key differences, which never moves.
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
    """Return the softmax weights at points, (m, n, T), from coordinates in which tied logits are exactly equal."""
    logits = -np.einsum("ntr,mr->mnt", split.inside, points @ split.level.T)
    logits -= np.einsum("nts,ms->mnt", split.outside, points @ split.across.T)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def _gradient_across(split: ScoreSplit, x: Float64[np.ndarray, "r"]) -> Any:
    """Return a function that computes ∇L with respect to y ∈ F^⊥, with x at rest.

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
    """Return rational vectors as rows of floats divided by their norms, (m, d)."""
    rows = np.array([to_floats(row) for row in basis]).reshape(len(basis), d)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
