"""Faulty and right kernels with signatures of libraries; emitted tests (``--emit-test``) must fail and pass on them."""

from __future__ import annotations

from tests.attention_conformance.kernel.signatures import SIGNATURES, attend, with_scale_of_keys
from tests.attention_conformance.kernel.signatures import mlx as of_mlx

NAMES = {"keras": "keras", "mistral": "mistral", "jax": "jax.nn", "flash": "flash-attn 2"}

keras, mistral, jax, flash = (SIGNATURES[name].make(SIGNATURES[name].fault) for name in NAMES.values())
mlx = of_mlx(with_scale_of_keys)
RIGHT = {"mlx": of_mlx(attend)} | {name: SIGNATURES[signature].make(attend) for name, signature in NAMES.items()}
