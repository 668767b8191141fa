"""How kernels want to be called: the signatures that attention has in the libraries, a file each.

An interface turns a :class:`.interface.Request` into arguments, and what the kernel returns into our order. Each
keyword of a kernel of which something is claimed is a capability that it declares; others are switched off, and named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from attention_conformance.interfaces.by_name import BY_NAME
from attention_conformance.interfaces.equinox import EQUINOX
from attention_conformance.interfaces.flash import FLASH
from attention_conformance.interfaces.flash_kvcache import FLASH_KVCACHE
from attention_conformance.interfaces.flash_varlen import FLASH_VARLEN
from attention_conformance.interfaces.flashinfer import FLASHINFER
from attention_conformance.interfaces.flax import FLAX
from attention_conformance.interfaces.flex import FLEX
from attention_conformance.interfaces.hf import HF
from attention_conformance.interfaces.interface import Interface
from attention_conformance.interfaces.jax import JAX
from attention_conformance.interfaces.keras import KERAS
from attention_conformance.interfaces.merging import COMBINE, MERGE_STATE
from attention_conformance.interfaces.mla import MLA
from attention_conformance.interfaces.mlx import MLX
from attention_conformance.interfaces.nested import NESTED
from attention_conformance.interfaces.onnxruntime import ONNXRUNTIME
from attention_conformance.interfaces.plain import PLAIN
from attention_conformance.interfaces.sdpa import SDPA
from attention_conformance.interfaces.transformer_engine import TRANSFORMER_ENGINE
from attention_conformance.interfaces.triton import TRITON
from attention_conformance.interfaces.xformers import XFORMERS

INTERFACES: Mapping[str, Interface] = MappingProxyType(
    {
        one.name: one
        for one in (
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
"""By name; in the order in which they are recognised, specific ones first: plain takes what no other does.
What is behind it has to be asked for."""

ALWAYS = ("output", "gradients", "exact-weights", "memory", "repeated-calls")
"""Capabilities that every kernel has; of gradients where it has a backward pass."""


def recognise(parameters: Collection[str]) -> Interface:
    """The interface of a kernel with those parameters."""
    has = {*parameters}
    return next(one for one in INTERFACES.values() if not one.known_by or any(names <= has for names in one.known_by))
