"""Calls on which attention_conformance.scoreboard.kernels.of_onnx:on_runtime is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_onnxruntime_attention.py, or python test_onnxruntime_attention.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from attention_conformance.scoreboard.kernels.of_onnx import on_runtime as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def textbook(query, key, value, upstream, *, scale):
    """softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    seen = logits > -inf
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)
    output = weights @ values
    lse = torch.logsumexp(logits, dim=-1)
    loss = (output * upstream.detach().cpu().double()).sum()
    leaves = {"dq": query, "dk": key, "dv": value}
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


def test_scale():
    """kernel-scale: output at (b, h, l, m) = (0, 0, 0, 0) is 2.90965 where 2.90965 is due, 1.8e+05 times what rounding
    allows.
    """
    query = numbers([-1], 1, 1, 1, 1)
    key = numbers([1, -3], 1, 1, 2, 1)
    value = numbers([2, 3], 1, 1, 2, 1)
    upstream = numbers([3], 1, 1, 1, 1)
    due = textbook(query, key, value, upstream, scale=0.5773502691896258)
    output = kernel(query, key, value, scale=0.5773502691896258)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 7.09e-14
    check("output", output, due["output"], allowed)


def test_default_scale():
    """kernel-default-scale: output at (b, h, l, m) = (0, 0, 0, 0) is -1.94336 where -1.94336 is due, 1.5e+05 times
    what rounding allows; perhaps the kernel's default scale is neither 1/√E nor 1.
    """
    query = numbers([1, -2], 1, 1, 1, 2)
    key = numbers([-1, 3, 0, 1], 1, 1, 2, 2)
    value = numbers([0, -2], 1, 1, 2, 1)
    upstream = numbers([0], 1, 1, 1, 1)
    # The scale of most libraries; the scale 1 is right as well.
    due = textbook(query, key, value, upstream, scale=1 / math.sqrt(2))
    output = kernel(query, key, value)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 3.82e-14
    check("output", output, due["output"], allowed)


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
