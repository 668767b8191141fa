"""How kernels want to be called: the signatures that attention has in the libraries, a file each.

An interface turns a :class:`.interface.Request` into arguments, and what the kernel returns into our order. Each
keyword of a kernel of which something is claimed is a capability that it declares; others are switched off, and named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from theorems.kernel.interfaces.by_name import BY_NAME
from theorems.kernel.interfaces.equinox import EQUINOX
from theorems.kernel.interfaces.flash import FLASH
from theorems.kernel.interfaces.flash_kvcache import FLASH_KVCACHE
from theorems.kernel.interfaces.flash_varlen import FLASH_VARLEN
from theorems.kernel.interfaces.flashinfer import FLASHINFER
from theorems.kernel.interfaces.flax import FLAX
from theorems.kernel.interfaces.flex import FLEX
from theorems.kernel.interfaces.hf import HF
from theorems.kernel.interfaces.interface import Interface
from theorems.kernel.interfaces.jax import JAX
from theorems.kernel.interfaces.keras import KERAS
from theorems.kernel.interfaces.merging import COMBINE, MERGE_STATE
from theorems.kernel.interfaces.mla import MLA
from theorems.kernel.interfaces.mlx import MLX
from theorems.kernel.interfaces.nested import NESTED
from theorems.kernel.interfaces.onnxruntime import ONNXRUNTIME
from theorems.kernel.interfaces.plain import PLAIN
from theorems.kernel.interfaces.sdpa import SDPA
from theorems.kernel.interfaces.transformer_engine import TRANSFORMER_ENGINE
from theorems.kernel.interfaces.triton import TRITON
from theorems.kernel.interfaces.xformers import XFORMERS

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
