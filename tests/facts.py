"""How large and how plain the project is, in figures that a change may move; CONTRIBUTING.md has them.

``python -m tests.facts`` prints the table, ``python -m tests.facts --write`` puts it into CONTRIBUTING.md.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable

from tests.documents import ELSEWHERE, documents, read, without_blocks
from tests.places import ROOT
from tests.test_layers import FILES, Graph, files_graph, room_of

PLUMBING = ("theorems/run", "theorems/command", "theorems/library", "attention_conformance/kernel/check.py")
CROSSINGS = r'\.ask\("|class (?:Described|Elsewhere)\b|\b_read_by\b'
"""A call into another process by the name of what is called, and stand-ins for objects over there."""
ASSEMBLIES = r"\b(?:Unit|units_of)\("
PAPERS = ("theorems.token_selection", "theorems.transformers_as_svms")
THEOREMS = (1, 2, 3, 5, 6, 8)
NOT_COUNTED = {"CHANGELOG.md"}
PRINTED = {"docs/assumptions.md", "docs/regime_map.md"}
"""Documents whose tables are printed by commands; a single such table follows :data:`MARK`."""
MARK = "<!-- printed -->"
IRREGULAR = (
    "told|kept|drawn|made|seen|found|given|held|known|said|left|lost|met|shown|sent|spent|taken|thought|written|begun|"
    "broken|built|chosen|done|fallen|gone|grown|hidden|hit|paid|thrown|torn|understood|worn|brought|caught|felt"
)
AFTER = "of|on|in|to|from|by|out|up|apart|back|away|at|again|for|along|aside|elsewhere|beside"
PARTICIPLE = re.compile(rf"_*(?!need|feed|seed|embed|exceed|proceed)(?:{IRREGULAR}|[a-z]+ed)(?:_(?:{AFTER})(?:_\w+)?)?")
"""A participle without a noun."""
HEAD = "| | now | goal |\n|---|---|---|"
PLACE = re.compile(rf"{MARK}\n+{re.escape(HEAD)}\n(?:\|.*\n)*")


def words(document: str) -> int:
    """How many words a reader of a document reads."""
    text = read(document)
    return count_words(re.sub(r"^\|.*$", "", text, flags=re.MULTILINE) if document in PRINTED else text)


def count_words(text: str) -> int:
    """The words of a text but for printed tables and blocks of commands or code."""
    prose = re.sub(rf"{MARK}\n(?:\|.*\n|\n)*", "", without_blocks(text))
    return len(re.findall(r"\S*\w\S*", prose))


def lines_of_plumbing() -> int:
    """Lines of the rooms that run statements, and talk to users about it."""
    files = [path for path in FILES.values() if path.relative_to(ROOT).as_posix().startswith(PLUMBING)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def occurrences(pattern: str, aside: str = "-") -> int:
    """Lines of the packages ``theorems`` and ``max_margin_theorems`` with a pattern, but for those of a room."""
    ours = (path for name, path in FILES.items() if "theorems" in name and not name.startswith(aside))
    return sum(bool(re.search(pattern, line)) for path in ours for line in path.read_text("utf-8").splitlines())


def reached(module: str, graph: Graph) -> set[str]:
    """A module and all that it imports, directly or not."""
    seen, waiting = set(), [module]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += graph[one]
    return seen


def to_open(module: str, graph: Graph) -> int:
    """Files of its paper that a statement is made of, its own among them; packages that only hand names on aside."""
    (paper,) = (paper for paper in PAPERS if module.startswith(f"{paper}."))
    inside = {name: {other for other in graph[name] if other.startswith(paper)} for name in graph}
    return sum(FILES[one].stem != "__init__" for one in reached(module, inside))


def theorem(number: int) -> str:
    """The module of a theorem of the first paper."""
    (module,) = (name for name in FILES if re.match(rf"{re.escape(PAPERS[0])}\.\w+\.theorem_{number}_", name))
    return module


def statements() -> list[str]:
    """The modules of the statements of both papers."""
    ours = {name: path for name, path in FILES.items() if name.startswith(PAPERS)}
    return [name for name, path in ours.items() if re.search(r"^@statement\(", path.read_text("utf-8"), re.MULTILINE)]


def participles() -> list[str]:
    """Functions called by a participle alone, which says neither what they do nor what they return."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in FILES.values())
    names = (node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [name for name in names if PARTICIPLE.fullmatch(name)]


def table() -> str:
    """The figures as Markdown; those that nearly every change moves are rounded up."""
    graph = files_graph()
    rooms = {room_of(name) for name in reached("theorems.run.session", graph)}
    opened = ", ".join(str(to_open(theorem(number), graph)) for number in THEOREMS)
    most = max(to_open(module, graph) for module in statements())
    read_by_people = sum(words(one) for one in {*documents(), *ELSEWHERE} - NOT_COUNTED)
    plumbing = (
        "lines in `theorems/run`, `theorems/command`, `theorems/library` and `attention_conformance/kernel/check.py`"
    )
    rows: Iterable[tuple[str, object, str]] = (
        ("rooms that a session imports, directly or not", len(rooms), "< 15"),
        (plumbing, _below(lines_of_plumbing(), 100), "< 5,500"),
        ("lines that cross a process by a string, or with a stand-in for an object", occurrences(CROSSINGS), "0"),
        ("assemblies of a run outside `theorems/run`", occurrences(ASSEMBLIES, "theorems.run"), "0"),
        ("files of its paper to open for Theorem 1, 2, 3, 5, 6, 8", opened, "≤ 3 each"),
        ("files of its paper to open for any other statement of the two papers, at most", most, "≤ 3"),
        ("words of prose in the documents", _below(read_by_people, 500), "≤ 18,000"),
        ("functions called by a participle alone", len(participles()), "0"),
    )
    return "\n".join([HEAD, *(f"| {what} | {now} | {goal} |" for what, now, goal in rows)]) + "\n"


def _below(count: int, step: int) -> str:
    return f"< {(count // step + 1) * step:,}"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        made = PLACE.sub(lambda _: f"{MARK}\n\n{table()}", read("CONTRIBUTING.md"))
        (ROOT / "CONTRIBUTING.md").write_text(made, encoding="utf-8")
    else:
        print(table(), end="")
