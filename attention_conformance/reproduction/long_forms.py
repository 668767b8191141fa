"""The forms of a test of what takes long: a call of compiled code, and one that is made over and over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attention_conformance.claims.long_states import RETURNS
from attention_conformance.kernel.compiling import BACKENDS, calls_of_other_sizes
from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.calling import Calling
from attention_conformance.reproduction.checks import check_lines
from attention_conformance.reproduction.placement import MASKS, placed_lines, tensor_lines
from attention_conformance.reproduction.text import indent, names, wrap
from attention_conformance.reproduction.textbook import due_lines
from generators.attention_call import REPEATS, AttentionCall, State


def through_compiler(found: Trace, guards: bool) -> Iterator[str]:
    """Calls of other sizes, then the call, through ``torch.compile``."""
    call = found.call
    once = call.replace(state=State.ONCE)
    looked_at = tuple(entry.claim for entry in found.entries)
    answer = None if found.answer.failed else found.answer
    own = Calling(found.kernel, once, answer, callee="compiled", looked_at=looked_at)
    arguments = ["query", "key", "value", "upstream", *(["lse_upstream"] if call.lse_upstream is not None else [])]
    yield from tensor_lines(call, found.drawn)
    if found.entries:
        yield from due_lines(call, found.kernel.alignment)
    yield from placed_lines(call, found.kernel, guards)
    yield from own.further_leaves()
    yield "torch._dynamo.reset()"
    yield f'compiled = torch.compile(kernel, backend="{BACKENDS[call.state]}")'
    yield from own.run("run", ", ".join(arguments))
    for number, other in enumerate(calls_of_other_sizes(once)):
        renamed = tuple((name, _cut(name, once, other)) for name in MASKS if getattr(once, name) is not None)
        calling = Calling(found.kernel, other, answer, callee="compiled", renamed=renamed, looked_at=looked_at)
        name = "run" if calling.forward == own.forward else f"run_{number}"
        if name != "run":
            yield from calling.run(name, ", ".join(arguments))
        yield wrap(f"{name}({', '.join(_cut(x, once, other) for x in arguments)})")
    last = wrap(f"{names(own.results)} = run({', '.join(arguments)})")
    if RETURNS in found.falsified:
        yield "try:"
        yield indent([last])
        yield "except Exception as error:"
        yield '    raise AssertionError(f"compiled, it raises {type(error).__name__}: {error}") from None'
    else:
        yield last
    for entry in found.entries:
        yield from check_lines(found, entry)


def _cut(name: str, whole: AttentionCall, other: AttentionCall) -> str:
    """The text of a tensor of a call that is a part of another."""
    shapes: Any = zip(np.shape(getattr(whole, name)), np.shape(getattr(other, name)), strict=True)
    index = [":" if n == m else f":{m}" for n, m in shapes]
    while index and index[-1] == ":":
        index.pop()
    return f"{name}[{', '.join(index)}]" if index else name


def each_time(found: Trace, guards: bool) -> Iterator[str]:
    """The same call over and over, with other tensors in memory in between."""
    looked_at = tuple(entry.claim for entry in found.entries)
    calling = Calling(found.kernel, found.call, found.answer, looked_at=looked_at)
    yield from tensor_lines(found.call, found.drawn)
    yield from due_lines(found.call, found.kernel.alignment)
    yield from placed_lines(found.call, found.kernel, guards)
    yield from calling.further_leaves()
    yield from calling.run()
    yield f"for number in range({REPEATS}):"
    yield "    between = torch.full((query.numel() + number % 64,), nan)  # so that memory holds something else"
    yield f"    {names(calling.results)} = run(query, key, value)"
    yield indent(line for entry in found.entries for line in check_lines(found, entry))
