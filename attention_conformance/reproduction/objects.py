"""Arguments of a kernel beside tensors and numbers, as lines of a test: a module, functions of positions."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.interfaces.hf import AT_REST
from attention_conformance.reproduction.text import NotWritten

KNOWN = {"module": "module", "score_mod": "score_of", "mask_mod": "is_seen", "block_mask": "block_mask"}
"""The names in a printed test of objects, by the parameter that they are given to."""
MODULE = """class Module(torch.nn.Module):
    num_key_value_groups, is_causal, layer_idx = {groups}, {causal}, 0
    head_dim, scaling, sliding_window = {width}, {scaling!r}, None
    attn_logit_softcapping, attention_dropout = {softcap}, {dropout}

module = Module().train({training})
module.sinks = {sinks}
module.config = type("Config", (), {{"_attn_implementation": "eager", "sliding_window": None}})"""


def object_lines(call: AttentionCall, names: set[str]) -> Iterator[str]:
    """Yield the definitions of objects of these names."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    left, right = call.window or (-1, -1)
    if "module" in names:
        yield MODULE.format(
            groups=H // call.sizes["G"],
            causal=call.causal,
            width=call.sizes["E"],
            scaling=1 / math.sqrt(call.sizes["E"]) if call.scale is None else call.scale,
            sinks="sinks" if call.sinks is not None else f"query.new_full(({H},), -inf)",
            softcap=call.softcap or None,
            dropout=call.dropout or AT_REST,
            training=call.dropout > 0,
        )
    if "score_mod" in names:
        yield from ([f"biases = bias.expand({B}, {H}, {L}, {T})"] if call.bias is not None else [])
        yield "\ndef score_of(score, b, h, i, j):"
        if call.score_mod is not None:
            yield "    score = score * score_mod[h, 0] + score_mod[h, 1] * (j - i).to(score.dtype) + score_mod[h, 2]"
        if call.softcap:
            yield f"    score = {call.softcap!r} * torch.tanh(score / {call.softcap!r})"
        yield from (["    score = score + biases[b, h, i, j]"] if call.bias is not None else [])
        if call.slopes is not None:
            yield "    score = score - slopes[b, h] * (j - i).abs().to(score.dtype)"
        yield "    return score\n"
    if names & {"mask_mod", "block_mask"}:
        yield from ([f"mask = visible.expand({B}, {H}, {L}, {T})"] if call.visible is not None else [])
        yield "\ndef is_seen(b, h, i, j):"
        yield "    seen = i >= j" if call.causal else "    seen = (i >= 0) & (j >= 0)"
        yield from ([f"    seen = seen & (j >= i - {left})"] if left >= 0 else [])
        yield from ([f"    seen = seen & (j <= i + {right})"] if right >= 0 else [])
        if call.mask_mod is not None:
            yield "    seen = seen & (mask_mod[b, h, 0] * j + mask_mod[b, h, 1] * i <= mask_mod[b, h, 2])"
        yield from (["    seen = seen & mask[b, h, i, j]"] if call.visible is not None else [])
        yield "    return seen\n"
    if "block_mask" in names:
        yield "from torch.nn.attention.flex_attention import create_block_mask"
        yield f"block_mask = create_block_mask(is_seen, {B}, {H}, {L}, {T}, device=query.device)"
    if names - {*KNOWN}:
        raise NotWritten(f"its argument {min(names - {*KNOWN})}")
