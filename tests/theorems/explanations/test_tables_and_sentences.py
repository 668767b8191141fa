"""The tables and sentences of ``theorems explain`` on a few problems, row by row and word by word."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

from generators.datasets import dataset_named
from tests.theorems.explanations.test_explain import local
from theorems.explanations.content import sections, text
from theorems.explanations.explanation import Explanation
from theorems.explanations.sentences import headline, paragraphs
from theorems.library.explain import explain

SINGLE = {"keys": [[[1, 0], [0, 0]]], "scores": [[1, 0]]}
"""Only the optimal token is locally optimal."""


@cache
def two_inputs() -> Explanation:
    return explain("figure-8", starts=2)


def rows(it: Explanation, caption: str) -> tuple[tuple[str, ...], ...]:
    return next(item.rows for item in sections(it) if item.caption.startswith(caption))


def sentences_of(it: Explanation) -> str:
    return " ".join(paragraphs(it))


def test_the_table_of_tokens_has_their_kind_and_weights_at_norms_beyond_the_start() -> None:
    columns = next(item.columns for item in sections(local()) if item.caption.startswith("Tokens"))
    assert columns[-3:] == ("at ‖p‖ = 10", "at ‖p‖ = 100", "at ‖p‖ = 1e+03")
    assert rows(local(), "Tokens") == (
        ("0", "0", "1", "global", "1.1", "", "3.41e-05", "2.88e-47", "0"),
        ("0", "1", "0.9", "selected, local", "", "", "1", "1", "1"),
        ("0", "2", "0", "neighbour", "1", "1", "4.65e-05", "3.87e-44", "0"),
    )
    assert [row[3] for row in rows(two_inputs(), "Tokens")] == [
        *("selected, global", "neighbour"),
        *("selected, global", "local, neighbour"),
    ]


def test_the_table_of_directions_has_their_distance_from_the_flow() -> None:
    optimal, selected = rows(local(), "Max-margin")
    assert optimal == ("optimal", "[0]", "0.995037", "1.00499", "1 of 2", "1", "yes", "1.1")
    assert selected[:-1] == ("selected", "[1]", "1", "1", "1 of 2", "1", "yes")
    assert 0 < float(selected[-1]) < 1e-12


def test_the_table_of_the_flow_has_norms_that_are_powers_of_ten_and_the_last() -> None:
    result = rows(local(), "The gradient flow; it ended by: norm reached")
    assert [row[0] for row in result] == ["10", "100", "1e+03", "1e+04", "1e+05", "1e+06", "3e+06"]
    assert result[0] == ("10", "1", "0.0024", "8.1e-05")
    assert [row[0] for row in rows(two_inputs(), "The gradient flow")][:4] == ["0.1", "1", "10", "100"]


def test_random_starts_are_numbered_in_a_table_of_ends_of_flows() -> None:
    result = rows(two_inputs(), "Seeded starts")
    assert [row[:4] for row in result] == [("1", "9.49", "[0, 1]", "LMM"), ("2", "9.49", "[0, 1]", "LMM")]
    between = explain({"keys": [[[0, 0], [1, 0], [-1, 0]]], "scores": [[1, 0.5, 0]]}, starts=1)
    ((number, _, where, kind, apart),) = rows(between, "Seeded starts")
    assert (number, where.partition(" ")[0], kind, apart) == ("1", "norm", "stationary", "")


def test_an_explanation_as_text_has_its_rows_and_no_picture() -> None:
    shown = text(replace(local(), name=":cat:"))
    assert shown.startswith(":cat:: n = 1")
    assert "selected, local" in shown
    assert "locally-optimal   holds" in shown


def test_local_optima_are_named_where_there_are_several() -> None:
    assert "2 choices α are locally optimal: [0], [1]; the start decides between them." in sentences_of(local())
    assert "are locally optimal" not in sentences_of(explain(SINGLE))
    both = local().locally_optimal
    assert both is not None
    assert "4 choices α are locally optimal: [0], [1], [0], [1]; the" in sentences_of(
        replace(local(), locally_optimal=2 * both)
    )
    at_rest = explain({"keys": [[[-1], [-2], [0], [-1]]], "scores": [[1, 3, 3, 1]]})
    assert "2 choices α are locally optimal: [1], [2]; this flow selects none of them." in sentences_of(at_rest)
    more = replace(local(), locally_optimal=(*both, *both, both[0]))
    assert "5 choices α are locally optimal: [0], [1], [0], [1], …; the" in sentences_of(more)


def test_the_explanation_counts_inputs_that_select_their_optimal_token() -> None:
    it = explain(dataset_named("figure-8").replace(start=two_inputs().others[0].start))
    assert headline(it).endswith(
        "locally optimal tokens (LMM), the optimal one in 1 of 2 inputs: token 1 of input 1 scores 0, below the 1 of"
        " token 0"
    )


def test_inputs_with_ties_are_counted_if_they_are_many() -> None:
    one = [[1, 0], [1, 0], [0, 1]]
    two, three = (explain({"keys": n * [one], "scores": n * [[1, 1, 0]]}) for n in (2, 3))
    assert "tokens [0, 1] of input 0 and tokens [0, 1] of input 1, exactly" in headline(two)
    assert "tokens [0, 1] of input 0 and tokens [0, 1] of input 1 and tokens of 1 more, exactly" in headline(three)


def test_a_warning_says_that_zero_tokens_at_the_end_get_weight() -> None:
    """One zero token may be intended, as in Figure 1; several may be padding, and are mentioned once for all inputs."""
    keys = [[[1, 0], [0, 1], [0, 0], [0, 0]], [[1, 0], [0, 1], [1, 1], [0, 0]]]
    padded = explain({"keys": keys, "scores": [[-1, -2, 0, 0], [1, 2, 3, 0]]})
    assert paragraphs(padded)[0].startswith("Tokens 2 to 3 of input 0 have zero keys and scores, as padding has.")
    assert paragraphs(padded)[0] in " ".join(text(padded).split())
    meant = explain({"keys": keys[1:], "scores": [[1, 2, 3, 0]]})
    assert "padding" not in text(meant)


def test_statements_that_do_not_apply_are_named_with_the_assumption() -> None:
    assert "Does not apply: Theorem 2 (assumption equal-non-optimal-scores fails)." in sentences_of(local())
    assert "Lemmas 1, 3, 6, 7, 10, 12, 13 and 14 apply, too." in sentences_of(local())


def test_the_explanation_of_trained_weights_has_both_solutions() -> None:
    """With orthogonal queries the solution of least Frobenius norm has rank 2, and that of least nuclear norm is not
    unique.
    """
    data = {"X": [[[1.0, 0], [0, 0]], [[0, 1.0], [0, 0]]], "queries": [[1, 0], [0, 1]], "Y": [1, 1], "v": [1, 1]}
    two = explain(data)
    first, second = rows(two, "Solutions W of ATT-SVM")
    assert first == ("optimal", "‖W‖_F", "1.41421", "2", "2 of 2", "exact")
    assert second[:5] == ("optimal", "‖W‖_⋆", "2", "", "")
    assert second[5].startswith("not decided: no isolated solution")
    one = explain({"X": [[[1, 0], [0, 0], [-1, 0]]], "queries": [[1, 2]], "Y": [1], "v": [1, 0]})
    assert rows(one, "Solutions W of ATT-SVM")[1] == ("optimal", "‖W‖_⋆", "0.447214", "1", "1 of 2", "the only one")
    assert not any(section.caption.startswith("Solutions W") for section in sections(local()))
    record = json.loads(one.to_json())["weights"]
    assert record[0]["nuclear"]["rank"] == record[0]["frobenius"]["rank"] == 1
    assert abs(record[0]["one_minus_cosine"]) < 1e-15
