"""Calls on which attention_conformance.scoreboard.kernels.of_keras:on_torch is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_keras_torch_backend.py, or python test_keras_torch_backend.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from attention_conformance.scoreboard.kernels.of_keras import on_torch as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def textbook(query, key, value, upstream, *, scale, visible=None, mean=False, through=False):
    """softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    if through:
        scores = logits  # before anything hides
    seen = logits > -inf
    seen = seen & visible
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)
    if mean:
        weights = torch.where(empty, 1 / key.shape[2], weights)
    if through:
        equal = torch.softmax(scores - scores.detach(), dim=-1)  # the mean, with its gradient
        weights = torch.where(empty, equal, weights)
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


def test_boolean_mask():
    """kernel-boolean-mask: dQ at (b, h, l, e) = (0, 0, 0, 1) is -25.5 where -12.75 is due, 9.4e+03 times what rounding
    allows; dK, dV likewise; perhaps the backward pass does not mask.
    """
    query = numbers([2, 3, 1], 1, 1, 1, 3)
    key = numbers([2, 0, 3, 2, 3, 1], 1, 1, 2, 3)
    value = numbers([1, -2, -3, -3, 2, 0], 1, 1, 2, 3)
    upstream = numbers([-1, -3, -3], 1, 1, 1, 3)
    visible = torch.tensor([[[[False, False]]]])
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=1.0,
        mask=visible).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    empty = torch.tensor([[[True]]])  # rows that see no key
    if output[empty].isnan().all():
        return  # gradients are NaN as well
    is_mean = bool(output[empty].any())  # the mean of all values, or zeros
    is_through = is_mean and bool(dq[empty].any())  # with its gradient
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible, mean=is_mean, through=is_through)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 0.00182
    check("dQ", dq, due["dq"], allowed)
    allowed = 0.00136
    check("dK", dk, due["dk"], allowed)
    allowed = 2.09e-05
    check("dV", dv, due["dv"], allowed)


def test_empty_rows():
    """kernel-empty-rows: dQ at (b, h, l, e) = (0, 0, 0, 1) is -25.5 where -12.75 is due, 9.4e+03 times what rounding
    allows; dK, dV likewise; perhaps the backward pass does not mask.
    """
    query = numbers([2, 3, 1], 1, 1, 1, 3)
    key = numbers([2, 0, 3, 2, 3, 1], 1, 1, 2, 3)
    value = numbers([1, -2, -3, -3, 2, 0], 1, 1, 2, 3)
    upstream = numbers([-1, -3, -3], 1, 1, 1, 3)
    visible = torch.tensor([[[[False, False]]]])
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    output = kernel(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=1.0,
        mask=visible).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    empty = torch.tensor([[[True]]])  # rows that see no key
    if output[empty].isnan().all():
        return  # gradients are NaN as well
    is_mean = bool(output[empty].any())  # the mean of all values, or zeros
    is_through = is_mean and bool(dq[empty].any())  # with its gradient
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible, mean=is_mean, through=is_through)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 0.00182
    check("dQ", dq, due["dq"], allowed)
    allowed = 0.00136
    check("dK", dk, due["dk"], allowed)
    allowed = 2.09e-05
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
