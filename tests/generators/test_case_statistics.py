"""The strategies draw the requested shares of losses, units, sizes and corners, and ``theorems list drawn`` prints
them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import theorems
from generators.case import Case
from generators.case_statistics import PROPERTIES, Drawn, drawn_shares
from generators.datasets import dataset_named
from generators.numbers import BLOCKS, MODERATE, SOLVABLE_BLOCKS, Large
from reference_attention.errors import InvalidInput
from reference_attention.losses import DRAWN_LOSSES, LOSSES
from reference_attention.problem import Problem
from theorems.command.app import main
from theorems.run import verify
from theorems.run.registry.lookup import statement_named

EXAMPLES = 50

ANY_LOSS = ("lemma-1", "lemma-3", "lemma-4", "lemma-5", "lemma-6", "lemma-7", "lemma-8", "lemma-9", "lemma-14")
USERS = ("lemma-4", "lemma-7", "theorem-1", "theorem-2", "theorem-3", "descent-from-a-margin")
DIRECTIONS = ("lemma-8", "lemma-9", "lemma-10", "theorem-4")

ASKED: tuple[tuple[tuple[str, ...], str, float, float], ...] = (
    *(((id,), f"{name} loss", 0.1, 0.5) for id in (*ANY_LOSS, "theorem-4") for name in DRAWN_LOSSES),
    (ANY_LOSS, "loss concave somewhere", 0.05, 0.5),
    (DIRECTIONS, "keys beyond 2^±30", 0.1, 0.5),
    (DIRECTIONS, "q beyond 2^±40", 0.1, 0.6),
    (("lemma-10", "theorem-4"), "ties in selection", 0.1, 0.5),
    (("theorem-4",), "q neighbour-optimal", 0.2, 0.8),
    (("lemma-4", "lemma-7"), "near tie of margins", 0.01, 0.5),
    (("lemma-14",), "nonlinear head", 0.2, 0.8),
    (("lemma-1", "lemma-3", "lemma-4", "lemma-5", "lemma-6", "lemma-11", "lemma-14"), "T or d ≥ 7", 0.1, 0.4),
    (("lemma-7", "theorem-1", "theorem-2", "theorem-3", "theorem-4"), "T or d ≥ 7", 0.05, 0.4),
    (("theorem-2",), "n = 1", 0.4, 0.7),
    (USERS, "degenerate duals", 0.1, 0.5),
    (USERS, "numbers as users have them", 0.05, 0.5),
    (USERS, "coordinate mostly zero", 0.02, 0.5),
    (USERS, "columns in other units", 0.02, 0.3),
    (USERS, "constant coordinate", 0.02, 0.4),
    (USERS, "repeated input", 0.02, 0.3),
    (USERS, "scores of three levels", 0.05, 0.5),
    (USERS, "apart in one coordinate, p_mm uses it", 0.1, 0.7),
    (USERS, "apart in one coordinate, p_mm does not", 0.02, 0.5),
    (("theorem-5", "theorem-6", "lemma-12"), "decimals", 0.02, 0.4),
    (("theorem-5", "theorem-6", "lemma-12"), "degenerate duals", 0.02, 0.4),
    (("theorem-5", "theorem-6", "lemma-12"), "identical support features", 0.0, 1 / 3),
    (("theorem-5", "theorem-6", "lemma-12"), "W of full column rank", 0.0, 1 / 3),
    (("theorem-6",), "p_relax parallel to p_mm", 0.0, 1 / 3),
)
"""Statements, a property, and the smallest and largest share of cases that must have it."""


SIZES: dict[str, Large] = {
    **dict.fromkeys(("lemma-1", "lemma-3", "lemma-6"), BLOCKS),
    **dict.fromkeys(("lemma-4", "lemma-5", "lemma-11", "lemma-14"), SOLVABLE_BLOCKS),
    **dict.fromkeys(("lemma-7", "theorem-1", "theorem-2", "theorem-3", "theorem-4"), MODERATE),
}


@cache
def cases(id: str) -> list[Case]:
    return verify.draw_cases(statement_named(id), EXAMPLES, 0)


@cache
def statistics_of(id: str) -> Drawn:
    return drawn_shares(id, cases(id))


@pytest.mark.parametrize(("ids", "name", "least", "most"), ASKED)
def test_the_strategies_draw_the_requested_shares(ids: tuple[str, ...], name: str, least: float, most: float) -> None:
    shares = {id: statistics_of(id).shares[name] for id in ids}
    assert all(share.of for share in shares.values())
    assert {id: str(share) for id, share in shares.items() if not least <= share.value <= most} == {}


@pytest.mark.parametrize("id", SIZES)
def test_a_tenth_to_two_fifths_of_the_cases_have_many_tokens_and_dimensions(id: str) -> None:
    large = SIZES[id]
    shapes = [case.problem.keys.shape for case in cases(id)]
    wide = [(n, T, d) for n, T, d in shapes if T in large.tokens and d >= min(large.d) - 1]
    assert 0.1 * EXAMPLES <= len(wide) <= 0.4 * EXAMPLES
    assert max(T for _, T, _ in wide) > min(large.tokens)


def test_the_table_of_shares_names_known_properties() -> None:
    """Every row of the table of shares names a known property and known statements."""
    known = theorems.statements()
    for ids, name, least, most in ASKED:
        assert name in PROPERTIES
        assert set(ids) <= set(known)
        assert 0 <= least < most <= 1


def test_shares_are_of_the_cases_to_which_a_property_applies() -> None:
    one = Case(Problem(np.array([[[1.0], [0.0]]]), np.array([[1.0, 0.0]])))
    tied = Case(Problem(np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2), np.zeros((2, 2)), LOSSES["sigmoid"]))
    q = Case(tied.problem, arrays={"q": np.array([1.0, 1.0])})
    shares = drawn_shares("some", [one, tied, q]).shares
    assert str(shares["n = 1"]) == "1/3"
    assert str(shares["one constraint only"]) == "1/3"
    assert str(shares["every token an SVM-neighbour"]) == "1/1"
    assert str(shares["ties in selection"]) == "1/1"
    assert str(shares["sigmoid loss"]) == "2/3"
    assert str(shares["loss concave somewhere"]) == "0"
    assert str(shares["identical support features"]) == ""


def test_properties_of_joint_cases_agree_with_figure_3() -> None:
    """Figure 3(b) has two supports with different features, W = I, and p_relax not parallel to p_mm; in Figure 3(a) all
    inputs are supports.
    """
    result = drawn_shares("some", [dataset_named("figure-3b")]).shares
    assert str(result["identical support features"]) == "0"
    assert str(result["W of full column rank"]) == "1/1"
    assert str(result["p_relax parallel to p_mm"]) == "0"
    assert drawn_shares("some", [dataset_named("figure-3a")]).shares["p_relax parallel to p_mm"].of == 0


def test_theorems_list_drawn_prints_the_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "drawn", "lemma-9", "lemma-5"]) == 0
    printed = capsys.readouterr().out
    head, *rows = [line.split() for line in printed.splitlines() if line.startswith((" statement", " lemma"))]
    assert head == ["statement", "n", "T", "d", "shares"]
    assert [row[0] for row in rows] == ["lemma-9", "lemma-5"]
    assert " ".join(rows[1]).startswith("lemma-5 1–1 (1) ")
    assert "n = 1 50/50" in " ".join(rows[1])
    assert main(["list", "drawn", "lemma-99"]) == 2
    with pytest.raises(InvalidInput):
        theorems.draws("lemma-99")
