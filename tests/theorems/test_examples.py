"""The worked examples of docs/conjectures.md: their verdicts, and faults that falsify them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from generators.assumptions import assumption_named
from generators.case import Case
from reference_attention.losses import loss_named
from reference_attention.problem import Dataset, Problem
from tests.places import ROOT
from theorems import api
from theorems.core.check import check
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import FAULTS
from theorems.run.registry.lookup import statement_named
from theorems.run.result import Result
from theorems.run.verify import verify_generated

EXAMPLES = ROOT / "examples"
JOINT, RATE = "joint_descent.py:logarithmic_prompt", "rate.py:rate"
SUBSET, LOCAL = "not_separable.py:largest_subset", "not_separable.py:locally_optimal_limit"


@pytest.fixture(autouse=True)
def _without_making_failures_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("theorems.run.verify.SHRINKING_CALLS", 0)


def result_of(name: str, examples: int, fault: str = "", folder: Path = EXAMPLES) -> Result:
    under_test = FAULTS[fault].implementation if fault else REFERENCE
    return verify_generated(f"{folder / name}", examples, 0, under_test)


def altered(tmp_path: Path, name: str, old: str, new: str) -> Path:
    """Return a folder with a copy of an example's file in which a text is replaced by a wrong one."""
    file = name.partition(":")[0]
    text = (EXAMPLES / file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / file).write_text(text.replace(old, new), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(("name", "examples"), [(JOINT, 8), (RATE, 8), (LOCAL, 50)])
def test_the_open_problems_are_upheld(name: str, examples: int) -> None:
    result = result_of(name, examples)
    assert result.verdict is Verdict.UPHELD, result.reason
    assert result.counts[Verdict.UPHELD] >= examples // 3
    assert all(claim.verdict is Verdict.UPHELD for claim in result.claims)
    assert len(result.claims) == 2


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (JOINT, "rolled-coordinates"),
        (JOINT, "svm-scaled"),
        (JOINT, "svm-with-bias"),
        (RATE, "negated-gradient"),
        (RATE, "rolled-coordinates"),
        (RATE, "svm-with-bias"),
        (LOCAL, "negated-gradient"),
        (LOCAL, "neighbours-by-tolerance"),
    ],
)
def test_a_fault_in_the_implementation_is_caught(name: str, fault: str) -> None:
    # About one problem in thirty has a token with a margin near 1, on which the fault shows.
    assert result_of(name, 40, fault).verdict is Verdict.FALSIFIED


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (JOINT, "rate - 2 * separator.p", "rate - separator.p"),
        (JOINT, "rate - 2 * separator.p", "rate - 3 * separator.p"),
        (RATE, "limit, size = float(", "limit, size = 0.9 * float("),
        (LOCAL, "locally_optimal(svm, case.problem.scores)", "locally_optimal(svm, -case.problem.scores)"),
        (LOCAL, "p = flow.final * ", "p = 0.5 * flow.final[::-1] * "),
    ],
)
def test_a_fault_in_the_conclusion_is_caught(name: str, old: str, new: str, tmp_path: Path) -> None:
    assert result_of(name, 25, folder=altered(tmp_path, name, old, new)).verdict is Verdict.FALSIFIED


DOCUMENT = (EXAMPLES.parent / "docs" / "conjectures.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("id", sorted(set(re.findall(r"examples/[a-z_]+\.py:[a-z_-]+", DOCUMENT))))
def test_names_in_the_document_exist(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    statement = statement_named(id)
    assert statement_named(statement.id).id == statement.id


def test_the_interface_is_documented() -> None:
    assert set(api.__all__) <= set(vars(api))
    named = set(re.findall(r"`([A-Za-z_]+)`", api.__doc__ or ""))
    beside = {"Statement", "Verdict", "Flow", "InvalidInput"}  # types of what the others return or raise
    assert set(api.__all__) - beside <= named


# ---- pinned instances ------------------------------------------------------------------------------------


def verdict_on(name: str, keys: object, scores: object, loss: str = "logistic") -> tuple[Verdict, str]:
    case = Case(Problem(np.array(keys, dtype=float), np.array(scores, dtype=float), loss_named(loss)))
    outcome = check(statement_named(f"{EXAMPLES / name}"), case, REFERENCE)
    return outcome.verdict, outcome.reason


def test_the_flow_need_not_select_the_largest_separable_set_of_optimal_tokens() -> None:
    """The optimal token of input 0 alone can be separated, but the flow selects that of input 1, whose score gap is
    three times as large.
    """
    verdict, reason = verdict_on(SUBSET, [[[1], [1], [0]], [[-1], [0], [0]]], [[0, 0, 1], [0, 0, 3]], "correlation")
    assert verdict is Verdict.FALSIFIED, reason
    assert "optimal tokens: 0 selected, 1 separable" in reason


def test_the_majority_does_not_win() -> None:
    """The optimal tokens of two inputs need p > 0; that of a third needs p < 0, and the flow selects it, since the
    shorter difference of its keys lets its softmax saturate last.
    """
    keys, scores = [[[3], [0]], [[2], [0]], [[-1], [0]]], [[1, 0], [1, 0], [8, 0]]
    verdict, reason = verdict_on(SUBSET, keys, scores, "correlation")
    assert verdict is Verdict.FALSIFIED, reason
    assert "optimal tokens: 1 selected, 2 separable" in reason
    assert verdict_on(LOCAL, keys, scores, "correlation")[0] is Verdict.UPHELD


def test_without_general_position_the_larger_gap_decides() -> None:
    """Two inputs have equal differences of keys and opposite optimal tokens: the flow goes to a p_mm of tokens that are
    not locally optimal.
    """
    keys, scores = [[[0, 0], [0, 1]], [[0, 1], [0, 0]]], [[0, 1], [0, 0.5]]
    verdict, reason = verdict_on(LOCAL, keys, scores)
    assert verdict is Verdict.NOT_APPLICABLE
    assert reason.startswith("general-position: ")
    statement = statement_named(f"{EXAMPLES / LOCAL}")
    claims = {
        claim.name: claim
        for claim in statement.conclusion(Case(Problem(np.array(keys, float), np.array(scores))), REFERENCE)
    }
    assert claims["locally-optimal"].verdict is Verdict.FALSIFIED
    assert claims["direction"].verdict is Verdict.UPHELD


def test_a_neighbour_with_dual_zero_falsifies_the_conjectured_rate() -> None:
    """Token 2 is an SVM-neighbour with dual zero, so the part of p orthogonal to p_mm grows like log‖p‖."""
    keys, scores = [[[0, 0], [1, 0], [1, 1]]], [[1, 0, 0]]
    verdict, reason = verdict_on(RATE, keys, scores)
    assert verdict is Verdict.NOT_APPLICABLE
    assert "every-token-supports: 1 of 2 other tokens have a positive dual" in reason
    statement = statement_named(f"{EXAMPLES / RATE}")
    claims = list(statement.conclusion(Case(Problem(np.array(keys, float), np.array(scores, float))), REFERENCE))
    assert [claim.verdict for claim in claims] == [Verdict.FALSIFIED, Verdict.FALSIFIED]


def test_an_undecided_limit_is_inconclusive() -> None:
    """A token of margin 1 + 2⁻²⁸ still matters at ‖p‖ = 10⁶, so the limit of the flow is undecided."""
    verdict, reason = verdict_on(LOCAL, [[[-1 - 2.0**-28], [0]], [[0], [-1]]], [[-1, 0], [2, 3]])
    assert verdict is Verdict.INCONCLUSIVE
    assert "still counts at ‖p‖ = 1e+06" in reason


def test_assumption_c_does_not_make_plain_descent_select_the_chosen_tokens() -> None:
    X = np.array(
        [
            [[-1.0, 0.0, 0.0], [-0.21875, -0.21875, 0.65625], [0.25, -0.25, 0.0]],
            [[1.0, 0.0, 0.0], [0.0, -0.5, 0.0], [0.0, -0.25, -0.25]],
            [[1.0, 0.0, 0.0], [-0.25, -0.25, -0.25], [-0.375, -0.125, 0.0]],
        ]
    )
    data = Dataset(X, np.array([-1.0, 1.0, 1.0]), np.array([1.0, 0.0, 0.0]), None, loss_named("logistic"))
    case = Case(data.problem, dataset=data, alpha=np.zeros(3, dtype=np.int64))
    assert assumption_named("optimal-tokens").check(case).holds
    outcome = check(statement_named(f"{EXAMPLES / JOINT}"), case, REFERENCE)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    assert "flow-selects" in outcome.reason
