"""Every output on a falsified theorem says whether the paper's conclusion failed, or only a sharper claim of ours."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from generators.case import Case
from generators.user_data import Given
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient, scaled_gradient
from reference_attention.svm.max_margin import max_margin
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.library.results import Results
from theorems.run.result import Result
from theorems.run.verify import verify_data, verify_generated
from theorems.token_selection.global_paths.flow_offset import FlowOffset

SINGLE = Given(Case(Problem([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]], [[1.0, 0.0, 0.0]])))
SEVERAL = Given(Case(Problem([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [-1.0, 0.0]]], [[1.0, 0.0], [1.0, 0.0]])))


def _without_a_sharp_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make wrong only the claim on the closed form of the flow's offset, which is sharper than the paper's."""
    monkeypatch.setattr(FlowOffset, "contraction_bounds", lambda self, points: np.full(len(points), -1.0))


def _without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make wrong the bound on the angle between flow and p_mm, by which the paper's limit is claimed."""
    monkeypatch.setattr(FlowOffset, "from_start", lambda self, start, rho: -1.0)


def test_an_upheld_result_reports_no_verdicts_on_parts_of_the_statement() -> None:
    result = verify_data("theorem-2", SINGLE)
    assert result.verdict is Verdict.UPHELD
    assert result.verdict_in_words == "upheld"
    assert "conclusion" not in result.as_json()


def test_a_failure_of_only_a_sharper_claim_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_a_sharp_form(monkeypatch)
    result = verify_data("theorem-2", SINGLE)
    assert result.verdict is Verdict.FALSIFIED
    forms = {"exact": "upheld", "effective": "upheld", "limit": "upheld", "sharp": "falsified"}
    parts = {"stated": "upheld", "premises": "upheld", "sharper": "falsified"}
    assert result.as_json()["conclusion"] == parts | {"forms": forms}
    message = "flow-offset-closed-form (a sharper form of ours; the paper's conclusion is upheld on this case): slack"
    assert result.failure is not None
    for text in (result.reason, result.failure.sentence, str(_results(result))):
        assert message in text
    row = next(line for line in str(_results(result)).splitlines() if line.strip().startswith("theorem-2 "))
    assert "falsified (a" in row
    assert result.verdict_in_words == "falsified (a sharper form only)"


def test_a_failure_of_the_paper_s_conclusion_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_a_limit(monkeypatch)
    result = verify_data("theorem-2", SINGLE)
    assert result.verdict_in_words == "falsified"
    assert result.as_json()["conclusion"]["stated"] == "falsified"
    assert "flow-correlation (the paper's own conclusion): slack" in result.reason


def test_for_several_inputs_a_wrong_direction_does_not_falsify_theorem_2_s_own_conclusion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For several inputs, a failed claim on the direction leaves the paper's conclusion upheld: Theorem 2 needs one
    input.
    """
    from theorems.token_selection.global_paths import theorem_2_global_convergence as theorem

    usual = theorem.climb_bound
    monkeypatch.setattr(theorem, "climb_bound", lambda *arguments: usual(*arguments) + 1e3)
    result = verify_data("theorem-2", SEVERAL)
    assert result.as_json()["conclusion"]["stated"] == "upheld"
    assert "climbs-like-log-t (a sharper form of ours; the paper's conclusion is upheld" in result.reason


def _uphill(*arguments: Any) -> ScaledGradient:
    gradient = scaled_gradient(*arguments)
    return ScaledGradient(gradient.log_scale, -np.asarray(gradient.direction))


def _half_a_token_off(*arguments: Any, **options: Any) -> Any:
    solution = max_margin(*arguments, **options)
    return replace(solution, p=np.asarray(solution.p) * 1.5)  # type: ignore[type-var]


def test_a_wrong_gradient_falsifies_the_conclusion_of_lemma_4_itself() -> None:
    uphill = REFERENCE.replace("uphill", {scaled_gradient: _uphill})
    result = verify_generated("lemma-4", 10, 0, uphill)
    assert "descent (the paper's own conclusion, in its effective form): slack" in result.reason
    assert result.failure is not None
    assert result.failure.parts is not None
    assert result.failure.parts.stated is Verdict.FALSIFIED


def test_a_wrong_p_mm_leaves_the_paper_s_conclusion_undecided() -> None:
    """The certificate of p_mm fails and no further claim is made, so the paper's conclusion is inconclusive."""
    result = verify_data("theorem-2", SINGLE, REFERENCE.replace("long", {max_margin: _half_a_token_off}))
    assert result.as_json()["conclusion"] == {
        "stated": "inconclusive",
        "premises": "falsified",
        "forms": {"exact": "falsified"},
    }
    assert "svm-is-optimal (a premise, not what is concluded; the paper's conclusion is not decided" in result.reason
    assert result.verdict_in_words == "falsified (its conclusion is not decided)"


def _results(found: Result) -> Results:
    return Results((found,))
