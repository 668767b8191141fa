"""The error bounds of :class:`AttentionRows` contain the results by ball arithmetic and by PyTorch's autograd, and are
not much wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from flint import arb

from attention_conformance.calls.attention_call import Alignment, AttentionCall
from attention_conformance.calls.attention_rows import AttentionRows
from attention_conformance.calls.sizes_and_numbers import Numbers, Sizes, tensors
from tests.theorems import oracle
from tests.theorems.bounded.balls import escaped, used
from theorems.bounded.formats import FORMATS

RESULTS = ("output", "log_sum_exp", "query_gradient", "key_gradient", "value_gradient")
KINDS = (Numbers.INTEGERS, Numbers.NORMAL, Numbers.SATURATED, Numbers.FAR)
BITS = 3000
"""Bits of precision of the ball arithmetic, enough for 1 + e^−2000 to differ from 1."""


def with_every_option(of: Sizes, numbers: Numbers, seed: int) -> Iterator[tuple[AttentionCall, Alignment]]:
    """Yield drawn calls of the given sizes, for each choice of options and each alignment of the causal diagonal."""
    call, rng = tensors(of, numbers, seed), np.random.default_rng((seed, 7))
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    visible = rng.random((B, H, L, T)) < 0.5
    visible[..., :2] = True
    bias = np.where(visible, rng.integers(-16, 17, visible.shape) / 4, -np.inf)
    for options in (
        {},
        {"scale": 0.3},
        {"scale": None},
        {"softcap": 2.0, "scale": 0.7},
        {"visible": visible},
        {"bias": bias},
        {"causal": True},
        {"window": (1, 0)},
        {"causal": True, "softcap": 30.0, "scale": None},
    ):
        for alignment in Alignment:
            yield call.replace(**options), alignment


def truths(call: AttentionCall, alignment: Alignment) -> dict[str, Any]:
    """Return the exact results of a call by ball arithmetic on the definition; rows without visible keys are zeros."""
    sizes = call.sizes
    B, H, G, L, T, E, M = (sizes[axis] for axis in "BHGLTEM")
    visible = call.visibility(alignment)
    q, k, v, u = (
        np.vectorize(lambda x: arb(float(x)), otypes=[object])(x)
        for x in (call.query, call.key, call.value, call.upstream)
    )
    scale = arb(1) / arb(E).sqrt() if call.scale is None else arb(call.scale)
    zero = arb(0)
    result = {
        "output": np.full((B, H, L, M), zero, dtype=object),
        "log_sum_exp": np.full((B, H, L), zero, dtype=object),
        "query_gradient": np.full((B, H, L, E), zero, dtype=object),
        "key_gradient": np.full((B, G, T, E), zero, dtype=object),
        "value_gradient": np.full((B, G, T, M), zero, dtype=object),
    }
    for b, h, i in product(range(B), range(H), range(L)):
        g = h // (H // G)
        keys = np.flatnonzero(visible[b, h, i]).tolist()
        if not keys:
            continue
        slope, z = {}, {}
        for t in keys:
            raw = scale * sum((q[b, h, i, e] * k[b, g, t, e] for e in range(E)), zero)
            tanh = (raw / call.softcap).tanh() if call.softcap else zero
            slope[t] = 1 - tanh * tanh
            z[t] = tanh * call.softcap if call.softcap else raw
            if call.bias is not None:
                z[t] += arb(float(np.broadcast_to(call.bias, visible.shape)[b, h, i, t]))
        total = sum((x.exp() for x in z.values()), zero)
        s = {t: z[t].exp() / total for t in keys}
        result["log_sum_exp"][b, h, i] = total.log()
        for m in range(M):
            result["output"][b, h, i, m] = sum((s[t] * v[b, g, t, m] for t in keys), zero)
        pull = {t: sum((u[b, h, i, m] * v[b, g, t, m] for m in range(M)), zero) for t in keys}
        mean = sum((s[t] * pull[t] for t in keys), zero)
        for t in keys:
            dz = s[t] * (pull[t] - mean) * slope[t] * scale
            for e in range(E):
                result["query_gradient"][b, h, i, e] += dz * k[b, g, t, e]
                result["key_gradient"][b, g, t, e] += dz * q[b, h, i, e]
            for m in range(M):
                result["value_gradient"][b, g, t, m] += s[t] * u[b, h, i, m]
    return result


@pytest.mark.parametrize("numbers", KINDS)
def test_bounds_contain_the_exact_results(numbers: Numbers) -> None:
    share = dict.fromkeys(RESULTS, 0.0)
    sizes = (Sizes(1, 1, 1, 2, 3, 2, 1), Sizes(2, 2, 1, 3, 2, 1, 2))
    with oracle.precision(BITS):
        for call, alignment in [item for of in sizes for item in with_every_option(of, numbers, 3)]:
            rows, truth = AttentionRows(call, FORMATS["float64"], alignment), truths(call, alignment)
            for name in RESULTS:
                due, right = getattr(rows, name), truth[name]
                if name == "log_sum_exp":
                    due, right = due[~rows.empty], right[~rows.empty]
                assert escaped(right, due) == [], (name, call.options, alignment)
                share[name] = max(share[name], float(np.max(used(right, due), initial=0.0)))
    print({name: f"{value:.2g}" for name, value in share.items()})
    assert all(value <= 1 for value in share.values())
    if numbers is not Numbers.INTEGERS:
        assert all(value > 1e-3 for value in share.values()), share


def by_autograd(call: AttentionCall, alignment: Alignment, dtype: torch.dtype) -> dict[str, np.ndarray]:
    """Return output, log-sum-exp and gradients of a call, computed in ``dtype`` by PyTorch and its autograd."""
    query, key, value, upstream = (
        torch.tensor(x).to(dtype).requires_grad_() for x in (call.query, call.key, call.value, call.upstream)
    )
    group = call.sizes["H"] // call.sizes["G"]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (key, value))
    scale = 1 / math.sqrt(call.sizes["E"]) if call.scale is None else call.scale
    logits = query @ keys.mT * scale
    if call.softcap:
        logits = torch.tanh(logits / call.softcap) * call.softcap
    if call.bias is not None:
        logits = logits + torch.tensor(call.bias).to(dtype)
    visible = torch.tensor(call.visibility(alignment))
    empty = ~visible.any(dim=-1, keepdim=True)
    logits = torch.where(visible | empty, logits, -math.inf)
    output = torch.where(visible, torch.softmax(logits, dim=-1), 0.0) @ values
    result = (output, torch.logsumexp(logits, dim=-1), *torch.autograd.grad(output, (query, key, value), upstream))
    return {name: x.detach().double().numpy() for name, x in zip(RESULTS, result, strict=True)}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("of", [Sizes(1, 4, 2, 17, 33, 8, 9), Sizes(2, 2, 2, 1, 129, 64, 3)], ids=["many", "long"])
def test_results_of_autograd_are_within_twice_the_bounds(of: Sizes, dtype: str) -> None:
    """Autograd shares no code with the bounds. As for a kernel under test, autograd's error may be twice the bound."""
    share = dict.fromkeys(RESULTS, 0.0)
    for numbers in Numbers:
        for call, alignment in with_every_option(of, numbers, 5):
            call = call.replace(**{x: np.float32(getattr(call, x)).astype(float) for x in ("query", "key", "value")})
            call = call.replace(upstream=np.float32(call.upstream).astype(float))
            rows = AttentionRows(call, FORMATS[dtype], alignment)
            theirs = by_autograd(call, alignment, getattr(torch, dtype))
            for name in RESULTS:
                due, off = getattr(rows, name), np.abs(theirs[name] - getattr(rows, name).value)
                there = ~rows.empty if name == "log_sum_exp" else np.ones(due.shape, dtype=bool)
                allowed, off = 2 * due.error[there], off[there]
                assert (off <= allowed).all(), (name, numbers, call.options)
                known = (allowed > 0) & np.isfinite(allowed)
                share[name] = max(share[name], float(np.max(off[known] / allowed[known], initial=0.0)))
    print({name: f"{value:.2g}" for name, value in share.items()})
    assert all(value > 1e-3 for value in share.values()), share


def test_rows_without_visible_keys_are_marked_and_add_nothing_to_gradients() -> None:
    call = tensors(Sizes(1, 1, 1, 3, 2, 2, 2), Numbers.NORMAL, 0)
    call = call.replace(visible=np.array([[True, False], [False, False], [True, True]]))
    rows = AttentionRows(call, FORMATS["float64"])
    assert rows.empty.tolist() == [[[False, True, False]]]
    others = call.replace(
        query=call.query[:, :, [0, 2]], upstream=call.upstream[:, :, [0, 2]], visible=call.visible[[0, 2]]
    )
    for name in ("key_gradient", "value_gradient"):
        ours, theirs = getattr(rows, name), getattr(AttentionRows(others, FORMATS["float64"]), name)
        np.testing.assert_array_equal(ours.value, theirs.value)
    assert not rows.query_gradient.value[0, 0, 1].any()
    assert not rows.output.value[0, 0, 1].any()


def test_results_of_a_call_on_integers_are_rounded_once_in_half_precision() -> None:
    """On small integers only the returned values are rounded to bfloat16; everything before is computed in float32."""
    call = tensors(Sizes(1, 1, 1, 2, 3, 2, 2), Numbers.INTEGERS, 0)
    once, fine = (AttentionRows(call, FORMATS["float32"], stored=stored) for stored in (FORMATS["bfloat16"], None))
    extra = once.output.error - fine.output.error
    half = FORMATS["bfloat16"].eps / 2
    np.testing.assert_allclose(extra, half * np.abs(fine.output.value), rtol=1e-3, atol=1e-6)


def test_the_log_sum_exp_of_many_keys_has_a_finite_bound_in_coarse_formats() -> None:
    """In bfloat16 a sum of terms of at most 1 stops growing at 256, and 257 exponentials are added here."""
    call = tensors(Sizes(B=1, H=1, G=1, L=3, T=257, E=3, M=1), Numbers.NORMAL, seed=0)
    for scale in (0.0, 1.0, 100.0):
        rows = AttentionRows(call.replace(scale=scale), FORMATS["bfloat16"])
        lse, due = rows.log_sum_exp, AttentionRows(rows.call, FORMATS["float64"]).log_sum_exp
        assert np.isfinite(lse.error).all()
        assert (np.abs(lse.value - due.value) <= lse.error).all()
        logits = torch.tensor(rows.logits.value).to(torch.bfloat16)
        top = logits.amax(dim=-1)
        total = torch.zeros_like(top)
        for t in range(257):
            total = total + torch.exp(logits[..., t] - top)
        theirs = (top + torch.log(total)).to(torch.float64).numpy()
        assert (np.abs(theirs - lse.value) <= lse.error).all()
        assert np.max(lse.error) < 2 * np.max(rows.logits.error) + 10  # the bound is not trivially wide
