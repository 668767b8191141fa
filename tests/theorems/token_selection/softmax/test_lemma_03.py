"""Lemma 3: a difference of either sign between the two sides falsifies the identity."""

from __future__ import annotations

import numpy as np
import pytest

from generators.case import Case
from reference_attention.problem import Problem
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.run.registry.lookup import statement_named
from theorems.token_selection.softmax import lemma_03_softmax_covariance as lemma_03


@pytest.mark.parametrize("sign", [-1, 0, 1])
def test_a_difference_of_either_sign_falsifies_lemma_3(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    case = Case(Problem(rng.standard_normal((2, 3, 2)), rng.standard_normal((2, 3))), seed=0)
    monkeypatch.setattr(lemma_03, "_sign", lambda x: sign)
    verdicts = {claim.name: claim.verdict for claim in check(statement_named("lemma-3"), case, REFERENCE).claims}
    assert verdicts["covariance-identity"] is (Verdict.FALSIFIED if sign else Verdict.UPHELD)
    assert verdicts["covariance-inequality"] is (Verdict.FALSIFIED if sign < 0 else Verdict.UPHELD)
