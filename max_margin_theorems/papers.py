"""Papers as packages: each is found by an entry point, those of this package too.

    [project.entry-points."max_margin_theorems.papers"]
    a-paper = "a_paper:PAPER"

What it refers to is a :class:`Paper`, which says by name where statements, faults and the rest stand, so that to look
it up costs nothing: a room is imported when something is asked of it. Once installed it is trusted as whatever is
installed is; a file of a user's is not (:mod:`theorems.run.sandbox`).

A package that cannot be used is an error and not left out: a run of all statements would miss some, and say nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from reference_attention.errors import InvalidInput

GROUP = "max_margin_theorems.papers"
OURS = "max-margin-theorems"
CHECKOUT = Path(__file__).resolve().parents[1] / "pyproject.toml"
"""In a checkout; beside an installed package there is none."""


@dataclass(frozen=True)
class Paper:
    """Where the parts of a paper stand. Rooms are modules, or packages of which every module is read.

    Attributes:
        title: of the paper.
        source: where it is published.
        statements: the room of its statements. Those that its docstring names in backticks come in that order.
        without: the room of its statements without one of their assumptions (``@weaken``).
        faults: the room of its planted faults.
        data: ``module:NAME`` of a mapping from names, for ``--data``, to functions that make the case.
        definitions: ``module:NAME`` of a mapping from ids to definitions.
        after: names of papers that come before it: it may use their statements.
        prefix: what its ids begin with, left out in the headings of narrow columns.
        explained: beginnings of the ids of statements that ``theorems explain`` looks at; none leaves out all.
        recorded: the folder with the counterexamples that ``theorems hunt --record`` wrote, and ``power.md`` as
            ``theorems power --markdown`` prints it.
        name: of the entry point.
        package: name and version of the package that brought it; empty for this one.
    """

    title: str
    source: str
    statements: str
    without: str = ""
    faults: str = ""
    data: str = ""
    definitions: str = ""
    after: tuple[str, ...] = ()
    prefix: str = ""
    explained: tuple[str, ...] = ("",)
    recorded: Path | None = None
    name: str = ""
    package: str = ""

    @property
    def place(self) -> str:
        """Who has it, for a sentence that names two of them."""
        return f"the package {self.package}" if self.package else "this suite"

    @property
    def top(self) -> str:
        """The package that its statements stand in."""
        return self.statements.partition(".")[0]

    def modules(self, room: str) -> Iterator[ModuleType]:
        """Every module of one of its rooms, imported; none of a room that it has not.

        Raises:
            InvalidInput: one of them cannot be imported, in a package that is not ours.
        """
        with self.blame():
            yield from modules_of(room) if room else ()

    def mapping_at(self, place: str) -> Mapping[str, Any]:
        """The mapping at ``module:NAME``; empty where there is none.

        Raises:
            InvalidInput: as :meth:`modules`.
        """
        module, _, name = place.partition(":")
        with self.blame():
            found = getattr(importlib.import_module(module), name) if place else {}
            if not isinstance(found, Mapping):
                raise TypeError(f"{place} is a {type(found).__name__}, not a mapping")
            return found

    @contextmanager
    def blame(self) -> Iterator[None]:
        """What goes wrong inside is said of the package, in a sentence; of our own it stays as it is.

        Raises:
            InvalidInput: something went wrong in a package that is not ours.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            if not self.package or isinstance(error, _BrokenPaper):
                raise
            raise _BrokenPaper(self.name, self.package, error) from error


class _BrokenPaper(InvalidInput):
    """Says which package is to be corrected, once."""

    def __init__(self, name: str, package: str, error: BaseException) -> None:
        said = " ".join(str(error).split()) or "no message"
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "
        super().__init__(
            f"the paper {name!r} of the package {package} cannot be used ({kind}{said.rstrip('.')}); correct the"
            f" package, or uninstall it with pip uninstall {package.partition(' ')[0]}."
        )


def modules_of(room: str) -> Iterator[ModuleType]:
    """A module; of a package every module in it and in the packages in it, imported."""
    top = importlib.import_module(room)
    if not hasattr(top, "__path__"):
        yield top
        return
    for found in pkgutil.walk_packages(top.__path__, f"{room}."):
        yield importlib.import_module(found.name)


@cache
def papers() -> tuple[Paper, ...]:
    """Every paper that is installed: ours, then those of other packages by name, each after those that it is to follow.

    Raises:
        InvalidInput: an entry point that leads to no paper, two of one name, or none of ours.
    """
    found: dict[str, Paper] = {}
    for entry, package in sorted(_entries(), key=lambda one: (bool(one[1]), one[0].name)):
        made = _load(entry, package)
        if entry.name in found:
            both = f"{found[entry.name].place} and {made.place}"
            raise InvalidInput(f"papers: {both} have a paper {entry.name!r}; uninstall one of them.")
        found[entry.name] = made
    if not any(not one.package for one in found.values()):
        raise InvalidInput(f"papers: the installed {OURS} declares none of its own; install it anew with pip.")
    ordered: dict[str, Paper] = {}
    while len(ordered) < len(found):
        rest = [one for name, one in found.items() if name not in ordered]
        free = [one for one in rest if not {*one.after} & {each.name for each in rest}]
        first = (free or rest)[0]
        ordered[first.name] = first
    return tuple(ordered.values())


def paper_at(module: str) -> Paper | None:
    """The paper whose statements stand in that module, or in modules around it; None elsewhere."""
    return next((one for one in papers() if f"{module}.".startswith(f"{one.statements}.")), None)


def _entries() -> list[tuple[EntryPoint, str]]:
    """Entry points, each with name and version of its package, empty for this one.

    A checkout goes by its pyproject.toml, of which installed metadata are a copy made by pip: they are as old as the
    last install, and absent where a checkout is run as it is.
    """
    installed = [(one, _package_of(one)) for one in entry_points(group=GROUP)]
    if not CHECKOUT.is_file():
        return installed
    held = tomllib.loads(CHECKOUT.read_text(encoding="utf-8"))["project"]
    if held["name"] != OURS:
        return installed
    own = held["entry-points"][GROUP]
    return [*((EntryPoint(name, place, GROUP), "") for name, place in own.items()), *(e for e in installed if e[1])]


def _package_of(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "without a name"
    name = entry.dist.name
    return "" if name.replace("_", "-").lower() == OURS else f"{name} {entry.dist.version}"


def _load(entry: EntryPoint, package: str) -> Paper:
    with Paper("", "", "", name=entry.name, package=package).blame():
        found = importlib.import_module(entry.module)
        made = getattr(found, entry.attr, None)
        if not isinstance(made, Paper):
            # The file may be a user's own, which hides the package.
            raise TypeError(f"{entry.attr} of {found.__file__} is no Paper")
        return replace(made, name=entry.name, package=package)


def named_data() -> dict[str, Callable[[], Any]]:
    """What papers of other packages have for ``--data``, by name.

    Raises:
        InvalidInput: two of them have the same name.
    """
    found: dict[str, Callable[[], Any]] = {}
    by: dict[str, Paper] = {}
    for paper in papers():
        for name, build in paper.mapping_at(paper.data).items():
            check_only(name, "data", by, paper)
            found[name] = build
    return found


def check_only(name: str, what: str, by: dict[str, Paper], paper: Paper) -> None:
    """Note that the paper has something of that name.

    Raises:
        InvalidInput: another one has it.
    """
    if name in by and by[name] != paper:
        both = f"{by[name].place} and {paper.place}"
        raise InvalidInput(f"{what}: both {both} have {name!r}; ask for another name in one of them, or uninstall it.")
    by[name] = paper


def folders_of(top: str) -> list[Path]:
    """Where a package lies, without importing it; nowhere if it is a module, or not there."""
    found = importlib.util.find_spec(top)
    return [Path(one) for one in (found.submodule_search_locations or ())] if found else []


def import_kinds() -> None:
    """Import what may define kinds of data (:mod:`generators.subject`)."""
    for paper in papers():
        for _ in paper.modules(paper.statements):
            pass
