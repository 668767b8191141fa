"""Calls on which attention_conformance.scoreboard.kernels.of_torch:flash_with_lse is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_torch_flash_operator_with_lse.py, or python test_torch_flash_operator_with_lse.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from attention_conformance.scoreboard.kernels.of_torch import flash_with_lse as kernel  # noqa: E402

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


def test_log_sum_exp():
    """kernel-log-sum-exp: output at (b, h, l, m) = (0, 0, 0, 0) is 0 where 1 is due, 8.7e+13 times what rounding
    allows; log-sum-exp, dQ, dK, dV likewise; only where log-sum-exp and memory meet, as far as the search shows.
    """
    query = numbers([2, 3], 1, 1, 1, 2)
    key = numbers([2, 0], 1, 1, 1, 2)
    value = numbers([1], 1, 1, 1, 1)
    upstream = numbers([0], 1, 1, 1, 1)
    due = textbook(query, key, value, upstream, scale=1.0)
    query, key, value = (torch.stack((x, torch.full_like(x, nan)), dim=4).flatten(3, 4)[..., ::2] for x in (query,
        key, value))  # last stride 2
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    value_1 = torch.nn.functional.pad(value, (0, 1)).split(2, dim=-1)[0].transpose(1, 2)
    found = kernel(query.transpose(1, 2), key.transpose(1, 2), value_1, softmax_scale=1.0, return_lse=True)
    lse = found[1]
    output = torch.cat([found[0].transpose(1, 2)], dim=-1)[..., :1]
    assert output.requires_grad, "no gradient: autograd does not connect the results with the inputs"
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 1.16e-14
    check("output", output, due["output"], allowed)
    allowed = 5.36e-15
    check("log-sum-exp", lse, due["lse"], allowed)
    allowed = 0
    check("dQ", dq, due["dq"], allowed)
    allowed = 0
    check("dK", dk, due["dk"], allowed)
    allowed = 0
    check("dV", dv, due["dv"], allowed)


def test_memory():
    """kernel-memory: output at (b, h, l, m) = (0, 0, 0, 0) is 0 where 1 is due, 8.7e+13 times what rounding allows;
    dQ, dK, dV likewise; perhaps strides are taken for those of a contiguous tensor.
    """
    query = numbers([2, 3], 1, 1, 1, 2)
    key = numbers([2, 0], 1, 1, 1, 2)
    value = numbers([1], 1, 1, 1, 1)
    upstream = numbers([-1], 1, 1, 1, 1)
    due = textbook(query, key, value, upstream, scale=1.0)
    query, key, value = (torch.stack((x, torch.full_like(x, nan)), dim=4).flatten(3, 4)[..., ::2] for x in (query,
        key, value))  # last stride 2
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    value_1 = torch.nn.functional.pad(value, (0, 1)).split(2, dim=-1)[0].transpose(1, 2)
    output = torch.cat([kernel(query.transpose(1, 2), key.transpose(1, 2), value_1, softmax_scale=1.0).transpose(1,
        2)], dim=-1)[..., :1]
    assert output.requires_grad, "no gradient: autograd does not connect the results with the inputs"
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    # Twice the rounding error of the textbook formula in float64.
    allowed = 1.16e-14
    check("output", output, due["output"], allowed)
    allowed = 9.29e-14
    check("dQ", dq, due["dq"], allowed)
    allowed = 1.39e-13
    check("dK", dk, due["dk"], allowed)
    allowed = 2.23e-14
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
