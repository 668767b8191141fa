"""The tables of ``theorems bench``: their rows and cells; and how rules treat zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.benchmark.bench_tables import parts, token_ids
from theorems.benchmark.bench_units import Generated, Named
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.measurements import has_settled
from theorems.benchmark.optimisers.flow import read_at
from theorems.benchmark.optimisers.optimiser import Optimiser, Theory
from theorems.benchmark.optimisers.user_rules import theory_of
from theorems.benchmark.proven_bound import proven_bound
from theorems.benchmark.rules import rule_named
from theorems.benchmark.summary import summaries

RULES = ("normalized-1", "normalized-mirror-3-1", "adam-0.1")


def tables(named: list[Comparison], generated: list[Comparison]) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each table, by the first two words of its heading."""
    return {" ".join(heading.split()[:2]): rows for heading, _, rows, _ in parts(named, generated, 40)}


def test_every_rule_has_its_rows_in_the_tables() -> None:
    named = list(Named("figure-1a", RULES, 40).run(lambda done: None).compared)
    generated = list(Generated(0, 0, 3, RULES, 40).run(lambda done: None).compared)
    result = tables(named, generated)
    data = [("figure-1a", rule) for rule in RULES]
    assert [row[:2] for row in result["Iterations until"]] == [row[:2] for row in result["Rates: the"]] == data
    assert result["Iterations until"][0][2:6] == ("ℓ2", "4", "17", "-")
    assert [(row[2], row[4]) for row in result["Rates: the"]] == [("t", "1"), ("t", "-"), ("t", "-")]
    assert [row[:5] for row in result["The limits:"]] == [
        ("figure-1a", "(0, -1)", "0", "GMM", norm) for norm in ("ℓ2", "ℓ3")
    ]
    assert [row[:2] for row in result["Iterations to"]] == [
        (RULES[0], "14/18/-"),
        (RULES[1], "-"),
        (RULES[2], "28/-/-"),
    ]
    assert [row[:3] for row in result["Number of"]] == [
        (rule, limit, missing) for rule, limit, missing in zip(RULES, ("ℓ2", "ℓ3", "unknown"), "132", strict=True)
    ]
    assert [row[:3] for row in result["What theory"]] == [
        (RULES[0], "ℓ2", "1 in t, 0.5 proven"),
        (RULES[1], "ℓ3", "-"),
        (RULES[2], "unknown", "-"),
    ]


def test_a_flow_rests_where_there_is_no_slope() -> None:
    """With equal scores the flow stays at its start, whether p = 0 or another point."""
    flat = Problem(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[1.0, 1.0]]))
    starts = np.array([[0.0, 0.0], [1.0, -2.0]])
    run = read_at([flat, flat], starts, 1.0, np.array([0, 1, 5]))
    assert np.array_equal(run.points, np.repeat(starts[None], 3, axis=0))
    assert run.representable.all()


@pytest.mark.parametrize(("field", "value"), [("norm", 1.0), ("exponent", 0.0), ("proven", -0.5), ("proven", 0.0)])
def test_norm_and_exponents_in_a_rule_s_theory_must_be_possible(field: str, value: float) -> None:
    class Own(Optimiser):
        theory = replace(Theory(2.0, "mine"), **{field: value})

    with pytest.raises(InvalidInput, match=field):
        theory_of(Own, "own")


@pytest.mark.parametrize("name", ["mirror-3-0", "normalized-mirror-3-0", "mirror-1-1", "gd-0", "adam-0"])
def test_a_rule_with_step_zero_is_unknown(name: str) -> None:
    with pytest.raises(InvalidInput, match="is none of"):
        rule_named(name)


def test_a_proven_bound_needs_two_iterates() -> None:
    problem = dataset_named("figure-1a").problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    ray = np.array([1e3, 2e3])[:, None] * svm.direction
    assert proven_bound(problem, svm, ray) is not None
    assert proven_bound(problem, svm, ray[1:]) is None


def test_only_a_settled_run_counts_as_selecting_other_tokens() -> None:
    """Runs may select other tokens at first; a run is settled if its last tokens had most weight for most steps."""
    problem = dataset_named("figure-1a").problem
    iterations = np.arange(101)
    toward = problem.keys[0, 1] - problem.keys[0, 0]
    far, near = (np.linspace(0.1, size, 101)[:, None] * toward for size in (100.0, 0.2))
    assert problem.selection_at(far[-1]).tolist() == [1]
    assert has_settled(problem, far, iterations)
    assert not has_settled(problem, near, iterations)  # weights stay spread over several tokens
    late = np.where(iterations[:, None] < 50, -far, far)
    assert not has_settled(problem, late, iterations)  # its selection changed after a tenth of the run
    early = np.where(iterations[:, None] < 5, -far, far)
    assert has_settled(problem, early, iterations)


def test_a_run_that_is_not_settled_is_not_reported_as_selecting_others() -> None:
    named = list(Named("figure-1b", ("gd-0.01", "adam-0.1"), 600).run(lambda done: None).compared)
    slow, adam = named[0].rules
    if not slow.selects_limit:
        assert not slow.settled
    cells = {row[1]: row[-1] for row in tables(named, [])["Iterations until"]}
    assert cells["gd-0.01"] in ("not yet", "the limit's tokens")
    assert cells["adam-0.1"] == ("other tokens, 0" if adam.settled else "not yet")
    assert summaries(named)[1].other_tokens == int(adam.settled and not adam.selects_limit)


def test_many_token_ids_are_abbreviated() -> None:
    assert token_ids((0, 1, 2)) == "0, 1, 2"
    assert token_ids((3,) * 50) == "3 of all 50"
    assert token_ids(tuple(range(50))) == "0, 1, 2, 3, 4, 5, … 50 tokens"


def test_w_has_a_spectral_margin_that_muon_enlarges() -> None:
    (result,) = Named("tsvm-paths-3", ("spectral-0.1", "normalized-0.1"), 300).run(lambda done: None).compared
    spectral, normalized = (run.spectral for run in result.rules)
    assert spectral is not None
    assert normalized is not None
    assert normalized < spectral <= 1 + 1e-6
    rows = tables([result], [])["W at"]
    assert [row[-1] for row in rows] == [f"{spectral:.4f}", f"{normalized:.4f}"]
