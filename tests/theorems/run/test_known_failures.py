"""Known failures: a listed statement must be falsified; if it is upheld, not checked or checked less, the run fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reference_attention.errors import InvalidInput
from theorems.command.app import main
from theorems.core.claim import Form, Verdict
from theorems.run.known_failures import KnownFailures, file_text, known_ids, read
from theorems.run.result import ClaimSummary, Failure, Result


def result(id: str, verdict: Verdict, claims: int, sentence: str = "") -> Result:
    """Return a result with the given number of decided claims."""
    made = tuple(ClaimSummary(str(k), Form.EXACT, 1.0, 0.0, "", Verdict.UPHELD) for k in range(claims))
    failure = Failure(verdict, sentence, "{}") if sentence else None
    return Result(id, "", {verdict: 1}, made, failure=failure, generated=False)


FOUND = [
    result("lemma-3", Verdict.UPHELD, 9),
    result("lemma-6", Verdict.FALSIFIED, 5, "descent: slack −1"),
    result("theorem-1", Verdict.NOT_APPLICABLE, 0),
]


def known_failures_of(text: str, tmp_path: Path) -> KnownFailures:
    (tmp_path / "known.txt").write_text(text, encoding="utf-8")
    return read(tmp_path / "known.txt", [*known_ids(), "my file.py:it"])


def test_a_written_list_accepts_the_failures_that_it_lists(tmp_path: Path) -> None:
    text = file_text(FOUND, "mine:kernel", {})
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "lemma-6 descent: slack −1",
        "checked lemma-3 9",
        "checked lemma-6 5",
    ]
    known = known_failures_of(text, tmp_path)
    assert known.expected_failures(FOUND) == {"lemma-6": "descent: slack −1"}
    assert known.complaints(FOUND) == []
    # A reason that a user has written is kept.
    assert "\nlemma-6 issue 7\n" in file_text(FOUND, "", {"lemma-6": "issue 7"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lemma-3 slow", "lemma-3 is upheld now; take it out of"),
        ("theorem-1 hard", "was not checked; check it, or take it out."),
        ("lemma-1 hard", "was not checked; check it, or take it out."),
        ("checked lemma-3 10", "was written: lemma-3 9 of 10."),
        ("checked lemma-3 9\nchecked lemma-1 1\nchecked lemma-6 6", "was written: lemma-1 0 of 1, lemma-6 5 of 6."),
    ],
)
def test_listed_statements_that_are_upheld_or_checked_less_are_complaints(text: str, says: str, tmp_path: Path) -> None:
    (sentence,) = known_failures_of(text, tmp_path).complaints(FOUND)
    assert sentence.endswith(says) or says in sentence


def test_an_inconclusive_result_of_a_listed_statement_is_no_complaint(tmp_path: Path) -> None:
    undecided = [result("lemma-3", Verdict.INCONCLUSIVE, 3)]
    assert known_failures_of("lemma-3 slow\nchecked lemma-3 9", tmp_path).complaints(undecided) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lemma-66 typo", "line 1: 'lemma-66' is not a known id; the nearest is lemma-6; correct it"),
        ("\n# said\nlemma-6", "line 3: lemma-6 has no reason"),
        ("lemma-6 a\nlemma-6 b", "line 2: lemma-6 is listed twice"),
        ("checked lemma-6 many", "'many' is not a number of claims"),
        ("my file.py:it", "my file.py:it has no reason"),
    ],
)
def test_an_unusable_file_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=says):
        known_failures_of(text, tmp_path)


STATEMENTS = """
from theorems.api import Form, at_least, statement

@statement("good", assumptions=("separable",))
def good(case, under_test):
    '''One is more than zero.'''
    yield at_least("more", Form.EXACT, 1.0, 0.0, rounding=0.0, why="exact")
    {more}

@statement("bad", assumptions=("separable",))
def bad(case, under_test):
    '''Zero is more than one, it was said.'''
    yield at_least("less", Form.EXACT, {left}, 1.0, rounding=0.0, why="exact")
"""
MORE = 'yield at_least("even-more", Form.EXACT, 2.0, 0.0, rounding=0.0, why="exact")'


def test_a_known_failure_passes_until_it_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def verified(left: float, more: str, *options: str) -> int:
        Path("mine.py").write_text(STATEMENTS.format(left=left, more=more))
        given = ["--examples", "2", "--jobs", "0", *options]
        return main(["verify", "mine.py:good", "mine.py:bad", *given])

    assert verified(0.0, MORE, "--write-known-failures", "known.txt") == 1
    assert "checked mine.py:good 2\n" in Path("known.txt").read_text()
    known = ("--known-failures", "known.txt")
    assert verified(0.0, MORE, *known, "--fail-fast", "--json", "out.json") == 0
    assert "mine.py:bad: falsified, as known: less: slack -1" in capsys.readouterr().out
    good, bad = json.loads(Path("out.json").read_text())["statements"]
    assert (good["verdict"], bad["verdict"]) == ("upheld", "falsified")
    assert bad["known_failure"].startswith("less: slack -1")
    assert verified(0.0, "", *known) == 1
    assert "theorems: fewer claims were checked than when known.txt was written: mine.py:good 1 of 2." in (
        capsys.readouterr().err
    )
    assert verified(1.0, MORE, *known) == 1
    assert "theorems: mine.py:bad is upheld now; take it out of known.txt." in capsys.readouterr().err
    Path("known.txt").write_text("# nothing\n")
    assert verified(0.0, MORE, *known) == 1
    assert verified(1.0, MORE, *known) == 0
