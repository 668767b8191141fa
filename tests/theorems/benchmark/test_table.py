"""The tables of ``theorems bench``: which rows there are and what is in their cells; how rules take zeros."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from generators.datasets import dataset_named
from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from reference_attention.svm.max_margin import MaxMargin, max_margin
from theorems.benchmark.bench_tables import parts
from theorems.benchmark.bench_units import Generated, Named
from theorems.benchmark.comparison import Comparison
from theorems.benchmark.optimisers.flow import read_at
from theorems.benchmark.optimisers.optimiser import Optimiser, Theory
from theorems.benchmark.optimisers.users import theory_of
from theorems.benchmark.proven import proven_bound
from theorems.benchmark.rules import rule_named

RULES = ("normalized-1", "normalized-mirror-3-1", "adam-0.1")


def tables(named: list[Comparison], generated: list[Comparison]) -> dict[str, list[tuple[str, ...]]]:
    """Rows by the first two words of a heading."""
    return {" ".join(heading.split()[:2]): rows for heading, _, rows, _ in parts(named, generated, 40, [])}


def test_every_rule_has_its_rows() -> None:
    named = list(Named("figure-1a", RULES, 40).run(lambda done: None).compared)
    generated = list(Generated(0, 0, 3, RULES, 40).run(lambda done: None).compared)
    found = tables(named, generated)
    data = [("figure-1a", rule) for rule in RULES]
    assert [row[:2] for row in found["Iterations until"]] == [row[:2] for row in found["Rates: the"]] == data
    assert found["Iterations until"][0][2:6] == ("ℓ2", "4", "17", "-")
    assert [(row[2], row[4]) for row in found["Rates: the"]] == [("t", "1"), ("t", "-"), ("t", "-")]
    assert [row[:5] for row in found["The limits:"]] == [
        ("figure-1a", "(0, -1)", "0", "GMM", norm) for norm in ("ℓ2", "ℓ3")
    ]
    assert [row[:2] for row in found["The same"]] == [(RULES[0], "14/18/-"), (RULES[1], "-"), (RULES[2], "28/-/-")]
    assert [row[:3] for row in found["Of these"]] == [
        (rule, limit, missing) for rule, limit, missing in zip(RULES, ("ℓ2", "ℓ3", "unknown"), "132", strict=True)
    ]
    assert [row[:3] for row in found["What theory"]] == [
        (RULES[0], "ℓ2", "1 in t, 0.5 proven"),
        (RULES[1], "ℓ3", "-"),
        (RULES[2], "unknown", "-"),
    ]


def test_a_flow_rests_where_there_is_no_slope() -> None:
    """At p = 0 and beside it, of equal scores."""
    flat = Problem(np.array([[[1.0, 0.0], [0.0, 1.0]]]), np.array([[1.0, 1.0]]))
    starts = np.array([[0.0, 0.0], [1.0, -2.0]])
    run = read_at([flat, flat], starts, 1.0, np.array([0, 1, 5]))
    assert np.array_equal(run.points, np.repeat(starts[None], 3, axis=0))
    assert run.representable.all()


@pytest.mark.parametrize(("field", "value"), [("norm", 1.0), ("exponent", 0.0), ("proven", -0.5), ("proven", 0.0)])
def test_a_theory_has_positive_numbers(field: str, value: float) -> None:
    class Own(Optimiser):
        theory = replace(Theory(2.0, "mine"), **{field: value})

    with pytest.raises(InvalidInput, match=field):
        theory_of(Own, "own")


@pytest.mark.parametrize("name", ["mirror-3-0", "normalized-mirror-3-0", "mirror-1-1", "gd-0", "adam-0"])
def test_a_rule_without_a_step_is_none(name: str) -> None:
    with pytest.raises(InvalidInput, match="is none of"):
        rule_named(name)


def test_two_iterates_are_the_least_of_which_something_is_proven() -> None:
    problem = dataset_named("figure-1a").problem
    svm = max_margin(problem.exact_keys, problem.optimal)
    assert isinstance(svm, MaxMargin)
    ray = np.array([1e3, 2e3])[:, None] * svm.direction
    assert proven_bound(problem, svm, ray) is not None
    assert proven_bound(problem, svm, ray[1:]) is None
