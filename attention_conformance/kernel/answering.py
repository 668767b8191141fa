"""The answer of a kernel to a call: forward and backward, in its state, with tensors that lie as it says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from attention_conformance.interfaces.interface import Request, Returned
from attention_conformance.kernel.compiling import answer_compiled
from attention_conformance.kernel.placing import (
    FURTHER_LEAVES,
    Placed,
    float64_of,
    memory_of,
    place_mask,
    place_tensor,
    with_a_mask,
    with_other_options,
)
from attention_conformance.kernel.repeating import answer_repeatedly
from attention_conformance.kernel.running import KernelError
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import COMPILED, REPEATS, Alignment, AttentionCall, Memory, State
from generators.further_tensors import with_columns_beyond
from reference_attention.errors import InvalidInput
from reference_attention.loss import Array
from theorems.core.on_kernel import Answer, Refused

TENSORS = ("query", "key", "value")
Gradients = Mapping[str, Array]
"""By the name of a tensor."""


def answer_to(kernel: Any, call: AttentionCall) -> Answer:
    """One call, forward and backward, in float64.

    Raises:
        Refused: the kernel raises.
        InvalidInput: it returns something that is no tensor of the shape or dtype that is due.
    """
    if call.state in COMPILED:
        return answer_compiled(kernel, call)
    held = {name: place_tensor(kernel.tensor(getattr(call, name)), memory_of(name, call)) for name in TENSORS}
    upstream = place_tensor(kernel.tensor(call.upstream), call.upstream_memory)
    masks = masks_of(kernel, call)
    everything = held | {"upstream": upstream} | masks
    before = {name: one.bits() for name, one in everything.items()}

    def once() -> Answer:
        if call.dropout:
            torch.manual_seed(call.seed)
        found, gradients = _in_its_state(kernel, call, held, masks, upstream.tensor)
        dq, dk, dv = (gradients.get(name) for name in TENSORS)
        lse, weights = (None if x is None else float64_of(x) for x in found[1:])
        sinks, bias = gradients.get("sinks"), gradients.get("bias")
        return Answer(float64_of(found.output), dq, dk, dv, lse, weights, sinks, bias)

    try:
        answer = answer_repeatedly(once, REPEATS, call) if call.state is State.MANY else once()
    except KernelError as error:
        raise Refused(str(error).removeprefix("--attention: ")) from None
    changed = tuple(name for name, one in everything.items() if not torch.equal(one.bits(), before[name]))
    return replace(answer, changed=changed)


def request_of(
    kernel: Any, call: AttentionCall, given: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]
) -> Request:
    """The call with these tensors, query, key and value by name, and masks, as they lie in memory."""
    return Request(
        **given,
        scale=call.scale,
        visible=masks.get("visible"),
        bias=masks.get("bias"),
        causal=call.causal,
        window=call.window,
        softcap=call.softcap,
        log_sum_exp=call.log_sum_exp,
        dropout=call.dropout,
        sinks=masks.get("sinks"),
        slopes=masks.get("slopes"),
        lengths=None if call.lengths is None else torch.tensor(call.lengths, device=kernel.device),
        parts=torch.tensor(call.part_of_key(), device=kernel.device),
        number_of_parts=call.parts or 2,
        score_mod=None if call.score_mod is None else kernel.tensor(call.score_mod),
        mask_mod=None if call.mask_mod is None else torch.tensor(call.mask_mod, device=kernel.device),
        descales=None if call.descales is None else torch.tensor(call.descales, device=kernel.device).float(),
        shared=call.shared,
        alone=call.alone,
        splits=call.splits,
        page=call.page,
        seed=call.seed,
        deterministic=call.state in (State.TWICE, State.MANY),
    )


def masks_of(kernel: Any, call: AttentionCall) -> dict[str, Placed]:
    """Masks, sinks and slopes as they lie in memory."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    given = {name: getattr(call, name) for name in ("visible", "bias") if getattr(call, name) is not None}
    placed = {}
    for name, mask in given.items():
        mask = with_columns_beyond(call, mask)
        x = torch.tensor(mask, device=kernel.device) if name == "visible" else kernel.tensor(mask)
        placed[name] = place_mask(x, call.mask_memory, (B, H, L, T + call.beyond))
    further = {name: getattr(call, name) for name in ("sinks", "slopes")}
    return placed | {
        name: place_mask(kernel.tensor(x), Memory.CONTIGUOUS, x.shape) for name, x in further.items() if x is not None
    }


def _in_its_state(
    kernel: Any, call: AttentionCall, held: Mapping[str, Placed], masks: Mapping[str, Placed], upstream: torch.Tensor
) -> tuple[Returned, Gradients]:
    """What the kernel returned and the gradients, with what else happens around the call."""
    wants = call.wants if kernel.differentiable else ""
    busy = call.state in (State.OVERWRITTEN, State.INTERLEAVED, State.AFTER_ANOTHER)
    others = {name: -held[name].tensor.flip(2) for name in TENSORS if busy}
    other_masks = {name: masks[name].tensor.flip(-1) for name in ("visible", "bias") if busy and name in masks}
    own_masks = {name: one.tensor for name, one in masks.items()}
    # Upstream of the output, and of the log-sum-exp where that is differentiated.
    upstreams = (upstream, None if call.lse_upstream is None else kernel.tensor(call.lse_upstream))

    def forward(
        given: Mapping[str, torch.Tensor], call: AttentionCall = call
    ) -> tuple[Returned, dict[str, torch.Tensor]]:
        leaves = {name: x.detach().requires_grad_(name[0] in wants) for name, x in given.items()}
        for name in FURTHER_LEAVES:
            if name in own_masks:
                # A bias that is expanded already has the gradient of the expanded one.
                whole = getattr(call, name).shape == own_masks[name].shape
                wanted = bool(wants) and whole and FURTHER_LEAVES[name] in kernel.declares
                leaves[name] = own_masks[name].detach().requires_grad_(wanted)
        with torch.set_grad_enabled(bool(wants)):
            tensors = {name: leaves[name] for name in TENSORS}
            return kernel.of_request(kernel.request(call, tensors, own_masks | leaves)), leaves

    own = {name: one.tensor for name, one in held.items()}
    if call.state is State.AFTER_ANOTHER:
        other = kernel.interface.expressible(with_a_mask(call, kernel.declares))
        placed = {name: one.tensor for name, one in masks_of(kernel, other).items()}
        with torch.no_grad(), suppress(KernelError):
            kernel.of_request(kernel.request(other, others, placed))
    if call.state is State.OVERWRITTEN:
        there = dict(held) | {name: masks[name] for name in other_masks}
        numbers = {name: one.tensor.clone() for name, one in there.items()}
        for name, x in (others | other_masks).items():
            there[name].fill(x)
        _gradients(kernel, call, *forward(own), *upstreams)
        for name, x in numbers.items():
            there[name].fill(x)
    found, leaves = forward(own)
    if call.state is State.INTERLEAVED:
        forward(others, kernel.interface.expressible(with_other_options(call)))
    if call.state is State.SECOND_BACKWARD:
        _gradients(kernel, call, found, leaves, -upstream.flip(2), None, again=True)
    return found, _gradients(kernel, call, found, leaves, *upstreams)


def _gradients(
    kernel: Any,
    call: AttentionCall,
    returned: Returned,
    given: Mapping[str, torch.Tensor],
    upstream: torch.Tensor,
    lse_upstream: torch.Tensor | None,
    again: bool = False,
) -> Gradients:
    """By the name of a tensor; none for those that are not wanted. One that autograd does not know of has the gradient
    zero if nothing that is returned depends on it, else NaN.

    The gradient of ⟨output, upstream⟩ gives the kernel the upstream gradient exactly. Handed over as
    ``grad_outputs``, where its place in memory matters, it costs each process a quarter of a second: torch then
    imports sympy to compare shapes.

    Args:
        again: whether it will be asked once more.
    """
    leaves = {name: x for name, x in given.items() if x.requires_grad}
    if not leaves:
        return {}
    pairs = [(returned.output, upstream)]
    if lse_upstream is not None:
        pairs.append((returned.log_sum_exp, lse_upstream.to(returned.log_sum_exp.dtype)))
    pairs = [(x, u) for x, u in pairs if x.requires_grad]
    if not pairs and len(leaves) == len(given) and any(depends_on(call, kernel.alignment, name) for name in leaves):
        raise InvalidInput(f"--attention: {kernel.name} has a backward pass for some calls and none for others.")
    found: Any = [None] * len(leaves)
    try:
        if pairs:
            plain = all(u.is_contiguous() for _, u in pairs)
            results = [(x * u).sum() if plain else x for x, u in pairs]
            grads = None if plain else [u for _, u in pairs]
            found = torch.autograd.grad(results, [*leaves.values()], grads, retain_graph=again, allow_unused=True)
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())[:200].rstrip(".")
        raise KernelError(f"{kernel.name} raised {type(error).__name__} in its backward pass: {said}.") from None

    def nothing(name: str) -> torch.Tensor:
        return torch.full_like(leaves[name], torch.nan if depends_on(call, kernel.alignment, name) else 0.0)

    each = zip(leaves, found, strict=True)
    return {name: float64_of(nothing(name) if one is None else one) for name, one in each}


def depends_on(call: AttentionCall, alignment: Alignment, name: str) -> bool:
    """Whether what is returned depends on a tensor; a kernel need not read one on which nothing does.

    Where no row sees a key nothing depends on any; where each sees one at most, its weight is 1, and only values count.
    """
    most = int(call.visibility(alignment).sum(axis=-1).max(initial=0))
    if most == 1 and call.sinks is None and call.lse_upstream is None:
        return name == "value"
    return most > 0
