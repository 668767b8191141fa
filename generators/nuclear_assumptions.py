"""Predicates of assumptions on the W of least nuclear norm, decided in ball arithmetic or over the rationals.

ATT-SVM⋆(α) minimises the nuclear norm ‖W‖⋆ under the constraints of ATT-SVM(α).

References: *Transformers as Support Vector Machines*, (Att-SVM⋆), Theorems 2 and 6.
"""

from __future__ import annotations

from flint import fmpq_mat

from generators.case import Case
from generators.finding import Finding, fraction, number
from generators.query_assumptions import NO_QUERIES
from reference_attention.svm.max_margin import Infeasible
from reference_attention.svm.nuclear_max_margin import NuclearMaxMargin, nuclear_max_margin
from reference_attention.svm.nuclear_nonuniqueness import two_nuclear_solutions


def unique_nuclear_solution(case: Case) -> Finding:
    """Decide whether ATT-SVM⋆(α) has one solution, by a number τ > 0 that proves it, or two rational solutions.

    Here τ is the least singular value of the active constraints as a linear map on symmetric matrices
    (:mod:`reference_attention.svm.nuclear_enclosure`).
    """
    svm = _solution(case)
    if isinstance(svm, Finding):
        return svm
    if svm.exact is not None:
        return Finding(True, f"the only solution has rank {svm.rank}; τ ≥ {number(svm.injectivity)}")
    two = two_nuclear_solutions(svm)
    if two is None:
        return Finding(None, f"not decided: {svm.undecided}")
    first, other = (_format_matrix(W) for W in two)
    return Finding(False, f"both {first} and {other} are solutions", {"solutions": [str(W.tolist()) for W in two]})


def rank_gap(case: Case) -> Finding:
    """Check in ball arithmetic that the gap g = 1 − σ_{r+1}(M) is positive.

    Here r is the rank of the unique solution of ATT-SVM⋆(α), σ_{r+1} the singular value of that index, and M = Σ λ_j
    G_j the dual matrix, the sum of the constraints' matrices G_j weighted by duals λ_j.
    """
    svm = _solution(case)
    if isinstance(svm, Finding):
        return svm
    if svm.exact is None:
        return Finding(None, f"not decided: {svm.undecided}")
    return Finding(True, f"rank {svm.rank}, g ≥ {number(svm.gap)}")


def _solution(case: Case) -> NuclearMaxMargin | Finding:
    """Return the solution of ATT-SVM⋆(α), or the finding that there is none."""
    if case.queried is None:
        return Finding(None, NO_QUERIES)
    svm = nuclear_max_margin(case.queried.keys, case.chosen_tokens)
    return Finding(False, "ATT-SVM⋆ is infeasible: it has no solution") if isinstance(svm, Infeasible) else svm


def _format_matrix(W: fmpq_mat) -> str:
    """Format a matrix by rows, as in ((a, b), (c, d))."""
    return f"({', '.join('(' + ', '.join(fraction(x) for x in row) + ')' for row in W.tolist())})"
