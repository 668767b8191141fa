"""Public attributes that were renamed: the former name works for one version, and says what it is now."""

from __future__ import annotations

import warnings
from typing import Any


class FormerName:
    """The former name of an attribute: ``chosen = FormerName("chosen_tokens")`` in the body of its class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        self.former = former

    def __get__(self, instance: Any, owner: type) -> Any:
        """The attribute under its name of today; on the class this object itself."""
        if instance is None:
            return self
        warn_renamed(f"{owner.__name__}.{self.former}", f"{owner.__name__}.{self.name}")
        return getattr(instance, self.name)


def warn_renamed(former: str, name: str) -> None:
    """A :class:`DeprecationWarning` at the line that uses the former name."""
    warnings.warn(f"{former} is now {name}", DeprecationWarning, stacklevel=3)
