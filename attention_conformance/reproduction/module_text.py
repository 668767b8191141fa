"""What transformers hands to an attention function as its module, as lines of a test."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attention_conformance.interfaces.hf import AT_REST
from generators.attention_call import AttentionCall

MODULE = """class Module(torch.nn.Module):
    num_key_value_groups, is_causal, layer_idx = {groups}, {causal}, 0
    head_dim, scaling, sliding_window = {width}, {scaling!r}, None
    attn_logit_softcapping, attention_dropout = {softcap}, {dropout}

module = Module().train({training})
module.sinks = {sinks}
module.config = type("Config", (), {{"_attn_implementation": "eager", "sliding_window": None}})"""


def module_lines(call: AttentionCall) -> Sequence[str]:
    """The definition of ``module``."""
    sizes = call.sizes
    text = MODULE.format(
        groups=sizes["H"] // sizes["G"],
        causal=call.causal,
        width=sizes["E"],
        scaling=1 / math.sqrt(sizes["E"]) if call.scale is None else call.scale,
        sinks="sinks" if call.sinks is not None else f"query.new_full(({sizes['H']},), -inf)",
        softcap=call.softcap or None,
        dropout=call.dropout or AT_REST,
        training=call.dropout > 0,
    )
    return text.splitlines()
