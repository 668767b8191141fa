"""Calls on which attention_conformance.scoreboard.kernels.of_x_transformers:attend is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_x_transformers.py, or python test_x_transformers.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from attention_conformance.scoreboard.kernels.of_x_transformers import attend as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def textbook(query, key, value, upstream, *, scale, softcap=0.0, bias=None):
    """softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    logits = softcap * torch.tanh(logits / softcap)
    bias = bias.detach().cpu().double().requires_grad_()
    logits = logits + bias
    seen = logits > -inf
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)
    output = weights @ values
    lse = torch.logsumexp(logits, dim=-1)
    loss = (output * upstream.detach().cpu().double()).sum()
    leaves = {"dq": query, "dk": key, "dv": value}
    leaves["dbias"] = bias
    gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    found = {"output": output.detach(), "lse": lse.detach(), "weights": weights.detach()}
    return found | dict(zip(leaves, gradients))


def check(name, found, due, allowed):
    """Each entry of found differs from that of due by at most allowed; where allowed is inf, every value passes."""
    if found is None:
        raise AssertionError(f"{name}: autograd returned None")
    found = found.detach().cpu().double()
    wrong = (~((found - due).abs() <= allowed) & (torch.as_tensor(allowed) < inf)).nonzero().tolist()
    if wrong:
        at = tuple(wrong[0])
        here = f"{name} at {at} is {found[at]:.6g} where {due[at]:.6g} is due"
        raise AssertionError(f"{here}; {len(wrong)} of {due.numel()} entries are wrong")


def test_softcap():
    """kernel-softcap: output at (b, h, l, m) = (0, 0, 0, 0) is 1.37754 where 1.01799 is due, 3.6e+04 times what
    rounding allows; only where softcap and additive-mask meet, as far as the search shows.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([2, 2], 1, 1, 2, 1)
    value = numbers([1, 2], 1, 1, 2, 1)
    upstream = numbers([0], 1, 1, 1, 1)
    bias = numbers([0, -4], 1, 1, 1, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias, softcap=0.5)
    query, key, value, upstream, bias = (x.to(torch.float32) for x in (query, key, value, upstream, bias))
    output = kernel(query, key, value, scale=1.0, attn_mask=bias, softcap=0.5)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 1.01e-05
    check("output", output, due["output"], allowed)


def test_causal_rectangle():
    """kernel-causal-rectangle: rows that see no key are neither all 0 nor all NaN; only where causal-rectangle and
    empty-rows meet, as far as the search shows.
    """
    query = numbers([2, 2, 3, -3], 1, 2, 2, 1)
    key = numbers([2, 2], 1, 2, 1, 1)
    value = numbers([3, -2], 1, 2, 1, 1)
    upstream = numbers([0, 0, 0, 0], 1, 2, 2, 1)
    visible = torch.tensor([[[[True], [True]], [[False], [True]]]])
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query, key, value, scale=1.0, attn_mask=visible, is_causal=True)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    empty = torch.tensor([[[True, False], [True, False]]])  # rows that see no key
    zeros, nans = (output[empty] == 0).all(), output[empty].isnan().all()
    none = (dq[empty] == 0).all()
    zeros, nans = zeros & none, nans & (none | dq[empty].isnan().all())
    assert zeros or nans, "rows that see no key: neither all 0 nor all NaN"


def test_additive_mask():
    """kernel-additive-mask: output at (b, h, l, m) = (0, 0, 0, 0) is 1.37754 where 1.01799 is due, 3.6e+04 times what
    rounding allows; only where softcap and additive-mask meet, as far as the search shows.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([2, 2], 1, 1, 2, 1)
    value = numbers([1, 2], 1, 1, 2, 1)
    upstream = numbers([0], 1, 1, 1, 1)
    bias = numbers([0, -4], 1, 1, 1, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias, softcap=0.5)
    query, key, value, upstream, bias = (x.to(torch.float32) for x in (query, key, value, upstream, bias))
    output = kernel(query, key, value, scale=1.0, attn_mask=bias, softcap=0.5)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 1.01e-05
    check("output", output, due["output"], allowed)


def test_empty_rows():
    """kernel-empty-rows: rows that see no key are neither all 0 nor all NaN; only where causal-rectangle and empty-
    rows meet, as far as the search shows.
    """
    query = numbers([2, 2, 3, -3], 1, 2, 2, 1)
    key = numbers([2, 2], 1, 2, 1, 1)
    value = numbers([3, -2], 1, 2, 1, 1)
    upstream = numbers([0, 0, 0, 0], 1, 2, 2, 1)
    visible = torch.tensor([[[[True], [True]], [[False], [True]]]])
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query, key, value, scale=1.0, attn_mask=visible, is_causal=True)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    empty = torch.tensor([[[True, False], [True, False]]])  # rows that see no key
    zeros, nans = (output[empty] == 0).all(), output[empty].isnan().all()
    none = (dq[empty] == 0).all()
    zeros, nans = zeros & none, nans & (none | dq[empty].isnan().all())
    assert zeros or nans, "rows that see no key: neither all 0 nor all NaN"


if __name__ == "__main__":
    failed = 0
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            try:
                test()
            except Exception as error:
                failed = 1
                print(f"{name}: {type(error).__name__}: {error}")
    sys.exit(failed)
