"""The forms of a test of dropout: values are the identity, so that the output shows which weights are left."""

from __future__ import annotations

import math
from collections.abc import Iterator

from attention_conformance.claims.examination import SHARE, WEIGHTS
from attention_conformance.claims.same_again import CHANCE, LEAST_WEIGHT
from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.calling import calling_of
from attention_conformance.reproduction.checks import check_lines
from attention_conformance.reproduction.placement import placed_lines, tensor_lines
from attention_conformance.reproduction.textbook import due_lines
from generators.attention_call import State


def dropout(found: Trace, guards: bool) -> Iterator[str]:
    """Values are the identity, so that the output shows which weights were dropped."""
    call = found.call
    calling = calling_of(found, weights=WEIGHTS in found.falsified)
    yield from tensor_lines(call, found.drawn)
    yield from placed_lines(call, found.kernel, guards)
    yield f"torch.manual_seed({call.seed})"
    yield from calling.in_its_state()
    yield "kept = output.detach().cpu() != 0  # the values are the identity: the output is the weights"
    if SHARE in found.falsified:
        yield from due_lines(call, found.kernel.alignment)
        yield f'large = due["weights"] > {LEAST_WEIGHT!r}  # 0 only where it was dropped'
        rows = found.rows
        large = rows.weights.value > LEAST_WEIGHT
        far = math.sqrt(math.log(2 / CHANCE) / (2 * int(large.sum())))
        yield "share = float(kept[large].double().mean())"
        yield f"# Hoeffding's inequality: further off with probability {CHANCE:.0e}."
        yield f'assert abs(share - {1 - call.dropout!r}) <= {far:.4g}, f"{{share:.3g}} of the weights are kept"'
    if found.entries:
        yield f"factor = kept.double() / {1 - call.dropout!r}"
        if calling.weights:
            yield from due_lines(call, found.kernel.alignment)
            yield 'before = due["weights"]  # that it returns these, too, is right'
        yield from due_lines(call, found.kernel.alignment, kept="factor")
    for entry in found.entries:
        *lines, check = check_lines(found, entry)
        yield from lines
        if entry.claim == WEIGHTS:
            yield "if not ((weights.detach().cpu().double() - before).abs() <= allowed).all():"
        yield f"    {check}" if entry.claim == WEIGHTS else check


def redrawn(found: Trace, guards: bool) -> Iterator[str]:
    """Another seed drops other weights."""
    first, second = (call.replace(state=State.ONCE, wants="") for call in found.calls[-2:])
    yield from tensor_lines(first, found.drawn)
    yield from placed_lines(first, found.kernel, guards)
    yield from calling_of(found, first).function("forward")
    results = "[0]" if first.log_sum_exp else ""
    for name, call in (("once", first), ("again", second)):
        yield f"torch.manual_seed({call.seed})"
        yield f"{name} = forward(query, key, value){results}"
    yield "kept = torch.maximum(once, again) > 1e-4  # the values are the identity: the output is the weights"
    yield 'assert ((once == 0) != (again == 0))[kept].any(), "another seed drops the same weights"'
