"""The theorem: scaling up a prompt does not raise the risk, if in each input tokens of larger logit score higher."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from theorems.api import (
    Assumption,
    AttentionAt,
    Case,
    Claim,
    Finding,
    Form,
    Implementation,
    Problem,
    at_least,
    calls,
    cases,
    exact,
    premise,
    stated_claim,
    statement,
)

DOWNHILL = stated_claim("downhill")
PAIR_COUNTS = premise("pair-counts")
RADII = 2.0 ** np.arange(-6, 8)
"""The factors R of the prompt p at which the claim is tried: powers of two, so that R p is not rounded."""


def exact_logits(case: Case) -> list[list[Fraction]]:
    """Return the logits k_it·p, (n, T), as exact rationals: floats are rationals, so nothing is rounded."""
    p = [Fraction(x) for x in np.ravel(case.start).tolist()]
    keys = case.problem.keys.tolist()
    return [[sum((Fraction(x) * y for x, y in zip(key, p, strict=True)), Fraction(0)) for key in row] for row in keys]


def ordered_logits(case: Case) -> Finding:
    """Check in rational arithmetic that no token has a larger logit, but a lower score, than another in its input."""
    if case.start is None:
        return Finding(False, "no prompt p is given")
    for i, (logits, scores) in enumerate(zip(exact_logits(case), case.problem.scores.tolist(), strict=True)):
        ranked = sorted(range(len(logits)), key=lambda t: (logits[t], scores[t]))
        for low, high in pairwise(ranked):
            if logits[low] < logits[high] and scores[low] > scores[high]:
                return Finding(False, f"in input {i} token {high} has the larger logit, token {low} the higher score")
    return Finding(True, "in every input scores grow with logits")


ORDERED = Assumption("ordered-logits", "tokens of larger logit k·p have no lower score", "own", ordered_logits)


def order_scores(case: Case) -> Case:
    """Permute the scores within each input so that tokens of larger logit have larger scores."""
    scores = case.problem.scores.copy()
    for row, logits in zip(scores, exact_logits(case), strict=True):
        row[sorted(range(len(logits)), key=logits.__getitem__)] = np.sort(row)
    return case.replace(problem=Problem(case.problem.keys, scores, case.problem.loss), dataset=None)


def ordered_cases() -> SearchStrategy[Case]:
    """Return a strategy for cases that satisfy the theorem's assumptions by construction, so that none is rejected."""

    def with_prompt(case: Case, p: list[int]) -> Case:
        start = np.resize(np.array(p, dtype=np.float64), case.problem.d) / case.problem.key_scale
        return order_scores(case.replace(start=start))

    numbers = st.lists(st.integers(-4, 4), min_size=5, max_size=5)
    return st.builds(with_prompt, cases(assumptions=("well-behaved-loss",)), numbers)


@statement(
    "ordered-logits-descend",
    "a prompt that ranks tokens as their scores do lowers the risk when it grows",
    source="own",
    assumptions=("well-behaved-loss", ORDERED),
    claims=(DOWNHILL, PAIR_COUNTS),
    cases=ordered_cases,
    kernel=calls("its gradient along the prompt", turn=50),
)
def ordered_logits_descend(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Let the loss be decreasing and k_it·p > k_iu·p only where γ_it ≥ γ_iu. Then L(Rp) does not increase with R.

    At every R, with the slope ℓ'_i of the loss at input i and the softmax weights s_it at Rp,

        −⟨∇L(Rp), p⟩ ≥ (1/n) Σ_i |ℓ'_i| s_ia s_ib (h_ia − h_ib)(γ_ia − γ_ib) ≥ 0,    h_it = k_it·p,

    where a and b are the tokens of highest and of lowest score of each input.

    Derivation. −⟨∇L(Rp), p⟩ = (1/n) Σ_i |ℓ'_i| Cov_{s_i}(h_i, γ_i), and by Chebyshev's identity

        Cov_s(h, γ) = Σ_{t<u} s_t s_u (h_t − h_u)(γ_t − γ_u),

    whose terms are all nonnegative where h and γ are ordered alike; the bound keeps the term of a and b. Both sides are
    divided by the factor e^{log_scale} of the gradient, so that neither underflows at a large norm of Rp.
    """
    problem = case.problem
    assert case.start is not None
    rows, p = np.arange(problem.n), exact(case.start)
    a, b = np.argmax(problem.scores, axis=1), np.argmin(problem.scores, axis=1)
    rise = exact(problem.scores[rows, a]) - problem.scores[rows, b]
    spread = np.vecdot(exact(problem.keys[rows, a]) - problem.keys[rows, b], p)
    yield at_least(PAIR_COUNTS, Form.EXACT, spread * rise, 0.0)

    at = AttentionAt(problem, RADII[:, None] * case.start, under_test.textbook_eps)
    logs = at.log_slopes + at.log_weight_of(a) + at.log_weight_of(b) - at.log_scale[:, None]
    right = np.mean(np.exp(logs) * (spread * rise), axis=-1)
    yield at_least(DOWNHILL, Form.EFFECTIVE, -at.gradient_of(under_test, DOWNHILL) @ p, right, points="radius")
