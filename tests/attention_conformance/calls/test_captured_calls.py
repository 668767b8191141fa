"""Attention calls that a user saved from a model, tested in their number format: right kernels are
upheld, others not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_conformance.calls.attention_call import MOST_WEIGHTS, AttentionCall
from attention_conformance.calls.call_text import call_of, text_of
from reference_attention.errors import InvalidInput
from reference_attention.files import from_json
from theorems import verify
from theorems.command.app import main
from theorems.core.claim import Verdict

KERNELS = """
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa


def wrong_scale(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    scale = 1.0 if scale is None else scale
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def next_key_seen(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(1)
    return sdpa(query, key, value, attn_mask, dropout_p, scale=scale, enable_gqa=enable_gqa)


def in_sixteens(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if query.shape[-2] % 16 or key.shape[-2] % 16:
        raise ValueError("lengths must be multiples of 16")
    return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)


def without_options(query, key, value, scale=None):
    return sdpa(query, key, value, scale=scale)
"""


def tensors(dtype: str, **options: Any) -> dict[str, Any]:
    """Return the arrays of a call as a user saves them; bfloat16, which NumPy lacks, as float32 with the
    format's name.
    """
    drawn = torch.randn(4, 2, 4, 128, 64, generator=torch.Generator().manual_seed(0)).to(getattr(torch, dtype))
    named = {"dtype": dtype} if dtype == "bfloat16" else {}
    arrays = (x.float().numpy() if named else x.numpy() for x in drawn)
    return dict(zip(("query", "key", "value", "upstream"), arrays, strict=True)) | named | options


@pytest.fixture
def save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS, encoding="utf-8")
    return lambda **arrays: np.savez("captured.npz", **arrays)


def verified(kernel: str, *further: str) -> int:
    return main(["verify", "--jobs", "0", "--data", "captured.npz", "--attention", kernel, *further])


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_right_kernel_is_upheld_in_the_format_of_the_tensors(
    dtype: str, save: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(**tensors(dtype, is_causal=True))
    assert verified("torch.nn.functional:scaled_dot_product_attention") == 0
    printed = capsys.readouterr().out
    assert f"computes in {dtype}" in printed
    assert "5 capabilities and 0 statements tried" in printed


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_kernel_that_sees_one_key_too_many_is_falsified(
    dtype: str, save: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(**tensors(dtype, is_causal=True))
    assert verified("kernels.py:next_key_seen", "kernel-output") == 1
    assert "perhaps the causal mask hides wrong keys" in capsys.readouterr().out
    (record,) = Path("falsified").glob("*.npz")
    again = ["--data", str(record), "--attention", "kernels.py:next_key_seen"]
    assert main(["verify", "--jobs", "0", *again]) == 1
    assert f"computes in {dtype}" in capsys.readouterr().out


def test_a_wrong_default_scale_is_falsified(save: Any) -> None:
    save(**tensors("float32"))
    assert verified("kernels.py:wrong_scale", "kernel-output") == 1
    save(**tensors("float32", scale=0.125))
    assert verified("kernels.py:wrong_scale", "kernel-output") == 0


def test_a_kernel_without_a_parameter_for_causality_is_not_judged_on_a_causal_call(
    save: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(**tensors("float32", is_causal=True))
    assert verified("kernels.py:without_options") == 3
    assert "the call needs causal, for which the kernel has no parameter" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"query": np.full((1, 2, 16, 8), 300, np.float16)}, "may overflow in float16; give --dtype float32"),
        ({"query": np.ones((1, 2, 12, 8), np.float16)}, "save a call with L = 16"),
    ],
)
def test_a_kernel_that_cannot_take_the_call_unchanged_is_not_judged(
    changed: dict[str, Any], says: str, save: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.full((1, 2, 16, 8), 300, np.float16)
    save(**{"query": x, "key": x, "value": x} | changed)
    assert verified("kernels.py:in_sixteens", "kernel-output") == 3
    assert says in " ".join(capsys.readouterr().out.split())


def test_the_wrong_number_of_a_kernel_in_its_own_process_is_reported(
    save: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    save(**tensors("float32", is_causal=True))
    assert verified("kernels.py:next_key_seen", "kernel-output", "--jobs", "1") == 1
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err
    assert "output at (b, h, l, m)" in printed.out


def test_verify_accepts_a_call_with_a_mask_and_without_upstream_gradient() -> None:
    call = tensors("float32")
    del call["upstream"]
    visible = np.random.default_rng(0).random((128, 128)) < 0.5
    visible[:, 0] = True
    added = np.where(visible, 0.0, -np.inf).astype(np.float32)
    for mask in ({"mask": visible}, {"attn_mask": added}):
        results = verify("kernel-output", "kernel-gradients", data=call | mask, attention=scaled_dot_product_attention)
        assert [result.verdict for result in results] == [Verdict.UPHELD, Verdict.NOT_APPLICABLE]


def test_torch_tensors_become_a_call_in_their_number_format() -> None:
    query, key, value = torch.randn(3, 1, 2, 5, 8).half().unbind()
    call = call_of({"query": query, "key": key, "value": value, "is_causal": True})
    assert (call.dtype, call.causal) == ("float16", True)


def test_a_captured_call_survives_a_round_trip() -> None:
    call = call_of(tensors("float16", is_causal=True, softcap=2.0), "captured.npz")
    again = call_of(from_json(text_of(call)))
    assert (again.dtype, again.scale, again.causal, again.softcap) == ("float16", None, True, 2.0)
    assert np.array_equal(again.query, call.query)


def small(**changed: Any) -> dict[str, Any]:
    x = np.ones((1, 2, 3, 4), dtype=np.float32)
    return {"query": x, "key": x, "value": x} | changed


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"key": np.ones((1, 2, 3, 5), np.float32)}, "key: shape (1, 2, 3, 5) has length 5 along axis 3"),
        ({"key": np.ones((1, 2, 3, 4))}, "key: has the format float64, but query has float32; save both in one format"),
        ({"value": np.ones((1, 2, 3, 4), "V2")}, "value: has the format |V2, not one of float64, float32"),
        ({"query": np.full((1, 2, 3, 4), np.nan, np.float32)}, "query: entry (0, 0, 0, 0) is nan"),
        ({"mask": np.ones((3, 4), dtype=bool)}, "visible: does not broadcast to (B, H, L, T) = (1, 2, 3, 3)"),
        ({"attn_mask": np.ones((3, 3), np.int64)}, "attn_mask: must be Boolean"),
        ({"attn_mask": [[0.5], [0.5, 1.0]]}, "attn_mask: must be Boolean"),
        ({"query": np.ones((1, 2, 3, 4), np.int64)}, "query: has the format int64, not one of float64"),
        ({"mask": np.full((3, 3), np.nan)}, "bias: has NaN or +infinity"),
        ({"mask": np.ones((3, 3), bool), "visible": np.ones((3, 3), bool)}, "mask: visible is given, too"),
        ({"dtype": "float8"}, "dtype: must be empty, or one of float64"),
        ({"out": np.ones(3)}, "unknown name 'out'"),
    ],
)
def test_captured_tensors_that_do_not_fit_are_refused_in_one_sentence(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        call_of(small(**changed), "captured.npz")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_missing_key_and_too_many_weights_are_refused(save: Any, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.ones((1, 1, 3000, 1), dtype=np.float32)
    save(query=x, value=x)
    assert verified("kernels.py:wrong_scale") == 2
    assert "captured.npz: key is missing" in capsys.readouterr().err
    save(query=x, key=x, value=x)
    assert verified("kernels.py:wrong_scale") == 2
    assert f"the limit is {MOST_WEIGHTS}: save fewer" in capsys.readouterr().err
    assert not AttentionCall(*np.ones((4, 1, 1, 3000, 1))).too_large
