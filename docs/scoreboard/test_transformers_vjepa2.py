"""Calls on which transformers.models.vjepa2.modeling_vjepa2:eager_attention_forward is wrong, as theorems verify --attention found them.

Needs torch and the kernel alone: pytest test_transformers_vjepa2.py, or python test_transformers_vjepa2.py.
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


def test_boolean_mask():
    """kernel-boolean-mask: output at (b, h, l, m) = (0, 0, 0, 0) is -1.24224 where -1 is due, 2.2e+04 times what
    rounding allows; dQ, dK, dV likewise; perhaps which keys the mask hides.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([1, 0, -2], 1, 1, 3, 1)
    value = numbers([-1, -3, -3], 1, 1, 3, 1)
    upstream = numbers([-3], 1, 1, 1, 1)
    visible = torch.tensor([[[[True, False, False]]]])
    due = textbook(query, key, value, upstream, scale=1.0, visible=visible)
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    own_visible = visible
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    class Module(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx = 1, False, 0


    module = Module().eval()
    module.config = type("Config", (), {"_attn_implementation": "eager"})
    output = first(kernel(module, query, key, value, torch.where(own_visible, 0.0,
        torch.finfo(torch.float32).min).to(torch.float32), dropout=0.0, scaling=1.0)).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    # Twice what rounding the textbook formula in float32 may lose, entry by entry.
    allowed = 1.13e-05
    check("output", output, due["output"], allowed)
    allowed = 7.78e-05
    check("dQ", dq, due["dq"], allowed)
    allowed = numbers([0.000156, 0, 0], 1, 1, 3, 1)
    check("dK", dk, due["dk"], allowed)
    allowed = numbers([3.82e-05, 0, 0], 1, 1, 3, 1)
    check("dV", dv, due["dv"], allowed)


def test_additive_mask():
    """kernel-additive-mask: output at (b, h, l, m) = (0, 0, 0, 0) is -1.8808 where -1.56218 is due, 1.3e+04 times what
    rounding allows; dQ, dK, dV likewise; perhaps how the bias is added.
    """
    query = numbers([2], 1, 1, 1, 1)
    key = numbers([1, 0], 1, 1, 2, 1)
    value = numbers([-2, -1], 1, 1, 2, 1)
    upstream = numbers([-3], 1, 1, 1, 1)
    bias = numbers([-3.75, -2], 1, 1, 1, 2)
    due = textbook(query, key, value, upstream, scale=1.0, bias=bias)
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    own_bias = bias.to(torch.float32)
    query, key, value = (x.requires_grad_() for x in (query, key, value))
    class Module(torch.nn.Module):
        num_key_value_groups, is_causal, layer_idx = 1, False, 0


    module = Module().eval()
    module.config = type("Config", (), {"_attn_implementation": "eager"})
    output = first(kernel(module, query, key, value, own_bias, dropout=0.0, scaling=1.0)).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
    # Twice what rounding the textbook formula in float32 may lose, entry by entry.
    allowed = 2.39e-05
    check("output", output, due["output"], allowed)
    allowed = 0.000161
    check("dQ", dq, due["dq"], allowed)
    allowed = numbers([0.000321, 9.12e-05], 1, 1, 2, 1)
    check("dK", dk, due["dk"], allowed)
    allowed = numbers([2.91e-05, 1.91e-05], 1, 1, 2, 1)
    check("dV", dv, due["dv"], allowed)


def test_hidden_keys():
    """kernel-hidden-keys: other numbers in keys that a row does not see change its output; perhaps something is taken
    over all keys, hidden ones too (a maximum, a scale, a sum), or hidden logits are finite.
    """
    query = numbers([2, 1], 1, 1, 2, 1)
    key = numbers([0, -2], 1, 1, 2, 1)
    value = numbers([-1, -3], 1, 1, 2, 1)
    upstream = numbers([-3, -3], 1, 1, 2, 1)
    visible = torch.tensor([[[[False, True]]]])
    hidden = [0]  # keys that hold other numbers in the second call
    other_key, other_value = key.clone(), value.clone()
    other_key[:, :, hidden] = numbers([1e+30], 1, 1, 1, 1)
    other_value[:, :, hidden] = numbers([1e+30], 1, 1, 1, 1)
    clear = torch.tensor([[[True, True]]])  # rows that see none of them
    query, key, value, upstream = (x.to(torch.float32) for x in (query, key, value, upstream))
    own_visible = visible
    other_key, other_value = other_key.to(key), other_value.to(value)

    def run(key, value, query=query):
        query, key, value = (x.detach().requires_grad_() for x in (query, key, value))
        class Module(torch.nn.Module):
            num_key_value_groups, is_causal, layer_idx = 1, False, 0


        module = Module().eval()
        module.config = type("Config", (), {"_attn_implementation": "eager"})
        output = first(kernel(module, query, key, value, torch.where(own_visible, 0.0,
            torch.finfo(torch.float32).min).to(torch.float32), dropout=0.0, scaling=1.0)).transpose(1, 2)
        dq, dk, dv = torch.autograd.grad(output, (query, key, value), upstream)
        return output, dq, dk, dv
    once = dict(zip(['output', 'dq', 'dk', 'dv'], run(key, value)))
    again = dict(zip(['output', 'dq', 'dk', 'dv'], run(other_key, other_value)))
    others = [t for t in range(2) if t not in hidden]
    check_same("output", again["output"][clear], once["output"][clear])
    check_same("dq", again["dq"][clear], once["dq"][clear])
    check_same("dk", again["dk"][:, :, others], once["dk"][:, :, others])
    check_same("dv", again["dv"][:, :, others], once["dv"][:, :, others])
    for name in ("dk", "dv"):
        assert (again[name][:, :, hidden] == 0).all(), f"{name} of hidden keys is not 0"


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
