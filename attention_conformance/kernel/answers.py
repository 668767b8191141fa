"""The answer of a kernel to a call: its results and gradients, in the call's state and memory layout.

A state (:class:`attention_conformance.calls.attention_call.State`) says what happens before, during or after the call,
such as an equal call before it. Axes: B batch entries, H heads, L queries, T keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np

from attention_conformance.calls.answer import Answer, BackwardRefused
from attention_conformance.calls.attention_call import (
    BEFORE,
    COMPILED,
    REPEATS,
    Alignment,
    AttentionCall,
    Memory,
    State,
)
from attention_conformance.calls.further_tensors import with_columns_beyond
from attention_conformance.interfaces.interface import Request, Returned
from attention_conformance.kernel.compiled_answer import answer_compiled
from attention_conformance.kernel.global_state import restore_settings
from attention_conformance.kernel.kernel_call import BackwardError, KernelError
from attention_conformance.kernel.memory_layout import (
    FURTHER_LEAVES,
    Placed,
    float64_of,
    memory_of,
    place_mask,
    place_tensor,
    with_a_mask,
    with_other_options,
)
from attention_conformance.kernel.repetition import answer_repeatedly, fill_of
from attention_conformance.kernel.torch_import import torch
from attention_conformance.kernel_process.messages import RaisedElsewhere, type_name
from attention_conformance.kernel_process.remote_kernel import RemoteKernel
from reference_attention.errors import InvalidInput
from reference_attention.loss import Array
from theorems.core.under_test import Refused

TENSORS = ("query", "key", "value")
BOOLEAN = "boolean-attention-mask"
"""The capability of functions of transformers to take boolean masks; calls with an even seed then pass such a mask."""
Gradients = Mapping[str, Array]
"""Gradients by the name of a tensor."""


def answer_to(kernel: Any, call: AttentionCall) -> Answer:
    """Call the kernel forward and backward, and return its results and gradients in float64.

    Raises:
        Refused: the kernel raises an error.
        InvalidInput: the kernel does not return a tensor of the right shape and dtype.
    """
    if call.state in COMPILED:
        return answer_compiled(kernel, call)
    kernel.changed_settings.clear()
    inputs = {
        name: place_tensor(kernel.tensor(getattr(call, name)), memory_of(name, call), kernel.device) for name in TENSORS
    }
    if call.state is State.SELF and np.array_equal(call.query, call.key):
        inputs["key"] = inputs["query"]
    upstream = place_tensor(kernel.tensor(call.upstream), call.upstream_memory, kernel.device)
    masks = masks_of(kernel, call)
    everything = inputs | {"upstream": upstream} | masks
    before = {name: placed.bits() for name, placed in everything.items()}

    def once() -> Answer:
        if call.dropout:
            set_seed(kernel, call.seed)
        returned, gradients = _in_its_state(kernel, call, inputs, masks, upstream.tensor)
        dq, dk, dv = (gradients.get(name) for name in TENSORS)
        lse, weights = (None if x is None else float64_of(x) for x in returned[1:])
        sinks, bias = gradients.get("sinks"), gradients.get("bias")
        return Answer(float64_of(returned.output), dq, dk, dv, lse, weights, sinks, bias)

    try:
        answer = answer_repeatedly(once, REPEATS, call, fill_of(kernel)) if call.state is State.MANY else once()
    except KernelError as error:
        refusal = BackwardRefused if isinstance(error, BackwardError) else Refused
        raise refusal(str(error).removeprefix("--attention: ")) from None
    changed = tuple(name for name, placed in everything.items() if not torch.equal(placed.bits(), before[name]))
    return replace(answer, changed=changed, changed_settings=tuple(dict.fromkeys(kernel.changed_settings)))


def set_seed(kernel: Any, seed: int) -> None:
    """Set PyTorch's seed in the process where the kernel is called: this process, or a process of the kernel's own."""
    if isinstance(kernel.call, RemoteKernel):
        kernel.call.seed(seed)
    else:
        torch.manual_seed(seed)


def request_of(
    kernel: Any, call: AttentionCall, given: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]
) -> Request:
    """Return the request by which a kernel computes a call.

    Args:
        kernel: the kernel.
        call: the call, whose options the request gets.
        given: query, key and value by name, as tensors laid out in memory.
        masks: the call's masks, sinks and slopes by name, laid out in memory.
    """
    tensors: dict[str, Any] = {**given, **{name: masks.get(name) for name in ("visible", "bias", "sinks", "slopes")}}
    return Request(
        **tensors,
        **{name: getattr(call, name) for name in AS_THEY_ARE},
        lengths=None if call.lengths is None else torch.tensor(call.lengths, device=kernel.device),
        descales=None if call.descales is None else torch.tensor(call.descales, device=kernel.device).float(),
        deterministic=call.state in (State.TWICE, State.MANY),
        boolean=BOOLEAN in kernel.declares and call.seed % 2 == 0,
    )


AS_THEY_ARE = (
    *("scale", "causal", "window", "softcap", "log_sum_exp", "dropout"),
    *("alone", "splits", "page", "seed"),
)
"""The names of the attributes that a request takes from a call without changing them."""


def masks_of(kernel: Any, call: AttentionCall) -> dict[str, Placed]:
    """Return the call's masks, sinks and slopes as tensors by name, laid out in memory as the call requires."""
    B, H, L, T = (call.sizes[axis] for axis in "BHLT")
    given = {name: getattr(call, name) for name in ("visible", "bias") if getattr(call, name) is not None}
    placed = {}
    for name, mask in given.items():
        mask = with_columns_beyond(call, mask)
        x = torch.tensor(mask, device=kernel.device) if name == "visible" else kernel.tensor(mask)
        x = x.to(getattr(torch, call.mask_format)) if name == "bias" and call.mask_format else x
        placed[name] = place_mask(x, call.mask_memory, (B, H, L, T + call.beyond))
    further = {name: getattr(call, name) for name in ("sinks", "slopes")}
    return placed | {
        name: place_mask(kernel.tensor(x), Memory.CONTIGUOUS, x.shape) for name, x in further.items() if x is not None
    }


def _in_its_state(
    kernel: Any, call: AttentionCall, inputs: Mapping[str, Placed], masks: Mapping[str, Placed], upstream: torch.Tensor
) -> tuple[Returned, Gradients]:
    """Return the kernel's results and gradients, and make the other calls that belong to the call's state."""
    wants = call.wants if kernel.differentiable and call.state is not State.INFERENCE else ""
    busy = call.state in (State.OVERWRITTEN, State.INTERLEAVED, State.AFTER_ANOTHER)
    others = {name: -inputs[name].tensor.flip(2) for name in TENSORS if busy}
    other_masks = {name: masks[name].tensor.flip(-1) for name in ("visible", "bias") if busy and name in masks}
    own_masks = {name: placed_tensor.tensor for name, placed_tensor in masks.items()}
    # One upstream gradient is for the output, one for the log-sum-exp (None if the latter is not differentiated).
    upstreams = (upstream, None if call.lse_upstream is None else kernel.tensor(call.lse_upstream))

    def forward(
        given: Mapping[str, torch.Tensor], call: AttentionCall = call
    ) -> tuple[Returned, dict[str, torch.Tensor]]:
        leaves = {name: x.detach().requires_grad_(name[0] in wants) for name, x in given.items()}
        for name in FURTHER_LEAVES:
            if name in own_masks:
                # A bias that is expanded in memory would get the gradient of the expanded tensor, so none is computed.
                whole = getattr(call, name).shape == own_masks[name].shape
                # A mask in another format would get a gradient rounded to that format, so none is computed.
                whole = whole and not call.mask_format
                wanted = bool(wants) and whole and FURTHER_LEAVES[name] in kernel.declares
                leaves[name] = own_masks[name].detach().requires_grad_(wanted)
        if call.state is State.SELF and inputs["key"] is inputs["query"] and not wants:
            leaves["key"] = leaves["query"]
        with torch.set_grad_enabled(bool(wants)), _context(kernel, call):
            tensors = {name: leaves[name] for name in TENSORS}
            return kernel.of_request(kernel.request(call, tensors, own_masks | leaves)), leaves

    own = {name: placed_tensor.tensor for name, placed_tensor in inputs.items()}
    if call.state is State.AFTER_ANOTHER:
        other = kernel.interface.expressible(with_a_mask(call, kernel.declares))
        placed = {name: placed_tensor.tensor for name, placed_tensor in masks_of(kernel, other).items()}
        with torch.no_grad(), suppress(KernelError):
            kernel.of_request(kernel.request(other, others, placed))
    if call.state is State.OVERWRITTEN:
        there = dict(inputs) | {name: masks[name] for name in other_masks}
        numbers = {name: placed_tensor.tensor.clone() for name, placed_tensor in there.items()}
        for name, x in (others | other_masks).items():
            there[name].fill(x)
        _gradients(kernel, call, *forward(own), *upstreams)
        for name, x in numbers.items():
            there[name].fill(x)
    if call.state is State.REPLAYED:
        numbers = {name: inputs[name].tensor.clone() for name in TENSORS}
        rng = torch.Generator().manual_seed(call.seed)
        for before in range(BEFORE):
            for name, x in numbers.items():
                inputs[name].fill(torch.randn(x.shape, generator=rng).to(x))
            earlier = forward(own)
            if before % 2:
                _gradients(kernel, call, *earlier, *upstreams)
        for name, x in numbers.items():
            inputs[name].fill(x)
    returned, leaves = forward(own)
    if call.state is State.INTERLEAVED:
        forward(others, kernel.interface.expressible(with_other_options(call)))
    if call.state is State.SECOND_BACKWARD:
        _gradients(kernel, call, returned, leaves, -upstream.flip(2), None, again=True)
    return returned, _gradients(kernel, call, returned, leaves, *upstreams)


def _context(kernel: Any, call: AttentionCall) -> AbstractContextManager[Any]:
    """Return the context manager that a call's state requires around the forward pass: inference mode or autocast."""
    if call.state is State.INFERENCE:
        return torch.inference_mode()
    if call.state is State.AUTOCAST and kernel.dtype == kernel.computes_in in UNCAST:
        return torch.autocast(torch.device(kernel.device).type, dtype=torch.bfloat16)
    return nullcontext()


UNCAST = ("float64", "bfloat16")
"""Number formats of tensors that ``torch.autocast`` to bfloat16 leaves as they are."""


def _gradients(
    kernel: Any,
    call: AttentionCall,
    returned: Returned,
    given: Mapping[str, torch.Tensor],
    upstream: torch.Tensor,
    lse_upstream: torch.Tensor | None,
    again: bool = False,
) -> Gradients:
    """Return the gradient of each tensor that requires one, by the tensor's name.

    If autograd does not connect a tensor with the results, the tensor's gradient is zero where no result depends on the
    tensor, and NaN otherwise.

    The scalar ⟨output, upstream⟩ is differentiated, so that the kernel's backward pass gets exactly ``upstream``. The
    argument ``grad_outputs`` of autograd is used only if the memory layout of ``upstream`` matters, because torch then
    imports sympy, which costs each process a quarter of a second.

    Args:
        kernel: the kernel.
        call: the call.
        returned: the kernel's results.
        given: the tensors that were passed to the kernel, by name.
        upstream: the upstream gradient of the output, dLoss/dOutput.
        lse_upstream: the upstream gradient of the log-sum-exp; None if the log-sum-exp is not differentiated.
        again: whether a second backward pass through the same graph will follow.
    """
    leaves = {name: x for name, x in given.items() if x.requires_grad}
    if not leaves:
        return {}
    pairs = [(returned.output, upstream)]
    if lse_upstream is not None:
        pairs.append((returned.log_sum_exp, lse_upstream.to(returned.log_sum_exp.dtype)))
    pairs = [(x, u) for x, u in pairs if x.requires_grad]
    if not pairs and "grad mode" in kernel.changed_settings:
        return {}  # the kernel switched autograd off; the claim that settings stay unchanged reports it
    if not pairs and len(leaves) == len(given) and any(depends_on(call, kernel.alignment, name) for name in leaves):
        raise InvalidInput(
            f"--attention: {kernel.name} has a backward pass for some calls only; give it one for all calls, or none."
        )
    gradients: Any = [None] * len(leaves)
    try:
        if pairs:
            plain = all(u.is_contiguous() for _, u in pairs)
            results = [(x * u).sum() if plain else x for x, u in pairs]
            grads = None if plain else [u for _, u in pairs]
            is_here = not isinstance(kernel.call, RemoteKernel)
            with restore_settings(kernel.changed_settings) if is_here else nullcontext():
                graph = call.state is State.CREATE_GRAPH
                if not is_here:
                    kernel.call.process.retains_graphs = again or graph
                kept = {"retain_graph": again or graph, "create_graph": graph}
                gradients = torch.autograd.grad(results, [*leaves.values()], grads, **kept, allow_unused=True)
    except (Exception, SystemExit) as error:
        # PyTorch raises NotImplementedError for a function without a backward pass, and a RuntimeError with the text
        # below for a custom operator without one.
        is_missing = error.missing if isinstance(error, RaisedElsewhere) else isinstance(error, NotImplementedError)
        is_missing |= "no autograd formula was registered" in str(error)
        kind = KernelError if is_missing else BackwardError
        text = " ".join(str(error).split())[:200].rstrip(".")
        raise kind(f"{kernel.name} raised {type_name(error)} in its backward pass: {text}.") from None

    def nothing(name: str) -> torch.Tensor:
        return torch.full_like(leaves[name], torch.nan if depends_on(call, kernel.alignment, name) else 0.0)

    each = zip(leaves, gradients, strict=True)
    return {name: float64_of(nothing(name) if gradient is None else gradient) for name, gradient in each}


def depends_on(call: AttentionCall, alignment: Alignment, name: str) -> bool:
    """Return whether the results depend on a tensor; a kernel need not read a tensor that changes no result.

    If no row sees a key, the results depend on no tensor. If each row sees at most one key, whose weight is 1, or if
    the scale is 0, the results depend only on the values.
    """
    most = int(call.visibility(alignment).sum(axis=-1).max(initial=0))
    if call.scale == 0 or (most == 1 and call.sinks is None and call.lse_upstream is None):
        return name == "value"
    return most > 0
