"""Profiles of a verification: only the calls that fit into a minute, or all calls including slow ones."""

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
        examples: the least number of calls of each capability; :data:`attention_conformance.claims.trials.PAIRS` or
            more stand for a whole cover of all pairs of options.
        cases: the number of cases of each statement of the papers.
        left_out: statements that are not tried.
        deep: whether small calls are repeated many times, and compiled to machine code.
        patience: the least number of seconds for a case.
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
"""The profiles by name. The profile ``minute`` leaves out statements whose cases run gradient descent."""


def profile_named(name: str) -> Profile:
    """Return the profile with a given name.

    Raises:
        InvalidInput: there is no such profile.
    """
    if name not in PROFILES:
        raise InvalidInput(
            f"--profile: {name!r} is not one of {', '.join(PROFILES)}; leave --profile out for a run between these."
        )
    return PROFILES[name]
