"""The kernels of a scoreboard: a TOML file, so that nothing of them is imported to know which there are.

[[kernel]]
name = "jax.nn.dot_product_attention"     # as the table has it
library = "jax"                           # the distribution whose version is printed
attention = "attention_conformance.scoreboard.kernels.of_jax:of_nn"
interface = "jax"                         # and dtype: as for `theorems verify --attention`; may be left out
[kernel.looked.empty-rows]                # a red cell that somebody has looked at
whose = "contract"                        # theirs, contract or ours
says = "a row that sees no key is the mean of all values"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from attention_conformance.kernel.source import KernelSource
from reference_attention.errors import InvalidInput
from reference_attention.files import read_text

OURS = Path(__file__).parent / "kernels.toml"
WHOSE = ("theirs", "contract", "ours")
"""What a red cell may be: a fault of the library, a convention that it documents or chose, a limit of this suite."""
_TEXTS = ("name", "library", "attention", "interface", "dtype")
_KNOWN = (*_TEXTS, "examples", "looked")


@dataclass(frozen=True)
class Looked:
    """What somebody found who looked at a cell that is not green.

    Attributes:
        whose: one of :data:`WHOSE`.
        says: in words fit for a report to the library.
    """

    whose: str
    says: str


@dataclass(frozen=True)
class Entry:
    """A kernel.

    Attributes:
        name: as the table has it.
        library: the distribution that it is from.
        attention: MODULE:CALLABLE.
        interface, dtype: as for ``theorems verify``; None to find out.
        examples: calls of each capability at most; None for no limit.
        looked: by capability, without ``kernel-``.
    """

    name: str
    library: str
    attention: str
    interface: str | None = None
    dtype: str | None = None
    examples: int | None = None
    looked: Mapping[str, Looked] = field(default_factory=dict)

    @property
    def source(self) -> KernelSource:
        """To be put under test."""
        return KernelSource(self.attention, self.dtype, self.interface)

    @property
    def version(self) -> str:
        """Of the library; empty where it is not installed."""
        try:
            return installed_version(self.library)
        except PackageNotFoundError:
            return ""


def read_entries(path: Path = OURS) -> list[Entry]:
    """The kernels that a file lists.

    Raises:
        InvalidInput: it cannot be read, is no TOML, or lists no kernels in the form above.
    """
    try:
        held = tomllib.loads(read_text(path, "a TOML file"))
    except InvalidInput as error:
        raise InvalidInput(f"--kernels: {error}") from None
    except ValueError as error:
        raise InvalidInput(f"--kernels: {path} is no TOML ({error}).") from None
    listed = held.get("kernel")
    if not isinstance(listed, list) or not listed:
        raise InvalidInput(f"--kernels: {path} lists no kernel; give it [[kernel]] tables.")
    found = [_entry(one, f"--kernels: kernel {number} of {path}") for number, one in enumerate(listed, start=1)]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise InvalidInput(f"--kernels: {path} has two kernels named {twice!r}; name them apart.")
    return found


def _entry(held: Any, where: str) -> Entry:
    """A kernel; a sentence that begins with ``where`` for what is none."""
    if not isinstance(held, dict):
        raise InvalidInput(f"{where}: is no table; write [[kernel]].")
    for name in _TEXTS:
        if name in held and not (isinstance(held[name], str) and held[name]):
            raise InvalidInput(f'{where}: {name} is no text; give {name} = "…".')
    for name in ("name", "library", "attention"):
        if name not in held:
            raise InvalidInput(f'{where}: has no {name}; give {name} = "…".')
    unknown = next((name for name in held if name not in _KNOWN), "")
    if unknown:
        raise InvalidInput(f"{where}: {unknown!r} is not one of {', '.join(_KNOWN)}.")
    examples, looked = held.get("examples"), held.get("looked", {})
    if examples is not None and not (isinstance(examples, int) and examples >= 1):
        raise InvalidInput(f"{where}: examples is no number of calls; give examples = 5.")
    if not isinstance(looked, dict):
        raise InvalidInput(f"{where}: looked is no table; write [kernel.looked.CAPABILITY].")
    found = {name: _look(one, f"{where}: looked.{name}") for name, one in looked.items()}
    given = (held["name"], held["library"], held["attention"], held.get("interface"), held.get("dtype"))
    return Entry(*given, examples, found)


def _look(held: Any, where: str) -> Looked:
    whose = held.get("whose") if isinstance(held, dict) else None
    says = held.get("says") if isinstance(held, dict) else None
    if whose not in WHOSE or not isinstance(says, str) or not says:
        raise InvalidInput(f'{where}: give whose, one of {", ".join(WHOSE)}, and says = "…".')
    return Looked(str(whose), says)
