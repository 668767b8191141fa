"""Lines of a test that is written for somebody else's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from generators.attention_call import AttentionCall
from generators.attention_calls import Numbers, Sizes, tensors
from theorems.capabilities.agreement import GRADIENTS, OUTPUT
from theorems.kernel.loading import kernel_named
from theorems.kernel.reproducer import LARGEST, _check_line, _forward, reproducer
from theorems.kernel.reproducer_file import file_of
from theorems.kernel.trace import QUANTITIES, Entry, Trace


def plain(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.softmax(query @ keys.mT, dim=-1) @ values


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float = 1.0, return_softmax_lse: bool = False
) -> Any:
    """In (B, L, H, E), with the log-sum-exp."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    logits = softmax_scale * q @ k.mT
    output = (torch.softmax(logits, dim=-1) @ v).transpose(1, 2)
    return (output, torch.logsumexp(logits, dim=-1)) if return_softmax_lse else output


def call(T: int = 3, **further: Any) -> AttentionCall:
    return tensors(Sizes(B=1, H=2, G=2, L=2, T=T, E=2, M=2), Numbers.NORMAL, seed=0).replace(**further)


def found(function: str, given: AttentionCall, *entries: Entry) -> Trace:
    kernel = kernel_named(f"{__name__}:{function}", "float64")
    return Trace("output", kernel, (given,), (kernel.answer(given),), tuple(x.claim for x in entries), entries)


def entry(claim: str, apart: float, allowed: list[float]) -> Entry:
    due = np.full(len(allowed), 0.25)
    return Entry(claim, call(), QUANTITIES[claim], due + apart, due, np.array(allowed))


def test_a_call_that_nobody_can_read_is_not_written_down() -> None:
    small = call()
    assert reproducer(found("plain", small, entry(OUTPUT, 1.0, [1e-9])), "a line").startswith("def test_output():\n")
    assert reproducer(found("plain", call(T=LARGEST // 4), entry(OUTPUT, 1.0, [1e-9])), "a line") == ""


@pytest.mark.parametrize(("words", "lines"), [(3, 1), (40, 3)])
def test_the_line_is_the_docstring(words: int, lines: int) -> None:
    text = reproducer(found("plain", call(), entry(OUTPUT, 1.0, [1e-9])), " ".join(f"word{k}" for k in range(words)))
    _, doc, *_ = text.split('"""')
    assert text.split("\n")[1].startswith('    """word0 word1')
    assert doc.split() == [f"word{k}" for k in range(words)]
    assert len(doc.rstrip().splitlines()) == lines


@pytest.mark.parametrize("asked", [True, False])
def test_an_output_in_other_axes_is_brought_into_ours(asked: bool) -> None:
    lines = _forward(found("flash", call(scale=1.0, log_sum_exp=asked)))
    written = "kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)"
    assert written in " ".join(" ".join(lines).split())
    if asked:
        assert lines[-2].startswith("output, lse = kernel(")
        assert lines[-1] == "output = output.transpose(1, 2)"
    else:
        assert lines[-1].endswith(".transpose(1, 2)")
    usual = _forward(found("plain", call()))
    assert usual == ["output = first(kernel(query, key, value))"]


def test_what_is_allowed_is_short_where_that_tells_as_well() -> None:
    """A number for all entries where they are equal; said once what it is."""
    first, other = entry(OUTPUT, 1e-3, [1.23456e-9] * 2), entry(GRADIENTS[0], 1e-3, [1.23456e-9, 2.5e-9])
    both = found("plain", call(), first, other)
    said = list(_check_line(both, first))
    assert said[0].startswith("# Twice what rounding")
    assert said[1] == "allowed = 1.24e-09"
    assert said[2].startswith('check("output", output, due["output"], allowed)')
    again = list(_check_line(both, other))
    assert not again[0].startswith("#")
    assert again[0].startswith("allowed = numbers([1.24e-09, 2.52e-09], 2)")
    # 1.23456e-9 is less than the difference, and its short form is not.
    near = entry(OUTPUT, 1.236e-9, [1.23456e-9])
    assert list(_check_line(found("plain", call(), near), near))[1] == "allowed = 1.23456e-09"


def mean_of_all(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, is_causal: bool = False
) -> torch.Tensor:
    """Causal at the bottom right; a row that sees no key is the mean of all values."""
    logits = query @ key.mT
    L, T = logits.shape[-2:]
    hidden = torch.ones(L, T, dtype=torch.bool).triu(T - L + 1)
    return torch.softmax(logits.masked_fill(hidden, -1e300) if is_causal else logits, dim=-1) @ value


def test_rows_that_see_no_key_are_named_where_no_mask_is_given() -> None:
    given = tensors(Sizes(B=1, H=1, G=1, L=3, T=2, E=2, M=2), Numbers.NORMAL, seed=0).replace(causal=True)
    kernel = kernel_named(f"{__name__}:mean_of_all", "float64")
    claims = ("rows-that-see-nothing",)
    text = reproducer(Trace("causal-rectangle", kernel, (given,), (kernel.answer(given),), claims, ()), "a line")
    assert "empty = torch.tensor([[[True, False, False]]])" in text
    made: dict[str, Any] = {}
    exec(file_of(kernel.source, [text], "test.py"), made)
    with pytest.raises(AssertionError, match="neither all 0 nor all NaN"):
        made["test_causal_rectangle"]()
