"""The class Interface: a signature, the purpose of each parameter, and the conversion of a request to arguments.

Axes: B batch entries, H heads, L queries, T keys, G heads of keys and values (H is a multiple of G), E columns of
queries and keys, M columns of values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.torch_import import torch


class Mark(Enum):
    """A mark in place of a parameter's value: LEFT for "leave the default", REQUIRED for "there is no default"."""

    LEFT = "its default stands"
    REQUIRED = "it has no default"


Parameters = Mapping[str, Any]
"""The defaults of a kernel's parameters by name, Mark.REQUIRED if there is none; ``**`` if it takes any keyword."""


class Returned(NamedTuple):
    """The results of a kernel, with the axes of the module.

    Attributes:
        output: the output of attention, (B, H, L, M).
        log_sum_exp: log Σ e^logit of each row, (B, H, L), perhaps padded along L; None if not requested.
        weights: the attention weights, (B, H, L, T); None if the kernel does not return them.
    """

    output: Any
    log_sum_exp: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Request:
    """A call of a kernel, with torch tensors in place of the arrays of an ``AttentionCall``; axes as in the module.

    Attributes:
        query, key, value: tensors (B, H, L, E), (B, G, T, E), (B, G, T, M).
        scale: factor of the logits; None for the kernel's default.
        visible: a boolean mask, True where a key is visible; broadcastable to (B, H, L, T), perhaps with additional
            columns after those of the keys.
        bias: a mask added to the logits, broadcastable as ``visible`` is.
        causal, window, softcap: as in :class:`attention_conformance.calls.attention_call.AttentionCall`.
        log_sum_exp: whether the kernel has to return the log-sum-exp.
        dropout: the share of weights that are dropped at random.
        sinks: (H,), for each head the logit of an additional key with value 0.
        slopes: (B, H), the slopes of ALiBi, a penalty proportional to the distance of key and query.
        lengths: (B, 2), the numbers of queries and keys of each batch entry; further rows are padding.
        descales: (3, B, G), factors by which query, key and value, which then have 8 bits, are to be multiplied.
        alone: whether the kernel has to return the same bits for a batch entry as in a call on only that entry.
        splits: the number of splits into which the kernel should cut the keys; 0 lets the kernel choose.
        page: the number of keys in a page; 0 for no pages.
        seed: the seed of the random order in which pages lie in a cache.
        deterministic: whether the kernel has to return the same bits every time.
        boolean: whether an interface that can convert a boolean mask to an additive mask passes the boolean mask.
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
    descales: torch.Tensor | None = None
    alone: bool = False
    splits: int = 0
    page: int = 0
    seed: int = 0
    deterministic: bool = False
    boolean: bool = False

    @property
    def groups(self) -> int:
        """The number H/G of query heads that share one head of keys and values."""
        return int(self.query.shape[1] // self.key.shape[1])

    @property
    def mask(self) -> torch.Tensor | None:
        """The boolean mask or, if there is none, the additive mask, with four axes as the logits (B, H, L, T) have."""
        mask = self.visible if self.visible is not None else self.bias
        return mask if mask is None else mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))

    @property
    def lengths_first(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value with lengths before heads: (B, L, H, E), (B, T, G, E) and (B, T, G, M)."""
        query, key, value = (x.transpose(1, 2) for x in (self.query, self.key, self.value))
        return query, key, value


@dataclass(frozen=True)
class Option:
    """The purpose of a parameter of an attention function.

    Attributes:
        declares: the capabilities that a kernel declares by having the parameter; without any, the parameter is not
            tested.
        neutral: the value that switches the parameter off; it is passed if the kernel's default differs from it.
        given: whether every call passes the parameter, such as a tensor, a length or a module.
    """

    declares: tuple[str, ...] = ()
    neutral: Any = Mark.LEFT
    given: bool = False


GIVEN = Option(given=True)
UNTESTED = Option()
"""The option of a parameter that is left at its default and reported as not tested."""


def option_of(*capabilities: str, neutral: Any = Mark.LEFT) -> Option:
    """Return the option of a parameter that declares these capabilities and that the value ``neutral`` switches off."""
    return Option(capabilities, neutral)


def neutral_option(value: Any) -> Option:
    """Return the option of a parameter that is not tested, but switched off by the value ``value``."""
    return Option(neutral=value)


def same(call: AttentionCall) -> AttentionCall:
    """Return the call unchanged, for an interface whose signature can express every call."""
    return call


Put = Callable[[Callable[..., Any], Request, Parameters, dict[str, Any]], Returned]
"""A function that calls a kernel: (kernel, request, the kernel's parameters, further arguments by name) → results."""


@dataclass(frozen=True)
class Interface:
    """A signature, the purpose of each of its parameters, and the way to call a kernel with it.

    Attributes:
        name: the name for ``--interface``.
        signature: the signature as reports print it.
        known_by: sets of parameter names; a kernel that has all parameters of one of these sets has this interface. If
            ``known_by`` is empty, every kernel has it.
        options: the purpose of each parameter by name, except positional tensors.
        put: the function that calls a kernel for a request.
        by_place: the number of positional arguments.
        found_out: capabilities that need no keyword: a kernel has such a capability if a call that uses it returns a
            result.
        of_effect: capabilities that need no keyword: a kernel has such a capability if its result changes when a call
            uses it.
        expressible: a function from a call to the nearest call that the signature can express.
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

    def call(self, kernel: Callable[..., Any], request: Request, has: Parameters) -> Returned:
        """Call a kernel, whose parameters are ``has``, for the request, and return the results."""
        return self.put(kernel, request, has, self.neutral_values(has))

    def neutral_values(self, has: Parameters) -> dict[str, Any]:
        """Return the value that switches a parameter off, for each parameter in ``has`` with another default."""
        return {
            name: option.neutral
            for name, option in self.options.items()
            if name in has and option.neutral is not Mark.LEFT and has[name] != option.neutral
        }

    def declared_capabilities(self, has: Collection[str]) -> frozenset[str]:
        """Return the capabilities that a kernel with the parameters ``has`` declares."""
        return frozenset(
            name for parameter, option in self.options.items() if parameter in has for name in option.declares
        )

    def unknown_parameters(self, has: Parameters) -> list[str]:
        """Return the names in ``has`` of parameters without a default for which the interface has no option."""
        further = [(name, default) for name, default in has.items() if name != "**"][self.by_place :]
        return [name for name, default in further if default is Mark.REQUIRED and name not in self.options]


def parameters_of(kernel: Callable[..., Any]) -> Parameters:
    """Return the defaults of a kernel's parameters by name.

    A callable without a Python signature has none, except PyTorch's ``scaled_dot_product_attention``.
    """
    if kernel is torch.nn.functional.scaled_dot_product_attention:
        tensors = dict.fromkeys(("query", "key", "value"), Mark.REQUIRED)
        return MappingProxyType(
            {**tensors, "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
        )
    # A module's __call__ takes any arguments; the forward pass has the signature that counts.
    called = kernel.forward if isinstance(kernel, torch.nn.Module) else kernel
    try:
        parameters = inspect.signature(called).parameters.values()
    except (ValueError, TypeError):
        return MappingProxyType({})
    return MappingProxyType(
        {
            "**" if parameter.kind is parameter.VAR_KEYWORD else parameter.name: Mark.REQUIRED
            if parameter.default is parameter.empty
            else parameter.default
            for parameter in parameters
            if parameter.kind is not parameter.VAR_POSITIONAL
        }
    )


def swap_axes(output: Any) -> Any:
    """Transpose a tensor (B, L, H, M) to (B, H, L, M); return anything else unchanged, for the caller to refuse."""
    return output.transpose(1, 2) if isinstance(output, torch.Tensor) and output.dim() == 4 else output


def first_of(returned: Any) -> tuple[Any, Any]:
    """Return the first and the second of a kernel's results: the output, and the log-sum-exp, weights or None."""
    if not isinstance(returned, tuple | list):
        return returned, None
    return returned[0], returned[1] if len(returned) > 1 else None


def with_mask_or_causal(call: AttentionCall) -> AttentionCall:
    """Return the call, made non-causal if it has a mask, for a kernel that takes either a mask or causality."""
    return call if call.visible is None and call.bias is None else call.replace(causal=False)
