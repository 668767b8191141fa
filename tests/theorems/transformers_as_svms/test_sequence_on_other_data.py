"""The statement about several queries per input, on inputs with different numbers of tokens, and relations of cases."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from generators.user_data import as_text, case_of
from reference_attention.sequence_risk import sequence_parts
from tests.theorems.explanations.test_ragged_problem import ragged, scored
from tests.theorems.test_relations import check_risk_at_the_changed_prompt
from theorems import verify
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE


def test_the_statement_on_sequences_is_not_falsified_on_inputs_of_several_lengths() -> None:
    rng = np.random.default_rng(1)
    X, z = rng.integers(-4, 5, (3, 4, 2)) / 2.0, rng.integers(-3, 4, (3, 2)) / 1.0
    mask = [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    data = {"X": X, "Y": [1, -1, 1], "v": [1, 0.25], "mask": mask, "queries": z}
    assert verify("tsvm-sequence", data=data)["tsvm-sequence"].verdict is not Verdict.FALSIFIED


def test_on_inputs_of_several_lengths_only_wrong_scores_falsify_the_statement_on_sequences() -> None:
    data = scored(ragged(3))
    assert verify("tsvm-sequence", data=data)["tsvm-sequence"].verdict is Verdict.UPHELD

    def other_scores(given: Any) -> Any:
        parts = sequence_parts(given)
        for part in parts:
            object.__setattr__(part.problem, "scores", part.problem.scores * (1 + 2.0**-50))
        return parts

    wrong = REFERENCE.replace("wrong", {sequence_parts: other_scores})
    assert verify("tsvm-sequence", data=data, attention=wrong)["tsvm-sequence"].verdict is Verdict.FALSIFIED
    again = case_of(json.loads(as_text(case_of(data))))
    assert np.array_equal(again.sequence.mask, case_of(data).sequence.mask)  # type: ignore[union-attr]


def test_a_relation_changes_w_and_data_with_queries_so_that_the_risk_is_the_same() -> None:
    check_risk_at_the_changed_prompt("tsvm-frobenius-path")
