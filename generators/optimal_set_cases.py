"""Strategies for Appendix D: several optimal tokens per input, several equally good solutions, nonlinear heads.

References: *Max-Margin Token Selection in Attention Mechanism*, Assumption D, (ATT-SVM'), Lemma 14, Theorem 8.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from jaxtyping import Bool, Float64

from generators.case import Case
from generators.numbers import Large, integers, one_in
from generators.problems import cases
from generators.score_assumptions import optimal_sets
from reference_attention.heads import ACTIVATIONS, Head
from reference_attention.losses import DRAWN_LOSSES, LOSSES
from reference_attention.problem import Problem

GAPS = (1.0, 0.5, 2.0, 0.25)
"""The values drawn for distances of features from those of optimal tokens, and for sizes of the head's weights."""
RELU = [phi.name for phi in ACTIVATIONS].index("relu")


def optimal_set_cases(*, separable: bool = True, large: Large | None = None) -> SearchStrategy[Case]:
    """Return a strategy for cases on which Assumption D holds, with a linear or a nonlinear head.

    In some cases ATT-SVM' has several equally good solutions, by symmetry. Only heads are drawn under which the optimal
    tokens of an input have identical features, since Lemma 14 proves Assumption D for these.

    Args:
        separable: whether ATT-SVM' (separate an optimal token of each input from all non-optimal tokens) has to be
            feasible.
        large: the sizes of one case in five, with one or two optimal tokens per input.
    """
    assumptions = ("mixing-hurts", "separable-optimal-sets") if separable else ("mixing-hurts",)
    ordinary = cases(assumptions=assumptions, n=(1, 3), tokens=(2, 5), d=(1, 4))
    small = st.one_of(ordinary, ordinary, symmetric_cases())
    base = (
        small if large is None else one_in(5).flatmap(lambda wide: _wide_cases(large, assumptions) if wide else small)
    )
    return base.flatmap(lambda case: st.one_of(st.just(case), with_heads(case)))


@st.composite
def _wide_cases(draw: DrawFn, large: Large, assumptions: tuple[str, ...]) -> Case:
    """Draw a large case with two optimal tokens in at most two inputs, so that few choices of optimal tokens exist."""
    n, tokens, d = draw(large.shapes())
    case = draw(cases(assumptions=(*assumptions, "strict-optimum"), n=n, tokens=tokens, d=d))
    problem, doubled = case.problem, np.arange(min(draw(st.integers(0, 2)), n))
    scores = problem.scores.copy()
    opt = problem.optimal[doubled]
    scores[doubled, (opt + 1) % tokens] = scores[doubled, opt]
    return case.replace(problem=Problem(problem.keys, scores, problem.loss))


@st.composite
def symmetric_cases(draw: DrawFn) -> Case:
    """Draw inputs with two or more optimal tokens that a symmetry of the input's block of coordinates exchanges.

    In the r coordinates of the block, the keys of optimal tokens are c e_1, …, c e_r for a length c, and those of
    non-optimal tokens −g (1, …, 1) with g ≥ 0. Each input has r equally good choices and the blocks are orthogonal, so
    ATT-SVM' has r^n solutions. The paper's example is r = 2, g = 0, n = 1. Some inputs also have an optimal token c'
    e_1 with c' = c, or with c' < c, whose choice gives a smaller margin.
    """
    n = draw(st.integers(1, 2))
    r = draw(st.integers(2, 3)) if n == 1 else 2
    c = draw(st.sampled_from((1.0, 2.0, 0.5)))
    lower = draw(st.lists(st.sampled_from((0.0, 0.5, 1.0)), min_size=1, max_size=2))
    shorter = draw(st.lists(st.sampled_from((0.5, 1.0)), max_size=1))
    spare = draw(st.integers(0, 1))
    T, d = r + len(lower) + len(shorter), n * r + spare
    keys, scores = np.zeros((n, T, d)), np.zeros((n, T))
    flips = draw(st.lists(st.sampled_from((1.0, -1.0)), min_size=d, max_size=d))
    for i in range(n):
        block = slice(i * r, (i + 1) * r)
        keys[i, :r, block] = c * np.eye(r)
        for k, g in enumerate(lower):
            keys[i, r + k, block] = -g
            scores[i, r + k] = -draw(st.sampled_from(GAPS))
        for k, share in enumerate(shorter):
            keys[i, r + len(lower) + k, i * r] = c * share
        order = draw(st.permutations(range(T)))
        keys[i], scores[i] = keys[i, list(order)], scores[i, list(order)]
    loss = LOSSES[draw(st.sampled_from(sorted(DRAWN_LOSSES)))]
    return Case(Problem(keys * np.array(flips), scores, loss), seed=draw(st.integers(0, 2**16)), name="symmetric")


@st.composite
def with_heads(draw: DrawFn, case: Case) -> Case:
    """Draw a nonlinear head of one to three units for the case, to which Lemma 14 applies (:mod:`.optimal_sets`)."""
    optimal = optimal_sets(case)
    n, _ = optimal.shape
    m = draw(st.integers(1, 3))
    kinds = draw(st.lists(st.integers(0, len(ACTIVATIONS) - 1), min_size=m, max_size=m))
    # The first unit has a positive slope everywhere, so that every non-optimal token raises the risk.
    kinds[0] = kinds[0] % RELU
    signs = st.sampled_from((1.0, -1.0))
    weights = np.array([draw(signs) * draw(st.sampled_from(GAPS)) for _ in range(m)])
    labels = np.array([draw(signs) for _ in range(n)])
    best = draw(integers((n, m), -4, 4)).reshape(n, 1, m) / 2
    gaps = _gaps(draw, optimal, m)
    signs_of = -np.sign(labels[:, None] * weights)
    head = Head(best + signs_of[:, None] * gaps, weights, np.array(kinds), labels)
    return case_with_head(case, head)


def case_with_head(case: Case, head: Head) -> Case:
    """Return the case with the head in the case's arrays; the scores then only determine which tokens are optimal."""
    arrays = {
        **case.arrays,
        "head_features": head.features,
        "head_weights": head.weights,
        "head_activations": head.activations.astype(np.float64),
        "head_labels": head.labels,
    }
    return case.replace(dataset=None, arrays=MappingProxyType(arrays), name=f"{case.name} with a head")


def _gaps(draw: DrawFn, optimal: Bool[np.ndarray, "n T"], m: int) -> Float64[np.ndarray, "n T m"]:
    n, T = optimal.shape
    gaps = np.array((0.0, *GAPS))[draw(integers((n, T, m), 0, len(GAPS)))]
    gaps[:, :, 0] = np.maximum(gaps[:, :, 0], 0.25)
    if draw(one_in(4)):
        # If all non-optimal tokens of an input have equal gaps, Assumption B holds for this head.
        gaps[:] = gaps[:, :1]
    gaps[optimal] = 0.0
    return gaps
