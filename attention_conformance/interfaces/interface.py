"""The class Interface: a signature, the purpose of each parameter, and the conversion of a request to arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.sizes import Taken
from attention_conformance.kernel.torch_import import torch


class Mark(Enum):
    """A mark that stands in place of a parameter's value."""

    LEFT = "its default stands"
    REQUIRED = "it has no default"


Parameters = Mapping[str, Any]
"""The parameters of a kernel with their defaults (Mark.REQUIRED for none); ``**`` if it takes any keyword."""


class Returned(NamedTuple):
    """The results of a kernel, in our order of axes.

    Attributes:
        output: (B, H, L, M).
        log_sum_exp: (B, H, L), perhaps padded along L, if the request wants it.
        weights: (B, H, L, T), if the kernel returns them.
    """

    output: Any
    log_sum_exp: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Request:
    """A call whose arrays are tensors.

    Attributes:
        query, key, value: shapes (B, H, L, E), (B, G, T, E), (B, G, T, M).
        scale: factor of the logits; None for the kernel's default.
        visible: boolean, broadcastable to (B, H, L, T), or with additional columns; True where a key is visible.
        bias: a mask added to the logits, broadcastable as ``visible``.
        causal, window, softcap: as in :class:`attention_conformance.calls.attention_call.AttentionCall`.
        log_sum_exp: whether the kernel has to return the log-sum-exp.
        dropout: the share of weights that are dropped.
        sinks: (H,), for each head the logit of an additional key with value 0.
        slopes: (B, H), the slopes of ALiBi.
        lengths: (B, 2), the numbers of queries and keys of each batch entry; rows after them are padding.
        parts: (T,), for kernels that merge parts, the index of each key's part; two halves by default.
        number_of_parts: the number of parts, some of which may have no key.
        score_mod: (H, 3), factor, slope and shift of scores.
        mask_mod: (B, H, 3), coefficients of the half-plane of visible (query, key) positions.
        descales: (3, B, G), factors of query, key and value, which then have 8 bits.
        shared: whether values are the first columns of the keys.
        alone: whether the kernel has to return the same bits for a batch entry as in a call on only that entry.
        splits: the number of splits into which the kernel should cut the keys; 0 lets the kernel choose.
        page: the number of keys in a page; 0 for no pages.
        seed: the seed of the order of pages.
        deterministic: whether the kernel has to return the same bits every time.
        boolean: whether an interface that could convert a boolean mask to numbers passes it unchanged.
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
    boolean: bool = False

    @property
    def groups(self) -> int:
        """The number of heads in a group of keys and values."""
        return int(self.query.shape[1] // self.key.shape[1])

    @property
    def mask(self) -> torch.Tensor | None:
        """The boolean or additive mask, with as many axes as the logits."""
        mask = self.visible if self.visible is not None else self.bias
        return mask if mask is None else mask.reshape((1,) * (4 - mask.dim()) + tuple(mask.shape))

    @property
    def lengths_first(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Query, key and value in (B, L, H, E)."""
        query, key, value = (x.transpose(1, 2) for x in (self.query, self.key, self.value))
        return query, key, value


@dataclass(frozen=True)
class Option:
    """The purpose of a parameter.

    Attributes:
        declares: the capabilities that a kernel declares by having the parameter; if there are none, the parameter is
            not tested.
        neutral: the value that switches the parameter off; it is passed if the kernel has another default.
        given: whether every call passes the parameter, such as a tensor, a length or a module.
    """

    declares: tuple[str, ...] = ()
    neutral: Any = Mark.LEFT
    given: bool = False


GIVEN = Option(given=True)
UNTESTED = Option()
"""The option of a parameter that is left at its default and reported as not tested."""


def option_of(*capabilities: str, neutral: Any = Mark.LEFT) -> Option:
    """Return the option of a parameter that declares these capabilities."""
    return Option(capabilities, neutral)


def neutral_option(value: Any) -> Option:
    """Return the option of an untested parameter, which ``value`` switches off."""
    return Option(neutral=value)


def same(call: AttentionCall) -> AttentionCall:
    """Return the call unchanged: the signature can express all of it."""
    return call


Put = Callable[[Callable[..., Any], Request, Parameters, dict[str, Any]], Returned]
"""Function (kernel, request, the kernel's parameters, further arguments by name) → results."""


@dataclass(frozen=True)
class Interface:
    """A signature, the purpose of each of its parameters, and the way to call a kernel with it.

    Attributes:
        name: the name for ``--interface``.
        signature: the signature as reports print it.
        known_by: sets of parameters; a kernel that has all parameters of one of these sets has this interface. An empty
            set fits any kernel.
        options: the purpose of each parameter, except positional tensors.
        put: the function that makes the call.
        by_place: the number of positional arguments.
        found_out: capabilities that a kernel has if a call that uses them returns a result, whatever keywords the
            kernel has.
        of_effect: capabilities that a kernel has if a call that uses them returns another result than a call without
            them.
        expressible: a function from a call to the nearest call that the signature can express.
        sizes: sizes at which a kernel that refuses the usual sizes is tried.
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
        """Return the results of a kernel, whose parameters are ``has``, for the request."""
        return self.put(kernel, request, has, self.neutral_values(has))

    def neutral_values(self, has: Parameters) -> dict[str, Any]:
        """Return the neutral value of each parameter whose default differs from it."""
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
        """Return the required parameters, among ``has``, that the interface does not know."""
        further = [(name, default) for name, default in has.items() if name != "**"][self.by_place :]
        return [name for name, default in further if default is Mark.REQUIRED and name not in self.options]


def parameters_of(kernel: Callable[..., Any]) -> Parameters:
    """Return the parameters of a kernel and their defaults; none for builtins of PyTorch, except for its attention."""
    if kernel is torch.nn.functional.scaled_dot_product_attention:
        tensors = dict.fromkeys(("query", "key", "value"), Mark.REQUIRED)
        return MappingProxyType(
            {**tensors, "attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
        )
    # The signature of a module's __call__ is not that of its forward pass.
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
    """Transpose (B, L, H, M) to (B, H, L, M); leave other results for the caller to refuse."""
    return output.transpose(1, 2) if isinstance(output, torch.Tensor) and output.dim() == 4 else output


def first_of(returned: Any) -> tuple[Any, Any]:
    """Return the output of a kernel, and the first of its other results or None."""
    if not isinstance(returned, tuple | list):
        return returned, None
    return returned[0], returned[1] if len(returned) > 1 else None


def with_one_mask(call: AttentionCall) -> AttentionCall:
    """Return the call with the mask of the first head for all heads."""

    def of_first(mask: Any) -> Any:
        return mask if mask is None or np.ndim(mask) < 4 else mask[:, :1]

    return call.replace(visible=of_first(call.visible), bias=of_first(call.bias))


def with_mask_or_causal(call: AttentionCall) -> AttentionCall:
    """Return the call, without causality if it has a mask: the kernel has one parameter for a mask or causality."""
    return call if call.visible is None and call.bias is None else call.replace(causal=False)
