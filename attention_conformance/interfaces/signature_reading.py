"""The class Reading: the meaning of a signature's parameters and results, from their names and from small calls.

A reading is plain data; :func:`attention_conformance.interfaces.inferred_interface.interface_of` turns it into an
interface. Axes: B batch entries, H heads, L queries, T keys, E columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

AXES = ("BHLE", "BLHE", "LBHE", "NLE", "BLHE joined")
"""Orders of the axes of tensors; N stands for an axis B·H, and "joined" means that H and E are one axis."""
DECODED = ("BHLE, no L", "BLHE, no L")
"""Orders of the axes of keys and values in kernels for a single query, whose query and output are (B, H, E)."""
SAID = MappingProxyType(
    {
        "BHLE, no L": "(B, H, T, E) with queries (B, H, E)",
        "BLHE, no L": "(B, T, H, E) with queries (B, H, E)",
        "BHLE": "(B, H, L, E)",
        "BLHE": "(B, L, H, E)",
        "LBHE": "(L, B, H, E)",
        "NLE": "(B·H, L, E)",
        "BLHE joined": "(B, L, H·E)",
    }
)
SHOWS, HIDES, ADDED, ONES_HIDE = "True shows a key", "True hides a key", "is added to the logits", "1 hides a key"
MASK_SHAPES = ("B, H, L, T", "B, 1, L, T", "1, 1, L, T", "L, T", "B, 1, 1, T", "B, T")
FOUR_AXES = "·, ·, ·, ·"
"""The shape of masks that must have four axes, each of them possibly of length 1."""
FOLDED = ("B·H, L, T", "L, T")
"""The shapes of masks to try on kernels whose first axis is B·H; the shape with most axes comes first."""


@dataclass(frozen=True)
class Mask:
    """A parameter for masks.

    Attributes:
        name: the name of the parameter.
        sense: the meaning of the mask's entries: SHOWS, HIDES, ADDED or ONES_HIDE.
        shape: an element of MASK_SHAPES or FOLDED, or FOUR_AXES; "" for any shape that broadcasts to (B, H, L, T).
    """

    name: str
    sense: str
    shape: str = ""


@dataclass(frozen=True)
class Reading:
    """The meaning of a callable's parameters and results; it says how to call the callable.

    Attributes:
        parameters: the names of all parameters of the callable.
        tensors: the names of the parameters for query, key and value, or for a tensor that packs several of them; empty
            if the tensors are positional.
        by_keyword: whether the tensors are passed by name.
        axes, returned_axes: the order of the axes of arguments and of results, an element of AXES or DECODED.
        names: the name of the callable's parameter in each role of :data:`.parameter_names.ROLES`.
        constants: arguments that every call passes, by name.
        mask, key_mask, bias: the parameters for boolean masks, for boolean masks with only an axis of keys, and for
            numbers added to logits.
        always_causal: whether the callable is causal in every call.
        fixed_scale: whether the callable always scales logits by 1/√E.
        output, log_sum_exp, weights: the path (indices and keys) at which the returned value contains the output, the
            log-sum-exp, the attention weights; None if absent.
        lse_axes: the order of the log-sum-exp's axes, "BHL" or "BLH".
    """

    parameters: frozenset[str] = frozenset()
    tensors: tuple[str, ...] = ()
    by_keyword: bool = False
    axes: str = "BHLE"
    returned_axes: str = "BHLE"
    names: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    mask: Mask | None = None
    key_mask: Mask | None = None
    bias: Mask | None = None
    always_causal: bool = False
    fixed_scale: bool = False
    output: tuple[Any, ...] | None = ()
    log_sum_exp: tuple[Any, ...] | None = None
    weights: tuple[Any, ...] | None = None
    lse_axes: str = "BHL"

    def lines(self) -> Iterator[str]:
        """Yield the lines by which a report describes the reading."""
        readings = [f"tensors are {SAID[self.axes]}"]
        if self.returned_axes != self.axes:
            readings.append(f"its output is {SAID[self.returned_axes]}")
        masks = [mask for mask in (self.mask, self.key_mask, self.bias) if mask is not None]
        words = dict.fromkeys(
            f"{mask.name}: {mask.sense}{f', of shape ({mask.shape})' * bool(mask.shape)}" for mask in masks
        )
        readings += [*words, *(["every call is causal"] if self.always_causal else [])]
        yield f"found out by small calls: {'; '.join(readings)}"
        of_masks = {mask.name for mask in masks}
        constants = [f"{name}={value!r}" for name, value in self.constants.items() if name not in of_masks]
        if constants:
            yield f"given in every call: {', '.join(constants)}"


def flatten(returned: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value in nested tuples, lists and mappings, after the path (indices and keys) that leads to it."""
    if isinstance(returned, Mapping):
        for name, part in returned.items():
            yield from flatten(part, (*path, name))
    elif isinstance(returned, tuple | list):
        for place, part in enumerate(returned):
            yield from flatten(part, (*path, place))
    else:
        yield path, returned


def look_up(returned: Any, path: tuple[Any, ...]) -> Any:
    """Follow a path of indices and keys; return the value at its end, or None if the path does not exist.

    A value that is reached before the end and is no tuple, list or mapping, such as a tensor, is returned.
    """
    for step in path:
        if not isinstance(returned, Mapping | tuple | list):
            return returned
        try:
            returned = returned[step]
        except (KeyError, IndexError, TypeError):
            return None
    return returned
