"""The kernels of a scoreboard, read from a TOML file, so that a list does not import them.

[[kernel]]
name = "jax.nn.dot_product_attention"     # the name in the table
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

from attention_conformance.kernel.kernel_source import KernelSource
from reference_attention.errors import InvalidInput
from reference_attention.files import read_text

OURS = Path(__file__).parent / "kernels.toml"
WHOSE = ("theirs", "contract", "ours")
"""Who is responsible for a failure: the library, by a fault or by a chosen convention ("contract"), or this suite."""
_TEXTS = ("name", "library", "attention", "interface", "dtype")
_KNOWN = (*_TEXTS, "examples", "looked")


@dataclass(frozen=True)
class Looked:
    """The explanation of a capability that is not upheld, by a person who investigated the failure.

    Attributes:
        whose: who is responsible, one of :data:`WHOSE`.
        says: the explanation, as a report to the library's authors would state it.
    """

    whose: str
    says: str


@dataclass(frozen=True)
class Entry:
    """A kernel in the list of a scoreboard.

    Attributes:
        name: the kernel's name in the table.
        library: the Python distribution that contains the kernel.
        attention: MODULE:CALLABLE by which to import the kernel.
        interface, dtype: the options ``--interface`` and ``--dtype`` of ``theorems verify``; None to detect them.
        examples: the largest number of calls of each capability; None for no limit.
        looked: explanations of failures, by the capability's name without ``kernel-``.
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
        """The kernel as an object that a run can verify."""
        return KernelSource(self.attention, self.dtype, self.interface)

    @property
    def version(self) -> str:
        """The installed version of the library; empty if the library is not installed."""
        try:
            return installed_version(self.library)
        except PackageNotFoundError:
            return ""


def read_entries(path: Path = OURS) -> list[Entry]:
    """Return the kernels that a file lists.

    Raises:
        InvalidInput: the file cannot be read, is no TOML, or lists no kernels in the form that the module describes.
    """
    try:
        document = tomllib.loads(read_text(path, "a TOML file"))
    except InvalidInput as error:
        raise InvalidInput(f"--kernels: {error}") from None
    except ValueError as error:
        raise InvalidInput(f"--kernels: {path} is no TOML ({error}).") from None
    listed = document.get("kernel")
    if not isinstance(listed, list) or not listed:
        raise InvalidInput(f"--kernels: {path} lists no kernel; give it [[kernel]] tables.")
    entries = [_entry(table, f"--kernels: kernel {number} of {path}") for number, table in enumerate(listed, start=1)]
    names = [entry.name for entry in entries]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise InvalidInput(f"--kernels: {path} has two kernels named {twice!r}; give them different names.")
    return entries


def _entry(table: Any, where: str) -> Entry:
    """Return the kernel that a table of the TOML file describes.

    Raises:
        InvalidInput: the table describes no kernel; the message begins with ``where``.
    """
    if not isinstance(table, dict):
        raise InvalidInput(f"{where}: is no table; write [[kernel]].")
    for name in _TEXTS:
        if name in table and not (isinstance(table[name], str) and table[name]):
            raise InvalidInput(f'{where}: {name} is no text; give {name} = "…".')
    for name in ("name", "library", "attention"):
        if name not in table:
            raise InvalidInput(f'{where}: has no {name}; give {name} = "…".')
    unknown = next((name for name in table if name not in _KNOWN), "")
    if unknown:
        raise InvalidInput(f"{where}: {unknown!r} is not one of {', '.join(_KNOWN)}.")
    examples, examinations = table.get("examples"), table.get("looked", {})
    if examples is not None and not (isinstance(examples, int) and examples >= 1):
        raise InvalidInput(f"{where}: examples is no number of calls; give examples = 5.")
    if not isinstance(examinations, dict):
        raise InvalidInput(f"{where}: looked is no table; write [kernel.looked.CAPABILITY].")
    looks = {name: _look(look, f"{where}: looked.{name}") for name, look in examinations.items()}
    values = (table["name"], table["library"], table["attention"], table.get("interface"), table.get("dtype"))
    return Entry(*values, examples, looks)


def _look(table: Any, where: str) -> Looked:
    whose = table.get("whose") if isinstance(table, dict) else None
    says = table.get("says") if isinstance(table, dict) else None
    if whose not in WHOSE or not isinstance(says, str) or not says:
        raise InvalidInput(f'{where}: give whose = one of {", ".join(map(repr, WHOSE))}, and says = "…".')
    return Looked(str(whose), says)
