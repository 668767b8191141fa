"""Subjects, data of a paper's own kind: written and read back to the same numbers, and refused with a sentence if they
do not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.case import Case
from generators.subject import Subject, kind_named
from generators.user_data import Given, as_text, attention_case, load, subject_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from tests.theorems.custom_subject import Logits

CASE = Logits(
    np.array([0.1, 1 / 3, -0.0]),
    np.array([1, 2, 3]),
    arrays={"u": np.array([[0.5]]), "none": np.zeros((0, 3))},
    seed=7,
    name="mine",
)


def test_a_subject_written_and_read_back_has_the_same_numbers() -> None:
    text = as_text(CASE, case_of="test-lse", claim="lower")
    back = subject_of(from_json(text))
    assert isinstance(back, Logits)
    assert as_text(back, case_of="test-lse", claim="lower") == text
    assert (back.values.tobytes(), back.counts.dtype, back.seed, back.name) == (
        CASE.values.tobytes(),
        np.dtype(np.int64),
        7,
        "mine",
    )
    assert back.arrays["none"].shape == (0, 3)
    assert back.start is None
    assert not back.values.flags.writeable


def test_a_subject_can_be_pickled_for_another_process() -> None:
    import pickle

    there = pickle.loads(pickle.dumps(Given(CASE, "test-lse")))
    assert as_text(there.case) == as_text(CASE)
    assert there.failed == "test-lse"


def test_a_subject_is_read_from_a_file_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", kind="test-logits", values=np.array([1, 2]), counts=np.array([1.0, 2.0]), shift=0.5)
    case = load(str(tmp_path / "mine.npz"), 3).case
    assert (case.values.dtype, case.counts.tolist(), case.shift, case.seed) == (np.float64, [1, 2], 0.5, 3)
    assert case.name == "mine.npz"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"values": [1.0], "counts": [1], "cuonts": [1]}, "unknown name 'cuonts'. Did you mean 'counts'?"),
        ({"values": [1.0]}, "counts is missing; logits have values, counts"),
        ({"values": [[1.0], [1.0, 2.0]], "counts": [1]}, "values: the rows have different lengths"),
        ({"values": [True], "counts": [1]}, "values: true and false are no numbers"),
        ({"values": [1.0], "counts": [1.5]}, "counts: dtype float64 does not fit; give int64"),
        ({"values": ["a"], "counts": [1]}, "values: dtype <U1 does not fit"),
        ({"values": [1.0], "counts": [1, 2]}, "counts: shape (2,) is not that of values"),
        ({"values": [1.0], "counts": [1], "seed": "x"}, "seed: must be a whole number"),
        ({"values": [1.0], "counts": [1], "seed": True}, "seed: must be a whole number"),
    ],
)
def test_subjects_with_values_of_the_wrong_type_are_refused_in_a_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        subject_of({"kind": "test-logits", **values})
    assert message in str(refusal.value)


@pytest.mark.parametrize("kind", ["nobody's", 3, np.array("nobody's")])
def test_a_subject_of_an_unknown_kind_is_refused(kind: Any) -> None:
    with pytest.raises(InvalidInput, match="is no kind of data; known are"):
        kind_named(kind)


def test_two_papers_cannot_have_the_same_kind() -> None:
    with pytest.raises(
        InvalidInput, match=r"'test-logits' is the kind of tests\.theorems\.custom_subject\.Logits and .*Second; choose"
    ):

        class Second(Subject, kind="test-logits"):
            pass


def test_commands_that_need_keys_and_scores_refuse_other_subjects() -> None:
    with pytest.raises(InvalidInput, match="mine: holds logits; give keys and scores"):
        attention_case(Given(CASE))
    case = subject_of({"keys": [[[1.0], [0.0]]], "scores": [[1.0, 0.0]]})
    assert isinstance(case, Case)
    assert attention_case(Given(case)) is case


def test_a_subject_prints_its_fields() -> None:
    assert CASE.lines() == [
        "values (0.1, 0.3333333333333333, -0.0)",
        "counts (1.0, 2.0, 3.0)",
        "shift 0.0",
        "arrays u of shape (1, 1): (0.5), none of shape (0, 3): ()",
        "seed 7",
    ]
