"""Papers as packages: each is found by an entry point, those of this package too.

    [project.entry-points."max_margin_theorems.papers"]
    a-paper = "a_paper:PAPER"

The entry point refers to a :class:`Paper`, which names the places of statements, faults and the rest, so that a look-up
costs nothing: a room is imported when something is asked of it. An installed paper is trusted like any installed
package; a user's file is not (:mod:`theorems.run.sandbox`).

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
"""The project file of a checkout; beside an installed package there is none."""


@dataclass(frozen=True)
class Paper:
    """Places of the parts of a paper. Rooms are modules, or packages of which every module is read.

    Attributes:
        title: the title of the paper.
        source: where it is published.
        statements: the room of its statements. Modules that its docstring names in backticks come in that order.
        without: the room of its statements without one of their assumptions (``@weaken``).
        faults: the room of its planted faults.
        figures: the room of its figures, each in the tuple ``FIGURES`` of a module.
        limits: ``module:NAME`` of a mapping from ids to functions that return the curve beside its limit (a
            :class:`~theorems.figures.limit_curve.Limit`) that reports draw.
        gaps: ``module:NAME`` of a mapping from ids to functions that prove how near the margin of a run is to the
            largest one (:mod:`theorems.benchmark.margin_gap`), for ``theorems bench``.
        data: ``module:NAME`` of a mapping from names, for ``--data``, to functions that make the case.
        definitions: ``module:NAME`` of a mapping from ids to definitions.
        after: names of papers that come before it: it may use their statements.
        prefix: the beginning of its ids, left out in the headings of narrow columns.
        explained: beginnings of the ids of statements that ``theorems explain`` looks at; none leaves out all.
        recorded: the folder with the counterexamples that ``theorems hunt --record`` wrote, and ``power.md`` as
            ``theorems power --markdown`` prints it.
        name: the name of the entry point.
        package: name and version of the package that brought it; empty for this one.
    """

    title: str
    source: str
    statements: str
    without: str = ""
    faults: str = ""
    figures: str = ""
    limits: str = ""
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
        """Return the package that brought it, for a sentence that names two of them."""
        return f"the package {self.package}" if self.package else "this suite"

    @property
    def top(self) -> str:
        """Return the package that its statements stand in."""
        return self.statements.partition(".")[0]

    def modules(self, room: str) -> Iterator[ModuleType]:
        """Import and yield every module of one of its rooms; none of a room that it has not.

        Raises:
            InvalidInput: one of them cannot be imported, in a package that is not ours.
        """
        with self.blame():
            yield from modules_of(room, self._apart(room)) if room else ()

    def _apart(self, room: str) -> tuple[str, ...]:
        """Return its rooms that lie within that room and are read apart."""
        rooms = (self.statements, self.without, self.faults, self.figures)
        return tuple(other for other in rooms if other.startswith(f"{room}."))

    def mapping_at(self, place: str) -> Mapping[str, Any]:
        """Return the mapping at ``module:NAME``; empty where there is none.

        Raises:
            InvalidInput: as :meth:`modules`.
        """
        module, _, name = place.partition(":")
        with self.blame():
            mapping = getattr(importlib.import_module(module), name) if place else {}
            if not isinstance(mapping, Mapping):
                raise TypeError(f"{place} is a {type(mapping).__name__}, not a mapping")
            return mapping

    @contextmanager
    def blame(self) -> Iterator[None]:
        """Turn errors within the block into a sentence that names the package, unless it is our own.

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
    """An error that says which package is to be corrected, once."""

    def __init__(self, name: str, package: str, error: BaseException) -> None:
        message = " ".join(str(error).split()) or "no message"
        kind = "" if isinstance(error, InvalidInput) else f"{type(error).__name__}: "
        super().__init__(
            f"the paper {name!r} of the package {package} cannot be used ({kind}{message.rstrip('.')}); correct the"
            f" package, or uninstall it with pip uninstall {package.partition(' ')[0]}."
        )


def modules_of(room: str, apart: tuple[str, ...] = ()) -> Iterator[ModuleType]:
    """Import and yield a module; for a package every module in it and in the packages in it.

    Args:
        room: the module or package.
        apart: packages and modules within it that are left out.
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
    """Return every paper that is installed: ours, then other packages' by name, each after those that it is to follow.

    Raises:
        InvalidInput: an entry point that leads to no paper, two of one name, or none of ours.
    """
    by_name: dict[str, Paper] = {}
    for entry, package in sorted(entries(GROUP), key=lambda pair: (bool(pair[1]), pair[0].name)):
        loaded = _load(entry, package)
        if entry.name in by_name:
            both = f"{by_name[entry.name].place} and {loaded.place}"
            raise InvalidInput(f"papers: {both} have a paper {entry.name!r}; uninstall one of them.")
        by_name[entry.name] = loaded
    if not any(not paper.package for paper in by_name.values()):
        raise InvalidInput(f"papers: the installed {OURS} declares none of its own; install it anew with pip.")
    ordered: dict[str, Paper] = {}
    while len(ordered) < len(by_name):
        rest = [paper for name, paper in by_name.items() if name not in ordered]
        free = [paper for paper in rest if not {*paper.after} & {other.name for other in rest}]
        first = (free or rest)[0]
        ordered[first.name] = first
    return tuple(ordered.values())


def paper_at(module: str) -> Paper | None:
    """Return the paper whose statements stand in that module, or in modules around it; None elsewhere."""
    return next((paper for paper in papers() if f"{module}.".startswith(f"{paper.statements}.")), None)


def entries(group: str) -> list[tuple[EntryPoint, str]]:
    """Return the entry points of a group, each with name and version of its package, empty for this one.

    A checkout goes by its pyproject.toml, of which installed metadata are a copy made by pip: they are as old as the
    last install, and absent where a checkout is run as it is.
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
            # The file may be a user's own, which hides the package.
            raise TypeError(f"{entry.attr} of {module.__file__} is no Paper")
        return replace(value, name=entry.name, package=package)


def named_data() -> dict[str, Callable[[], Any]]:
    """Return the named data that papers of other packages have for ``--data``, by name.

    Raises:
        InvalidInput: two of them have the same name.
    """
    by_name: dict[str, Callable[[], Any]] = {}
    by: dict[str, Paper] = {}
    for paper in papers():
        for name, build in paper.mapping_at(paper.data).items():
            check_only(name, "data", by, paper)
            by_name[name] = build
    return by_name


def check_only(name: str, kind: str, by: dict[str, Paper], paper: Paper) -> None:
    """Note that the paper has something of that name.

    Raises:
        InvalidInput: another paper has it.
    """
    if name in by and by[name] != paper:
        both = f"{by[name].place} and {paper.place}"
        raise InvalidInput(f"{kind}: both {both} have {name!r}; ask for another name in one of them, or uninstall it.")
    by[name] = paper


def folders_of(top: str) -> list[Path]:
    """Return where a package lies, without importing it; nowhere if it is a module, or not there."""
    spec = importlib.util.find_spec(top)
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def import_kinds() -> None:
    """Import the modules that may define kinds of data (:mod:`generators.subject`)."""
    for paper in papers():
        for _ in paper.modules(paper.statements):
            pass
