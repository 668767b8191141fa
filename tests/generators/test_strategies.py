"""Every strategy satisfies each requested assumption; impossible requests are refused at once."""

from __future__ import annotations

import inspect
import re
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import generators.problems
from generators import directions, keys, numbers, problem_cases, scores, tokens
from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.problems import cases, problems
from reference_attention.errors import InvalidInput
from reference_attention.svm.max_margin import MaxMargin, max_margin

COMBINATIONS = [
    (),
    ("well-behaved-loss", "strict-optimum", "separable"),
    ("equal-non-optimal-scores", "separable"),
    ("single-input", "equal-non-optimal-scores", "separable", "step-size"),
    ("locally-optimal", "in-cone"),
    ("locally-optimal", "separable", "strict-optimum"),
    ("locally-optimal", "distinct-scores"),
    ("locally-optimal", "equal-non-optimal-scores"),
    ("distinct-scores", "general-position"),
    ("distinct-scores", "general-position", "locally-optimal"),
    ("positive-labels", "strict-optimum", "head-in-key-range"),
    ("positive-labels", "equal-non-optimal-scores", "head-in-key-range", "separable"),
    ("head-in-key-range",),
    ("positive-labels", "separable"),
    ("optimal-tokens", "separable", "head-in-key-range"),
    ("optimal-tokens", "positive-labels", "locally-optimal", "single-input"),
    ("optimal-support-tokens", "separable", "radius-schedule"),
    ("mixing-hurts",),
    ("mixing-hurts", "separable-optimal-sets"),
]


def broken_assumptions(case: Case, expected: tuple[str, ...]) -> dict[str, str]:
    """Return the assumptions that do not hold, with their evidence."""
    findings = {id: ASSUMPTIONS[id].check(case) for id in expected}
    return {id: result.evidence for id, result in findings.items() if result.holds is not True}


@pytest.mark.parametrize("expected", COMBINATIONS, ids="+".join)
def test_drawn_cases_satisfy_the_assumptions(expected: tuple[str, ...]) -> None:
    seen = 0

    # Only the health check for slowness is off: filter_too_much would show that the data are filtered, not constructed.
    @settings(suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
    @given(cases(assumptions=expected))
    def check(case: Case) -> None:
        nonlocal seen
        seen += 1
        assert not broken_assumptions(case, expected)
        if case.dataset is not None:
            assert np.array_equal(case.dataset.problem.keys, case.problem.keys)
            assert np.array_equal(case.dataset.problem.scores, case.problem.scores)

    check()
    assert seen == settings().max_examples


REJECTING = re.compile(r"\.filter\(|\bassume\(|\breject\(|\.mark_invalid\(")


@pytest.mark.parametrize("module", [problem_cases, directions, keys, numbers, generators.problems, scores, tokens])
def test_strategies_reject_no_case_that_they_draw(module: ModuleType) -> None:
    assert not REJECTING.search(inspect.getsource(module))
    assert REJECTING.search("st.integers().filter(bool)")


@settings(max_examples=30)
@given(cases(assumptions=("strict-optimum", "separable")), st.data())
def test_a_planted_tie_and_a_planted_duplicate_are_noticed(case: Case, data: st.DataObject) -> None:
    problem = case.problem
    i = data.draw(st.integers(0, problem.n - 1))
    opt = int(problem.optimal[i])
    other = (opt + 1) % problem.T
    scores, keys = problem.scores.copy(), problem.keys.copy()
    scores[i, other] = scores[i, opt]
    keys[i, other] = keys[i, opt]
    tied = case.replace(problem=type(problem)(problem.keys, scores, problem.loss))
    doubled = case.replace(problem=type(problem)(keys, problem.scores, problem.loss))
    assert set(broken_assumptions(tied, ("strict-optimum",))) == {"strict-optimum"}
    assert set(broken_assumptions(doubled, ("strict-optimum", "separable"))) == {"separable"}


@settings(max_examples=30)
@given(cases(assumptions=("locally-optimal",)))
def test_a_neighbour_lifted_to_the_chosen_score_is_noticed(case: Case) -> None:
    solution = max_margin(case.problem.keys, case.chosen_tokens)
    assert isinstance(solution, MaxMargin)
    i, t = np.argwhere(solution.neighbours)[0]
    scores = case.problem.scores.copy()
    scores[i, t] = scores[i, case.chosen_tokens[i]]
    lifted = case.replace(problem=type(case.problem)(case.problem.keys, scores, case.problem.loss))
    assert set(broken_assumptions(lifted, ("locally-optimal",))) == {"locally-optimal"}
    scores[i, t] -= 2.0**-30
    lowered = case.replace(problem=type(case.problem)(case.problem.keys, scores, case.problem.loss))
    assert not broken_assumptions(lowered, ("locally-optimal",))


@settings(max_examples=50)
@given(cases(alpha="any", assumptions=("separable",), start="anywhere", dataset=True, losses=("correlation",)))
def test_options_determine_the_drawn_case(case: Case) -> None:
    assert case.alpha is not None
    assert case.alpha.dtype == np.int64
    assert case.start is not None
    assert case.start.shape == (case.problem.d,)
    assert case.dataset is not None
    assert case.problem.loss.name == "correlation"
    assert ASSUMPTIONS["separable"].check(case).holds


@settings(max_examples=50)
@given(problems(n=3, tokens=(2, 3), d=7, assumptions=("separable",)))
def test_requested_lengths_are_drawn(problem: object) -> None:
    assert problem.n == 3  # type: ignore[attr-defined]
    assert problem.T in (2, 3)  # type: ignore[attr-defined]
    assert problem.d == 7  # type: ignore[attr-defined]


@settings(max_examples=5)
@given(cases(n=12, tokens=12, d=20, assumptions=("locally-optimal",)))
def test_large_lengths_are_possible(case: Case) -> None:
    assert not broken_assumptions(case, ("locally-optimal",))


@settings(max_examples=50)
@given(cases(start=lambda problem: st.just(np.full(problem.d, 2.0))))
def test_starts_may_depend_on_the_problem(case: Case) -> None:
    assert np.array_equal(case.start, np.full(case.problem.d, 2.0))


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"assumptions": ("separabel",)}, "separabel"),
        ({"assumptions": ("single-input",), "n": (2, 3)}, "single-input"),
        ({"assumptions": ("distinct-scores", "equal-non-optimal-scores"), "tokens": 3}, "T = 2"),
        ({"assumptions": ("general-position",), "n": 9, "tokens": 9, "d": 9}, "general-position"),
        ({"assumptions": ("optimal-tokens", "general-position")}, "general-position"),
        ({"assumptions": ("head-in-key-range", "distinct-scores")}, "distinct-scores"),
        ({"assumptions": ("head-in-key-range", "separable")}, "positive-labels"),
        ({"assumptions": ("locally-optimal", "separable-optimal-sets")}, "separable-optimal-sets"),
        ({"assumptions": ("optimal-tokens",), "alpha": "any"}, "alpha"),
        ({"losses": ()}, "losses"),
        ({"losses": ("hinge",)}, "hinge"),
        ({"n": 0}, "n:"),
        ({"tokens": 1}, "tokens:"),
        ({"d": (3, 2)}, "d:"),
    ],
)
def test_impossible_requests_are_refused_before_drawing(arguments: dict[str, object], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        cases(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("id", ["locally-optimal", "positive-labels", "optimal-tokens", "in-cone"])
def test_the_strategy_for_problems_refuses_options_of_cases(id: str) -> None:
    with pytest.raises(InvalidInput, match="cases"):
        problems(assumptions=(id,))


def test_every_subset_of_a_statements_assumptions_can_be_drawn() -> None:
    # A search for counterexamples drops one assumption at a time.
    for expected in COMBINATIONS:
        for left_out in expected:
            kept = tuple(id for id in expected if id != left_out)
            if "head-in-key-range" in kept and {"separable", "locally-optimal"} & {*kept}:
                continue
            cases(assumptions=kept)
