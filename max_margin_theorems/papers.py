"""Papers: packages with statements, found by entry points, as are the papers of this package itself.

    [project.entry-points."max_margin_theorems.papers"]
    a-paper = "a_paper:PAPER"

The entry point refers to a :class:`Paper`, which names the modules of the paper's statements, faults and other parts;
each module is imported only when it is first needed. An installed paper is trusted like any installed package; a user's
file is not (:mod:`theorems.run.sandbox`).

A package that cannot be used is an error: if it were skipped, a run of all statements would silently lack the package's
statements.
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
"""Path of the project file pyproject.toml in a checkout of the repository; an installed package has no such file beside
it."""


@dataclass(frozen=True)
class Paper:
    """Names of the parts of a paper. A *room* is a module, or a package all of whose modules are imported.

    Attributes:
        title: the title of the paper.
        source: where the paper is published.
        statements: the room of the paper's statements, in the order in which the room's docstring names its modules in
            backticks.
        without: the room of the weakened statements (``@weaken``): the paper's statements without one of their
            assumptions.
        faults: the room of the paper's planted faults.
        figures: the room of the paper's figures, which its modules list in tuples ``FIGURES``.
        gaps: ``module:NAME`` of a mapping, for ``theorems bench``, from statement ids to functions that bound the
            difference between the largest margin and a run's margin (:mod:`theorems.benchmark.margin_gap`).
        data: ``module:NAME`` of a mapping from the names of datasets, for ``--data``, to functions that return the
            data.
        definitions: ``module:NAME`` of a mapping from ids to definitions of the paper's terms.
        after: the names of the papers that precede this paper, and whose statements this paper may use.
        prefix: the common prefix of the ids of the paper's statements, which narrow columns of tables leave out.
        explained: prefixes of the ids of the statements that ``theorems explain`` reports; empty for no statement.
        recorded: the folder with the counterexamples of ``theorems hunt --record``.
        name: the name of the entry point.
        package: the name and version of the package that contains the paper; empty for this package.
    """

    title: str
    source: str
    statements: str
    without: str = ""
    faults: str = ""
    figures: str = ""
    gaps: str = ""
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
        """Return how error messages name the paper's package: by its name and version, or as this repository's."""
        return f"the package {self.package}" if self.package else "this suite"

    @property
    def top(self) -> str:
        """Return the name of the top-level package that contains the paper's statements."""
        return self.statements.partition(".")[0]

    def modules(self, room: str) -> Iterator[ModuleType]:
        """Import and yield every module of one of the paper's rooms; yield nothing for an empty name.

        Raises:
            InvalidInput: a module of another package cannot be imported.
        """
        with self.blame():
            yield from modules_of(room, self._apart(room)) if room else ()

    def _apart(self, room: str) -> tuple[str, ...]:
        """Return the paper's other rooms that lie within ``room``; :meth:`modules` leaves out their modules."""
        rooms = (self.statements, self.without, self.faults, self.figures)
        return tuple(other for other in rooms if other.startswith(f"{room}."))

    def mapping_at(self, place: str) -> Mapping[str, Any]:
        """Return the mapping that ``place``, ``module:NAME``, names; return an empty mapping for an empty place.

        Raises:
            InvalidInput: the paper's package is not ours and has no such mapping, or the module cannot be imported.
        """
        module, _, name = place.partition(":")
        with self.blame():
            mapping = getattr(importlib.import_module(module), name) if place else {}
            if not isinstance(mapping, Mapping):
                raise TypeError(f"{place} is a {type(mapping).__name__}, not a mapping")
            return mapping

    @contextmanager
    def blame(self) -> Iterator[None]:
        """Convert an error in the ``with`` block into one that names the paper's package, unless the paper is ours.

        Raises:
            InvalidInput: the code of another package raised an error.
        """
        try:
            yield
        except (Exception, SystemExit) as error:
            if not self.package or isinstance(error, _BrokenPaper):
                raise
            raise _BrokenPaper(self.name, self.package, error) from error


class _BrokenPaper(InvalidInput):
    """Error in another package; it has its own class, so that nested ``blame`` blocks do not convert it twice."""

    def __init__(self, name: str, package: str, error: BaseException) -> None:
        message = " ".join(str(error).split()) or "no message"
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "
        super().__init__(
            f"the paper {name!r} of the package {package} cannot be used ({kind}{message.rstrip('.')}); correct the"
            f" package, or uninstall it with pip uninstall {package.partition(' ')[0]}."
        )


def modules_of(room: str, apart: tuple[str, ...] = ()) -> Iterator[ModuleType]:
    """Import and yield a module, or all modules within a package.

    Args:
        room: the name of the module or package.
        apart: the names of modules and packages within ``room`` that are left out.
    """
    top = importlib.import_module(room)
    if not hasattr(top, "__path__"):
        yield top
        return
    for module in pkgutil.walk_packages(top.__path__, f"{room}."):
        if not f"{module.name}.".startswith(tuple(f"{name}." for name in apart)):
            yield importlib.import_module(module.name)


@cache
def papers() -> tuple[Paper, ...]:
    """Return the installed papers: ours, then others by name, but each paper after those that its ``after`` names.

    Raises:
        InvalidInput: an entry point does not refer to a paper, two papers have one name, or our papers are missing.
    """
    by_name: dict[str, Paper] = {}
    for entry, package in sorted(entries(GROUP), key=lambda pair: (bool(pair[1]), pair[0].name)):
        loaded = _load(entry, package)
        if entry.name in by_name:
            both = f"{by_name[entry.name].place} and {loaded.place}"
            raise InvalidInput(f"papers: {both} have a paper {entry.name!r}; uninstall one of them.")
        by_name[entry.name] = loaded
    if not any(not paper.package for paper in by_name.values()):
        raise InvalidInput(f"papers: the installed {OURS} declares no papers; install it again with pip.")
    ordered: dict[str, Paper] = {}
    while len(ordered) < len(by_name):
        remaining = [paper for name, paper in by_name.items() if name not in ordered]
        names = {paper.name for paper in remaining}
        free = [paper for paper in remaining if not {*paper.after} & names]
        first = (free or remaining)[0]
        ordered[first.name] = first
    return tuple(ordered.values())


def paper_at(module: str) -> Paper | None:
    """Return the paper whose room of statements contains a module; None if no paper's does."""
    return next((paper for paper in papers() if f"{module}.".startswith(f"{paper.statements}.")), None)


def entries(group: str) -> list[tuple[EntryPoint, str]]:
    """Return the entry points of a group, each with the name and version of its package (empty for this package).

    In a checkout of the repository our entry points are read from pyproject.toml, because the metadata that pip
    installs may be outdated or missing.
    """
    installed = [(entry, _package_of(entry)) for entry in entry_points(group=group)]
    if not CHECKOUT.is_file():
        return installed
    project = tomllib.loads(CHECKOUT.read_text(encoding="utf-8"))["project"]
    if project["name"] != OURS:
        return installed
    table = project["entry-points"].get(group, {})
    return [*((EntryPoint(name, place, group), "") for name, place in table.items()), *(e for e in installed if e[1])]


def _package_of(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "without a name"
    name = entry.dist.name
    return "" if name.replace("_", "-").lower() == OURS else f"{name} {entry.dist.version}"


def _load(entry: EntryPoint, package: str) -> Paper:
    with Paper("", "", "", name=entry.name, package=package).blame():
        module = importlib.import_module(entry.module)
        value = getattr(module, entry.attr, None)
        if not isinstance(value, Paper):
            # Name the file of the module: it may be a user's file that shadows the package.
            raise TypeError(f"{entry.attr} of {module.__file__} is not a Paper")
        return replace(value, name=entry.name, package=package)


def named_data() -> dict[str, Callable[[], Any]]:
    """Return the functions that return the papers' datasets for ``--data``, by the names of the datasets.

    Raises:
        InvalidInput: two papers use the same name for a dataset.
    """
    by_name: dict[str, Callable[[], Any]] = {}
    by: dict[str, Paper] = {}
    for paper in papers():
        for name, build in paper.mapping_at(paper.data).items():
            check_only(name, "data", by, paper)
            by_name[name] = build
    return by_name


def check_only(name: str, kind: str, by: dict[str, Paper], paper: Paper) -> None:
    """Check that no other paper uses a name, and record in ``by`` (names and their papers) that this paper does.

    Raises:
        InvalidInput: another paper uses the name; ``kind`` says in the message what the name is for.
    """
    if name in by and by[name] != paper:
        both = f"{by[name].place} and {paper.place}"
        raise InvalidInput(f"{kind}: both {both} have {name!r}; rename it in one of them, or uninstall one.")
    by[name] = paper


def folders_of(top: str) -> list[Path]:
    """Return the folders of a package without importing it; an empty list for a module or a missing package."""
    spec = importlib.util.find_spec(top)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def import_kinds() -> None:
    """Import the modules of the papers that may define kinds of data (:mod:`generators.subject`)."""
    for paper in papers():
        for _ in paper.modules(paper.statements):
            pass
