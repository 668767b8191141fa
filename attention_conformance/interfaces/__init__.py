"""Interfaces: the signatures of attention functions in libraries, and how to call a function with each of them.

An interface turns a :class:`.interface.Request` into a kernel's arguments, and the kernel's results into tensors with
axes (batch entry, head, query, column). A kernel declares a capability, such as causal masks, by having a keyword
argument for it. Keywords for which no capability is tested are switched off and named in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attention_conformance.interfaces.flash import FLASH, FLASH_KVCACHE, FLASH_VARLEN
from attention_conformance.interfaces.hf import HF
from attention_conformance.interfaces.interface import Interface, Parameters
from attention_conformance.interfaces.libraries import JAX, PLAIN, SDPA
from attention_conformance.interfaces.parameter_names import LSE, is_pytorchs

INTERFACES: Mapping[str, Interface] = MappingProxyType(
    {
        interface.name: interface
        for interface in (
            JAX,
            FLASH_KVCACHE,
            FLASH_VARLEN,
            HF,
            SDPA,
            FLASH,
            PLAIN,
        )
    }
)
"""The interfaces by name, in the order in which :func:`recognise` tries them: the most specific interfaces come first.

Every kernel that no earlier interface fits has the interface ``plain``.
"""

ALWAYS = ("output", "gradients", "exact-weights", "memory", "repeated-calls")
"""Capabilities that are tested on every kernel; "gradients" is tested only if the kernel has a backward pass."""


def recognise(parameters: Parameters) -> Interface:
    """Return the first interface that fits a kernel with these parameters.

    A signature of three tensors and ``scale=None`` gets the interface of PyTorch's function, so that the default scale
    is tested, too.
    """
    has = {*parameters}
    if [*parameters][3:] == ["scale"] and parameters["scale"] is None:
        return SDPA
    return next(
        interface
        for interface in INTERFACES.values()
        if not interface.known_by or any(names <= has for names in interface.known_by)
    )


OF_FLASH = frozenset({"softmax_scale", "window_size", *LSE})
"""Parameters that only flash-attn's functions have; ``causal`` alone may belong to any function."""


def is_told(interface: Interface, parameters: Parameters) -> bool:
    """Return whether the parameters' names alone tell how to call a kernel of this interface."""
    if interface is PLAIN:
        return False
    if interface is SDPA and not is_pytorchs(parameters) and [*parameters][:3] != ["query", "key", "value"]:
        return False
    if interface is FLASH and not OF_FLASH & {*parameters}:
        return False
    further = [name for name in parameters if name != "**"][interface.by_place :]
    return all(name in interface.options for name in further)
