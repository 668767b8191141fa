"""Profiles for ``--profile``: only the calls of a kernel that fit into a minute, or all calls including slow ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attention_conformance.calls.attention_call import REPEATS
from reference_attention.errors import InvalidInput


@dataclass(frozen=True)
class Profile:
    """A selection of the calls and cases on which a kernel is tried.

    Attributes:
        name: the name for ``--profile``.
        examples: the least number of calls of each capability; if it is at least
            :data:`attention_conformance.claims.trials.PAIRS`, calls are added until each pair of options occurs.
        cases: the number of generated cases of each lemma and theorem.
        left_out: ids of statements that are not tried.
        deep: whether small calls are also repeated thousands of times, and compiled to machine code.
        patience: the least time in seconds that a case is given before it is stopped.
    """

    name: str
    examples: int
    cases: int
    left_out: tuple[str, ...] = ()
    deep: bool = False
    patience: float = 0.0

    def says(self, ids: Sequence[str] = ()) -> str:
        """Describe the calls that the profile leaves out or adds.

        Args:
            ids: the ids of the statements that are tried; empty for all except those that the profile leaves out.
        """
        if self.deep:
            return (
                f"profile {self.name}: small calls {REPEATS} times, and compiled to machine code where there is a C++"
                " compiler, in addition to the calls without a profile"
            )
        left_out = ", ".join(("triples of options", *(() if ids else self.left_out)))
        return (
            f"profile {self.name}: calls in which every pair of options meets, {self.cases} cases of each statement;"
            f" left out: {left_out}, and more cases"
        )


LONG = ("lemma-1", "lemma-6", "theorem-2", "tsvm-no-stationary-point")
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (Profile("minute", 25, 8, LONG), Profile("deep", 50, 50, deep=True, patience=600.0))
    }
)
"""The profiles by name. The profile ``minute`` leaves out the statements LONG, whose cases run gradient descent."""


def profile_named(name: str) -> Profile:
    """Return the profile with a given name.

    Raises:
        InvalidInput: there is no such profile.
    """
    if name not in PROFILES:
        raise InvalidInput(
            f"--profile: {name!r} is not one of {', '.join(PROFILES)}; leave --profile out for a run longer than"
            " minute's and shorter than deep's."
        )
    return PROFILES[name]
