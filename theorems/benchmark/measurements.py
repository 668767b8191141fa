"""The number of iterations that a rule needs until its direction is, and stays, near the limit direction.

The limit is the solution of ATT-SVM for the tokens that the gradient flow from the same start selects. The norm that
this solution minimises is the one that theory names for the rule, such as ‖p‖_q for mirror descent; if theory names
none, the limit is p_mm, the solution of least ‖p‖_2. With several inputs or unequal scores the selected tokens may be
only locally optimal (Theorem 3), and a rule with long steps may select other tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from jaxtyping import Float64, Int64

from max_margin_theorems.papers import papers
from reference_attention.angles import one_minus_cosine
from reference_attention.norms import Blocks, Norm, Schatten, name_of
from reference_attention.outer_keys import OuterKeys
from reference_attention.problem import Problem
from reference_attention.risk import risk, scaled_gradient, softmax_weights
from reference_attention.svm.least_power_norm import LeastPowerNorm, difference_rows, least_power_norm
from reference_attention.svm.max_margin import MaxMargin, locally_optimal, max_margin
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.spectral_max_margin import spectral_max_margin
from reference_attention.training.descent import Stop
from reference_attention.training.flow import Flow, gradient_flow
from theorems.benchmark.fit import Fit, fit_tail
from theorems.benchmark.margin_gap import Gap
from theorems.benchmark.optimisers.optimiser import Theory
from theorems.benchmark.optimisers.run import Run
from theorems.benchmark.proven_bound import proven_bound
from theorems.core.implementation import REFERENCE, Implementation

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""The values of 1 − cos to the limit direction, called levels, to which iterations are counted."""
FAR = 1e6
"""The norm up to which the flow is followed, in units of the larger of ‖p(0)‖ and 1/(largest |entry| of the keys)."""
DRAWN = 61
"""The number of iterations whose 1 − cos is stored for a curve; the iterations are evenly spaced in log t."""
EUCLIDEAN = 2.0
SURE = 0.99
"""The least softmax weight of selected tokens at the end of a settled run: other tokens share one hundredth at most."""
SETTLED_FOR = 10
"""A settled run selects the same tokens over its last decade, from the last iteration divided by SETTLED_FOR on."""


class Kind(StrEnum):
    """The kind of tokens that the gradient flow selects."""

    GLOBAL = "GMM"
    """The optimal token of every input."""
    LOCAL = "LMM"
    """Locally optimal tokens (Definition 2), not all of them the optimal ones."""


@dataclass(frozen=True, eq=False)
class Limit:
    """The limit direction of the gradient flow from a start.

    Attributes:
        svm: the solution p_mm of ATT-SVM for the tokens that the flow selects; the limit is its direction.
        kind: GLOBAL if these tokens are the optimal ones, else LOCAL.
    """

    svm: MaxMargin
    kind: Kind


@dataclass(frozen=True)
class Measurement:
    """One run of a rule on one problem.

    The *cap* is the number of iterations for which rules are run; m(W) or m(p) is the least margin of the tokens that
    the limit selects.

    Attributes:
        rule: the name of the rule.
        theory: the theorems about the rule.
        iterations: for each of :data:`LEVELS` the first iteration such that 1 − cos is at most the level at this and
            every later iteration, up to the cap; ``None`` if there is no such iteration.
        norm: ‖p‖ at the cap.
        one_minus_cosine: 1 − cos∠(p, limit) at the cap.
        at_most: the proven upper bound of ``one_minus_cosine``, see :mod:`theorems.benchmark.proven_bound`; ``None`` if
            no bound is proven.
        margins: m(p)/‖p‖_2 and m(p)/‖p‖_∞ at the cap, each divided by its largest possible value.
        rate: the power law fitted to the last two decades of t; None if none can be fitted.
        curve: iterations, and 1 − cos at each of these; NaN at p = 0.
        selected: the token of largest weight of each input at the cap.
        selects_limit: whether ``selected`` are the tokens of the limit.
        representable: whether every step stayed in the range of float64; if not, the run ended before the first step
            outside this range.
        nuclear: if W is trained, 1 − cos∠(W, W_⋆) and ‖W‖_⋆/(m(W) C_⋆) − 1 at the cap, where W_⋆ is the solution of
            least nuclear norm C_⋆; None if no W is trained or W_⋆ is not proven unique.
        gap: the gap between m(p) and the largest possible margin, proven and measured, see
            :mod:`theorems.benchmark.margin_gap`.
        loss: L(p) at the cap.
        settled: whether the selected tokens have stayed the same over the last decade of t, and finally have softmax
            weights of at least :data:`SURE`.
        spectral: if W is trained, m(W)/‖W‖_op at the cap divided by its largest possible value; None if no W is trained
            or the largest value was not found.
    """

    rule: str
    theory: Theory
    iterations: tuple[int | None, ...]
    norm: float
    one_minus_cosine: float
    at_most: float | None
    margins: tuple[float, float]
    rate: Fit | None
    curve: tuple[tuple[int, ...], tuple[float, ...]]
    selected: tuple[int, ...]
    selects_limit: bool
    representable: bool
    nuclear: tuple[float, float] | None = None
    gap: Gap | None = None
    loss: float = math.nan
    settled: bool = True
    spectral: float | None = None


def limit_of(problem: Problem, start: Float64[np.ndarray, "d"], under_test: Implementation = REFERENCE) -> Limit | str:
    """Return the limit direction of the gradient flow from a start, or the reason why the flow has none.

    Such a reason is, for example, that the flow ends at a stationary point. At norm ρ‖p_mm‖ the direction
    of the flow must be within √(1/ρ) of p̄_mm; tolerance ``limit-followed`` allows this distance, although a direction
    that converges is only O(log ρ/ρ) away.
    """
    flow = gradient_flow(problem, start, norm=far(problem, start), gradient=under_test[scaled_gradient])
    return limit_of_flow(problem, flow, under_test)


def far(problem: Problem, start: Float64[np.ndarray, "d"]) -> float:
    """Return the norm to which a flow from ``start`` is followed."""
    return FAR * max(1 / problem.key_scale, float(np.linalg.norm(start)))


def limit_of_flow(problem: Problem, flow: Flow, under_test: Implementation = REFERENCE) -> Limit | str:
    """Return the limit direction, or the reason why there is none, as :func:`limit_of` does, for a computed flow."""
    if not flow.reached_norm:
        return f"the flow is {flow.stop} at norm {flow.norms[-1]:.3g}" if flow.stop is Stop.STATIONARY else flow.reason
    return limit_at(problem, flow.final, under_test)


def limit_at(problem: Problem, p: Float64[np.ndarray, "d"], under_test: Implementation = REFERENCE) -> Limit | str:
    """Return the limit direction, or the reason why there is none, for a flow whose last, distant point is p, (d,)."""
    alpha, size = problem.selection_at(p), float(np.linalg.norm(p))
    svm = under_test[max_margin](problem.exact_keys, alpha)
    if not isinstance(svm, MaxMargin):
        return f"the flow selects the tokens {alpha.tolist()}, which no p separates from the others"
    apart = float(np.sqrt(2 * one_minus_cosine(p, svm.direction)))
    if not apart <= (size / svm.norm) ** -0.5:
        return f"at norm {size:.3g} the flow is {apart:.1e} from the max-margin direction of the tokens that it selects"
    if np.array_equal(alpha, problem.optimal):
        return Limit(svm, Kind.GLOBAL)
    if not locally_optimal(svm, problem.scores):
        return f"the flow selects the tokens {alpha.tolist()}, which are not locally optimal"
    return Limit(svm, Kind.LOCAL)


class NoLimit(ArithmeticError):
    """Exception: the solver did not find the solution of ATT-SVM in a norm other than ‖·‖_2."""


class Limits:
    """The solutions of ATT-SVM of least norm in several norms, for the tokens α of a limit; computed at first use.

    m(p) denotes the least margin (k_iα − k_it)·p; where a matrix W is trained, p is vec(W).
    """

    def __init__(self, problem: Problem, limit: Limit, keys: OuterKeys | None = None) -> None:
        """Store the limit, and compute the differences k_iα − k_it of its tokens α and the other tokens.

        Args:
            problem: the problem.
            limit: the limit direction and its tokens α.
            keys: the factors x and z of the keys x zᵀ, if W is trained.
        """
        self._problem, self._keys = problem, keys
        self.svm = limit.svm
        self.rows = difference_rows(problem.keys, limit.svm.alpha)
        self.found: dict[float, LeastPowerNorm] = {}
        self._largest_spectral: float | None = None

    def direction(self, norm: float | None) -> Float64[np.ndarray, "d"]:
        """Return the max-margin direction in ‖·‖_q, q = ``norm``; the direction of p_mm if ``norm`` is None."""
        return self.svm.direction if norm is None or norm == EUCLIDEAN else self.solution(norm).direction

    def shares(self, p: Float64[np.ndarray, "d"]) -> tuple[float, float]:
        """Return m(p)/‖p‖_2 and m(p)/‖p‖_∞, each divided by its largest possible value; NaN at p = 0."""
        least = float((self.rows @ p).min())
        with np.errstate(invalid="ignore", divide="ignore"):
            euclidean = np.float64(least) / np.linalg.norm(p) * self.svm.norm
            boxed = np.float64(least) / np.abs(p).max() / self.solution(np.inf).margin
        return float(euclidean), float(boxed)

    @cached_property
    def nuclear(self) -> NuclearMaxMargin | None:
        """The solution W_⋆ of least nuclear norm; None if no W is trained, or if W_⋆ is not proven unique."""
        solution = None if self._keys is None else nuclear_max_margin(self._keys, self.svm.alpha)
        return solution if isinstance(solution, NuclearMaxMargin) and solution.unique else None

    def from_nuclear(self, p: Float64[np.ndarray, "d"]) -> tuple[float, float] | None:
        """Return 1 − cos∠(W, W_⋆) and ‖W‖_⋆/(m(W) C_⋆) − 1, which is infinite if m(W) ≤ 0, for W with vec(W) = p.

        C_⋆ is the nuclear norm of the solution W_⋆ (:attr:`nuclear`). The result is None if there is no such solution.
        """
        if self.nuclear is None:
            return None
        least = float((self.rows @ p).min())
        size = float(np.linalg.svd(p.reshape(self.nuclear.W.shape), compute_uv=False).sum())
        excess = size / (least * self.nuclear.norm) - 1 if least > 0 else np.inf
        target = self.nuclear.W.ravel() / np.linalg.norm(self.nuclear.W)
        return float(one_minus_cosine(p, target)), float(excess)

    def spectral_share(self, p: Float64[np.ndarray, "d"], shape: tuple[int, ...]) -> float | None:
        """Return m(W)/‖W‖_op as a share of its largest value; None if no W is trained, p = 0 or the value unknown."""
        if self._keys is None or not p.any():
            return None
        if self._largest_spectral is None:
            solution = spectral_max_margin(self.rows, self.svm.p.reshape(shape))
            self._largest_spectral = np.nan if solution is None else float((self.rows @ solution[0].ravel()).min())
        if np.isnan(self._largest_spectral):
            return None
        size = float(np.linalg.norm(p.reshape(shape), ord=2))
        return float((self.rows @ p).min()) / size / self._largest_spectral

    def solution(self, norm: float) -> LeastPowerNorm:
        """Return the solution of ATT-SVM of least ‖p‖_q, q = ``norm``, computed at the first call.

        Raises:
            NoLimit: the solver did not find the solution.
        """
        if norm not in self.found:
            solution = least_power_norm(self._problem.keys, self.svm.alpha, norm, self.svm.p)
            if solution is None:
                raise NoLimit(f"the solution of ATT-SVM in {name_of(norm)} was not found")
            self.found[norm] = solution
        return self.found[norm]


def measure(
    rule: str, theory: Theory, run: Run, problems: list[Problem], limits: list[Limits], shape: tuple[int, ...] = ()
) -> list[Measurement]:
    """Measure a batch of runs of one rule, one run per problem.

    Args:
        rule: the name of the rule.
        theory: the theorems about the rule.
        run: the iterates of the rule, with points of shape (r, b, d) for b problems.
        problems: the b problems.
        limits: the solutions for the limit on each problem.
        shape: the shape of the trained parameter, (d,) or (d, e).

    Raises:
        NoLimit: the solver found no solution of ATT-SVM in another norm.
    """
    apart = run.one_minus_cosine(np.stack([limit.direction(theory.norm) for limit in limits]))
    norms = run.norms
    recorded = np.unique(np.round(np.geomspace(1, max(len(apart) - 1, 1), DRAWN)).astype(np.int64))
    recorded = recorded[recorded < len(apart)]
    measurements = []
    for b, (problem, limit) in enumerate(zip(problems, limits, strict=True)):
        selected = problem.selection_at(run.final[b])
        measurements.append(
            Measurement(
                rule,
                theory,
                tuple(first_within(apart[:, b], run.iterations, level) for level in LEVELS),
                float(norms[-1, b]),
                float(apart[-1, b]),
                proven_bound(problem, limit.svm, run.points[:, b]) if theory.along_gradient else None,
                limit.shares(run.final[b]),
                fit_tail(run.iterations, apart[:, b], theory.against),
                (tuple(run.iterations[recorded].tolist()), tuple(apart[recorded, b].tolist())),
                tuple(selected.tolist()),
                bool(np.array_equal(selected, limit.svm.alpha)),
                bool(run.representable[b]),
                limit.from_nuclear(run.final[b]),
                gap_of(theory, problem, limit, run, b, shape),
                float(risk(problem.keys, problem.scores, problem.loss, run.final[b])),
                has_settled(problem, run.points[recorded, b], run.iterations[recorded]),
                limit.spectral_share(run.final[b], shape),
            )
        )
    return measurements


def has_settled(problem: Problem, points: Float64[np.ndarray, "r d"], iterations: Int64[np.ndarray, "r"]) -> bool:
    """Return whether a run selects the same tokens from a tenth of its length on, and ends with weights ≥ :data:`SURE`.

    This is an observation, not a proof: a run may keep tokens for long, and then change them.
    """
    tail = points[iterations * SETTLED_FOR >= iterations[-1]]
    selected = problem.selection_at(tail[-1])
    weights = np.asarray(softmax_weights(problem.keys, tail[-1]))
    if not (weights[np.arange(problem.n), selected] >= SURE).all():
        return False
    return all(np.array_equal(problem.selection_at(p), selected) for p in tail)


def gap_of(theory: Theory, problem: Problem, limit: Limits, run: Run, b: int, shape: tuple[int, ...]) -> Gap | None:
    """Return the gap between run ``b``'s margin and the largest margin, proven and measured; None if none is proven.

    Only steepest descent and Adam have proven bounds. ``shape`` is that of the trained parameter.
    """
    if not run.representable[b] or (theory.steepest is None and not theory.adam):
        return None
    norm: Norm = math.inf if theory.steepest is None else float(theory.steepest)
    if len(shape) == 2 and (theory.spectral or theory.blocks):
        of = shape[0], shape[1]
        norm = Schatten(math.inf, of) if theory.spectral else Blocks(math.inf, theory.blocks, of)
    proofs = (prove for paper in papers() for prove in paper.mapping_at(paper.gaps).values())
    gaps = (prove(problem, limit.svm, run.points[:, b], norm, theory) for prove in proofs)
    return next((gap for gap in gaps if gap is not None), None)


def first_within(apart: Float64[np.ndarray, "r"], iterations: Int64[np.ndarray, "r"], level: float) -> int | None:
    """Return the first iteration from which on ``apart``, the 1 − cos to the limit, stays at most ``level``.

    The result is None if there is no such iteration. A NaN in ``apart`` (at p = 0) counts as larger than ``level``.
    """
    above = np.flatnonzero(~(apart <= level))
    first = int(above[-1]) + 1 if len(above) else 0
    return int(iterations[first]) if first < len(apart) else None
