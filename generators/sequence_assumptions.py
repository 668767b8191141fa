"""Predicates of assumptions on data with several queries per input, decided over the rationals.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix), (SAtt-SVM).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from generators.case import Case
from generators.finding import Finding, number
from generators.margin_assumptions import Vector, dot, exact_vector, is_farkas_proof
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.svm.sequence_max_margin import Place, SequenceInfeasible, sequence_max_margin

NO_SEQUENCE = "the case has one query per input; give queries of shape (n, L, e) and labels of shape (n, L)"

Chosen = tuple[Int64[np.ndarray, "_n"], ...]
"""For each part of the data (queries that see equally many tokens), the chosen token of each query.

A token is given as an index into the tokens that the query sees."""


def optimal_tokens_of(parts: Sequence[SequencePart]) -> Chosen:
    """Return the optimal token of each query, by the parts of the data."""
    return tuple(part.problem.optimal for part in parts)


def sequence_rows(data: SequenceDataset, parts: Sequence[SequencePart], alpha: Chosen) -> dict[Place, Vector]:
    """Return the exact rows vec((x_iα − x_it) z_ikᵀ), t ≠ α, by part, query within the part, and token.

    Here z_ik is query k of input i. The rows are computed from ``data``; only the pairs (i, k) and the visible tokens
    of each are taken from ``parts``.
    """
    rows: dict[Place, Vector] = {}
    for q, (part, chosen) in enumerate(zip(parts, alpha, strict=True)):
        for r, ((i, k), visible, a) in enumerate(zip(part.pairs.tolist(), part.tokens.tolist(), chosen, strict=True)):
            query, best = exact_vector(data.queries[i, k]), exact_vector(data.X[i, visible[int(a)]])
            for t, token in enumerate(visible):
                if t != int(a):
                    apart = [x - y for x, y in zip(best, exact_vector(data.X[i, token]), strict=True)]
                    rows[q, r, t] = [x * y for x in apart for y in query]
    return rows


def sequence_given(case: Case) -> Finding:
    """Check that each input has several queries, or queries that do not see every token."""
    data = case.sequence
    if data is None:
        return Finding(None, NO_SEQUENCE)
    counts = ", ".join(f"{part.problem.n} see {part.problem.T} tokens" for part in data.parts)
    return Finding(True, f"{data.total} queries, of which {counts}")


def sequence_strict_optimum(case: Case) -> Finding:
    """Check that for every query one of the tokens that it sees scores strictly highest."""
    data = case.sequence
    if data is None:
        return Finding(None, NO_SEQUENCE)
    least = np.inf
    for part in data.parts:
        ranked = np.sort(part.problem.scores, axis=1)
        gaps = ranked[:, -1] - ranked[:, -2]
        r = int(np.argmin(gaps))
        if gaps[r] <= 0:
            i, k = part.pairs[r].tolist()
            return Finding(False, f"two tokens that query {k} of input {i} sees score {number(ranked[r, -1])}")
        least = min(least, float(gaps[r]))
    return Finding(True, f"smallest gap to the optimal token is {number(least)}")


def sequence_separable(case: Case) -> Finding:
    """Check that ATT-SVM over all queries is feasible for the optimal tokens.

    Both the solver's W and its Farkas multipliers, which prove infeasibility, are checked exactly.
    """
    data = case.sequence
    if data is None:
        return Finding(None, NO_SEQUENCE)
    alpha = optimal_tokens_of(data.parts)
    rows = sequence_rows(data, data.parts, alpha)
    solution = sequence_max_margin([part.problem.exact_keys for part in data.parts], alpha)
    if isinstance(solution, SequenceInfeasible):
        if not is_farkas_proof(rows, solution.exact):
            return Finding(None, "the solver says infeasible, but its Farkas multipliers do not prove it")
        return Finding(False, f"{len(solution.exact)} of {len(rows)} rows combine to zero with positive multipliers")
    if min(dot(row, solution.exact_p) for row in rows.values()) < 1:
        return Finding(None, "the solver's W violates a constraint")
    return Finding(True, f"‖W^mm‖ = {number(solution.norm)}, {len(rows)} constraints")
