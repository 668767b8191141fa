"""The class of a paper's definitions, each with the code that computes what it defines."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Definition:
    """A definition of a paper.

    Attributes:
        id: the id, such as ``definition-2``.
        title: the defined term, in a few words.
        source: the place in the paper.
        text: the definition in full.
        objects: the code that computes what is defined, each object as ``module:name``.
    """

    id: str
    title: str
    source: str
    text: str
    objects: tuple[str, ...]

    def resolve(self) -> tuple[object, ...]:
        """Import and return the objects that :attr:`objects` names.

        Raises:
            ImportError, AttributeError: an object does not exist.
        """
        values = []
        for name in self.objects:
            module, _, path = name.partition(":")
            value: object = import_module(module)
            for part in path.split("."):
                value = getattr(value, part)
            values.append(value)
        return tuple(values)
