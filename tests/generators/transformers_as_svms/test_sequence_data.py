"""A user's file with several queries per input, causal or masked: read, verified, written back, refused clearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from generators.user_data import as_text, load
from reference_attention.errors import InvalidInput
from reference_attention.sequence_dataset import SequenceDataset
from theorems import verify
from theorems.core.claim import Verdict
from theorems.run.findings import findings
from theorems.run.registry.lookup import select_statements
from theorems.run.verify import verify_data

X = np.array([[[1.0, 2.0], [2.0, -1.0], [0.0, 1.0]], [[0.5, 1.0], [-1.0, 2.0], [1.0, -1.5]]])
Y = np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0]])


def saved(tmp_path: Path, **changed: Any) -> str:
    values = {"X": X, "queries": X, "Y": Y, "v": [1.0, 0.0], "causal": True} | changed
    path = tmp_path / "mine.npz"
    np.savez(path, **{name: value for name, value in values.items() if value is not None})
    return str(path)


def test_a_causal_file_is_verified_only_on_the_statement_about_sequences(tmp_path: Path) -> None:
    given = load(saved(tmp_path), 0)
    chosen = select_statements((), subject=given.case)
    assert [item.id for item in chosen] == ["tsvm-sequence"]
    assert verify_data("tsvm-sequence", given).counts == {Verdict.UPHELD: 1}
    by_name = {item.id: item for item in findings(given, chosen)}
    assert by_name["sequence-given"].evidence == "6 queries, of which 2 see 2 tokens, 2 see 3 tokens"
    assert verify_data("tsvm-frobenius-path", given).counts == {Verdict.NOT_APPLICABLE: 1}
    assert verify_data("tsvm-sequence", load("figure-1a", 0)).counts == {Verdict.NOT_APPLICABLE: 1}


def test_arrays_with_several_queries_are_accepted_from_python() -> None:
    data = SequenceDataset(X, X, Y, [1.0, 0.0], causal=True)
    (result,) = verify(data, "tsvm-sequence")
    assert result.verdict is Verdict.UPHELD


def test_a_written_mask_and_start_are_read_back(tmp_path: Path) -> None:
    mask = np.tri(3, dtype=np.bool_)[None] | np.zeros((2, 1, 1), dtype=np.bool_)
    case = load(saved(tmp_path, causal=None, mask=mask, W0=np.eye(2)), 0).case
    assert case.sequence is not None
    assert (case.sequence.mask == load(saved(tmp_path), 0).case.sequence.mask).all()
    path = tmp_path / "case.json"
    path.write_text(as_text(case))
    again = load(str(path), 0).case
    for name in ("X", "queries", "Y", "v", "mask"):
        assert np.array_equal(getattr(again.sequence, name), getattr(case.sequence, name))
    assert np.array_equal(again.start, np.eye(2).ravel())
    everything = load(saved(tmp_path, causal=None), 0).case
    assert "mask" not in as_text(everything)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"queries": None}, "causal says what queries see; add queries of shape (n, L, e)."),
        ({"queries": X[:, 0], "Y": [1, 1]}, "causal is for several queries per input; give queries of shape (n, L, e)"),
        ({"queries": X[:, :2], "Y": Y[:, :2]}, "causal: 2 queries and 3 tokens; give a query per token, or a mask."),
        ({"mask": np.ones((2, 3, 3))}, "mask: causal=True is a mask already; give either mask or causal."),
        (
            {"causal": None, "mask": np.ones((2, 3, 2))},
            "mask: dtype float64 and shape (2, 3, 2) are not those of a mask",
        ),
        ({"causal": None, "mask": np.full((2, 3, 3), 2)}, "give booleans of shape (2, 3, 3)."),
        ({"causal": None, "mask": np.zeros((2, 3, 3))}, "mask: query 0 of input 0 sees no token; let it see at least"),
        ({"causal": None, "mask": np.eye(3)[None].repeat(2, 0)}, "mask: no query sees two tokens"),
        ({"causal": 2}, "causal: must be true or false."),
        ({"Y": [1, -1]}, "Y: shape (2,) has 1 dimension(s); give shape (2, 3)."),
        ({"Y": 0 * Y}, "Y: label (0, 0) is 0; labels must be -1 or +1."),
        ({"queries": X[:1]}, "queries: shape (1, 3, 2) has length 1 along axis 0"),
        ({"alpha": [0, 0]}, "alpha chooses a token of each input, not of each query; leave it out."),
    ],
)
def test_sequence_data_that_do_not_fit_are_refused_in_one_sentence(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(saved(tmp_path, **changed), 0)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
