"""The rooms (packages) of the project: each imports only rooms below it, and no imports of files are circular.

``python tests/test_layers.py`` prints the rooms from the highest down, each with the rooms that it imports; ``python
tests/test_layers.py --dot`` prints the same as a graph for Graphviz.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENGINE = (
    "max_margin_theorems.hidden",
    "max_margin_theorems.signals",
    "reference_attention",
    "max_margin_theorems.papers",
    "max_margin_theorems.extensions",
    "reference_attention.svm",
    "reference_attention.training",
    "reference_attention.paths",
    "reference_attention.next_token",
    "generators",
    "theorems.bounded",
    "theorems.core",
    "theorems.rounding",
    "theorems.curves",
    "theorems.token_selection.softmax",
    "theorems.token_selection.global_paths",
    "theorems.token_selection.local_paths",
    "theorems.token_selection.directions",
    "theorems.token_selection.joint_paths",
    "theorems.token_selection.nonlinear_heads",
    "theorems.transformers_as_svms.curves",
    "theorems.run",
    "theorems.without",
    "theorems.counterexamples",
    "theorems.faults",
    "theorems.benchmark",
    "theorems.figures",
    "theorems.token_selection.figures",
    "theorems.explanations",
    "theorems.library",
    "theorems.command",
    "attention_conformance.calls",
    "attention_conformance.claims",
    "attention_conformance",
    "max_margin_theorems",
    "theorems",
)
"""The rooms of the engine, of the first paper, and of what several later papers share, from the lowest up."""
PARTS = {
    "theorems.run": "statements",
    "theorems.counterexamples": "without",
    "theorems.benchmark": "faults",
    "theorems.figures": "gaps",
}
"""By room: the attribute of a later paper's ``PAPER`` that names the paper's rooms just below this room."""


def rooms_of_papers(part: str) -> list[str]:
    """Return the rooms that later papers list in an attribute of ``PAPER``, in the order of ``pyproject.toml``."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    places = [place.partition(":")[0] for place in entries["max_margin_theorems.papers"].values()]
    rooms = []
    for place in places[1:]:
        text = (ROOT / place.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
        rooms += re.findall(rf'\b{part}="([\w.]+)', text)
    return rooms


def every_room() -> Iterator[str]:
    """Yield all rooms from the lowest up: a room may import those yielded before it."""
    for room in ENGINE:
        if room in PARTS:
            yield from rooms_of_papers(PARTS[room])
        # A room of a paper that was deleted does not exist.
        if (ROOT / room.replace(".", "/")).exists() or (ROOT / f"{room.replace('.', '/')}.py").exists():
            yield room


ROOMS = tuple(every_room())
"""All rooms, from the lowest up."""

Graph = Mapping[str, Set[str]]


def name_of(path: Path) -> str:
    """Return the dotted name of a module."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {
    name_of(path): path
    for top in ("max_margin_theorems", "reference_attention", "generators", "theorems", "attention_conformance")
    for path in (ROOT / top).rglob("*.py")
}


def imported(source: str, modules: Set[str]) -> set[str]:
    """Return those of ``modules`` that a source text imports anywhere, also inside functions."""
    result: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            result |= inner & modules or {node.module or ""}
    return result & modules


def room_of(module: str) -> str:
    """Return the room of a module: the innermost package of :data:`ROOMS` that contains it."""
    return max((room for room in ROOMS if f"{module}.".startswith(f"{room}.")), key=len)


def files_graph() -> Graph:
    """Return the map from each module to the modules that it imports. The imports of an ``__init__.py``, which only
    passes names on, count as those of its package.
    """
    return {name: imported(path.read_text(), set(FILES)) - {name} for name, path in FILES.items()}


def rooms_graph(files: Graph) -> dict[str, set[str]]:
    """Return the map from each room to the rooms that it imports."""
    rooms: dict[str, set[str]] = {room: set() for room in ROOMS}
    for module, others in files.items():
        rooms[room_of(module)] |= {room_of(other) for other in others} - {room_of(module)}
    return rooms


def upward(rooms: Graph) -> list[str]:
    """Return a line for each import of a higher room by a lower one."""
    floor = {room: k for k, room in enumerate(ROOMS)}
    return [f"{room} imports {other}" for room in rooms for other in sorted(rooms[room]) if floor[other] > floor[room]]


def circle(graph: Graph) -> list[str]:
    """Return rooms or modules that import each other in a circle, or an empty list."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_room_imports_only_rooms_below_it() -> None:
    assert upward(rooms_graph(files_graph())) == []


def test_no_files_or_rooms_import_each_other_in_a_circle() -> None:
    assert circle(files_graph()) == []
    assert circle(rooms_graph(files_graph())) == []


def test_every_module_lies_in_a_room_and_every_room_has_modules() -> None:
    assert {room_of(module) for module in FILES} == set(ROOMS)


def test_every_package_has_a_docstring() -> None:
    packages = [path for path in FILES.values() if path.name == "__init__.py"]
    assert packages
    assert [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []
    assert {path.parent for path in FILES.values()} == {path.parent for path in packages}


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    from theorems.run.verify import verify_generated\n",
        "import theorems.run.verify",
        "from theorems.run import verify",
    ],
)
def test_an_upward_import_is_caught(source: str) -> None:
    graph = {"reference_attention.risk": imported(source, set(FILES))}
    assert upward(rooms_graph(graph)) == ["reference_attention imports theorems.run"]


def test_a_circle_is_caught() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert not circle({"a": {"b", "c"}, "b": {"c"}, "c": set()})


def drawn(dot: bool) -> str:
    """Return the text that lists the rooms with their imports or, with ``dot``, a graph for Graphviz."""
    rooms = rooms_graph(files_graph())
    if dot:
        arrows = [f'  "{room}" -> "{other}";' for room in ROOMS for other in sorted(rooms[room])]
        return "\n".join(["digraph rooms {", "  rankdir=BT;", *arrows, "}"])
    files = {room: sum(room_of(module) == room for module in FILES) for room in ROOMS}
    lines = [
        f"{room}  ({files[room]} files)\n    imports {', '.join(sorted(rooms[room])) or 'nothing'}"
        for room in reversed(ROOMS)
    ]
    up = upward(rooms)
    return "\n".join([*lines, f"{sum(map(len, rooms.values()))} arrows between {len(ROOMS)} rooms, {len(up)} up", *up])


if __name__ == "__main__":
    print(drawn("--dot" in sys.argv[1:]))
