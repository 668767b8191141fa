"""The tensors of a call, and how they lie in memory, as lines of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from attention_conformance.kernel.placing import GUARD
from attention_conformance.reproduction.text import for_each, tensor, wrap
from generators.attention_call import AttentionCall, Memory
from generators.further_tensors import with_columns_beyond

TENSORS = ("query", "key", "value", "upstream")
MASKS = ("visible", "bias", "sinks", "slopes")
OPTIONS = (*MASKS, "lse_upstream", "lengths", "score_mod", "mask_mod", "descales")
"""Arrays that a call may have."""
IN_ITS_NUMBERS = ("bias", "sinks", "slopes", "lse_upstream", "score_mod")
"""Of these, what the kernel is given in its own numbers."""

GUARDED = f'''def guarded(x):
    """A copy of the tensor with {GUARD} NaN before and {GUARD} behind it in memory."""
    filler = False if x.dtype == torch.bool else nan
    memory = torch.full((x.numel() + {2 * GUARD},), filler, dtype=x.dtype, device=x.device)
    return memory[{GUARD}:-{GUARD}].view(x.shape).copy_(x)
'''
BITS = '''def memory_of(x):
    """Everything in the memory of a tensor, and around it, as it is now."""
    return x.new_empty(0).set_(x.untyped_storage()).detach().clone()
'''

LAID: Mapping[Memory, str] = MappingProxyType(
    {
        Memory.CONTIGUOUS: "{made}x{end}",
        Memory.TRANSPOSED: "{made}torch.stack(x.unbind(1), dim=2){end}.transpose(1, 2)",  # anew, whatever the sizes
        Memory.SLICED: "{made}torch.stack((x, torch.full_like(x, nan)), dim=3).flatten(2, 3){end}[:, :, ::2]",
        Memory.BROADCAST: "{made}x[:1]{end}.expand_as(x)",
        Memory.HEADS: "{made}x[:, :1]{end}.expand_as(x)",
        Memory.LAST_STRIDE: "{made}torch.stack((x, torch.full_like(x, nan)), dim=4).flatten(3, 4){end}[..., ::2]",
        Memory.FUSED: "{made}torch.cat((x, x, x), dim=1).transpose(1, 2).contiguous(){end}.transpose(1, 2)"
        ".chunk(3, dim=1)[1]",
        Memory.OFFSET: "{made}torch.cat((x.new_full((1,), nan), x.flatten())){end}[1:].view(x.shape)",
        Memory.SINGLE: "{made}x.flatten()[:1]{end}.expand(x.shape)",
    }
)
"""Of query, key, value and the upstream gradient; what is made may be put between NaN."""
LAID_MASKS: Mapping[Memory, str] = MappingProxyType(
    {
        Memory.CONTIGUOUS: "{made}{x}{end}",
        Memory.TRANSPOSED: "{made}torch.stack({x}.unbind(-2), dim=-1){end}.mT",
        Memory.SLICED: "{made}torch.stack(({x}, torch.full_like({x}, {other})), dim=-2).flatten(-3, -2){end}"
        "[..., ::2, :]",
        Memory.BROADCAST: "{made}{x}{end}.expand{shape}",
    }
)
"""Of masks, which are of any rank from two on."""


def tensor_lines(call: AttentionCall, drawn: Mapping[str, str]) -> Iterator[str]:
    """Its arrays in float64, rounded to the kernel's numbers already.

    Args:
        drawn: lines that make some of them.
    """
    for name in (*TENSORS, *OPTIONS):
        x = getattr(call, name)
        if x is None or (name == "value" and call.shared):
            continue
        if name in drawn:
            yield drawn[name]
            continue
        yield tensor(name, with_columns_beyond(call, x) if name in ("visible", "bias") else x)
    if call.shared:
        yield f"value = key[..., :{call.sizes['M']}]"


def placed_lines(call: AttentionCall, kernel: Any, guards: bool = False) -> Iterator[str]:
    """The arrays as the kernel gets them.

    Args:
        kernel: a :class:`attention_conformance.kernel.kernel.Kernel`.
        guards: whether NaN lie around each in memory.
    """
    held = [name for name in (*TENSORS, *IN_ITS_NUMBERS) if name in TENSORS or getattr(call, name) is not None]
    there = f"torch.{kernel.dtype}" if kernel.device == "cpu" else f'"{kernel.device}", torch.{kernel.dtype}'
    if (kernel.dtype, kernel.device) != ("float64", "cpu"):
        yield for_each(held, f"x.to({there})")
        others = [name for name in ("visible", "mask_mod") if getattr(call, name) is not None]
        if kernel.device != "cpu":
            yield from (f'{name} = {name}.to("{kernel.device}")' for name in others)
    if call.descales is not None:
        yield "descales = descales.float()"
    made, end = ("guarded(", ")") if guards else ("", "")
    memories = dict.fromkeys(("query", "key", "value"), call.memory) | {"upstream": call.upstream_memory}
    for memory in dict.fromkeys(memories.values()):
        own = [name for name, one in memories.items() if one is memory]
        text = LAID[memory].format(made=made, end=end)
        if text != "x":
            yield f"{for_each(own, text)}  # {memory}"
    for name in MASKS:
        if getattr(call, name) is None:
            continue
        memory = call.mask_memory if name in ("visible", "bias") else Memory.CONTIGUOUS
        B, H, L, T = (call.sizes[axis] for axis in "BHLT")
        shape, other = (B, H, L, T + call.beyond), "False" if name == "visible" else "nan"
        text = LAID_MASKS[memory].format(made=made, end=end, x=name, other=other, shape=shape)
        if text != name:
            yield wrap(f"{name} = {text}  # {memory}")
