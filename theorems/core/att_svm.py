"""First steps of a conclusion about p_mm: the implementation under test solves ATT-SVM; the solution is certified."""

from __future__ import annotations

from collections.abc import Generator
from typing import NoReturn

import numpy as np
from jaxtyping import Int64

from generators.margin_assumptions import difference_rows, is_farkas_proof
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, MaxMargin, max_margin
from theorems.core.claim import Claim, Ended, Form, Refuted, Undecided, Verdict
from theorems.core.implementation import Implementation
from theorems.core.svm_certificate import svm_claim


def solve_att_svm(
    problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation, claim: str, form: Form = Form.EXACT
) -> MaxMargin:
    """Solve ATT-SVM(α) with the implementation under test and return its solution p_mm(α).

    Args:
        problem: keys and scores.
        alpha: the chosen tokens, (n,).
        under_test: the implementation whose solver is called.
        claim: the name of the claim that is reported as undecided if there is no p_mm.
        form: the form of that claim.

    Raises:
        Refuted: the solver returned "infeasible" with multipliers that do not prove it.
        Undecided: the solver returned "infeasible" with a proof.
    """
    solution = under_test[max_margin](problem.exact_keys, alpha)
    if isinstance(solution, Infeasible):
        end_as_infeasible(problem, alpha, solution, claim, form)
    return solution


def end_as_infeasible(
    problem: Problem,
    alpha: Int64[np.ndarray, "n"],
    infeasible: Infeasible,
    claim: str,
    form: Form = Form.EXACT,
    svm: str = "ATT-SVM",
) -> NoReturn:
    """End a statement because the implementation under test called the statement's SVM (in any norm) infeasible.

    Raises:
        Refuted: the multipliers do not prove that the SVM is infeasible.
        Undecided: the multipliers prove that the SVM is infeasible.
    """
    refusal = f"{svm}({'opt' if np.array_equal(alpha, problem.optimal) else 'α'}) was called infeasible"
    if not is_farkas_proof(difference_rows(problem.exact_keys, alpha), infeasible.exact):
        raise Refuted(claim, f"{refusal}, but the multipliers do not prove it", form)
    raise Undecided(claim, refusal, form)


def certify(
    problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation
) -> Generator[Claim, None, MaxMargin]:
    """Yield the claim that the implementation's p_mm(α) solves ATT-SVM(α), and return p_mm(α).

    A conclusion calls this function as ``svm = yield from certify(…)``.

    Raises:
        Refuted: the implementation called ATT-SVM(α) infeasible, without a proof.
        Undecided: the implementation called ATT-SVM(α) infeasible, with a proof.
        Ended: the claim fails, so that later claims about p_mm would be meaningless.
    """
    solution = solve_att_svm(problem, alpha, under_test, "svm-is-optimal")
    claim = svm_claim(problem, alpha, solution)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return solution
