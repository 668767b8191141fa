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
from attention_conformance.interfaces.inferred_interface import BY_NAME
from attention_conformance.interfaces.interface import Interface, Parameters
from attention_conformance.interfaces.libraries import JAX, PLAIN, SDPA, TRITON

INTERFACES: Mapping[str, Interface] = MappingProxyType(
    {
        interface.name: interface
        for interface in (
            JAX,
            FLASH_KVCACHE,
            FLASH_VARLEN,
            HF,
            TRITON,
            SDPA,
            FLASH,
            PLAIN,
            BY_NAME,
        )
    }
)
"""The interfaces by name, in the order in which :func:`recognise` tries them: the most specific interfaces come first.

Every kernel that no earlier interface fits has the interface ``plain``; interfaces after ``plain`` are used only if the
option ``--interface`` names them.
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
