"""What merges parts of the keys, as an attention kernel: the parts are attended to here, and merged by it.

A part is what its keys give: their mean under the softmax within it, and log Σ e^logit over it. Of no keys, or none
that a row sees, that is (0, −∞).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from attention_conformance.interfaces.interface import (
    GIVEN,
    Interface,
    Parameters,
    Request,
    Returned,
    first_of,
    neutral_option,
    option_of,
    others,
)
from attention_conformance.kernel.with_torch import torch

Part = tuple[torch.Tensor, torch.Tensor]
"""Output (B, H, L, M) and log-sum-exp (B, H, L)."""


def parts_of(request: Request) -> list[Part]:
    """The parts of a request: computed in float64, outputs in its dtype, log-sum-exps at least in float32."""
    groups = request.query.shape[1] // request.key.shape[1]
    key, value = (x.double().repeat_interleave(groups, dim=1) for x in (request.key, request.value))
    scale = 1 / math.sqrt(request.query.shape[-1]) if request.scale is None else request.scale
    logits = request.query.double() @ key.mT * scale
    if request.visible is not None:
        logits = logits.masked_fill(~request.visible, -math.inf)
    T = value.shape[-2]
    part = 2 * torch.arange(T, device=value.device) >= T + T % 2 if request.parts is None else request.parts
    return [
        part_of(logits[..., part == k], value[..., part == k, :], request.query.dtype)
        for k in range(request.number_of_parts)
    ]


def part_of(logits: torch.Tensor, value: torch.Tensor, dtype: torch.dtype) -> Part:
    """The part of the keys with these logits and values; for who records what happens, one step."""
    if torch.overrides.has_torch_function((logits, value)):
        found: Part = torch.overrides.handle_torch_function(part_of, (logits, value), logits, value, dtype)
        return found
    top = logits.new_full((*logits.shape[:-1], 1), -math.inf)
    top = torch.cat([logits.detach(), top], dim=-1).amax(dim=-1, keepdim=True)
    weights = torch.exp(logits - torch.where(top == -math.inf, 0.0, top))
    total = weights.sum(dim=-1, keepdim=True)
    there = total > 0
    lse = torch.where(there, top, 0.0) + torch.where(there, total, 1.0).log()
    lse = torch.where(there, lse, -math.inf).squeeze(-1)
    output = weights @ value / torch.where(there, total, 1.0)
    return output.to(dtype), lse.to(torch.promote_types(dtype, torch.float32))


def put_into_merge_state(
    kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """Parts merged one after another by (v_a, s_a, v_b, s_b) → (v, s), on (B·L, H, M) and (B·L, H)."""
    B, _, L, _ = request.query.shape
    base = _logarithm_of_base(kernel)

    def flat(part: Part) -> Part:
        output, lse = part
        return output.transpose(1, 2).flatten(0, 1), lse.transpose(1, 2).flatten(0, 1) / base

    merged, *rest = map(flat, parts_of(request))
    for part in rest:
        merged = kernel(*merged, *part, **options)
    output, lse = merged
    lse = lse.reshape(B, L, *lse.shape[1:]).transpose(1, 2) * base
    return Returned(output.reshape(B, L, *output.shape[1:]).transpose(1, 2), lse if request.log_sum_exp else None)


def _logarithm_of_base(kernel: Callable[..., Any]) -> float:
    """1, or log 2 if two parts of log-sum-exp 0 have one of 1 together: its logarithms are those of base 2."""
    value, lse = torch.zeros(1, 1, 8), torch.zeros(1, 1)
    found = kernel(value, lse, value.clone(), lse.clone())[1]
    return math.log(2) if abs(float(found) - 1.0) < 0.1 else 1.0


def put_into_combine(
    kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """All parts at once by (out_partial (S, B, L, H, M), lse_partial (S, B, L, H)) → (out (B, L, H, M), lse (B, L, H)).

    The parts of this one are at least in float32; what it returns is, if it takes ``out_dtype``, in that of the query.
    """
    outputs, lses = zip(*parts_of(request), strict=True)
    wide = torch.promote_types(request.query.dtype, torch.float32)
    if "out_dtype" in has and request.query.dtype != wide:
        options["out_dtype"] = request.query.dtype
        outputs = tuple(x.to(wide) for x in outputs)
    out, lse = torch.stack(outputs).transpose(2, 3).contiguous(), torch.stack(lses).transpose(2, 3).contiguous()
    output, merged = first_of(kernel(out, lse, **options))
    asked = request.log_sum_exp and merged is not None
    return Returned(output.transpose(1, 2), merged.transpose(1, 2) if asked else None)


DECLARES = ("merged-parts", "log-sum-exp", "scale", "boolean-mask", "grouped-heads")
"""Nothing of it is asked of the merge but what the parts are."""
MERGE_STATE = Interface(
    "merge-state",
    "(v_a, s_a, v_b, s_b) → (v, s) on (L, H, E) and (L, H), log-sum-exps of either base",
    (frozenset({"v_a", "s_a", "v_b", "s_b"}),),
    MappingProxyType({"v_a": option_of(*DECLARES)} | dict.fromkeys(("s_a", "v_b", "s_b"), GIVEN)),
    put_into_merge_state,
    by_place=4,
)
COMBINE = Interface(
    "combine",
    "(out_partial, lse_partial, out=None, out_dtype=None) → (out, lse) on (S, B, L, H, E) and (S, B, L, H)",
    (frozenset({"out_partial", "lse_partial"}),),
    MappingProxyType(
        {"out_partial": option_of(*DECLARES), "lse_partial": GIVEN, "out_dtype": GIVEN, "out": neutral_option(None)}
        | {"return_lse": neutral_option(True)}
        | others("cu_seqlens", "seqused", "varlen_batch_idx")
    ),
    put_into_combine,
    by_place=2,
)
