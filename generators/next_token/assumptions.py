"""Predicates of assumptions on next-token data, decided exactly.

An alternative is a possible next token of a context, to which the trained W gives a logit.

References: arXiv 2402.18551, Definitions 1 and 2, Lemma 1, Theorems 1 and 2; arXiv 2403.08081, Section 2.
"""

from __future__ import annotations

import math

from flint import fmpq

from generators.finding import Assumption, Finding
from generators.next_tokens import NextTokens
from reference_attention.exact import rank_of, rational, rational_matrix, to_float
from reference_attention.next_token.compatibility import compatible
from reference_attention.next_token.extended_supports import extended_supports, separate_pairs
from reference_attention.svm.max_margin import Infeasible


def _separable(case: NextTokens) -> Finding:
    """Check (6a) and (6b) of arXiv 2402.18551 for some W.

    The observed next tokens of each context must have equal logits, and all others logits that are lower by at least 1.
    """
    norms = []
    for _, problem in case.parts:
        separated = [pair for pair in problem.pairs if not problem.supports[pair]]
        solution = separate_pairs(problem, separated) if separated else None
        if isinstance(solution, Infeasible):
            total = to_float(sum(solution.exact.values(), fmpq(0)))
            return Finding(False, f"{len(solution.exact)} constraints add up to 0 ≥ {total}")
        norms += [] if solution is None else [1 / solution.margin]
    return Finding(
        True, f"margin 1/‖W‖ = {1 / math.hypot(*norms):.3g}" if norms else "everything follows every context"
    )


def _compatible(case: NextTokens) -> Finding:
    """Check equation (4) of arXiv 2402.18551: some W attains the log-odds of the observed next tokens."""
    holds = all(compatible(problem) for _, problem in case.parts)
    return Finding(holds, "the log-odds of next tokens are " + ("attained by one θ" if holds else "attained by no θ"))


def _something_apart(case: NextTokens) -> Finding:
    """Check that training rules out some alternative (possible next token) of some context."""
    apart = sum(int((problem.alternatives & ~extended_supports(problem).sets).sum()) for _, problem in case.parts)
    total = sum(int(problem.alternatives.sum()) for _, problem in case.parts)
    return Finding(apart > 0, f"{apart} of {total} alternatives can be ruled out")


def _finite_part(case: NextTokens) -> Finding:
    """Check that the subspace F, in which W has a finite limit, is not 0.

    F is not 0 if, after some context, two tokens with different vectors keep probability in the limit of training.
    """
    apart = 0
    for _, problem in case.parts:
        sets = extended_supports(problem).sets
        apart += sum(any(x != 0 for x in row) for pair, row in problem.differences.items() if sets[pair])
    return Finding(apart > 0, f"{apart} rows span F")


def _independent_contexts(case: NextTokens) -> Finding:
    """Check that the embeddings h_1, …, h_m of contexts are linearly independent."""
    if case.counts is None:
        return Finding(False, "the data are sequences, not contexts with counts")
    rank = rank_of(rational_matrix(case.embeddings).tolist())
    m = len(case.embeddings)
    return Finding(rank == m, f"{m} contexts of rank {rank}")


def _sequences(case: NextTokens) -> Finding:
    """Check that the data are sequences with labels, for attention, and not contexts with counts."""
    holds = case.samples is not None
    return Finding(holds, "sequences are given" if holds else "the data are contexts with counts, not sequences")


def _labels_within(case: NextTokens) -> Finding:
    """Check that the label (token to predict) of every sequence occurs in the sequence."""
    return Finding(
        case.labels_within, f"labels {'do' if case.labels_within else 'do not all'} occur in their sequences"
    )


def _independent_tokens(case: NextTokens) -> Finding:
    """Check that the embeddings e_1, …, e_K of tokens are linearly independent."""
    if case.samples is None:
        return Finding(False, "the data are contexts with counts, whose tokens have no embeddings")
    rank = rank_of(rational_matrix(case.embeddings).tolist())
    return Finding(rank == len(case.embeddings), f"{len(case.embeddings)} embeddings of rank {rank}")


def _short_steps(case: NextTokens) -> Finding:
    """Check that the step size η is at most 1/β for a bound β of the loss's smoothness; a case without η passes."""
    if not case.step:
        return Finding(True, "no step size is given")
    total = fmpq(0)
    for j, pi in enumerate(case.problem.weights):
        ends = [[fmpq(0)] * case.problem.dimension]
        ends += [row for (i, _), row in case.problem.differences.items() if i == j]
        apart = (sum(((a - b) ** 2 for a, b in zip(p, q, strict=True)), fmpq(0)) for p in ends for q in ends)
        total += pi * max(apart) / 4
    holds = rational(case.step) * total <= 1
    return Finding(bool(holds), f"ηβ = {case.step * to_float(total):.6g}")


SEPARABLE = Assumption(
    "ntp-separable",
    "some W ties all tokens that followed a context and separates them from all others",
    "2402.18551, Definition 2",
    _separable,
)
COMPATIBLE = Assumption(
    "ntp-compatible", "some W attains the log-odds of the observed next tokens", "2402.18551, Definition 1", _compatible
)
SOMETHING_APART = Assumption(
    "something-to-rule-out",
    "some alternative can be ruled out after some context",
    "2402.18551, Section 2 (made sharper here)",
    _something_apart,
)
FINITE_PART = Assumption(
    "finite-part", "some context keeps two alternatives of different vectors, F ≠ 0", "added here", _finite_part
)
INDEPENDENT_CONTEXTS = Assumption(
    "independent-contexts",
    "embeddings of contexts are linearly independent",
    "2402.18551, Lemma 1",
    _independent_contexts,
)
SEQUENCES = Assumption("sequences-given", "the data are sequences with labels", "2403.08081", _sequences)
LABELS_WITHIN = Assumption("labels-within", "every label occurs in its sequence", "2403.08081", _labels_within)
INDEPENDENT_TOKENS = Assumption(
    "independent-embeddings",
    "embeddings of tokens are linearly independent",
    "2403.08081 (added here)",
    _independent_tokens,
)
SHORT_STEPS = Assumption("ntp-step-size", "the step size is at most 1/β", "2402.18551, Appendix E.1", _short_steps)
