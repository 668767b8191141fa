"""The functions that flex attention is given, as lines of a test."""

from __future__ import annotations

from collections.abc import Iterator, Set

from generators.attention_call import AttentionCall


def flex_lines(call: AttentionCall, objects: Set[str]) -> Iterator[str]:
    """Definitions of what is used of ``score_mod``, ``mask_mod`` and ``block_mask``.

    Args:
        objects: their names, and ``AuxRequest``.
    """
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    imported = [
        name for name, of in (("AuxRequest", "AuxRequest"), ("create_block_mask", "block_mask")) if of in objects
    ]
    if imported:
        yield f"from torch.nn.attention.flex_attention import {', '.join(imported)}"
        yield ""
    whole = f"expand({B}, {H}, {L}, {T})"
    if "score_mod" in objects:
        if call.bias is not None:
            yield f"bias_of = bias.{whole}"
            yield ""
        yield "def score_of(score, b, h, i, j):"
        if call.score_mod is not None:
            yield "    score = score * score_mod[h, 0] + score_mod[h, 1] * (j - i).to(score.dtype) + score_mod[h, 2]"
        if call.softcap:
            yield f"    score = {call.softcap!r} * torch.tanh(score / {call.softcap!r})"
        if call.bias is not None:
            yield "    score = score + bias_of[b, h, i, j]"
        if call.slopes is not None:
            yield "    score = score - slopes[b, h] * (j - i).abs().to(score.dtype)"
        yield "    return score"
        yield ""
    if objects & {"mask_mod", "block_mask"}:
        if call.visible is not None:
            yield f"visible_to = visible.{whole}"
            yield ""
        yield "def is_seen(b, h, i, j):"
        yield "    seen = i >= j" if call.causal else "    seen = (i >= 0) & (j >= 0)"
        left, right = call.window or (-1, -1)
        if left >= 0:
            yield f"    seen = seen & (j >= i - {left})"
        if right >= 0:
            yield f"    seen = seen & (j <= i + {right})"
        if call.mask_mod is not None:
            yield "    seen = seen & (mask_mod[b, h, 0] * j + mask_mod[b, h, 1] * i <= mask_mod[b, h, 2])"
        if call.visible is not None:
            yield "    seen = seen & visible_to[b, h, i, j]"
        yield "    return seen"
        yield ""
    if "block_mask" in objects:
        yield f"block_mask = create_block_mask(is_seen, {B}, {H}, {L}, {T}, device=query.device)"
