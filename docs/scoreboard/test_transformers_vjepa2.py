"""Calls on which transformers.models.vjepa2.modeling_vjepa2:eager_attention_forward is wrong, as theorems verify --attention found them.

Needs only torch and the kernel: pytest test_transformers_vjepa2.py, or python test_transformers_vjepa2.py.
"""

import math
import os
import sys

import torch

sys.path.insert(0, os.getcwd())  # where the kernel was found
from transformers.models.vjepa2.modeling_vjepa2 import eager_attention_forward as kernel  # noqa: E402

inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)


def textbook(query, key, value, upstream, *, scale, bias=None, visible=None, kept=None):
    """softmax(scale · q kᵀ) v in float64, its log-sum-exp and gradients; a row that sees no key is 0."""
    query, key, value = (x.detach().cpu().double().requires_grad_() for x in (query, key, value))
    keys, values = (x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query @ keys.mT * scale
    if bias is not None:
        bias = bias.detach().cpu().double().requires_grad_()
        logits = logits + bias
    seen = logits > -inf
    if visible is not None:
        seen = seen & visible
    empty = ~seen.any(dim=-1, keepdim=True)
    logits = torch.where(seen, logits, torch.where(empty, 0.0, -inf))
    weights = torch.where(seen, torch.softmax(logits, dim=-1), 0.0)
    if kept is not None:
        weights = kept * weights
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


def test_boolean_mask():
    """kernel-boolean-mask: output at (b, h, l, m) = (0, 0, 0, 0) is -1.5 where -2 is due, 2.7e+04 times what rounding
    allows; weights, dK, dV likewise; perhaps the mask hides wrong keys.
    """
    query = numbers([-2], 1, 1, 1, 1)
    key = numbers([2, 2], 1, 1, 2, 1)
    value = numbers([-2, -1], 1, 1, 2, 1)
    upstream = numbers([-3], 1, 1, 1, 1)
    visible = torch.tensor([[[[True, False]]]])
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible)
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    class Module(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx = 1, False, 0
        head_dim, scaling, sliding_window = 1, 1.0, None
        attn_logit_softcapping, attention_dropout = None, 0.1

    module = Module().train(False)
    module.sinks = query.new_full((1,), -inf)
    module.config = type("Config", (), {"_attn_implementation": "eager", "sliding_window": None})
    visible_1 = torch.where(visible, torch.tensor(0, dtype=torch.float32),
        torch.tensor(-3.4028234663852886e+38, dtype=torch.float32))
    found = kernel(module, query, key, value, visible_1, dropout=0.0, scaling=1.0)
    weights = found[1]
    output = found[0].transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 1.87e-05
    check("output", output, due["output"], allowed)
    allowed = 9.25e-06
    check("weights", weights, due["weights"], allowed)
    allowed = 0.0003
    check("dK", dk, due["dk"], allowed)
    allowed = 3.67e-05
    check("dV", dv, due["dv"], allowed)


def test_additive_mask():
    """kernel-additive-mask: output at (b, h, l, m) = (0, 0, 0, 0) is -1 where -2.90809 is due, 6.1e+04 times what
    rounding allows; weights, dK, dV likewise; perhaps the bias is added wrongly.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([2, 2], 1, 1, 2, 1)
    value = numbers([1, -3], 1, 1, 2, 1)
    upstream = numbers([-1], 1, 1, 1, 1)
    bias = numbers([0, 3.75], 1, 1, 1, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias)
    query, key, value, upstream, bias = (x.to(torch.float32) for x in (query, key, value, upstream, bias))
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    class Module(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx = 1, False, 0
        head_dim, scaling, sliding_window = 1, 1.0, None
        attn_logit_softcapping, attention_dropout = None, 0.1

    module = Module().train(False)
    module.sinks = query.new_full((1,), -inf)
    module.config = type("Config", (), {"_attn_implementation": "eager", "sliding_window": None})
    found = kernel(module, query, key, value, bias, dropout=0.0, scaling=1.0)
    weights = found[1]
    output = found[0].transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream, allow_unused=True)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 3.16e-05
    check("output", output, due["output"], allowed)
    allowed = 1.01e-05
    check("weights", weights, due["weights"], allowed)
    allowed = 0.000192
    check("dK", dk, due["dk"], allowed)
    allowed = 1.49e-05
    check("dV", dv, due["dv"], allowed)


def test_dropout():
    """kernel-dropout: output at (b, h, l, m) = (0, 0, 0, 15) is 0.00957387 where 0.0201066 is due, 1.9e+04 times what
    rounding allows; output, weights, dQ, dK, dV likewise; only where additive-mask and dropout meet, as far as
    the search shows.
    """
    query = numbers([-1], 1, 1, 1, 1)
    key = numbers([1, 0, 1, 0, 0, -1, 0, 0, 1, 1, 1, -1, -1, -1, 0, 2], 1, 1, 16, 1)
    value = numbers([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 1], 1, 1, 16, 16)
    upstream = numbers([-1, -1, -1, 0, 1, 1, -1, 0, -1, 0, 0, -1, -1, -1, -1, 0], 1, 1, 1, 16)
    bias = numbers([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.75], 1, 16)
    query, key, value, upstream, bias = (x.to(torch.float32) for x in (query, key, value, upstream, bias))
    torch.manual_seed(585907877)
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    class Module(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx = 1, False, 0
        head_dim, scaling, sliding_window = 1, 1.0, None
        attn_logit_softcapping, attention_dropout = None, 0.25

    module = Module().train(True)
    module.sinks = query.new_full((1,), -inf)
    module.config = type("Config", (), {"_attn_implementation": "eager", "sliding_window": None})
    found = kernel(module, query, key, value, bias.reshape((1, 1, 1, 16)), dropout=0.25, scaling=1.0)
    weights = found[1]
    output = found[0].transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    kept = output.detach().cpu() != 0  # the values are the identity: the output is the weights
    factor = kept.double() / 0.75
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias)
    before = due["weights"]  # that it returns these, too, is right
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias, kept=factor)
    # Twice the rounding error of the textbook formula in float32.
    allowed = 5.23e-06
    check("output", output, due["output"], allowed)
    allowed = 5.23e-06
    check("output", output, due["output"], allowed)
    allowed = 5.2e-06
    if not ((weights.detach().cpu().double() - before).abs() <= allowed).all():
        check("weights", weights, due["weights"], allowed)
    allowed = 0.000249
    check("dQ", dq, due["dq"], allowed)
    allowed = 6.39e-05
    check("dK", dk, due["dk"], allowed)
    allowed = 5.36e-06
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
