"""What an interface is: a signature, what each of its parameters is for, and how a request is put into it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from attention_conformance.kernel.sizes import Taken
from attention_conformance.kernel.with_torch import torch
from generators.attention_call import AttentionCall


class Mark(Enum):
    """What stands where there is no value."""

    LEFT = "its default stands"
    REQUIRED = "it has no default"


Parameters = Mapping[str, Any]
"""The parameters of a kernel and their defaults, Mark.REQUIRED where there is none; ``**`` if it takes further ones."""


class Returned(NamedTuple):
    """What a kernel returned, in our order.

    Attributes:
        output: (B, H, L, M).
        log_sum_exp: (B, H, L) or longer, where it was asked for.
        weights: (B, H, L, T), where it returns them.
    """

    output: Any
    log_sum_exp: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Request:
    """A call in tensors.

    Attributes:
        query, key, value: shapes (B, H, L, E), (B, G, T, E), (B, G, T, M).
        scale: None leaves it to the kernel.
        visible: boolean, broadcastable to (B, H, L, T), or with columns more than that; True is seen.
        bias: likewise, added to the logits.
        causal, window, softcap: as in :class:`generators.attention_call.AttentionCall`.
        log_sum_exp: whether it is asked for.
        dropout: the share of weights that are dropped.
        sinks: (H,), the logit of one more key of value 0.
        slopes: (B, H), of ALiBi.
        lengths: (B, 2), the queries and keys that a batch entry has; the rest is padding.
        parts: (T,), to which of the parts to merge a key belongs; two halves if it is left out.
        number_of_parts: that there are, some may have no key.
        score_mod: (H, 3), factor, slope and shift of scores.
        mask_mod: (B, H, 3), of the half-plane of places that are seen.
        descales: (3, B, G), factors of query, key and value, which are of 8 bits then.
        shared: whether values are the first columns of the keys.
        alone: whether an entry of a batch is to have the same bits as alone.
        splits, page: into so many the kernel is to cut the keys, keys to a page; 0 for as it likes, and none.
        seed: for the order of pages.
        deterministic: whether the same bits are asked for every time.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    scale: float | None = 1.0
    visible: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    causal: bool = False
    window: tuple[int, int] | None = None
    softcap: float = 0.0
    log_sum_exp: bool = False
    dropout: float = 0.0
    sinks: torch.Tensor | None = None
    slopes: torch.Tensor | None = None
    lengths: torch.Tensor | None = None
    parts: torch.Tensor | None = None
    number_of_parts: int = 2
    score_mod: torch.Tensor | None = None
    mask_mod: torch.Tensor | None = None
    descales: torch.Tensor | None = None
    shared: bool = False
    alone: bool = False
    splits: int = 0
    page: int = 0
    seed: int = 0
    deterministic: bool = False

    @property
    def groups(self) -> int:
        """Heads to a group of keys and values."""
        return int(self.query.shape[1] // self.key.shape[1])

    @property
    def mask(self) -> torch.Tensor | None:
        """The boolean or additive one, with as many axes as the logits."""
        found = self.visible if self.visible is not None else self.bias
        return found if found is None else found.reshape((1,) * (4 - found.dim()) + tuple(found.shape))

    @property
    def lengths_first(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value in (B, L, H, E)."""
        query, key, value = (x.transpose(1, 2) for x in (self.query, self.key, self.value))
        return query, key, value


@dataclass(frozen=True)
class Option:
    """What a parameter is for.

    Attributes:
        declares: the capabilities that a kernel declares by having it; without one there is no test of it.
        neutral: the value that switches it off; given to a kernel that has another default.
        given: whether every call gives it: a tensor, a length, a module.
    """

    declares: tuple[str, ...] = ()
    neutral: Any = Mark.LEFT
    given: bool = False


GIVEN = Option(given=True)
UNTESTED = Option()
"""Nothing is known of it but that its default changes nothing."""


def option_of(*capabilities: str, neutral: Any = Mark.LEFT) -> Option:
    """A parameter of which these capabilities are claimed."""
    return Option(capabilities, neutral)


def neutral_option(value: Any) -> Option:
    """A parameter of which nothing is claimed: it is given this value, which switches it off."""
    return Option(neutral=value)


def others(*names: str) -> dict[str, Option]:
    """Parameters that are left at their defaults."""
    return dict.fromkeys(names, UNTESTED)


def same(call: AttentionCall) -> AttentionCall:
    """The call: the signature can say all of it."""
    return call


Put = Callable[[Callable[..., Any], Request, Parameters, dict[str, Any]], Returned]
"""(kernel, request, its parameters, what it is given by name already) → what it returned."""


@dataclass(frozen=True)
class Interface:
    """A signature.

    Attributes:
        name: as ``--interface`` has it.
        signature: for a reader.
        known_by: a kernel that has all parameters of one of these sets is of this interface; empty: any kernel is.
        options: what its parameters are for, but for those that tensors are given to by place.
        put: makes the call.
        by_place: so many arguments are given by place.
        found_out: capabilities that are declared if a call of the kind returns, whatever the keywords.
        of_effect: the same, declared if a call of the kind returns something else than one that is not.
        expressible: a call → the nearest that the signature can say.
        sizes: at which a kernel that refuses usual ones is tried.
    """

    name: str
    signature: str
    known_by: tuple[frozenset[str], ...]
    options: Mapping[str, Option]
    put: Put
    by_place: int = 3
    found_out: tuple[str, ...] = ()
    of_effect: tuple[str, ...] = ()
    expressible: Callable[[AttentionCall], AttentionCall] = same
    sizes: tuple[Taken, ...] = ()

    def call(self, kernel: Callable[..., Any], request: Request, has: Parameters) -> Returned:
        """What the kernel with those parameters returns for the request."""
        return self.put(kernel, request, has, self.neutral_values(has))

    def neutral_values(self, has: Parameters) -> dict[str, Any]:
        """The neutral values of parameters whose default is another."""
        return {
            name: one.neutral
            for name, one in self.options.items()
            if name in has and one.neutral is not Mark.LEFT and has[name] != one.neutral
        }

    def declared_capabilities(self, has: Collection[str]) -> frozenset[str]:
        """The capabilities that a kernel with those parameters has."""
        return frozenset(name for one, option in self.options.items() if one in has for name in option.declares)

    def unknown_parameters(self, has: Parameters) -> list[str]:
        """The parameters that have to be given, and that nobody knows."""
        further = [(name, default) for name, default in has.items() if name != "**"][self.by_place :]
        return [name for name, default in further if default is Mark.REQUIRED and name not in self.options]


def parameters_of(kernel: Callable[..., Any]) -> Parameters:
    """The parameters of a kernel and their defaults. Builtins of PyTorch have none, but for its attention."""
    if kernel is torch.nn.functional.scaled_dot_product_attention:
        tensors = dict.fromkeys(("query", "key", "value"), Mark.REQUIRED)
        return MappingProxyType(
            {**tensors, "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
        )
    # What a module is called by says nothing of its forward pass.
    called = kernel.forward if isinstance(kernel, torch.nn.Module) else kernel
    try:
        found = inspect.signature(called).parameters.values()
    except (ValueError, TypeError):
        return MappingProxyType({})
    return MappingProxyType(
        {
            "**" if one.kind is one.VAR_KEYWORD else one.name: Mark.REQUIRED
            if one.default is one.empty
            else one.default
            for one in found
            if one.kind is not one.VAR_POSITIONAL
        }
    )


def swap_axes(found: Any) -> Any:
    """(B, L, H, M) to (B, H, L, M); what is no such tensor is for the caller to refuse."""
    return found.transpose(1, 2) if isinstance(found, torch.Tensor) and found.dim() == 4 else found


def first_of(found: Any) -> tuple[Any, Any]:
    """What a kernel returned: its output, and what else it returned first, or None."""
    if not isinstance(found, tuple | list):
        return found, None
    return found[0], found[1] if len(found) > 1 else None


LSE = ("return_lse", "return_softmax_lse", "return_attn_probs")
"""Flags with which kernels return (output, log-sum-exp, …)."""


def ask_for_lse(request: Request, has: Parameters, options: dict[str, Any]) -> None:
    """Set the flag that the kernel has, where the log-sum-exp is asked for."""
    flag = next((name for name in LSE if name in has), None)
    if request.log_sum_exp and flag:
        options[flag] = True
