"""Values of which each is made of others, and the statements that make some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.text import number, wrap

SHORT, LONG = 24, 60
"""Characters of a value that is used more than once, or once, and has no line of its own."""


@dataclass(eq=False)
class Step:
    """A value, and the text that makes it of others.

    Attributes:
        parts: text, and the values in it; of a pair the second says whether it needs brackets there.
        loose: whether the text has an operator outside of all brackets.
        name: what it is called if it gets a line of its own.
        leaf: whether it is there already.
    """

    parts: tuple[Any, ...]
    loose: bool = False
    name: str = "x"
    leaf: bool = False
    number: int = 0

    def inputs(self) -> Iterator[Step]:
        """What it is made of, each as often as it is used."""
        return (part[0] for part in self.parts if isinstance(part, tuple))


def constant(x: torch.Tensor) -> Step:
    """The numbers of a tensor that is made of sizes alone."""
    held = x.detach().cpu()
    said = _nested_list(held.tolist())
    inferred = held.dtype in (torch.bool, torch.int64) and held.numel()
    text = f"torch.tensor({said})" if inferred else f"torch.tensor({said}, dtype={held.dtype})"
    text += "" if x.device.type == "cpu" else f'.to("{x.device}")'
    return Step((text,), name="at")


def _nested_list(held: Any) -> str:
    if isinstance(held, list):
        return f"[{', '.join(map(_nested_list, held))}]"
    return number(held) if isinstance(held, float) else repr(held)


def lines_of(results: Mapping[str, Step]) -> list[str]:
    """The statements that make the results, by name, in the order of what happened."""
    order, uses = _order_of(results.values())
    said: dict[Step, str] = {}
    taken = {*results, *(step.parts[0] for step in order if step.leaf)}
    lines: list[str] = []
    own = {id(step): name for name, step in results.items() if not step.leaf}
    for step in order:
        if step.leaf:
            said[step] = step.parts[0]
            continue
        text = "".join(part if isinstance(part, str) else _operand(part[0], part[1], said) for part in step.parts)
        said[step] = text
        if id(step) in own:
            said[step] = own[id(step)]
        elif len(text) > (SHORT if uses[step] > 1 else LONG) and (uses[step] > 1 or step.name != "found"):
            base = step.name.rstrip("_0123456789")
            said[step] = next(x for k in count() if (x := f"{base}_{k}" if k else base) not in taken)
            taken.add(said[step])
        if said[step] is not text:
            lines.append(wrap(f"{said[step]} = {text}"))
    return lines + [f"{name} = {said[step]}" for name, step in results.items() if step.leaf]


def _operand(step: Step, tight: bool, said: Mapping[Step, str]) -> str:
    text = said[step]
    return f"({text})" if tight and step.loose and not text.isidentifier() else text


def _order_of(results: Any) -> tuple[Sequence[Step], dict[Step, int]]:
    """What the results are made of, in the order of what happened, and how often each is used."""
    uses: dict[Step, int] = {}
    left = list(results)
    seen: list[Step] = []
    while left:
        step = left.pop()
        uses[step] = uses.get(step, 0) + 1
        if uses[step] == 1:
            seen.append(step)
            left += step.inputs()
    return sorted(seen, key=lambda step: step.number), uses
