"""Public attributes that were renamed: the former name works for one version and warns with the new name."""

from __future__ import annotations

import warnings
from typing import Any


class FormerName:
    """The former name of an attribute, written as ``chosen = FormerName("chosen_tokens")`` in the body of its class."""

    def __init__(self, name: str) -> None:
        """Take the present name of the attribute."""
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        """Store the former name, which is the attribute to which the class assigns this object."""
        self.former = former

    def __get__(self, instance: Any, owner: type) -> Any:
        """Return the attribute under its present name; accessed on the class, return this object itself."""
        if instance is None:
            return self
        warn_renamed(f"{owner.__name__}.{self.former}", f"{owner.__name__}.{self.name}")
        return getattr(instance, self.name)


def warn_renamed(former: str, name: str) -> None:
    """Issue a :class:`DeprecationWarning` at the line that uses the former name."""
    warnings.warn(f"{former} is now {name}", DeprecationWarning, stacklevel=3)
