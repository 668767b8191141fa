"""First steps of a conclusion about p_mm: the implementation under test solves ATT-SVM; its solution is certified."""

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
    """Return p_mm(α), the solution of ATT-SVM(α) by the implementation under test.

    Args:
        problem: keys and scores.
        alpha: the chosen tokens, (n,).
        under_test: the implementation whose ``max_margin`` is called.
        claim: the name of the claim that is undecided, or falsified by a wrong proof, if the answer is "infeasible".
        form: the form of that claim.

    Raises:
        Refuted: the implementation answered "infeasible" with multipliers that do not prove it.
        Undecided: the implementation answered "infeasible" with a proof.
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
    """End a conclusion because the implementation under test called the SVM that it needs infeasible.

    Args:
        problem: keys and scores.
        alpha: the chosen tokens, (n,).
        infeasible: the implementation's answer.
        claim: the name of the claim that is reported.
        form: the form of that claim.
        svm: the name of the SVM for messages; the proof is the same in any norm.

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
