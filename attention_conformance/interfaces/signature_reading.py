"""The class Reading: the meaning of a signature's parameters and results, from their names and from small calls.

A reading is plain data; :func:`attention_conformance.interfaces.inferred_interface.interface_of` turns it into an
interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

AXES = ("BHLE", "BLHE", "LBHE", "NLE", "BLHE joined")
"""Orders of the axes of tensors; N stands for B·H, and a joined axis H·E holds all heads."""
DECODED = ("BHLE, no L", "BLHE, no L")
"""Orders of the axes of keys and values for kernels whose query and output are (B, H, E), for a single query."""
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
"""The shape of masks of four axes, each of which may be 1."""
FOLDED = ("B·H, L, T", "L, T")
"""The shapes of masks for kernels with heads folded into the batch axis, the shape with most axes first."""


@dataclass(frozen=True)
class Mask:
    """A parameter for masks.

    Attributes:
        name: the name of the parameter.
        sense: the meaning of an entry: SHOWS, HIDES, ADDED or ONES_HIDE.
        shape: one of MASK_SHAPES, FOLDED or FOUR_AXES; "" for any shape that can be broadcast to (B, H, L, T).
    """

    name: str
    sense: str
    shape: str = ""


@dataclass(frozen=True)
class Reading:
    """A way to call a callable.

    Attributes:
        parameters: the names of all its parameters.
        tensors: the names of query, key and value, or of tensors that contain several of these; empty if they are
            positional.
        by_keyword: whether the tensors are passed by name.
        axes, returned_axes: elements of AXES, for arguments and results.
        names: the parameter of each role of :data:`.parameter_names.ROLES`.
        constants: arguments of every call.
        mask, key_mask, bias: parameters for boolean masks, for boolean masks with only an axis of keys, and for numbers
            added to logits.
        always_causal: whether every call is causal.
        fixed_scale: whether the scale is 1/√E, and no parameter changes it.
        output, log_sum_exp, weights: the paths to these results in the returned value; None if absent.
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
        """Yield the lines of a report about the reading."""
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
    """Yield every value in a result of tuples and mappings, with the path to it."""
    if isinstance(returned, Mapping):
        for name, part in returned.items():
            yield from flatten(part, (*path, name))
    elif isinstance(returned, tuple | list):
        for place, part in enumerate(returned):
            yield from flatten(part, (*path, place))
    else:
        yield path, returned


def look_up(returned: Any, path: tuple[Any, ...]) -> Any:
    """Return the value at the end of a path, or a tensor that already occurs on the way; None if there is neither."""
    for step in path:
        if not isinstance(returned, Mapping | tuple | list):
            return returned
        try:
            returned = returned[step]
        except (KeyError, IndexError, TypeError):
            return None
    return returned
