"""Claims about what the joint statements start from: keys and scores of the tokens, p_mm and p_relax."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from generators.case import Case
from theorems.core.claim import Claim
from theorems.core.dataset_claims import DATASET_CLAIMS, dataset_claims
from theorems.core.implementation import Implementation
from theorems.core.statement import always
from theorems.core.svm_certificate import svm_claim
from theorems.token_selection.joint_paths.joint_sublevel import JointSetup

GIVEN_CLAIMS = (
    always("svm-is-optimal") | DATASET_CLAIMS | {"relaxed-svm-is-optimal": "some input is no support of v_mm"}
)
"""The claims of :func:`given_claims`, and when they are made."""


def given_claims(case: Case, setup: JointSetup, under_test: Implementation) -> Iterator[Claim]:
    """Keys and scores are those products; p_mm and, where some input is no support of v_mm, p_relax solve their SVM."""
    yield from dataset_claims(case, under_test)
    problem, alpha, support = setup.problem, case.chosen_tokens, setup.joint.svm.support
    yield svm_claim(problem, alpha, setup.separator)
    if not support.all():
        required = support.astype(np.int64)
        yield svm_claim(problem, alpha, setup.target, required=required, name="relaxed-svm-is-optimal")
