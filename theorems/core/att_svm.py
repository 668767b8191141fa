"""How a statement about p_mm begins: ATT-SVM is solved by the implementation under test, and its solution certified."""

from __future__ import annotations

from collections.abc import Generator
from typing import NoReturn

import numpy as np
from jaxtyping import Int64

from generators.margin_assumptions import difference_rows, is_farkas_proof
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import Infeasible, MaxMargin
from theorems.core.claim import Claim, Ended, Form, Refuted, Undecided, Verdict
from theorems.core.implementation import Implementation
from theorems.core.svm_certificate import svm_claim


def solve_att_svm(
    problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation, claim: str, form: Form = Form.EXACT
) -> MaxMargin:
    """p_mm(α).

    Args:
        claim, form: what is undecided without it.

    Raises:
        Refuted: ATT-SVM(α) was called infeasible, and the multipliers are no proof.
        Undecided: it was called infeasible, with a proof.
    """
    found = under_test.max_margin(problem.exact_keys, alpha)
    if isinstance(found, Infeasible):
        end_as_infeasible(problem, alpha, found, claim, form)
    return found


def end_as_infeasible(
    problem: Problem,
    alpha: Int64[np.ndarray, "n"],
    found: Infeasible,
    claim: str,
    form: Form = Form.EXACT,
    svm: str = "ATT-SVM",
) -> NoReturn:
    """End a statement whose SVM, in whatever norm, was called infeasible.

    Raises:
        Refuted: the multipliers are no proof.
        Undecided: they are one.
    """
    said = f"{svm}({'opt' if np.array_equal(alpha, problem.optimal) else 'α'}) was called infeasible"
    if not is_farkas_proof(difference_rows(problem.exact_keys, alpha), found.exact):
        raise Refuted(claim, f"{said}, and the multipliers prove nothing", form)
    raise Undecided(claim, said, form)


def certify(
    problem: Problem, alpha: Int64[np.ndarray, "n"], under_test: Implementation
) -> Generator[Claim, None, MaxMargin]:
    """p_mm(α), once the claim that it is p_mm(α) has been made: ``svm = yield from certify(…)``.

    Raises:
        Refuted, Undecided: ATT-SVM(α) was called infeasible, without a proof or with one.
        Ended: the claim fails, so that nothing else would say what it seems to say.
    """
    found = solve_att_svm(problem, alpha, under_test, "svm-is-optimal")
    claim = svm_claim(problem, alpha, found)
    yield claim
    if claim.verdict is Verdict.FALSIFIED:
        raise Ended(claim.name)
    return found
