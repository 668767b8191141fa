"""The implementation under test: a name, and functions that replace functions of the reference.

A statement looks up each function that it needs, ``under_test[max_margin](keys, alpha)``, and gets the function of the
reference or its replacement, such as a user's kernel in place of the softmax, or a planted fault. Every public function
of :mod:`reference_attention`, or of a paper's own package, can be replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex, TypeVar

from theorems.core.under_test import UnderTest

Function = TypeVar("Function", bound=Callable[..., Any])
Replacements = Mapping[Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True)
class Implementation(UnderTest):
    """An implementation of softmax attention and of its hard-margin SVM, on which statements are checked.

    Attributes:
        name: the name that reports show.
        replaced: a mapping from functions of the reference to their replacements, which have the same signatures.
        textbook_eps: 0 if gradients have small relative errors even when the softmax saturates. A kernel that computes
            gradients by the textbook formula has absolute errors instead. For such a kernel give the distance between 1
            and the next number of its format (2⁻⁵² for float64), from which tolerances are computed.

    >>> from theorems import REFERENCE, max_margin
    >>> lazy = REFERENCE.replace("lazy", {max_margin: lambda keys, alpha: None})
    >>> lazy[max_margin](None, None), REFERENCE[max_margin] is max_margin
    (None, True)
    """

    name: str = "reference"
    replaced: Replacements = field(default_factory=dict, hash=False)
    textbook_eps: float = 0.0

    def __getitem__(self, function: Function) -> Function:
        """Return the replacement of a function of the reference, or the function itself if it has none."""
        return self.replaced.get(function, function)  # type: ignore[return-value]

    def replaces(self, function: Callable[..., Any]) -> bool:
        """Return whether the function has a replacement."""
        return function in self.replaced

    def identity(self) -> str:
        """Return the name of the implementation."""
        return self.name

    def replace(self, name: str, replaced: Replacements | None = None, **changed: Any) -> Implementation:
        """Return a copy with another name and further functions replaced.

        Args:
            name: the name of the copy.
            replaced: further replacements, by function, as in the attribute ``replaced``.
            changed: new values of other attributes.
        """
        return replace(self, name=name, replaced={**self.replaced, **(replaced or {})}, **changed)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """Return the data for pickling: the name ``REFERENCE`` for the reference, otherwise the fields."""
        # Code tests ``under_test is REFERENCE``, which must hold in other processes, too.
        return "REFERENCE" if self is REFERENCE else super().__reduce_ex__(protocol)


REFERENCE = Implementation()
"""The reference: :mod:`reference_attention` without replacements."""
