"""Calls on which theorems.scoreboard.kernels.of_jax:of_nn is wrong, as theorems verify --attention found them.

Needs torch and the kernel alone: pytest test_jax_nn.py, or python test_jax_nn.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from theorems.scoreboard.kernels.of_jax import of_nn as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def first(found):
    """The output of a kernel that may return more."""
    return found[0] if isinstance(found, (tuple, list)) else found


def textbook(query, key, value, upstream, *, scale, softcap=0.0, bias=None, visible=None, causal=False, window=None,
             diagonal=0):
    """softmax(cap(scale · q kᵀ) + bias) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    if softcap:
        logits = softcap * torch.tanh(logits / softcap)
    if bias is not None:
        logits = logits + bias
    # Row i stands at key i + diagonal.
    ahead = torch.arange(key.shape[2]) - torch.arange(query.shape[2])[:, None] - diagonal
    seen = (logits > -inf) & (ahead <= 0 if causal else ahead == ahead)
    if visible is not None:
        seen = seen & visible
    if window is not None:
        before, after = window
        seen = seen & ((ahead >= -before) | (before < 0)) & ((ahead <= after) | (after < 0))
    logits = torch.where(seen | ~seen.any(dim=-1, keepdim=True), logits, -inf)
    output = torch.where(seen, torch.softmax(logits, dim=-1), 0.0) @ values
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    return {"output": output.detach(), "lse": torch.logsumexp(logits, dim=-1).detach(), "dq": dq, "dk": dk, "dv": dv}


def check(name, found, due, allowed):
    """Each entry is what is due, up to what is allowed."""
    found = found.detach().cpu().double()
    wrong = (~((found - due).abs() <= allowed)).nonzero().tolist()
    if wrong:
        at = tuple(wrong[0])
        here = f"{name} at {at} is {found[at]:.6g} where {due[at]:.6g} is due"
        raise AssertionError(f"{here}; {len(wrong)} of {due.numel()} entries are wrong")


def check_same(name, found, due):
    """The same numbers, bit for bit."""
    if not torch.allclose(found, due, rtol=0, atol=0, equal_nan=True):
        raise AssertionError(f"{name}: up to {(found - due).abs().max():.3g} apart")


def test_empty_rows():
    """kernel-empty-rows: dV at (b, g, t, m) = (0, 0, 0, 0) is -2 where 0 is due, where nothing is rounded; perhaps how
    dV is added up over the queries, or the weights that go into it.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([1], 1, 1, 1, 1)
    value = numbers([0], 1, 1, 1, 1)
    upstream = numbers([-2], 1, 1, 1, 1)
    visible = torch.tensor([[[[False]]]])
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible)
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    own_visible = visible
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = first(kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=1.0,
        mask=own_visible)).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    # Twice what rounding the textbook formula in float32 may lose, entry by entry.
    allowed = 0.0
    check("dV", dv, due["dv"], allowed)


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
