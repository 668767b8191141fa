"""Claims that W^mm solves Gen-SVM and that W_fin is the W of least norm with the log-ratios of s⋆.

The rows E and G and the log-ratios b are as in :mod:`.mixing`.

References: *Transformers as Support Vector Machines*, Section 6, (Gen-SVM).
"""

from __future__ import annotations

import numpy as np
from flint import arb, ctx, fmpq, fmpq_mat

from generators.margin_assumptions import Vector, dot
from reference_attention.exact import combination
from reference_attention.optimal_attention import OptimalAttention
from reference_attention.query_dataset import QueryDataset
from reference_attention.svm.general_svm import GeneralSvm
from theorems.core.claim import Claim, Form
from theorems.core.tolerances import EXACT, tolerance
from theorems.transformers_as_svms.mixing_numbers import Mixing, balls, inner

WITHIN = 2.0**-100
BALLS_OF_LOGARITHMS = tolerance(
    "balls-of-logarithms",
    "2⁻¹⁰⁰",
    "W_fin is a rational combination of logarithms, returned as balls of 256 bits; wider balls are refused",
)


def general_svm_claim(name: str, data: QueryDataset, attention: OptimalAttention, svm: GeneralSvm) -> Claim:
    """Claim the KKT conditions of Gen-SVM for W^mm, over the rationals.

    The conditions are E W = 0, G W ≥ 1 and W = Gᵀλ + Eᵀμ with λ ≥ 0, and λ_j = 0 where the margin exceeds 1.
    """
    wrong = _wrong_svm(Mixing(data, attention.levels[0], attention, svm, []))
    return Claim(name, Form.EXACT, -1.0 if wrong else 0.0, 0.0, EXACT, wrong)


def _wrong_svm(mixing: Mixing) -> str:
    svm = mixing.svm
    if any(mixing.attention.weights[i][a] == 0 for i, a in enumerate(svm.alpha.tolist())):
        return "α_i has no weight in s⋆_i"
    if not np.array_equal(svm.sets, mixing.attention.sets):
        return "O_i are not the tokens with weight in s⋆_i"
    if len(svm.point) != mixing.data.problem.d:
        return f"W^mm has {len(svm.point)} entries instead of {mixing.data.problem.d}"
    for pair, row in mixing.level_rows.items():
        if dot(row, svm.point) != 0:
            return f"the logit of token {pair[1]} of input {pair[0]}, which is in O_i, differs from that of α_i"
    margins = {pair: dot(row, svm.point) for pair, row in mixing.masked_rows.items()}
    if (least := min(margins.values())) < 1:
        return f"a masked token has the margin {float(least.p) / float(least.q):.6g} < 1"
    if not set(svm.duals) <= set(mixing.masked_rows) or not set(svm.multipliers) <= set(mixing.level_rows):
        return "a multiplier belongs to no constraint"
    if any(dual < 0 or dual * (margins[pair] - 1) != 0 for pair, dual in svm.duals.items()):
        return "a dual is negative, or is not zero although the margin exceeds 1"
    rows = [mixing.masked_rows[pair] for pair in svm.duals] + [mixing.level_rows[pair] for pair in svm.multipliers]
    if combination(rows, [*svm.duals.values(), *svm.multipliers.values()], len(svm.point)) != svm.point:
        return "W^mm is not the sum of the rows weighted by the multipliers"
    return ""


def finite_part_claim(name: str, mixing: Mixing) -> Claim:
    """Claim that E W_fin = b and W_fin ⊥ ker E, so that W_fin is the W of least norm with the log-ratios b."""
    with ctx.workprec(512):
        level, finite = mixing.level_rows, mixing.finite
        errors = [abs(inner(balls(row), finite) - mixing.log_ratio(pair)) for pair, row in level.items()]
        errors += [abs(inner(balls(row), finite)) for row in kernel(list(level.values()), len(finite))]
        worst = float(max((product.abs_upper() for product in errors), default=arb(0)).mid())
    return Claim(name, Form.EXACT, -worst, WITHIN, BALLS_OF_LOGARITHMS, f"off by at most {worst:.3g}")


def kernel(rows: list[Vector], d: int) -> list[Vector]:
    """Return an exact basis of {p : row·p = 0 for each row}, in d dimensions."""
    if not rows:
        return [[fmpq(int(a == b)) for a in range(d)] for b in range(d)]
    reduced, rank = fmpq_mat(rows).rref()
    pivots = [next(j for j in range(d) if reduced[r, j] != 0) for r in range(int(rank))]
    basis = []
    for free in (j for j in range(d) if j not in pivots):
        vector = [fmpq(0)] * d
        vector[free] += 1
        for r, pivot in enumerate(pivots):
            vector[pivot] = -reduced[r, free]
        basis.append(vector)
    return basis
