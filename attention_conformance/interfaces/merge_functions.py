"""Interfaces of functions that merge attention on parts of the keys; this module computes the parts to be merged.

A part is the result on some of the keys: the output of attention on only these keys, and log Σ e^logit over them. In a
row that sees none of these keys, the part is (0, −∞). Axes: S parts, B batch entries, H heads, L queries, M columns of
values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
)
from attention_conformance.interfaces.parameter_names import usual
from attention_conformance.kernel.torch_import import torch

Part = tuple[torch.Tensor, torch.Tensor]
"""The output (B, H, L, M) and the log-sum-exp (B, H, L) of attention on some of the keys."""


def parts_of(request: Request) -> list[Part]:
    """Return attention on each part of the request's keys, computed in float64.

    Outputs are rounded to the query's dtype, log-sum-exps to the query's dtype or float32, whichever is finer.
    """
    scale = 1 / math.sqrt(request.query.shape[-1]) if request.scale is None else request.scale
    T = request.key.shape[-2]
    part = [int(2 * t >= T + T % 2) for t in range(T)] if request.parts is None else request.parts.tolist()
    return [
        part_of(
            *(request.query, request.key, request.value),
            [place for place, number in enumerate(part) if number == k],
            scale=scale,
            visible=request.visible,
        )
        for k in range(request.number_of_parts)
    ]


_with_mask: Any = lambda *given, visible=None, **options: (*given, visible)  # noqa: E731


@torch.overrides.wrap_torch_function(_with_mask)  # so that a recorder of torch operations sees one operation
def part_of(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    places: Sequence[int],
    *,
    scale: float,
    visible: torch.Tensor | None = None,
) -> Part:
    """Return the output and the log-sum-exp of attention to the keys at the indices ``places`` alone."""
    key, value = (x.double().repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value))
    logits = query.double() @ key.mT * scale
    if visible is not None:
        logits = logits.masked_fill(~visible, -math.inf)
    logits, value, dtype = logits[..., places], value[..., places, :], query.dtype
    top = logits.new_full((*logits.shape[:-1], 1), -math.inf)
    top = torch.cat([logits.detach(), top], dim=-1).amax(dim=-1, keepdim=True)
    weights = torch.exp(logits - torch.where(top == -math.inf, 0.0, top))
    total = weights.sum(dim=-1, keepdim=True)
    nonzero = total > 0
    lse = torch.where(nonzero, top, 0.0) + torch.where(nonzero, total, 1.0).log()
    lse = torch.where(nonzero, lse, -math.inf).squeeze(-1)
    output = weights @ value / torch.where(nonzero, total, 1.0)
    return output.to(dtype), lse.to(torch.promote_types(dtype, torch.float32))


def put_into_merge_state(
    kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """Merge the parts one after another by a kernel (v_a, s_a, v_b, s_b) → (v, s), and return the merged results.

    Outputs v have shape (B·L, H, M), log-sum-exps s have shape (B·L, H).
    """
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
    """Return log 2 if the kernel takes logarithms to base 2, otherwise 1.

    Two parts with log-sum-exp 0 merge to log-sum-exp 1 in base 2.
    """
    value, lse = torch.zeros(1, 1, 8), torch.zeros(1, 1)
    merged = kernel(value, lse, value.clone(), lse.clone())[1]
    return math.log(2) if abs(float(merged) - 1.0) < 0.1 else 1.0


def put_into_combine(
    kernel: Callable[..., Any], request: Request, has: Parameters, options: dict[str, Any]
) -> Returned:
    """Merge all parts at once by a kernel (out_partial, lse_partial) → (out, lse), and return the merged results.

    The shapes are (S, B, L, H, M), (S, B, L, H) → (B, L, H, M), (B, L, H). If the kernel has the parameter
    ``out_dtype``, it gets parts in float32 or finer and is to return the query's dtype.
    """
    outputs, lses = zip(*parts_of(request), strict=True)
    wide = torch.promote_types(request.query.dtype, torch.float32)
    if "out_dtype" in has and request.query.dtype != wide:
        options["out_dtype"] = request.query.dtype
        outputs = tuple(x.to(wide) for x in outputs)
    out, lse = torch.stack(outputs).transpose(2, 3).contiguous(), torch.stack(lses).transpose(2, 3).contiguous()
    output, merged = first_of(kernel(out, lse, **options))
    wants_lse = request.log_sum_exp and merged is not None
    return Returned(output.transpose(1, 2), merged.transpose(1, 2) if wants_lse else None)


DECLARES = ("merged-parts", "log-sum-exp", "scale", "boolean-mask", "grouped-heads")
"""Capabilities of every merging kernel, whatever its parameters: this module uses them to compute the parts."""
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
        | usual("cu_seqlens seqused varlen_batch_idx")
    ),
    put_into_combine,
    by_place=2,
)
