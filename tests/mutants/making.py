"""Mutants of a source: one token or one condition changed, found with libcst.

Not changed: text, annotations, what an error says, decorators, and ``strict`` of a ``zip`` over equal lengths.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import CodePosition, MetadataWrapper, PositionProvider

OUTSIDE = "(module)"
"""The function of what stands in none."""

SYMBOLS: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.Add: ("-",),
    cst.Subtract: ("+",),
    cst.Multiply: ("/",),
    cst.Divide: ("*",),
    cst.Power: ("*",),
    cst.FloorDivide: ("*",),
    cst.Modulo: ("*",),
    cst.LeftShift: (">>",),
    cst.RightShift: ("<<",),
    cst.BitAnd: ("|",),
    cst.BitOr: ("&",),
    cst.And: ("or",),
    cst.Or: ("and",),
    cst.AddAssign: ("-=",),
    cst.SubtractAssign: ("+=",),
    cst.MultiplyAssign: ("/=",),
    cst.DivideAssign: ("*=",),
    cst.LeftShiftAssign: (">>=",),
    cst.RightShiftAssign: ("<<=",),
    cst.BitAndAssign: ("|=",),
    cst.BitOrAssign: ("&=",),
    cst.LessThan: ("<=", ">"),
    cst.LessThanEqual: ("<",),
    cst.GreaterThan: (">=", "<"),
    cst.GreaterThanEqual: (">",),
    cst.Equal: ("!=",),
    cst.NotEqual: ("==",),
    cst.Is: ("is not",),
    cst.IsNot: ("is",),
    cst.In: ("not in",),
    cst.NotIn: ("in",),
    cst.Break: ("continue",),
    cst.Continue: ("break",),
}
"""What stands in a symbol's place. A minus, a tilde and a ``not`` before a term are left out."""

WITHOUT_EFFECT = {"strict", "frozen", "eq", "repr"}
"""Keywords that no test is to notice."""


@dataclass(frozen=True)
class Mutant:
    """One change of a source.

    Attributes:
        file: of the source, relative to the checkout.
        function: the qualified name of the outermost function that it is in.
        line: of the source.
        change: the line, with ``[-old-]{+new+}`` where it is changed.
        digest: of the function's source; a function that was changed has other mutants.
        start, end: offsets in the source that ``new`` takes the place of.
    """

    file: str
    function: str
    line: int
    change: str
    digest: str
    start: int
    end: int
    new: str

    @property
    def id(self) -> str:
        return f"{self.file} {self.function} {self.digest} {self.change}"

    @property
    def place(self) -> tuple[str, str, str]:
        """File, function and change: it has the same in every version of the function that has the line."""
        return self.file, self.function, self.change

    def run(self) -> Outcome:
        """What the journal keeps of it."""
        raise NotImplementedError("tests.mutants.facing does it")

    def applied(self, source: str) -> str:
        """The mutated source."""
        return source[: self.start] + self.new + source[self.end :]


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant.

    Attributes:
        outcome: ``killed``, ``timeout`` (by the time of a test) or ``survived``.
        by: the test that killed it, or how many it survived, of those that reach it.
        seconds: that it took.
    """

    file: str
    function: str
    line: int
    change: str
    outcome: str
    by: str
    seconds: float


class _Changes(cst.CSTVisitor):
    """Collects (node or its operator, new text) with the function that they stand in."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, str, cst.FunctionDef | None, str]] = []
        self.within: list[cst.FunctionDef | cst.ClassDef] = []

    def add(self, node: cst.CSTNode, *texts: str) -> None:
        first = next((k for k, one in enumerate(self.within) if isinstance(one, cst.FunctionDef)), None)
        name = OUTSIDE if first is None else ".".join(one.name.value for one in self.within[: first + 1])
        function = None if first is None else self.within[first]
        assert function is None or isinstance(function, cst.FunctionDef)
        self.found += [(node, text, function, name) for text in texts]

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Raise | cst.BaseString | cst.Import | cst.ImportFrom):
            return False
        if isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value in WITHOUT_EFFECT:
            return False
        self._changes_of(node)
        if isinstance(node, cst.FunctionDef) and not any(isinstance(one, cst.FunctionDef) for one in self.within):
            # Defaults are computed where the function is defined.
            node.params.visit(self)
            self.within.append(node)
            node.body.visit(self)
            self.within.pop()
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self.within.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if self.within and self.within[-1] is original_node:
            self.within.pop()

    def _changes_of(self, node: cst.CSTNode) -> None:
        self.add(node, *SYMBOLS.get(type(node), ()))
        if isinstance(node, cst.Integer | cst.Float):
            value = node.evaluated_value
            # A constant of a module or a float is often one near which anything serves: one change is enough.
            once = isinstance(node, cst.Float) or not any(isinstance(one, cst.FunctionDef) for one in self.within)
            steps = (1,) if once else (1, -1)
            self.add(node, *(repr(value + step) for step in steps if value + step != value))
        elif isinstance(node, cst.Name) and node.value in ("True", "False"):
            self.add(node, "False" if node.value == "True" else "True")
        elif isinstance(node, cst.UnaryOperation) and not isinstance(node.operator, cst.Plus):
            self.add(node.operator, "")
        elif isinstance(node, cst.For):
            self.add(node.iter, "[]")
        if isinstance(node, cst.If | cst.While | cst.IfExp | cst.CompIf) and not _negated_elsewhere(node.test):
            self.add(node.test, "not")


def _negated_elsewhere(test: cst.BaseExpression) -> bool:
    """Whether another change is its negation."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        return isinstance(
            test.comparisons[0].operator, cst.Is | cst.IsNot | cst.Equal | cst.NotEqual | cst.In | cst.NotIn
        )
    return isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)


def mutants_of(file: str, source: str) -> list[Mutant]:
    """Every mutant of a source, in the order of its lines; which there are depends on nothing else."""
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    visitor = _Changes()
    wrapper.visit(visitor)
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def offset(at: CodePosition) -> int:
        return starts[at.line - 1] + at.column

    digests: dict[cst.FunctionDef | None, str] = {None: _digest(source)}
    found: dict[tuple[int, int, str], Mutant] = {}
    for node, text, function, name in visitor.found:
        at = positions[node]
        start, end = offset(at.start), offset(at.end)
        new = f"not ({source[start:end]})" if text == "not" else text
        if function not in digests:
            digests[function] = _digest(wrapper.module.code_for_node(function))  # type: ignore[arg-type]
        change = _change(source, start, end, new, starts[at.start.line - 1])
        found[start, end, new] = Mutant(file, name, at.start.line, change, digests[function], start, end, new)
    ordered = [found[key] for key in sorted(found)]
    return _told_apart(ordered)


def _change(source: str, start: int, end: int, new: str, line: int) -> str:
    last = source.find("\n", end)
    before, after = source[line:start], source[end : last if last >= 0 else None]
    return " ".join(f"{before}[-{source[start:end]}-]{{+{new}+}}{after}".split())


def _told_apart(mutants: list[Mutant]) -> list[Mutant]:
    """The same change of two equal lines of a function has a number."""
    seen: dict[str, int] = {}
    found = []
    for one in mutants:
        seen[one.id] = count = seen.get(one.id, 0) + 1
        change = one.change if count == 1 else f"{one.change} (line {count} of these)"
        found.append(Mutant(one.file, one.function, one.line, change, one.digest, one.start, one.end, one.new))
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:8]


def all_mutants(root: Path, part: str) -> Iterator[Mutant]:
    """Those of a file or of every file of a package, by file and line."""
    path = root / part
    for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
        yield from mutants_of(file.relative_to(root).as_posix(), file.read_text(encoding="utf-8"))


def chosen(mutants: Iterator[Mutant], sample: float, seed: int) -> list[Mutant]:
    """A share of them; whether one is drawn depends on the seed and itself alone."""
    return [one for one in mutants if sample >= 1 or random.Random(f"{seed} {one.id}").random() < sample]
