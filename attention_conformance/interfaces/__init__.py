"""Interfaces: the signatures of attention functions in libraries, and how to call a function with each of them.

An interface turns a :class:`.interface.Request` into arguments, and the kernel's results into our order of axes. A
kernel declares a capability by having a keyword about which there are claims; other keywords are switched off and named
in the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from attention_conformance.interfaces.flash import FLASH, FLASH_KVCACHE, FLASH_VARLEN, MLA
from attention_conformance.interfaces.flashinfer import FLASHINFER
from attention_conformance.interfaces.flex import FLEX
from attention_conformance.interfaces.hf import HF
from attention_conformance.interfaces.inferred_interface import BY_NAME
from attention_conformance.interfaces.interface import Interface, Parameters
from attention_conformance.interfaces.libraries import (
    EQUINOX,
    FLAX,
    JAX,
    KERAS,
    MLX,
    ONNXRUNTIME,
    PLAIN,
    SDPA,
    TRANSFORMER_ENGINE,
    TRITON,
    XFORMERS,
)
from attention_conformance.interfaces.merge_functions import COMBINE, MERGE_STATE
from attention_conformance.interfaces.packed_sequences import NESTED

INTERFACES: Mapping[str, Interface] = MappingProxyType(
    {
        interface.name: interface
        for interface in (
            MERGE_STATE,
            COMBINE,
            MLA,
            FLEX,
            EQUINOX,
            FLAX,
            KERAS,
            JAX,
            TRANSFORMER_ENGINE,
            FLASHINFER,
            FLASH_KVCACHE,
            FLASH_VARLEN,
            XFORMERS,
            ONNXRUNTIME,
            HF,
            TRITON,
            SDPA,
            MLX,
            FLASH,
            PLAIN,
            NESTED,
            BY_NAME,
        )
    }
)
"""The interfaces by name, in the order in which they are recognised, specific ones first.

The interface ``plain`` takes every kernel that no interface before it recognises; interfaces after it are used only if
``--interface`` names them.
"""

ALWAYS = ("output", "gradients", "exact-weights", "memory", "repeated-calls")
"""Capabilities that every kernel has; those about gradients only if it has a backward pass."""


def recognise(parameters: Parameters) -> Interface:
    """Return the interface of a kernel with these parameters.

    Three tensors and ``scale=None`` are read as PyTorch's signature, so that the default scale is tested.
    """
    has = {*parameters}
    if [*parameters][3:] == ["scale"] and parameters["scale"] is None:
        return SDPA
    return next(
        interface
        for interface in INTERFACES.values()
        if not interface.known_by or any(names <= has for names in interface.known_by)
    )
