"""Somebody's attention kernel as an :class:`theorems.core.implementation.Implementation`:
weights, risk, gradient by autograd.

A kernel is a callable on torch tensors with the signature of an :mod:`.interface`, that returns softmax(q kᵀ) v.
Everything here is linear bookkeeping around calls of it:

- weights are the kernel on the identity as values, m = T;
- γ_iᵀ s_i is the kernel on the scores as values, m = 1, divided by a power of two so that no score overflows;
- ∇L is the kernel's own backward pass: each input has a copy of the query, its upstream gradient is the slope ℓ'_i
  of the loss at the kernel's own output (mantissa only; the power of two is put back in float64), and the n gradients
  are added in float64.

A log-excess risk is below the spacing of the kernel's numbers as soon as the softmax saturates: it stays the
reference's. So do the SVMs, which have nothing to do with a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float64

from generators.attention_call import COMPILED, REPEATS, Alignment, AttentionCall, Memory, State
from generators.further_tensors import with_columns_beyond
from reference_attention.errors import InvalidInput
from reference_attention.loss import Array, Loss
from theorems.bounded.formats import FORMATS, HALF, Format
from theorems.core.on_kernel import Answer, KernelUse, OnKernel, Refused
from theorems.kernel.compiling import answer_compiled
from theorems.kernel.diagnosis import diagnose
from theorems.kernel.importing import import_callable
from theorems.kernel.interfaces import ALWAYS, INTERFACES
from theorems.kernel.interfaces.by_name import interface_of
from theorems.kernel.interfaces.interface import Interface, Parameters, Request, Returned, parameters_of
from theorems.kernel.interfaces.reading import Reading
from theorems.kernel.placing import FURTHER_LEAVES, Placed, memory_of, place_mask, place_tensor, with_other_options
from theorems.kernel.queries import OuterKernel, PromptKernel
from theorems.kernel.repeating import answer_repeatedly
from theorems.kernel.report import describe_kernel, hints
from theorems.kernel.sizes import Taken, is_power_of_four
from theorems.kernel.with_torch import torch

DTYPES: Mapping[str, torch.dtype] = MappingProxyType({name: getattr(torch, name) for name in FORMATS})
"""What a kernel may be given."""

TENSORS = ("query", "key", "value")
Gradients = Mapping[str, Array]
"""By the name of a tensor."""
"""dQ, dK, dV."""
ENTRIES = 1 << 22
"""About how many numbers one call of the kernel is given: longer batches are cut."""


@dataclass(frozen=True)
class Layout:
    """How a kernel wants its tensors.

    Attributes:
        rank: 4 for (B, n, 1, d), one point of the batch and one input per pair of leading axes; 3 for (B·n, 1, d).
        square: values have exactly d columns; others are padded with zeros and cut into pieces.
    """

    rank: int = 4
    square: bool = False

    def __str__(self) -> str:
        shape = "(B, n, T, d)" if self.rank == 4 else "(B·n, T, d)"
        return f"{shape}, values {'padded to d columns' if self.square else 'of any width'}"


LAYOUTS = (Layout(4, False), Layout(4, True), Layout(3, False), Layout(3, True))
"""In the order in which they are tried."""


@dataclass(frozen=True, eq=False)
class Held:
    """Keys (…, n, T, d) and scores (…, n, T, 1) as tensors, divided by powers of two
    so that the largest is about one."""

    made_of_keys: Array
    made_of_scores: Array | None
    keys: torch.Tensor
    values: torch.Tensor | None
    key_unit: float
    unit: float

    def of(self, keys: Array, scores: Array | None) -> bool:
        """Whether they are these very arrays, and cannot have changed since."""
        same = keys is self.made_of_keys and (scores is self.made_of_scores)
        return same and not any(x.flags.writeable for x in (keys, scores) if x is not None)

    def batch(self, queries: Array) -> tuple[int, ...]:
        """The batch axes of a result."""
        stacked = () if self.values is None else self.values.shape[:-3]
        return np.broadcast_shapes(self.keys.shape[:-3], stacked, np.shape(queries)[:-2])


@dataclass(frozen=True, eq=False)
class Kernel:
    """A callable and how to call it; travels to other processes by ``source`` if it has one.

    Attributes:
        call: the callable.
        name: MODULE:CALLABLE, or what the object calls itself.
        source: MODULE:CALLABLE to import it by; empty for an object that was handed over.
        dtype: of the tensors that it is given, a key of :data:`DTYPES`.
        layout: which shapes it is given.
        interface: its signature.
        parameters: those that it has, and their defaults.
        declares: its capabilities.
        computes_in: the numbers that its results are within the rounding of; those of ``dtype``, or coarser ones.
        alignment: of causality where L ≠ T, as it was found to be.
        taken: sizes and tensors that it takes.
        fixed_scale: whether its scale is 1/√E, and nobody can say otherwise.
        lse_multiple: its log-sum-exps have lengths that are multiples of that.
        skips_below: weights smaller than this share of the largest may be left out, as the callable declares.
        many_queries: whether it takes more than one query to an input; else each gets a copy of the keys.
        differentiable: whether it has a backward pass.
        not_compiled: why ``torch.compile`` does not take it; empty if it does, or was not asked.
        device: where its tensors live.
        accounts: what becomes of each of its parameters, :class:`theorems.kernel.parameters.Account`.
        reading: how it is called, where its interface was found out.
    """

    call: Callable[..., Any]
    name: str
    source: str = ""
    dtype: str = "float64"
    layout: Layout = LAYOUTS[0]
    interface: Interface = INTERFACES["plain"]
    parameters: Parameters = field(default_factory=dict)
    declares: frozenset[str] = frozenset(ALWAYS)
    computes_in: str = "float64"
    alignment: Alignment = Alignment.TOP_LEFT
    taken: Taken = field(default_factory=Taken)
    fixed_scale: bool = False
    lse_multiple: int = 1
    skips_below: float = 0.0
    many_queries: bool = True
    differentiable: bool = True
    not_compiled: str = ""
    device: str = "cpu"
    accounts: Mapping[str, str] = field(default_factory=dict)
    reading: Reading | None = None
    _last: dict[str, Held] = field(default_factory=dict, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        # An interface is a constant, and holds functions; it travels by name.
        held = {one.name: getattr(self, one.name) for one in fields(self) if one.init and one.name != "parameters"}
        held["interface"] = self.interface.name
        return _restore, (held | {"call": None if self.source else self.call},)

    @property
    def numbers(self) -> Format:
        """What it computes in."""
        return FORMATS[self.computes_in]

    @property
    def eps(self) -> float:
        """Spacing of the kernel's numbers at one."""
        return self.numbers.eps

    def lacks(self, use: KernelUse) -> str:
        """Why a statement that calls kernels does not call this one; empty if it does."""
        if use.capability == "memory" and self.taken.contiguous:
            return "it takes contiguous tensors alone"
        if use.capability and use.capability not in self.declares:
            return "the kernel has no parameter for it"
        if use.differentiates and not self.differentiable:
            return "it needs a backward pass, and the kernel has none"
        if not use.capability and self.computes_in in HALF:
            return f"the bounds of {self.computes_in} say nothing of it: logits of a few hundred have no digits there"
        if not use.capability and self.taken.one_head:
            return f"it takes {self.taken} alone"
        if not use.capability and self.taken.keys > 1:
            return f"it takes keys in multiples of {self.taken.keys} alone"
        if not use.capability and self.fixed_scale and not is_power_of_four(self.taken.width(4, quartic=True)):
            return "its scale is 1/√E, and no width that it takes is a power of four"
        return ""

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The kernel on (B, n, 1, d), (B, n, T, d), (B, n, T, m), in its layout → (B, n, 1, m).

        Raises:
            InvalidInput: it raises, or returns something else.
        """
        d, m, tokens = query.shape[-1], values.shape[-1], keys.shape[-2]
        width = self.taken.width(d, quartic=self.fixed_scale)
        if self.fixed_scale:
            query = query * math.sqrt(width)
        if width != d:
            query, keys = (torch.nn.functional.pad(x, (0, width - d)) for x in (query, keys))
        rows, _ = self.taken.lengths(1, tokens)
        query = query.expand(*query.shape[:-2], rows, width)
        piece = width if self.layout.square else self.taken.value_width(m)
        if piece != m:
            pieces = torch.nn.functional.pad(values, (0, -m % piece))
            parts = [self._outputs(query, keys, v) for v in torch.split(pieces, piece, dim=-1)]
            return torch.cat(parts, dim=-1)[..., :1, :m]
        return self._outputs(query, keys, values)[..., :1, :]

    def _outputs(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        # A kernel may assume contiguous tensors; one that writes to them is refused (theorems.kernel.loading).
        inputs = query.shape[:2]
        if self.taken.one_head:
            query, keys, values = (x.flatten(0, 1)[:, None] for x in (query, keys, values))
        query, keys, values = (x.contiguous() for x in (query, keys, values))
        found = self.run(Request(query, keys, values, scale=None if self.fixed_scale else 1.0)).output
        return found.reshape(*inputs, *found.shape[2:])

    def run(self, request: Request) -> Returned:
        """What the kernel itself returns: output (B, H, L, M), log-sum-exp (B, H, L), if it was asked for that, and
        weights (B, H, L, T), if it returns them.

        Raises:
            InvalidInput: it raises, or returns something else.
        """
        B, H, L, _ = request.query.shape
        M = request.value.shape[-1]
        if self.layout.rank == 3:
            flat = {name: getattr(request, name).flatten(0, 1) for name in ("query", "key", "value")}
            request = replace(request, **flat)
        shapes = ", ".join(str(tuple(x.shape)) for x in (request.query, request.key, request.value))
        try:
            call = _with_contiguous_tensors(self.call) if self.taken.contiguous else self.call
            output, lse, weights = self.interface.call(call, request, self.parameters)
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:200].rstrip(".")
            raise KernelError(
                f"--attention: {self.name} raised {type(error).__name__} on {self.dtype} tensors of shapes {shapes}:"
                f" {said}."
            ) from None
        wanted = (B, H, L, M) if self.layout.rank == 4 else (B * H, L, M)
        if not isinstance(output, torch.Tensor):
            raise InvalidInput(f"--attention: {self.name} returned {_kind(output)}; return one tensor {wanted}.")
        if tuple(output.shape) != wanted:
            raise InvalidInput(
                f"--attention: {self.name} returned shape {tuple(output.shape)} for {shapes}; return {wanted}."
            )
        if output.dtype != request.query.dtype:
            raise InvalidInput(
                f"--attention: {self.name} returned {str(output.dtype).removeprefix('torch.')} for {self.dtype}"
                " tensors; keep the dtype, or choose another with --dtype."
            )
        if isinstance(lse, torch.Tensor) and lse.dim() == 3 and _is_padded(lse.shape[-1], L):
            lse = lse[..., :L]
        if request.log_sum_exp and (not isinstance(lse, torch.Tensor) or tuple(lse.shape) != (B, H, L)):
            shape = tuple(lse.shape) if isinstance(lse, torch.Tensor) else _kind(lse)
            raise InvalidInput(f"--attention: {self.name} returned {shape} as log-sum-exp; return {(B, H, L)}.")
        if weights is not None and tuple(weights.shape) != (B, H, L, request.key.shape[2]):
            weights = None  # something else in their place
        return Returned(output.to(request.query.device).reshape(B, H, L, M), lse, weights)

    def answer(self, call: AttentionCall) -> Answer:
        """One call, forward and backward, in float64.

        Raises:
            Refused: the kernel raises.
            InvalidInput: it returns something that is no tensor of the shape or dtype that is due.
        """
        if call.state in COMPILED:
            return answer_compiled(self, call)
        held = {name: place_tensor(self.tensor(getattr(call, name)), memory_of(name, call)) for name in TENSORS}
        upstream = place_tensor(self.tensor(call.upstream), call.upstream_memory)
        masks = self.masks(call)
        everything = held | {"upstream": upstream} | masks
        before = {name: one.bits() for name, one in everything.items()}

        def once() -> Answer:
            if call.dropout:
                torch.manual_seed(call.seed)
            found, gradients = self._in_its_state(call, held, masks, upstream.tensor)
            dq, dk, dv = (gradients.get(name) for name in TENSORS)
            lse, weights = (None if x is None else _float64(x) for x in found[1:])
            sinks, bias = gradients.get("sinks"), gradients.get("bias")
            return Answer(_float64(found.output), dq, dk, dv, lse, weights, sinks, bias)

        try:
            answer = answer_repeatedly(once, REPEATS, call) if call.state is State.MANY else once()
        except KernelError as error:
            raise Refused(str(error).removeprefix("--attention: ")) from None
        changed = tuple(name for name, one in everything.items() if not torch.equal(one.bits(), before[name]))
        return replace(answer, changed=changed)

    def masks(self, call: AttentionCall) -> dict[str, Placed]:
        """Masks, sinks and slopes as they lie in memory."""
        B, H, L, T = (call.sizes[axis] for axis in "BHLT")
        given = {name: getattr(call, name) for name in ("visible", "bias") if getattr(call, name) is not None}
        placed = {}
        for name, mask in given.items():
            mask = with_columns_beyond(call, mask)
            x = torch.tensor(mask, device=self.device) if name == "visible" else self.tensor(mask)
            placed[name] = place_mask(x, call.mask_memory, (B, H, L, T + call.beyond))
        further = {name: getattr(call, name) for name in ("sinks", "slopes")}
        return placed | {
            name: place_mask(self.tensor(x), Memory.CONTIGUOUS, x.shape) for name, x in further.items() if x is not None
        }

    def _in_its_state(
        self, call: AttentionCall, held: Mapping[str, Placed], masks: Mapping[str, Placed], upstream: torch.Tensor
    ) -> tuple[Returned, Gradients]:
        """What the kernel returned and the gradients, with what else happens around the call."""
        wants = call.wants if self.differentiable else ""
        busy = call.state in (State.OVERWRITTEN, State.INTERLEAVED)
        others = {name: -held[name].tensor.flip(2) for name in TENSORS if busy}
        other_masks = {name: masks[name].tensor.flip(-1) for name in ("visible", "bias") if busy and name in masks}
        own_masks = {name: one.tensor for name, one in masks.items()}
        # Upstream of the output, and of the log-sum-exp where that is differentiated.
        upstreams = (upstream, None if call.lse_upstream is None else self.tensor(call.lse_upstream))

        def forward(
            given: Mapping[str, torch.Tensor], call: AttentionCall = call
        ) -> tuple[Returned, dict[str, torch.Tensor]]:
            leaves = {name: x.detach().requires_grad_(name[0] in wants) for name, x in given.items()}
            for name in FURTHER_LEAVES:
                if name in own_masks:
                    # A bias that is expanded already has the gradient of the expanded one.
                    whole = getattr(call, name).shape == own_masks[name].shape
                    wanted = bool(wants) and whole and FURTHER_LEAVES[name] in self.declares
                    leaves[name] = own_masks[name].detach().requires_grad_(wanted)
            with torch.set_grad_enabled(bool(wants)):
                tensors = {name: leaves[name] for name in TENSORS}
                return self.of_request(self.request(call, tensors, own_masks | leaves)), leaves

        own = {name: one.tensor for name, one in held.items()}
        if call.state is State.OVERWRITTEN:
            there = dict(held) | {name: masks[name] for name in other_masks}
            numbers = {name: one.tensor.clone() for name, one in there.items()}
            for name, x in (others | other_masks).items():
                there[name].fill(x)
            self._gradients(*forward(own), *upstreams)
            for name, x in numbers.items():
                there[name].fill(x)
        found, leaves = forward(own)
        if call.state is State.INTERLEAVED:
            forward(others, self.interface.expressible(with_other_options(call)))
        if call.state is State.SECOND_BACKWARD:
            self._gradients(found, leaves, -upstream.flip(2), None, again=True)
        return found, self._gradients(found, leaves, *upstreams)

    def _gradients(
        self,
        returned: Returned,
        given: Mapping[str, torch.Tensor],
        upstream: torch.Tensor,
        lse_upstream: torch.Tensor | None,
        again: bool = False,
    ) -> Gradients:
        """By the name of a tensor; NaN for one that autograd does not know of, and none for those that are not wanted.

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
        if not pairs and len(leaves) == len(given):
            raise InvalidInput(f"--attention: {self.name} has a backward pass for some calls and none for others.")
        found: Any = [None] * len(leaves)
        try:
            if pairs:
                plain = all(u.is_contiguous() for _, u in pairs)
                results = [(x * u).sum() if plain else x for x, u in pairs]
                grads = None if plain else [u for _, u in pairs]
                found = torch.autograd.grad(results, [*leaves.values()], grads, retain_graph=again, allow_unused=True)
        except (Exception, SystemExit) as error:
            said = " ".join(str(error).split())[:200].rstrip(".")
            raise KernelError(f"{self.name} raised {type(error).__name__} in its backward pass: {said}.") from None
        each = zip(leaves.items(), found, strict=True)
        return {name: _float64(torch.full_like(x, torch.nan) if one is None else one) for (name, x), one in each}

    def of_request(self, request: Request) -> Returned:
        """The kernel on a request; in shapes that it takes, if it takes no others."""
        B, H, L, E = request.query.shape
        M = request.value.shape[-1]
        if not self.many_queries and L > 1:
            # One query to an input: each query is an input of its own, with a copy of the keys.
            query = request.query.reshape(B, H * L, 1, E)
            key, value = (x.repeat_interleave(L, dim=1) for x in (request.key, request.value))
            return Returned(self.attend(query, key, value).reshape(B, H, L, M))
        if self.layout.square and M != E:
            width = -(-M // E) * E
            padded = torch.nn.functional.pad(request.value, (0, width - M))
            parts = [self.run(replace(request, value=v)) for v in torch.split(padded, E, dim=-1)]
            return parts[0]._replace(output=torch.cat([one.output for one in parts], dim=-1)[..., :M])
        return self.run(request)

    def request(
        self, call: AttentionCall, given: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]
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
            lengths=None if call.lengths is None else torch.tensor(call.lengths, device=self.device),
            parts=torch.tensor(call.part_of_key(), device=self.device),
            number_of_parts=call.parts or 2,
            score_mod=None if call.score_mod is None else self.tensor(call.score_mod),
            mask_mod=None if call.mask_mod is None else torch.tensor(call.mask_mod, device=self.device),
            descales=None if call.descales is None else torch.tensor(call.descales, device=self.device).float(),
            shared=call.shared,
            alone=call.alone,
            splits=call.splits,
            page=call.page,
            seed=call.seed,
            deterministic=call.state in (State.TWICE, State.MANY),
        )

    def suit(self, call: AttentionCall) -> AttentionCall:
        """The call in sizes that the kernel takes, with options that its signature can say, and its own scale if it
        has no other."""
        call = self.taken.fit(self.interface.expressible(call), quartic=self.fixed_scale and call.exact)
        if not self.fixed_scale or call.scale is None:
            return call
        # The root of a power of four is one of two: exact calls remain so.
        exact = call.exact and is_power_of_four(call.sizes["E"])
        root = math.sqrt(call.sizes["E"]) if exact else 1.0
        return call.replace(query=call.query * root, scale=None, exact=exact)

    def in_own_numbers(self, call: AttentionCall) -> AttentionCall:
        """The call as the kernel takes it, its tensors rounded to the kernel's numbers, and queries small enough for
        their range."""
        call = self.suit(call)
        group = call.query.shape[1] // call.key.shape[1]
        keys = np.abs(np.repeat(call.key, group, axis=1))
        room = self.numbers.largest / 8
        reach = float(np.max(np.sum(np.abs(call.query), axis=-1)) * np.max(keys))
        if reach > room:  # it is no less than what is due, and quick
            reach = float(np.max(np.abs(call.query) @ np.swapaxes(keys, -1, -2)))
        less = 2.0 ** math.ceil(math.log2(reach / room)) if reach > room else 1.0
        held = {"query": call.query / less, "key": call.key, "value": call.value, "upstream": call.upstream}
        if call.bias is not None:
            held["bias"] = call.bias
        if call.sinks is not None:
            held["sinks"] = call.sinks / less
        if call.slopes is not None:
            held["slopes"] = call.slopes
        if call.lse_upstream is not None:
            held["lse_upstream"] = call.lse_upstream
        return call.replace(**{name: _float64(self.tensor(x)) for name, x in held.items()})

    def tensor(self, array: Array) -> torch.Tensor:
        """A float64 array in the kernel's dtype, where it wants its tensors."""
        return torch.tensor(np.asarray(array, dtype=np.float64)).to(DTYPES[self.dtype]).to(self.device)

    def weights(self, keys: Array, queries: Array) -> Array:
        """s_i = softmax(K_i q_i), (*b, n, T), of queries (*b, n or 1, d): the kernel on the identity."""
        held = self._tensors(keys, None)
        identity = torch.eye(held.keys.shape[-2], dtype=DTYPES[self.dtype], device=self.device)
        with torch.no_grad():
            found = [
                self.attend(query, k, identity.expand(*k.shape[:-1], len(identity)))[..., 0, :]
                for query, k, _ in self._blocks(held, queries, len(identity))
            ]
        return _join_blocks(found, held, queries)

    def outputs(self, keys: Array, scores: Array, queries: Array) -> Array:
        """γ_iᵀ s_i, (*b, n), of queries (*b, n or 1, d)."""
        held = self._tensors(keys, scores)
        with torch.no_grad():
            found = [self.attend(query, k, v)[..., 0, 0] for query, k, v in self._blocks(held, queries, 1)]
        return _join_blocks(found, held, queries) * held.unit

    def gradients(self, keys: Array, scores: Array, loss: Loss, queries: Array) -> tuple[Array, Array]:
        """Of each ℓ(γ_iᵀ s_i) in its query, by the kernel's backward pass: (*b, n, d), and log of its unit, (*b,).

        The unit is that of the loss's slope, of keys and of scores alone.
        """
        held = self._tensors(keys, scores)
        gradients, powers = [], []
        for query, k, v in self._blocks(held, queries, 1):
            query.requires_grad_()
            with torch.enable_grad():
                found = self.attend(query, k, v)
            log_slopes = loss.log_slope(_float64(found[..., 0, 0]) * held.unit)
            # A power of two is taken out of every slope: it is put back in float64, where it does not underflow.
            power = np.floor(log_slopes / math.log(2))
            upstream = self.tensor(-np.exp(log_slopes - power * math.log(2)))
            (each,) = torch.autograd.grad((found * upstream[..., None, None]).sum(), query)
            gradients.append(each[..., 0, :])
            powers.append(torch.from_numpy(power))
        exponents = _join_blocks(powers, held, queries)
        top = np.max(exponents, axis=-1)
        each = _join_blocks(gradients, held, queries) * np.exp2(exponents - top[..., None])[..., None]
        return each, top * math.log(2) + math.log(held.unit * held.key_unit)

    def _tensors(self, keys: Array, scores: Array | None) -> Held:
        """Keys and scores as tensors; the last ones are kept, because a descent asks for the same ones every step."""
        last = self._last.get("held")
        if last is not None and last.of(keys, scores):
            return last
        key_unit, unit = _unit(keys), 1.0 if scores is None else _unit(scores)
        values = None if scores is None else self.tensor(np.asarray(scores) / unit)[..., None]
        made = Held(keys, scores, self.tensor(np.asarray(keys) / key_unit), values, key_unit, unit)
        self._last["held"] = made
        return made

    def _blocks(self, held: Held, queries: Array, width: int) -> Iterator[tuple[torch.Tensor, ...]]:
        """Query (B, n, 1, d), keys (B, n, T, d) and values (B, n, T, 1), at most ENTRIES numbers at a time."""
        batch, (n, tokens, d) = held.batch(queries), held.keys.shape[-3:]
        each = np.shape(queries)[-2]
        points = torch.tensor(
            np.broadcast_to(np.asarray(queries) * held.key_unit, (*batch, each, d)).reshape(-1, each, d)
        )
        points = points.to(DTYPES[self.dtype]).to(self.device)[:, :, None, :]
        values = held.keys[..., :1] if held.values is None else held.values  # no values: not looked at
        stacked = [
            x.expand(len(points), *x.shape)
            if x.dim() == 3
            else x.expand(*batch, *x.shape[-3:]).reshape(-1, *x.shape[-3:])
            for x in (held.keys, values)
        ]
        at_once = max(1, ENTRIES // (n * tokens * (d + width)))
        for start in range(0, len(points), at_once):
            rows = slice(start, start + at_once)
            yield points[rows].repeat(1, n // each, 1, 1), stacked[0][rows], stacked[1][rows]

    def as_implementation(self) -> OnKernel:
        """The kernel in place of the reference's softmax, risk and gradient."""
        asked = PromptKernel(self)
        return OnKernel(
            name=self.name,
            weights=asked.weights,
            risk=asked.risk,
            scaled_gradient=asked.scaled_gradient,
            textbook_eps=self.eps,
            kernel=self,
            attend=self.answer,
            explained=diagnose,
            on_queries=partial(OuterKernel, self),
            described=partial(describe_kernel, self),
            hints=partial(hints, self),
        )

    def replace(self, **changed: Any) -> Kernel:
        """This kernel, called otherwise."""
        return replace(self, **changed)


class KernelError(InvalidInput):
    """The kernel raised."""


def _restore(held: dict[str, Any]) -> Kernel:
    call = import_callable(held["source"]) if held["call"] is None else held["call"]
    interface = INTERFACES[held["interface"]] if held["reading"] is None else interface_of(held["reading"])
    found = {"call": call, "interface": interface, "parameters": parameters_of(call)}
    return Kernel(**held | found)


def _with_contiguous_tensors(call: Callable[..., Any]) -> Callable[..., Any]:
    """The callable, given contiguous tensors: it takes no others."""

    def contiguous(x: Any) -> Any:
        return x.contiguous() if isinstance(x, torch.Tensor) else x

    def kernel(*given: Any, **options: Any) -> Any:
        return call(*map(contiguous, given), **{name: contiguous(x) for name, x in options.items()})

    return kernel


def _is_padded(length: int, rows: int) -> bool:
    """Whether so many rows were rounded up to a multiple of a power of two from 8 to 128."""
    return any(length == -(-rows // multiple) * multiple for multiple in (8, 16, 32, 64, 128))


def _float64(x: torch.Tensor) -> Float64[np.ndarray, "..."]:
    return np.asarray(x.detach().to("cpu", torch.float64).numpy())


def _unit(values: Array) -> float:
    """The power of two that the largest of the values is a little more than one of; 1 if all are zero."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return 2.0 ** math.floor(math.log2(largest)) if 0 < largest < math.inf else 1.0


def _join_blocks(parts: list[torch.Tensor], held: Held, queries: Array) -> np.ndarray:
    """Blocks put together: a float64 array of shape (*b, …)."""
    array = _float64(parts[0] if len(parts) == 1 else torch.cat(parts))
    return np.asarray(array.reshape(*held.batch(queries), *array.shape[1:]))


def _kind(found: object) -> str:
    return f"a {type(found).__name__}" if found is not None else "nothing"
