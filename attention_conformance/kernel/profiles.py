"""How much of a kernel is looked at: what fits into a minute, everything, or what takes long, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from generators.attention_call import REPEATS
from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Profile:
    """A selection of what can be asked of a kernel.

    Attributes:
        name: as ``--profile`` has it.
        examples: calls of each capability at least; a cover of all pairs of options from
            :data:`attention_conformance.claims.trials.PAIRS` on.
        cases: of each statement of the papers.
        left_out: statements that are not tried.
        deep: whether small calls are made over and over, and compiled to machine code.
        patience: seconds for a case at least.
    """

    name: str
    examples: int
    cases: int
    left_out: tuple[str, ...] = ()
    deep: bool = False
    patience: float = 0.0

    def says(self) -> str:
        """What it leaves out, or adds, for a reader."""
        if self.deep:
            return (
                f"profile {self.name}: small calls {REPEATS} times, and compiled to machine code where there is a C++"
                " compiler, beside all that is tried without it"
            )
        left = ", ".join(self.left_out)
        return (
            f"profile {self.name}: calls in which every pair of options meets, {self.cases} cases of each statement;"
            f" left out: triples of options, {left}, and more cases"
        )


LONG = ("lemma-1", "lemma-6", "theorem-2", "tsvm-no-stationary-point")
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {one.name: one for one in (Profile("minute", 25, 8, LONG), Profile("deep", 50, 50, deep=True, patience=600.0))}
)
"""By name. A case of the statements that are left out follows a run of gradient descent."""


def profile_named(name: str) -> Profile:
    """The profile of that name.

    Raises:
        InvalidInput: there is none.
    """
    if name not in PROFILES:
        raise InvalidInput(
            f"--profile: {name!r} is not one of {', '.join(PROFILES)}; leave it out for what lies between."
        )
    return PROFILES[name]
