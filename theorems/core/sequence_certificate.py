"""Exact checks of data with several queries per input: the problems contain all data, masks work, W^mm solves ATT-SVM.

A *part* is one of the problems into which a sequence dataset is cut: the queries that see equally many tokens, each as
one input with these tokens. The checks are decided over the rationals from tokens, queries and mask, by code
independent of :mod:`reference_attention.svm`.

References: *Transformers as Support Vector Machines*, sequence outputs (appendix), (SAtt-SVM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from flint import fmpq, fmpq_mat
from jaxtyping import Float64

from generators.margin_assumptions import Vector, dot, exact_vector, is_farkas_proof
from generators.sequence_assumptions import Chosen, sequence_rows
from reference_attention.exact import rational, to_float, to_floats
from reference_attention.floats import EPS
from reference_attention.outer_keys import rational_keys
from reference_attention.risk import log_excess_risk
from reference_attention.sequence_dataset import SequenceDataset, SequencePart
from reference_attention.sequence_risk import sequence_parts
from reference_attention.svm.sequence_max_margin import (
    Place,
    SequenceInfeasible,
    SequenceMaxMargin,
    sequence_max_margin,
)
from theorems.core.claim import Claim, Form
from theorems.core.claim_name import premise
from theorems.core.implementation import Implementation
from theorems.core.svm_certificate import SVM_IS_OPTIMAL
from theorems.core.tolerances import EXACT

PARTS = premise("parts-are-the-data")
DECIDED = premise("any-tokens-are-decided")
UNSEEN = premise("unseen-tokens-do-not-matter", when="where a query does not see every token")

MASKED_QUERIES = 3
"""Number of queries for which masked tokens are changed, to check that nothing depends on them."""


def exact_claim(name: str, wrong: str) -> Claim:
    """Return an exact claim, falsified with the message ``wrong`` unless it is empty."""
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def parts_claim(data: SequenceDataset, reported: Sequence[SequencePart]) -> Claim:
    """Return the claim that each query that sees several tokens is an input of exactly one part, with these tokens.

    The exact keys of this input must be the products x_it z_ikᵀ; its keys in floats must be these products, and its
    scores Y_ik vᵀx_it, each within half a unit in the last place.
    """
    for parts in (reported, data.parts):
        if wrong := _wrong_parts(data, parts):
            return exact_claim(PARTS, wrong)
    return exact_claim(PARTS, "")


def _wrong_parts(data: SequenceDataset, parts: Sequence[SequencePart]) -> str:
    several = {(int(i), int(k)) for i, k in np.argwhere(data.mask.sum(axis=2) > 1)}
    pairs = [(int(i), int(k)) for part in parts for i, k in part.pairs]
    if len(pairs) != len(set(pairs)) or set(pairs) != several:
        return f"the parts have {len(pairs)} queries as inputs, but {len(several)} queries see several tokens"
    head = exact_vector(data.v)
    for part in parts:
        if part.total != data.Y.size or part.problem.n != len(part.pairs):
            return f"a part of {len(part.pairs)} queries has the share {part.problem.n}/{part.total}"
        exact = rational_keys(part.problem.exact_keys).tolist()
        for r, (i, k) in enumerate(part.pairs.tolist()):
            place = f"query {k} of input {i}"
            tokens = np.flatnonzero(data.mask[i, k])
            if len(tokens) != part.problem.T or part.tokens[r].tolist() != tokens.tolist():
                return f"{place} sees the tokens {tokens.tolist()}, but its part ({part.problem.T} tokens) has others"
            query = exact_vector(data.queries[i, k])
            visible = [exact_vector(data.X[i, t]) for t in tokens]
            keys = [[a * b for a in token for b in query] for token in visible]
            if exact[r * len(visible) : (r + 1) * len(visible)] != keys:
                return f"the keys of {place} are not x zᵀ"
            values = [dot(token, head) for token in visible]
            if data.values is not None:
                values = [rational(float(data.values[i, t])) for t in tokens]
            scores = [rational(float(data.Y[i, k])) * value for value in values]
            if _exceeds_half_ulp(part.problem.scores[r], scores) or _exceeds_half_ulp(
                part.problem.keys[r], [x for key in keys for x in key]
            ):
                return f"keys or scores of {place} are not the exact products rounded"
    return ""


def _exceeds_half_ulp(values: Float64[np.ndarray, "..."], products: list[fmpq]) -> bool:
    """Return whether a value is further than half a unit in the last place from its exact product."""
    nearest = to_floats(products)
    return any(
        abs(rational(a) - x) > rational(float(np.spacing(abs(a)))) / 2
        for a, b, x in zip(values.ravel().tolist(), nearest.tolist(), products, strict=True)
        if a != b
    )


def unseen_claim(
    data: SequenceDataset, under_test: Implementation, points: Float64[np.ndarray, "b d"], rng: np.random.Generator
) -> Claim | None:
    """Return the claim that tokens that a query does not see change no bit of its risk; None if none is masked."""
    blind = np.argwhere((data.mask.sum(axis=2) > 1) & ~data.mask.all(axis=2))
    if not len(blind):
        return None
    for i, k in rng.permutation(blind)[:MASKED_QUERIES].tolist():
        X = np.array(data.X)
        hidden = ~data.mask[i, k]
        X[i, hidden] = 4 * X[i, hidden] + rng.integers(1, 5, size=(int(hidden.sum()), X.shape[2]))
        before, after = (_risk_of(dataset, (i, k), under_test, points) for dataset in (data, replace(data, X=X)))
        if before is None or after is None or not np.array_equal(before, after):
            return exact_claim(UNSEEN, f"the risk of query {k} of input {i} depends on tokens it does not see")
    return exact_claim(UNSEEN, "")


def _risk_of(
    data: SequenceDataset, pair: tuple[int, int], under_test: Implementation, points: Float64[np.ndarray, "b d"]
) -> Float64[np.ndarray, "s b"] | None:
    """Return sign and logarithm of a query's excess risk, (2, b), from the parts; None if no part has the query."""
    for part in under_test[sequence_parts](data):
        for r in np.flatnonzero((part.pairs == pair).all(axis=1)).tolist():
            keys, scores, loss = part.problem.keys[r : r + 1], part.problem.scores[r : r + 1], part.problem.loss
            lost = under_test[log_excess_risk](keys, scores, loss, points, part.problem.optimal[r : r + 1])
            return np.stack([np.asarray(x, dtype=np.float64) for x in lost])
    return None


def solution_claim(
    data: SequenceDataset, parts: Sequence[SequencePart], alpha: Chosen, svm: SequenceMaxMargin
) -> Claim:
    """Return the claim that W^mm solves ATT-SVM over all queries, with exactly the neighbours and duals of ``svm``.

    The KKT conditions are checked over the rationals.
    """
    return exact_claim(SVM_IS_OPTIMAL, _wrong_solution(sequence_rows(data, parts, alpha), alpha, svm))


def _wrong_solution(rows: dict[Place, Vector], alpha: Chosen, svm: SequenceMaxMargin) -> str:
    shapes = [array.shape for array in svm.neighbours]
    if any((a != b).any() for a, b in zip(alpha, svm.alpha, strict=True)) or len(shapes) != len(alpha):
        return "the solution is for other tokens α than were asked for"
    if len(svm.exact_p) != len(next(iter(rows.values()))):
        return "W^mm has another shape"
    for place, row in rows.items():
        q, r, t = place
        margin = dot(row, svm.exact_p)
        if margin < 1:
            return f"the margin of {place} is {to_float(margin):.17g} < 1"
        if (margin == 1) != bool(svm.neighbours[q][r, t]):
            return f"{place} has margin 1 + {to_float(margin - 1):.3g}"
        size = sum(abs(to_float(a) * to_float(b)) for a, b in zip(row, svm.exact_p, strict=True))
        # A row in floats differs from the exact row by one rounding; the sum of d products adds d more.
        if not abs(float(svm.margins[q][r, t]) - to_float(margin)) <= (len(row) + 4) * EPS * size:
            return f"the margin of {place} is {to_float(margin):.17g}, but reported as {svm.margins[q][r, t]:.17g}"
    nonzero = {place: weight for place, weight in svm.exact_duals.items() if weight != 0}
    if not set(nonzero) <= set(rows) or any(w < 0 or not svm.neighbours[q][r, t] for (q, r, t), w in nonzero.items()):
        return "a dual is negative, or is positive although its token is no neighbour"
    combined = [sum((w * rows[at][j] for at, w in nonzero.items()), fmpq(0)) for j in range(len(svm.exact_p))]
    if combined != list(svm.exact_p):
        return "W^mm is not the sum of the rows times their duals"
    ours = [np.zeros(shape) for shape in shapes]
    for (q, r, t), weight in nonzero.items():
        ours[q][r, t] = to_float(weight)
    same = all(np.allclose(a, b, rtol=4 * EPS, atol=0.0) for a, b in zip(svm.duals, ours, strict=True))
    if not (same and np.allclose(svm.p, to_floats(svm.exact_p), rtol=2 * EPS, atol=0.0)):
        return "the float W^mm or duals are not the rounded exact ones"
    return ""


def choices_claim(data: SequenceDataset, under_test: Implementation, rng: np.random.Generator) -> Claim:
    """Return the claim that ATT-SVM for random tokens is solved, or proven infeasible, which needs dependent rows.

    The rank of the rows is computed exactly, since it does not follow from the numbers of rows and dimensions. It is
    the same for every choice of tokens.
    """
    keys = [part.problem.exact_keys for part in data.parts]
    alpha = tuple(rng.integers(part.problem.T, size=part.problem.n).astype(np.int64) for part in data.parts)
    solution, rows = under_test[sequence_max_margin](keys, alpha), sequence_rows(data, data.parts, alpha)
    if isinstance(solution, SequenceMaxMargin):
        return exact_claim(DECIDED, _wrong_solution(rows, alpha, solution))
    assert isinstance(solution, SequenceInfeasible)
    if not is_farkas_proof(rows, solution.exact):
        return exact_claim(DECIDED, "ATT-SVM is called infeasible, but the multipliers do not prove it")
    rank = int(fmpq_mat(list(rows.values())).rank())
    # A Farkas proof is a linear dependence of the rows, so this last check cannot fail; it repeats what the paper
    # states.
    return exact_claim(DECIDED, f"called infeasible, but all {rank} rows are independent" if rank == len(rows) else "")
