"""Masks in users' files: data with a mask are treated as the data without the masked tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from generators.case import Case
from generators.user_data import as_text, case_of, load
from reference_attention.errors import InvalidInput
from reference_attention.files import to_json
from theorems import explain, verify
from theorems.core.claim import Verdict
from theorems.explanations.sentences import paragraphs

RNG = np.random.default_rng(3)
X = RNG.integers(-9, 9, size=(2, 3, 2)) / 4
TOKENS = {"X": X, "Y": [1, -1], "v": [1, 0.5]}
PAIR = {"keys": X, "scores": RNG.integers(-9, 9, size=(2, 3)) / 4}
PADDED = {"keys": [[[1, 0], [0, 2], [0, 0]], [[-1, 0], [0, 1], [0, 0]]], "scores": [[-1, -2, 0], [-2, -1, 0]]}
MASK = [[1, 1, 0], [1, 1, 0]]


def same(one: Case, other: Case) -> bool:
    """Return whether both cases hold the same numbers; the positions of tokens in a user's file are ignored."""
    return as_text(one.replace(name="")) == as_text(other.replace(name=""))


@st.composite
def padded(draw: st.DrawFn, kept: dict[str, Any]) -> tuple[dict[str, Any], np.ndarray]:
    """Pad the tokens of a file at random positions with arbitrary numbers, NaN included; return the arrays and the
    mask.
    """
    length = draw(st.integers(4, 6))
    mask = np.array([np.isin(range(length), draw(st.permutations(range(length)))[:3]) for _ in range(2)])
    other, arrays = draw(st.sampled_from([0.0, 1e300, float("nan")])), dict(kept)
    for name in {"X", "keys", "scores"} & {*kept}:
        array = np.asarray(kept[name], dtype=np.float64)
        arrays[name] = np.full((2, length, *array.shape[2:]), other)
        arrays[name][mask] = array.reshape(6, *array.shape[2:])
    return arrays | {"mask": mask}, mask


@pytest.mark.parametrize("kept", [TOKENS, PAIR, TOKENS | {"queries": [[1, 2], [0.5, -1]]}, TOKENS | {"W": [[1, 2]]}])
@given(data=st.data())
def test_a_masked_token_counts_as_absent(kept: dict[str, Any], data: st.DataObject) -> None:
    arrays, mask = data.draw(padded(kept))
    alpha = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=2))
    positions = np.nonzero(mask)[1].reshape(2, 3)
    case = case_of(arrays | {"alpha": positions[[0, 1], alpha]})
    assert same(case, case_of(kept | {"alpha": alpha}))
    assert np.array_equal(case.positions, positions)


def test_masks_from_npz_json_and_python_agree_in_every_boolean_form(tmp_path: Any) -> None:
    np.savez(tmp_path / "a.npz", **PADDED, mask=np.array(MASK, dtype=bool))
    (tmp_path / "a.json").write_text(to_json(PADDED | {"mask": [[True, True, False], [1, 1.0, 0]]}))
    cases = [load(str(tmp_path / name), 0).case for name in ("a.npz", "a.json")]
    assert all(same(case, case_of(PADDED | {"mask": MASK})) for case in cases)
    assert case_of(PAIR | {"mask": np.ones((2, 3))}).positions is None


def test_padding_that_scores_highest_is_optimal_without_a_mask_and_left_out_with_one() -> None:
    assert explain(PADDED).optimal.alpha.tolist() == [2, 2]
    masked = explain(PADDED | {"mask": MASK})
    assert masked.optimal.alpha.tolist() == [0, 1]
    assert max(token.token for token in masked.tokens) == 1
    assert paragraphs(masked)[0] == "The mask keeps 2 tokens of each input, and the others are left out."
    short = {name: np.asarray(value)[:, :2] for name, value in PADDED.items()}
    assert explain(short).path.selects is not None
    assert np.array_equal(explain(short).path.flow.points, masked.path.flow.points)
    assert verify("theorem-1", data=PADDED | {"mask": MASK})["theorem-1"].verdict is Verdict.UPHELD


def test_the_explanation_gives_the_numbers_of_tokens_in_a_file_with_a_mask() -> None:
    left = {name: np.asarray(value)[:, ::-1] for name, value in PADDED.items()}
    it = explain(left | {"mask": [[0, 1, 1], [0, 1, 1]]})
    assert "tokens are numbered without them: token 0 of input 0 is number 1 of the file." in paragraphs(it)[0]
    assert '"positions": [\n    [\n      1,' in it.to_json()


def test_queries_that_see_different_numbers_of_tokens_are_explained_together() -> None:
    it = explain({"X": X, "queries": X, "Y": [[1, 1, -1], [1, -1, 1]], "v": [1, 0.5], "causal": True})
    assert paragraphs(it)[0] == (
        "Left out: 2 of 6 queries, as a single token has all weight there. Inputs are renumbered here: input 1"
        " is query 2 of input 0 of the file."
    )
    assert [len([token for token in it.tokens if token.input == i]) for i in range(4)] == [2, 3, 2, 3]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (PADDED | {"mask": [[1, 1, 0], [1, 1, 1]], "alpha": [0, 0]}, "data: alpha is for inputs that keep the same"),
        (PADDED | {"mask": [[1, 1, 0], [0, 0, 0]]}, "mask: no token of input 1 counts; true marks a token that counts"),
        (PADDED | {"mask": [[1, 0, 0], [0, 1, 0]]}, "mask: one token of each input counts, which leaves nothing"),
        (PADDED | {"mask": [[0, 0, 1], [0, 0, 1]]}, "mask: one token of each input counts"),
        (
            {name: np.concatenate([value, 0 * np.asarray(value)], axis=1) for name, value in PADDED.items()}
            | {"mask": [[0, 0, 0, 1, 1, 1]] * 2},
            "mask: all tokens that count are zero, and others are not; true marks a token that counts; if yours marks",
        ),
        (PADDED | {"mask": [[0, 0, -np.inf]] * 2}, "mask: dtype float64 and shape (2, 3) do not say which tokens"),
        (PADDED | {"mask": [[1, 2, 0]] * 2}, "give booleans, or 0 and 1, of shape (2, 3)"),
        (PADDED | {"mask": [1, 1, 0]}, "mask: dtype int64 and shape (3,) do not say"),
        (PADDED | {"mask": [["yes"] * 3] * 2}, "do not say which tokens count"),
        (PADDED | {"mask": MASK, "alpha": [0, 2]}, "alpha: token 2 of input 1 does not count by the mask"),
        (PADDED | {"mask": MASK, "alpha": [0, 3]}, "alpha: entry 1 is 3; give a token number from 0 to 2."),
        (PADDED | {"mask": MASK, "scores": [[1, 2], [1, 2]]}, "scores: shape (2, 2) does not begin with (2, 3)"),
        (PADDED | {"mask": MASK, "scores": [[1, True, 0]] * 2}, "scores: true and false are no numbers"),
        (PADDED | {"mask": MASK, "keys": [[1, 2]]}, "keys: shape (1, 2) has 2 dimension(s)"),
        (
            TOKENS | {"mask": MASK, "queries": X[:, -1]},
            "queries: the query of input 0 is its token 2, which",
        ),
        (TOKENS | {"mask": MASK, "queries": X, "Y": [[1] * 3] * 2}, "give booleans of shape (2, 3, 3)."),
        (TOKENS | {"causal": True}, "causal says what queries see; add queries of shape (n, L, e)."),
    ],
)
def test_an_ambiguous_mask_is_refused_in_one_sentence(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        case_of(arrays)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
