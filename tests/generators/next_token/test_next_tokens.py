"""Next-token data: drawn cases, files, the counts of a corpus, and the explanations of such data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from generators.hypothesis_driver import drive
from generators.next_token.assumptions import (
    COMPATIBLE,
    FINITE_PART,
    INDEPENDENT_CONTEXTS,
    INDEPENDENT_TOKENS,
    LABELS_WITHIN,
    SEPARABLE,
    SHORT_STEPS,
    SOMETHING_APART,
)
from generators.next_token.cases import (
    cases_with_something_apart,
    compatible_cases,
    finite_part_cases,
    independent_contexts,
    independent_sequences,
    next_token_cases,
)
from generators.next_token_limits import NextTokenLimits, PartLimits
from generators.next_tokens import NextTokens
from generators.realistic_numbers import realistic
from generators.user_data import as_text, load, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.exact import to_float
from reference_attention.files import from_json
from reference_attention.next_token.extended_supports import extended_supports

ALL = settings(max_examples=60, deadline=None, database=None)


@ALL
@given(compatible_cases())
def test_planted_cases_are_compatible_and_separable(case: NextTokens) -> None:
    assert all(item.check(case).holds for item in (COMPATIBLE, SEPARABLE, SOMETHING_APART))


@ALL
@given(cases_with_something_apart())
def test_drawn_cases_have_a_token_that_can_be_ruled_out(case: NextTokens) -> None:
    assert SOMETHING_APART.check(case).holds
    assert SHORT_STEPS.check(case).holds


@ALL
@given(independent_contexts())
def test_contexts_are_independent(case: NextTokens) -> None:
    assert INDEPENDENT_CONTEXTS.check(case).holds


@ALL
@given(independent_sequences())
def test_sequences_predict_one_of_their_tokens(case: NextTokens) -> None:
    assert INDEPENDENT_TOKENS.check(case).holds
    assert LABELS_WITHIN.check(case).holds


@pytest.mark.parametrize(
    ("strategy", "assumptions"),
    [
        (compatible_cases, (COMPATIBLE, SEPARABLE, SOMETHING_APART)),
        (cases_with_something_apart, (SOMETHING_APART, SHORT_STEPS)),
        (independent_contexts, (INDEPENDENT_CONTEXTS,)),
        (finite_part_cases, (FINITE_PART,)),
        (independent_sequences, (INDEPENDENT_TOKENS, LABELS_WITHIN)),
    ],
)
def test_realistic_cases_of_next_tokens_satisfy_their_assumptions(strategy: Any, assumptions: Any) -> None:
    for case in draw(strategy):
        assert all(assumption.check(case.normalise()).holds for assumption in assumptions)


def test_realistic_cases_of_next_tokens_include_large_counts_sizes_and_ratios() -> None:
    drawn = draw(next_token_cases)
    with_counts = [case for case in drawn if case.counts is not None]
    sizes = [np.abs(case.embeddings).max(axis=1) for case in drawn]
    assert max(int(case.counts.max()) for case in with_counts) > 5000
    assert max(len(case.embeddings) for case in with_counts) > 8
    assert max(case.tokens for case in with_counts) > 8
    assert any(case.windows for case in drawn)
    assert max(size.max() / size[size > 0].min(initial=np.inf) for size in sizes) > 1000
    assert any(not COMPATIBLE.check(case).holds for case in with_counts)


def draw(strategy: Any) -> list[NextTokens]:
    """Return realistic cases of a strategy."""
    cases: list[NextTokens] = []
    with realistic(True):
        unchecked = tuple(HealthCheck)
        phases = (Phase.generate,)
        drive(strategy(), cases.append, examples=60, seed=1, phases=phases, unchecked=unchecked, near_copies=False)
    return cases


@settings(max_examples=40, deadline=None, database=None)
@given(next_token_cases())
def test_a_written_case_is_read_unchanged(case: NextTokens) -> None:
    again = subject_of(from_json(as_text(case)))
    assert isinstance(again, NextTokens)
    assert as_text(again) == as_text(case)
    assert np.array_equal(again.problem.vectors, case.problem.vectors)


def test_a_corpus_is_read_as_counts_of_the_token_after_each_window() -> None:
    case = NextTokens.of_corpus("abab abba", 2)
    assert case.counts is not None
    assert case.windows == (" a", "a ", "ab", "b ", "ba", "bb") or " a" in case.windows
    told = {(case.windows[j], case.vocabulary[v]): int(c) for (j, v), c in np.ndenumerate(case.counts) if c}
    text = "abab abba"
    for (window, token), count in told.items():
        assert count == sum(text[t : t + 3] == window + token for t in range(len(text)))
    assert sum(told.values()) == len(text) - 2


def test_windows_of_one_token_are_separable_and_compatible() -> None:
    case = NextTokens.of_corpus("to be or not to be", 1)
    ends = NextTokenLimits.of(case)
    assert ends.separable
    assert ends.compatible
    assert ends.infimum == pytest.approx(ends.entropy, abs=1e-12)


def test_token_ids_and_text_are_read_from_files(tmp_path: Path) -> None:
    values = {"kind": "next-tokens", "corpus": [0, 3, 0, 5, 0, 3], "window": 1}
    (tmp_path / "ids.json").write_text(json.dumps(values), encoding="utf-8")
    case = load(str(tmp_path / "ids.json"), 7).case
    assert case.counts.tolist() == [[0, 2, 1], [1, 0, 0], [1, 0, 0]]
    assert case.seed == 7
    (tmp_path / "text.txt").write_text("ab\nab  ab", encoding="utf-8")
    case = load(str(tmp_path / "text.txt"), 0).case
    assert case.vocabulary == (" ", "a", "b")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"corpus": "aaaa"}, "the corpus repeats one token"),
        ({"corpus": "a"}, "no window of 2"),
        ({"corpus": "abc", "window": 0}, "no whole number ≥ 1"),
        ({"corpus": [0, -1, 2]}, "no id ≥ 0"),
        ({"corpus": 3}, "neither a text nor a list"),
        ({"corpus": "abab", "counts": [[1]]}, "cannot be combined with a corpus"),
        ({"corpus": "".join(map(chr, range(97, 123))) * 2}, r"about 21 minutes.*\(window: 1\)"),
        ({"corpus": "".join(map(chr, range(0x4E00, 0x4E00 + 120))) * 2, "window": 1}, "Take a shorter text or a"),
        ({"embeddings": [[1.0]]}, "either counts"),
        ({"embeddings": [[1.0]], "counts": [[0, 0]]}, "nothing followed context 0"),
        ({"embeddings": [[1.0]], "samples": [[0]]}, "labels: missing"),
        ({"embeddings": [[1.0]], "samples": [[4]], "labels": [4]}, "ids have to be"),
        ({"embeddings": [[1.0]], "counts": [[1, 2]], "start": [1.0]}, "give the 2 entries"),
        ({"embeddings": [[1.0]], "counts": [[1, 2]], "vocabulary": ["a"]}, "has 1 names; give 2"),
        ({"embeddings": [[1.0]], "counts": [[1, 2]], "step": -1.0}, "no step size"),
    ],
)
def test_bad_next_token_data_are_refused_in_a_sentence(values: dict[str, object], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        subject_of(from_json(json.dumps({"kind": "next-tokens", **values})))


def test_a_text_that_is_missing_too_large_or_not_in_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "long.txt").write_text("ab" * 600_000, encoding="utf-8")
    for name, says in (("bad.txt", "UTF-8"), ("long.txt", "larger than"), ("none.txt", "there is no such file")):
        with pytest.raises(InvalidInput, match=says):
            load(str(tmp_path / name), 0)


def test_the_explanation_of_next_tokens_says_where_training_ends_and_why() -> None:
    case = NextTokens(np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[2, 1, 0], [0, 3, 0], [0, 1, 1]]))
    ends = NextTokenLimits.of(case)
    assert not ends.separable
    assert ends.ties(0) == ["2"]
    assert ends.why_tied(0) == ["0 1", "1 1"]
    assert sum(ends.ends_on(0).values()) == pytest.approx(1)
    assert ends.exclusions(1) == ["0"]
    first, *_ = told = case.explain()
    assert first.startswith("Not separable")
    assert any("2 never followed it, but is tied by 0 1; 1 1." in line for line in told)


def test_the_explanation_of_next_tokens_says_whether_the_loss_has_a_minimiser() -> None:
    foreign = NextTokens(np.eye(3), samples=np.array([[0, 1]]), labels=np.array([2]))
    assert "infinite" in foreign.explain()[0]
    everything = NextTokens(np.eye(1), np.array([[1, 1]]))
    assert any("Nothing can be ruled out" in item for item in everything.explain())
    assert NextTokenLimits.of(everything).norm == 0


def test_limits_of_parts_that_share_no_coordinate_are_the_limits_of_the_whole() -> None:
    case = NextTokens.of_corpus("to be or not to be", 1)
    parts, whole = NextTokenLimits.of(case), PartLimits.of(tuple(range(case.problem.contexts)), case.problem)
    assert len(parts.parts) == case.problem.contexts
    sets = np.vstack([part.supports.sets for part in parts.parts])
    assert np.array_equal(sets, whole.supports.sets)
    assert parts.norm == pytest.approx(to_float(whole.svm.norm_squared) ** 0.5, rel=1e-14)
    assert parts.infimum == pytest.approx(float(whole.minimum.value.mid()), rel=1e-14)
    shares = np.vstack([part.minimum.shares for part in parts.parts])
    assert np.abs(np.where(sets, shares - whole.minimum.shares, 0)).max() < 1e-14
    assert sum(len(part.margins) for part in parts.parts) == len(whole.margins)


def test_contexts_are_split_into_parts_only_where_they_share_no_coordinate() -> None:
    h = np.array([[1.0, 0, 0, 0], [0, 0, 1, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, -2, 0, 0]])
    case = NextTokens(h, np.array([[2, 1, 0], [0, 3, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]]))
    assert [contexts for contexts, _ in case.parts] == [(0, 2, 4), (1,), (3,)]
    ends, whole = NextTokenLimits.of(case), extended_supports(case.problem)
    for part in ends.parts:
        assert np.array_equal(part.supports.sets, whole.sets[list(part.contexts)])
    assert ends.ties(3) == ["1", "2"]
    assert ends.why_tied(0) == ["1 1 0 0", "0 -2 0 0"]
    together = case.replace()
    object.__setattr__(together, "parts", ((tuple(range(case.problem.contexts)), case.problem),))
    for assumption in (SEPARABLE, COMPATIBLE, SOMETHING_APART, FINITE_PART):
        assert assumption.check(case).holds == assumption.check(together).holds


def test_a_text_of_two_thousand_letters_can_be_explained_but_not_verified(tmp_path: Path) -> None:
    letters = np.random.default_rng(0).choice([*"abcdefghijklmnopqrstuvwxyz "], 2000)
    (tmp_path / "text.txt").write_text("".join(letters), encoding="utf-8")
    source = str(tmp_path / "text.txt")
    with pytest.raises(InvalidInput, match=r"W of 1458 entries.*text.txt:window=1"):
        load(source, 0)
    case = load(f"{source}:window=1", 0).case
    assert case.sizes == {"m": 27, "V": 27, "d": 27}
    assert case.explained_in < 1
    assert "statements are verified on at most 400" in case.too_large
    counts = case.counts / case.counts.sum(axis=1, keepdims=True)
    ends = NextTokenLimits.of(case)
    assert ends.ends_on(3) == pytest.approx({case.token(v): x for v, x in enumerate(counts[3]) if x}, abs=1e-12)
    assert f"and {(counts[3] > 0).sum() - 8} more; ruled out" in ends.context_sentence(3)


@pytest.mark.parametrize("window", ["", "0", "-1", "two", "1.5"])
def test_a_window_size_that_is_not_a_number_is_refused(window: str) -> None:
    with pytest.raises(InvalidInput, match="give a whole number ≥ 1"):
        load(f"text.txt:window={window}", 0)
