"""Public attributes that were renamed: the former name works for one more version, and warns with the present name."""

from __future__ import annotations

import warnings
from typing import Any


class FormerName:
    """The former name of an attribute, written as ``chosen = FormerName("chosen_tokens")`` in the body of its class."""

    def __init__(self, name: str) -> None:
        """Store ``name``, the present name of the attribute."""
        self.name = name

    def __set_name__(self, owner: type, former: str) -> None:
        """Store ``former``, the former name: the name under which the class body assigns this object."""
        self.former = former

    def __get__(self, instance: Any, owner: type) -> Any:
        """Warn, and return the attribute of the present name; if the class itself is asked, return this object."""
        if instance is None:
            return self
        warn_renamed(f"{owner.__name__}.{self.former}", f"{owner.__name__}.{self.name}")
        return getattr(instance, self.name)


def warn_renamed(former: str, name: str) -> None:
    """Issue a :class:`DeprecationWarning`, located at the line that uses the former name."""
    warnings.warn(f"{former} is now {name}", DeprecationWarning, stacklevel=3)
