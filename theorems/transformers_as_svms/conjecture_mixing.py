"""A conjecture, not a theorem: with a ReLU head, W grows along the Gen-SVM solution of the tokens that keep weight.

References: *Transformers as Support Vector Machines*, Section 6, figure of several tokens per input (empirical there).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from flint import fmpq
from hypothesis.strategies import SearchStrategy
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.optimal_sets import head_of
from generators.relu_heads import SELECTED, STEP, STEPS, WIDTH, capped_head_cases
from reference_attention.exact import to_floats
from reference_attention.optimal_attention import OptimalAttention
from reference_attention.risk import scaled_gradient
from reference_attention.svm.general_svm import GeneralSvm, general_svm
from reference_attention.training.relu_descent import ReluRun
from theorems.bounded import Bounded
from theorems.core.claim import Claim, Ended, Form, Verdict, at_least, undecided_claim
from theorems.core.claim_name import premise, sharper
from theorems.core.dataset_claims import query_claims
from theorems.core.implementation import Implementation
from theorems.core.kernel_use import FAR
from theorems.core.statement import statement
from theorems.core.tolerances import tolerance
from theorems.rounding.attention_at import AttentionAt
from theorems.rounding.descent_steps import steps_claim
from theorems.transformers_as_svms.mixing_premises import general_svm_claim

MIXING_DRIFT = tolerance(
    "mixing-drift",
    "a tenth of the growth along W^mm, plus two steps; the growth must be at least ½ log 4 ‖W^mm‖",
    "argued rate of a conjecture: the bounded part of W moves by O(1/‖W‖) while W grows; steps across a kink oscillate"
    " by one step; their component along W^mm is c e^{−r} of a step, so that r = log(e^{r_0} + ck) grows by log 4 while"
    " k grows fourfold, once ck is large, and faster where no step oscillates",
)

KEYS = premise("keys-are-outer-products")
SCORES = premise("scores-are-products")
STEPS_CLAIM = premise("steps-are-of-the-head")
SETTLED = "weights have settled: the same tokens have weights above 1e-3 at a quarter and at the end of the run"
SVM = premise("general-svm-is-optimal", when=SETTLED)
GROWS = sharper("grows-along-general-svm")

MUCH = 0.02
"""The least weight that each selected token must have at the end of the run; a smaller one may still decrease to 0."""
LEAST_GROWTH = float(np.log(2.0))
"""The least growth along W^mm for which the claim is judged, ½ log 4, in units of ‖W^mm‖."""
TRIED = 5
"""The number of steps, besides the first, that are compared with the gradient."""


def _cases() -> SearchStrategy[Case]:
    return capped_head_cases()


@statement(
    "conjecture-mixing",
    "conjecture: with a ReLU head descent grows along Gen-SVM",
    source="T-SVM, Section 6 (empirical there)",
    claims=(KEYS, SCORES, STEPS_CLAIM, SVM, GROWS),
    assumptions=("queries-given", "relu-head", "masked-tokens-cost"),
    cases=_cases,
    kernel=FAR,
    needs={"relu-head": "the conjecture is about ReLU heads"},
)
def conjecture_mixing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let h be a head of ReLU units, and train W by normalized gradient descent.

    *A conjecture: no proof is known.* Let O_i be the tokens whose weights stay away from 0 along the run, and W^mm the
    solution of Gen-SVM for these sets. If weight on any other token increases the loss at first order, then
    W(k) = r_k W^mm + O(1) with r_k → ∞.

    O_i are the tokens with weights above 1e-3 at the end of the run, as in the authors' code. Evidence: from a quarter
    of the run to its end W grows along W^mm, and moves orthogonally to W^mm by at most a tenth of this growth plus two
    steps. Steps oscillate about the kinks of h that fix the ratios of the weights in O_i; therefore means over a
    hundred iterates are compared. A run is undecided if a weight is still decreasing to 0. It is also undecided if
    early steps went so far that growth like log k is not visible yet: W grows by less than half of log 4 ‖W^mm‖ from a
    quarter of the run on, and by less than half of log 2 ‖W^mm‖ from an eighth to a quarter. If r_k = log(e^{r_0} + ck)
    passes the second threshold, it passes the first.

    By masked-tokens-cost, weight on a masked token increases the loss at first order at the end of the run. A token
    that does not increase it, such as one that ties or one of an input without active ReLU units, is no constraint.
    """
    yield from query_claims(case, under_test)
    run = ReluRun.of(case.problem, head_of(case), STEP / case.problem.key_scale, STEPS, under_test[scaled_gradient])
    yield _follows_claim(run, case.rng())
    yield from growth_claims(case, run, under_test)


def growth_claims(case: Case, run: ReluRun, under_test: Implementation) -> Iterator[Claim]:
    """Yield the claim that over the last 3/4 of the run W grows along W^mm of the tokens with weight at the end."""
    early, late = run.weights(STEPS // 4), run.weights(STEPS)
    sets = late > SELECTED
    if sets.all() or not np.array_equal(sets, early > SELECTED) or late[sets].min() < MUCH:
        why = "every token has weight" if sets.all() else "some weight is still decreasing to 0"
        yield undecided_claim(GROWS, f"after {STEPS} steps {why}", Form.LIMIT, not_found=True)
        return
    assert case.queried is not None
    svm = under_test[general_svm](case.queried.keys, sets, np.argmax(late, axis=1).astype(np.int64))
    if not isinstance(svm, GeneralSvm):
        yield undecided_claim(GROWS, "Gen-SVM was reported as infeasible", Form.LIMIT)
        return
    certificate = general_svm_claim(SVM, case.queried, _uniform(sets), svm)
    yield certificate
    if certificate.verdict is Verdict.FALSIFIED:
        raise Ended(certificate.name)
    W = to_floats(svm.point)
    unit = W / np.linalg.norm(W)
    moved = run.mean(STEPS, WIDTH) - run.mean(STEPS // 4, WIDTH)
    along, least = float(moved @ unit), LEAST_GROWTH * float(np.linalg.norm(W))
    if along < least and not _grew_before(run, sets, unit, least):
        why = f"W moves by only {along:.3g} along W^mm, too little to show growth like log k in {STEPS} steps"
        yield undecided_claim(GROWS, why, Form.LIMIT, not_found=True)
        return
    across = float(np.linalg.norm(moved - along * unit))
    sides = np.array([along / 10 + 2 * run.step, along]), np.array([across, least])
    sizes = [int(size) for size in sorted(set(sets.sum(axis=1).tolist()))]
    claim = at_least(GROWS, Form.LIMIT, *sides, rounding=0.0, why=MIXING_DRIFT, points="side")
    yield replace(claim, branch=f"sets of {', '.join(map(str, sizes))}")


def _grew_before(run: ReluRun, sets: Bool[np.ndarray, "n T"], unit: Float64[np.ndarray, "d"], least: float) -> bool:
    """Return whether W grew by half of ``least`` from an eighth to a quarter of the run, with the same tokens O_i."""
    before = run.mean(STEPS // 4, WIDTH) - run.mean(STEPS // 8, WIDTH)
    return bool(np.array_equal(run.weights(STEPS // 8) > SELECTED, sets) and before @ unit >= least / 2)


def _uniform(sets: np.ndarray) -> OptimalAttention:
    """Return uniform attention on the tokens in ``sets``; the claim about Gen-SVM uses only its support."""
    weights = tuple(tuple(fmpq(int(inside), int(row.sum())) for inside in row) for row in sets)
    return OptimalAttention(weights, weights, tuple(fmpq(0) for _ in weights))


def _follows_claim(run: ReluRun, rng: np.random.Generator) -> Claim:
    """Claim that the first and some later steps follow the gradient, computed from h's linear part at each step."""
    claims = []
    for k in (0, *np.sort(rng.integers(1, STEPS, size=TRIED)).tolist()):
        at = AttentionAt(run.at(k), run.points[k : k + 1])
        gradient = at.gradient
        if isinstance(gradient, Bounded):
            gradient = gradient.widen(gradient.error)
        step = float(np.log(run.step))
        pair = run.points[k : k + 1], run.points[k + 1 : k + 2]
        claims.append(steps_claim(STEPS_CLAIM, *pair, gradient, at.log_scale, step, normalized=True))
    return min(claims, key=lambda claim: claim.slack + claim.tolerance)
