"""Sinks, linear biases (ALiBi), lengths, and gradients of log-sum-exp and bias: :class:`FurtherRows` agrees with
PyTorch's autograd.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.further_rows import FurtherRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from theorems.bounded.formats import FORMATS

PLAIN = tensors(Sizes(B=2, H=4, G=2, L=3, T=20, E=8, M=5), Numbers.NORMAL, seed=0)
RNG = np.random.default_rng(0)
CALLS = {
    "plain": PLAIN,
    "sinks": PLAIN.replace(sinks=3 * RNG.standard_normal(4)),
    "far sinks": PLAIN.replace(sinks=np.array([90.0, -90.0, 900.0, 0.0]), causal=True),
    "slopes": PLAIN.replace(slopes=RNG.random((2, 4)), causal=True),
    "log-sum-exp": PLAIN.replace(lse_upstream=RNG.standard_normal((2, 4, 3)), softcap=2.0),
    "bias": PLAIN.replace(bias=RNG.standard_normal((1, 4, 1, 20)), softcap=2.0),
    "bias of (L, T)": PLAIN.replace(bias=RNG.standard_normal((3, 20))),
    "lengths": PLAIN.replace(lengths=np.array([[2, 7], [3, 20]]), causal=True),
}
RESULTS = ("output", "query_gradient", "key_gradient", "value_gradient", "sink_gradient", "bias_gradient")


def textbook(call: AttentionCall) -> dict[str, Any]:
    """Return output and gradients of a call, by name, computed with PyTorch's autograd."""
    query, key, value = (torch.tensor(x).requires_grad_() for x in (call.query, call.key, call.value))
    leaves = {"query_gradient": query, "key_gradient": key, "value_gradient": value}
    group = query.shape[1] // key.shape[1]
    logits = query @ key.repeat_interleave(group, 1).mT
    if call.softcap:
        logits = call.softcap * torch.tanh(logits / call.softcap)
    if call.bias is not None:
        leaves["bias_gradient"] = torch.tensor(call.bias).requires_grad_()
        logits = logits + leaves["bias_gradient"]
    if call.slopes is not None:
        ahead = np.abs(call.ahead(np.arange(3), Alignment.BOTTOM_RIGHT))
        logits = logits - torch.tensor(call.slopes)[..., None, None] * torch.tensor(ahead)
    visible = torch.tensor(call.visibility(Alignment.BOTTOM_RIGHT))
    logits = logits.masked_fill(~visible, -torch.inf)
    every = logits
    if call.sinks is not None:
        leaves["sink_gradient"] = torch.tensor(call.sinks).requires_grad_()
        every = torch.cat([logits, leaves["sink_gradient"][:, None, None].expand(2, 4, 3, 1)], dim=-1)
    weights = torch.where(visible.any(dim=-1, keepdim=True), torch.softmax(every, dim=-1)[..., :20], 0.0)
    output = weights @ value.repeat_interleave(group, 1)
    loss = (output * torch.tensor(call.upstream)).sum()
    if call.lse_upstream is not None:
        loss = loss + (torch.logsumexp(logits, dim=-1) * torch.tensor(call.lse_upstream)).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


@pytest.mark.parametrize("name", CALLS)
def test_results_of_calls_with_options_agree_with_autograd(name: str) -> None:
    rows = FurtherRows(CALLS[name], FORMATS["float64"], Alignment.BOTTOM_RIGHT)
    outcome = textbook(CALLS[name])
    assert set(outcome) <= set(RESULTS)
    for result, theirs in outcome.items():
        due: Any = getattr(rows, result)
        known = ~np.isnan(theirs.numpy())  # autograd gives NaN in rows without visible keys
        assert known.mean() > 0.5
        assert (np.abs(theirs.numpy() - due.value) <= due.error)[known].all(), result
        assert due.error.max() < 1e-10


def test_without_further_options_the_results_are_those_of_plain_attention() -> None:
    """Results and error bounds of :class:`FurtherRows` and :class:`AttentionRows` agree to the last bit."""
    ours = FurtherRows(PLAIN, FORMATS["float32"])
    rows = AttentionRows(PLAIN, FORMATS["float32"])
    for name in (*RESULTS[:4], "log_sum_exp"):
        assert np.array_equal(getattr(ours, name).value, getattr(rows, name).value)
        assert np.array_equal(getattr(ours, name).error, getattr(rows, name).error)


def test_a_sink_acts_like_one_more_key_with_value_zero() -> None:
    """A sink with logit 10⁴ takes all the weight of its head, a sink with logit −∞ none."""
    with_sinks = FurtherRows(PLAIN.replace(sinks=np.array([1e4, -np.inf, 0.0, 0.0])), FORMATS["float64"])
    without = FurtherRows(PLAIN, FORMATS["float64"])
    assert not with_sinks.output.value[:, 0].any()
    np.testing.assert_allclose(with_sinks.output.value[:, 1], without.output.value[:, 1], rtol=1e-14)
    longer = PLAIN.replace(
        query=np.concatenate([PLAIN.query, np.ones((2, 4, 3, 1))], axis=-1),
        key=np.concatenate(
            [
                np.concatenate([PLAIN.key, np.zeros((2, 2, 20, 1))], axis=-1),
                np.concatenate([np.zeros((2, 2, 1, 8)), np.full((2, 2, 1, 1), 1.5)], axis=-1),
            ],
            axis=2,
        ),
        value=np.concatenate([PLAIN.value, np.zeros((2, 2, 1, 5))], axis=2),
    )
    same = FurtherRows(PLAIN.replace(sinks=np.full(4, 1.5)), FORMATS["float64"])
    np.testing.assert_allclose(
        same.output.value, AttentionRows(longer, FORMATS["float64"]).output.value, rtol=1e-13, atol=1e-15
    )
