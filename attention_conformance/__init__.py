"""The conformance suite for attention kernels: calls, interfaces, claims.

This package imports :mod:`theorems.core` and :mod:`theorems.run`. These two never import this package by name: they
find it by its entry point when the option ``--attention`` is given.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from max_margin_theorems.extensions import Extension

if TYPE_CHECKING:
    from attention_conformance.interfaces.declaration import attention_kernel
    from attention_conformance.saved_call import check_call
    from attention_conformance.tensor_comparison import AttentionTolerance, assert_attention_close, attention_tolerance

__all__ = [
    "EXTENSION",
    "AttentionTolerance",
    "assert_attention_close",
    "attention_kernel",
    "attention_tolerance",
    "check_call",
]

EXTENSION = Extension(
    formats="attention_conformance.calls.call_text",
    statements="attention_conformance.claims.statements:capability_statements",
    kernels="attention_conformance.suite",
)


def __getattr__(name: str) -> Any:
    """Import the module of the function or class ``name``, and return it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = {"attention_kernel": "interfaces.declaration", "check_call": "saved_call"}
    return getattr(import_module(f"attention_conformance.{modules.get(name, 'tensor_comparison')}"), name)
