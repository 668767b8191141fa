"""Calls on which attention_conformance.scoreboard.kernels.of_x_transformers:attend_flash is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_x_transformers_flash.py, or python test_x_transformers_flash.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from attention_conformance.scoreboard.kernels.of_x_transformers import attend_flash as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def textbook(query, key, value, upstream, *, scale, bias=None, visible=None, causal=False):
    """softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    i, j = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])
    if bias is not None:
        bias = bias.detach().cpu().double().requires_grad_()
        logits = logits + bias
    ahead = j - i
    seen = logits > -inf
    seen = seen & (ahead <= 0)
    if visible is not None:
        seen = seen & visible
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)
    output = weights @ values
    lse = torch.logsumexp(logits, dim=-1)
    loss = (output * upstream.detach().cpu().double()).sum()
    leaves = {"dq": query, "dk": key, "dv": value}
    if bias is not None:
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


def test_causal_rectangle():
    """kernel-causal-rectangle: output at (b, h, l, m) = (0, 0, 0, 0) is 1 where 2 is due, 2.8e+13 times what rounding
    allows; dQ, dK, dV likewise; only where causal-rectangle and additive-mask meet, as far as the search shows.
    """
    query = numbers([-1, 0, 1], 1, 1, 3, 1)
    key = numbers([-2, 1], 1, 1, 2, 1)
    value = numbers([2, 0], 1, 1, 2, 1)
    upstream = numbers([-2, 3, 1], 1, 1, 3, 1)
    bias = numbers([0, 0, 0, 0, 0, 0], 1, 1, 3, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias, causal=True)
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query, key, value, scale=1.0, attn_mask=bias, is_causal=True)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 3.62e-14
    check("output", output, due["output"], allowed)
    allowed = 8.45e-13
    check("dQ", dq, due["dq"], allowed)
    allowed = 1.99e-13
    check("dK", dk, due["dk"], allowed)
    allowed = 9.75e-14
    check("dV", dv, due["dv"], allowed)


def test_boolean_mask():
    """kernel-boolean-mask: output at (b, h, l, m) = (0, 0, 0, 0) is 0 where 3 is due, 8.7e+13 times what rounding
    allows; only where causal-rectangle and boolean-mask meet, as far as the search shows.
    """
    query = numbers([2, 2], 1, 1, 2, 1)
    key = numbers([2], 1, 1, 1, 1)
    value = numbers([3], 1, 1, 1, 1)
    upstream = numbers([0, 0], 1, 1, 2, 1)
    visible = torch.tensor([[[[True], [True]]]])
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible, causal=True)
    output = kernel(query, key, value, scale=1.0, attn_mask=visible, is_causal=True)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 3.48e-14
    check("output", output, due["output"], allowed)


def test_additive_mask():
    """kernel-additive-mask: output at (b, h, l, m) = (0, 0, 0, 0) is 1 where 2 is due, 2.8e+13 times what rounding
    allows; dQ, dK, dV likewise; only where causal-rectangle and additive-mask meet, as far as the search shows.
    """
    query = numbers([-1, 0, 1], 1, 1, 3, 1)
    key = numbers([-2, 1], 1, 1, 2, 1)
    value = numbers([2, 0], 1, 1, 2, 1)
    upstream = numbers([-2, 3, 1], 1, 1, 3, 1)
    bias = numbers([0, 0, 0, 0, 0, 0], 1, 1, 3, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias, causal=True)
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query, key, value, scale=1.0, attn_mask=bias, is_causal=True)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 3.62e-14
    check("output", output, due["output"], allowed)
    allowed = 8.45e-13
    check("dQ", dq, due["dq"], allowed)
    allowed = 1.99e-13
    check("dK", dk, due["dk"], allowed)
    allowed = 9.75e-14
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
