"""How much of a kernel is looked at: everything, or what fits into a minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Profile:
    """A selection of what can be asked of a kernel.

    Attributes:
        name: as ``--profile`` has it.
        examples: calls of each capability at least; a cover of all pairs of options from
            :data:`theorems.capabilities.trials.PAIRS` on.
        cases: of each statement of the papers.
        left_out: statements that are not tried.
    """

    name: str
    examples: int
    cases: int
    left_out: tuple[str, ...]

    def says(self) -> str:
        """What it leaves out, for a reader."""
        left = ", ".join(self.left_out)
        return (
            f"profile {self.name}: calls in which every pair of options meets, {self.cases} cases of each statement;"
            f" left out: triples of options, {left}, and more cases"
        )


LONG = ("lemma-1", "lemma-6", "theorem-2", "tsvm-no-stationary-point")
PROFILES: Mapping[str, Profile] = MappingProxyType({one.name: one for one in (Profile("minute", 25, 8, LONG),)})
"""By name. A case of the statements that are left out follows a run of gradient descent."""


def profile_named(name: str) -> Profile:
    """The profile of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in PROFILES:
        raise InvalidInput(f"--profile: {name!r} is not one of {', '.join(PROFILES)}; leave it out for everything.")
    return PROFILES[name]
