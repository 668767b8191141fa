"""The documents as data: their blocks, commands with the output shown, links, and the names that they mention."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

ELSEWHERE = {"docs/library.md"}
"""Documents whose blocks are run by another test."""
ELIDED = "…"
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
FLOAT = r"(?<![\w.])(-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+))(?![\w.]*\w)"
DIGEST = r"(?<=\\-)[0-9a-f]{10}(?=\\\.json)"
"""Patterns of a number, of a number that is not a count, and of a file name made from digits; the last two for escaped
text.
"""
ROUNDING = 1e-11


@dataclass(frozen=True)
class Block:
    """A fenced block of a document.

    Attributes:
        document: its path from the root of the checkout.
        line: where its text begins.
        language: after the fence; ``indented`` for a block without one.
        text: what stands in it.
    """

    document: str
    line: int
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Shown:
    """A command in a document and the output shown below it; the output is empty if no line is shown."""

    block: Block
    command: str
    output: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.block.document}: {self.command}"


def documents() -> list[str]:
    """Return the paths of all documents, relative to the root of the checkout."""
    paths = [path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")]
    return sorted(set(paths) - ELSEWHERE)


def read(document: str) -> str:
    """Return the text of a document."""
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, text: str) -> list[Block]:
    """Return the fenced blocks, and the indented ones that contain a command."""
    fenced = re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks_in_fences = [Block(document, 1 + text.count("\n", 0, m.start(2)), m[1], m[2]) for m in fenced]
    indented = re.finditer(r"^ {4}((?:theorems|make|python|pip) .*)$", without_blocks(text), re.MULTILINE)
    return blocks_in_fences + [Block(document, 0, "indented", f"$ {m[1]}\n") for m in indented]


def without_blocks(text: str) -> str:
    """Return the text outside the fenced blocks."""
    return re.sub(r"^```[^\n]*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(block: Block) -> Iterator[Shown]:
    """Yield the lines that begin with ``$``, each with the lines below it."""
    command, output = "", []
    for line in [*block.text.splitlines(), "$ "]:
        if line.startswith("$ "):
            if command:
                yield Shown(block, command, tuple(lines("\n".join(output))))
            command, output = re.sub(r"\s+#.*", "", line[2:]).strip(), []
        else:
            assert command, f"{block.name}: output above any command: {line}"
            output.append(line)


def lines(printed: str) -> list[str]:
    """Return the lines of output to compare: without column widths, empty lines and the seconds of a table."""
    compared: list[str] = []
    timed = False
    for line in printed.splitlines():
        line = re.sub(r"─+", "─", " ".join(line.split()))
        timed = bool(line) and (timed or line.endswith(" seconds"))
        if line:
            compared.append(re.sub(r" \d+\.\d$", " seconds", line) if timed else line)
    return compared


def agree(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Return whether the shown lines agree with the printed ones; ``…`` stands for any lines, or for the rest of a
    line.

    Processors differ in the last digits of a sum. So numbers with a point agree to six digits, or to the last one that
    is shown; below :data:`ROUNDING` they are rounding, and so is the name of a file made from all digits.
    """
    numbers: list[str] = []

    def pattern(line: str) -> str:
        *parts, rest = re.split(FLOAT, line.removesuffix(ELIDED))
        expression = "".join(re.escape(text) + NUMBER for text in parts[::2]) + re.escape(rest)
        numbers.extend(parts[1::2])
        return re.sub(DIGEST, "[0-9a-f]{10}", expression) + (r"[^\n]*\n" if line.endswith(ELIDED) else r"\n")

    whole = "".join(r"(?:[^\n]*\n)*?" if line == ELIDED else pattern(line) for line in shown)
    match = re.fullmatch(whole, "".join(f"{line}\n" for line in printed))
    return match is not None and all(_close(*pair) for pair in zip(numbers, match.groups(), strict=True))


def _close(shown: str, printed: str) -> bool:
    a, b = float(shown), float(printed)
    # The last digit of 1.25e-3 is in the place of 1e-5.
    digits, _, exponent = shown.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(a - b) <= max(1.01 * last if "." in digits else 0.0, 1e-6 * abs(a)) or max(abs(a), abs(b)) < ROUNDING


def rows(printed: list[str] | tuple[str, ...]) -> list[str]:
    """Return the lines of output that are rows of a table of results or counts."""
    return [line for line in printed if re.match(r"\S+ .*(?: seconds|the limit's tokens)$", line)]


def without_slack(table: Iterable[str]) -> list[str]:
    """Return the rows of a table of results without the worst slack."""
    return [re.sub(r" \S+ ≥ \S+ \([a-z0-9-]+\)", "", row) for row in table]


def inline(text: str) -> list[str]:
    """Return the code between backticks, outside blocks."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(text))]


def links(text: str) -> list[str]:
    """Return the targets of links and pictures that are not on the web."""
    plain = without_blocks(text)
    targets = re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'<img src="([^"]+)"', plain)
    return [target for target in targets if "://" not in target]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paths(text: str) -> set[str]:
    """Return the project's files that a text names outside links (see :func:`links`), with ``::test`` if
    that follows.
    """
    plain = re.sub(r"\]\([^)]*\)", "]", text)
    return set(re.findall(r"(?<![\w/.])((?:[\w.-]+/)+[\w.*-]+\.(?:py|md|json|toml|yml|txt|svg)(?:::\w+)?)", plain))


def resolves(target: str, document: str) -> bool:
    """Return whether a link leads to a file, and to a heading if it has an anchor."""
    path, _, anchor = target.partition("#")
    file = (ROOT / document).parent / path if path else ROOT / document
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8"))


def exists(path: str) -> bool:
    """Return whether a file exists and has the test that is named after it."""
    name, _, test = path.partition("::")
    files: list[Path] = list(ROOT.glob(name))
    return bool(files) and (not test or any(f"def {test}(" in file.read_text(encoding="utf-8") for file in files))


def python_of(document: str) -> str:
    """Return the Python code of a document as one doctest."""
    return "\n".join(block.text for block in blocks(document, read(document)) if block.language == "python")


def doctest_failures(text: str, name: str, names: dict[str, object]) -> list[str]:
    """Run a doctest and return a message for each example that prints something else than it shows."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert test.examples
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF | doctest.ELLIPSIS).run(test, out=messages.append)
    return messages
