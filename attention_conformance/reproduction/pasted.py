"""Functions that an emitted file holds, those that its tests call."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from attention_conformance.reproduction.checks import CHECK, CHECK_SAME
from attention_conformance.reproduction.placement import BITS, GUARDED
from attention_conformance.reproduction.text import DRAWN
from attention_conformance.reproduction.textbook import textbook_of

NUMBERS = '''inf, nan = math.inf, math.nan


def numbers(entries, *shape):
    """A float64 tensor."""
    return torch.tensor(entries, dtype=torch.float64).reshape(shape)
'''
PART = '''def part_of(logits, value, dtype):
    """What some of the keys give: their mean and log-sum-exp; (0, -inf) where none of them is seen."""
    least = logits.new_full((*logits.shape[:-1], 1), -inf)
    top = torch.cat([logits.detach(), least], dim=-1).amax(dim=-1, keepdim=True)
    weights = torch.exp(logits - torch.where(top == -inf, 0.0, top))
    total = weights.sum(dim=-1, keepdim=True)
    there = total > 0
    lse = torch.where(there, torch.where(there, top, 0.0) + torch.where(there, total, 1.0).log(), -inf).squeeze(-1)
    output = weights @ value / torch.where(there, total, 1.0)
    return output.to(dtype), lse.to(torch.promote_types(dtype, torch.float32))
'''
PASTED: Mapping[str, str] = MappingProxyType(
    {"drawn": DRAWN, "guarded": GUARDED, "memory_of": BITS, "part_of": PART, "check": CHECK, "check_same": CHECK_SAME}
)
"""Functions of a file, those that its tests call."""


def functions_of(tests: Sequence[str]) -> str:
    """What tests call; of a file that imports math and torch."""
    called = {node.id for test in tests for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Name)}
    made = [NUMBERS]
    if "textbook" in called:
        made.append(textbook_of(tests) + "\n")
    made += [text for name, text in PASTED.items() if name in called]
    return "\n\n".join(made)
