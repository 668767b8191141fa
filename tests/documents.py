"""The documents as data: code blocks, commands with the output shown below them, links, and names of files."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

ELSEWHERE = {"docs/library.md"}
"""Documents whose code blocks another test runs."""
ELIDED = "…"
NUMBER = r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
FLOAT = r"(?<![\w.])(-?\d+(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+))(?![\w.]*\w)"
DIGEST = r"(?<=\\-)[0-9a-f]{10}(?=\\\.json)"
"""Patterns: NUMBER matches any number, FLOAT a number with a decimal point or an exponent, and DIGEST the ten
hexadecimal digits in a file name (in text escaped by ``re.escape``).
"""
ROUNDING = 1e-11


@dataclass(frozen=True)
class Block:
    """A fenced block of a document, or an indented command.

    Attributes:
        document: the document's path from the root of the checkout.
        line: the number of the first line of the text in the document; 0 for an indented command.
        language: the word after the opening fence; ``indented`` for an indented command.
        text: the lines between the fences.
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
    """A command in a document and the lines of output shown below it, if any."""

    block: Block
    command: str
    output: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.block.document}: {self.command}"


def documents() -> list[str]:
    """Return the paths of all documents but those in :data:`ELSEWHERE`, relative to the root of the checkout."""
    paths = [path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md")]
    return sorted(set(paths) - ELSEWHERE)


def read(document: str) -> str:
    """Return the text of a document, given by its path from the root of the checkout."""
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: str, text: str) -> list[Block]:
    """Return the fenced blocks of a text, and a block for each indented command."""
    fenced = re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks_in_fences = [Block(document, 1 + text.count("\n", 0, m.start(2)), m[1], m[2]) for m in fenced]
    indented = re.finditer(r"^ {4}((?:theorems|make|python|pip) .*)$", without_blocks(text), re.MULTILINE)
    return blocks_in_fences + [Block(document, 0, "indented", f"$ {m[1]}\n") for m in indented]


def without_blocks(text: str) -> str:
    """Return the text outside the fenced blocks."""
    return re.sub(r"^```[^\n]*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(block: Block) -> Iterator[Shown]:
    """Yield each line of a block that begins with ``$``, with the lines of output below it."""
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
    """Return lines of output as they are compared: without column widths, empty lines and the seconds of a table."""
    compared: list[str] = []
    timed = False
    for line in printed.splitlines():
        line = re.sub(r"─+", "─", " ".join(line.split()))
        timed = bool(line) and (timed or line.endswith(" seconds"))
        if line:
            compared.append(re.sub(r" \d+\.\d$", " seconds", line) if timed else line)
    return compared


def agree(shown: tuple[str, ...], printed: list[str]) -> bool:
    """Return whether shown lines agree with printed ones; a line ``…`` stands for any lines, and ``…`` at the end of a
    line for the rest of the line.

    Processors differ in the last digits of a sum. So numbers with a decimal point agree if they are equal to six
    digits, or to the last digit shown; numbers below :data:`ROUNDING` are rounding errors and always agree. So does the
    hash in the name of a file, since it depends on all digits of the file's numbers.
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
    # ``last`` is one unit of the last digit shown: 1e-5 for 1.25e-3.
    digits, _, exponent = shown.partition("e")
    last = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(a - b) <= max(1.01 * last if "." in digits else 0.0, 1e-6 * abs(a)) or max(abs(a), abs(b)) < ROUNDING


def rows(printed: list[str] | tuple[str, ...]) -> list[str]:
    """Return the printed lines that are rows of a table of results: these end with seconds, or "the limit's tokens"."""
    return [line for line in printed if re.match(r"\S+ .*(?: seconds|the limit's tokens)$", line)]


def without_slack(table: Iterable[str]) -> list[str]:
    """Return the rows of a table of results without their worst slack."""
    return [re.sub(r" \S+ ≥ \S+ \([a-z0-9-]+\)", "", row) for row in table]


def inline(text: str) -> list[str]:
    """Return the code between backticks in a text, outside its blocks."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", without_blocks(text))]


def links(text: str) -> list[str]:
    """Return the targets of links and pictures in a text that are not on the web."""
    plain = without_blocks(text)
    targets = re.findall(r"\]\(([^)\s]+)\)", plain) + re.findall(r'<img src="([^"]+)"', plain)
    return [target for target in targets if "://" not in target]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings of a text, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paths(text: str) -> set[str]:
    """Return the paths of files that a text names outside links, each with ``::test`` if the name of a test follows."""
    plain = re.sub(r"\]\([^)]*\)", "]", text)
    return set(re.findall(r"(?<![\w/.])((?:[\w.-]+/)+[\w.*-]+\.(?:py|md|json|toml|yml|txt|svg)(?:::\w+)?)", plain))


def resolves(target: str, document: str) -> bool:
    """Return whether a link in a document leads to a file and, if the link has an anchor, to a heading of the file."""
    path, _, anchor = target.partition("#")
    file = (ROOT / document).parent / path if path else ROOT / document
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8"))


def exists(path: str) -> bool:
    """Return whether the file named by PATH or PATH::test exists and, if a test is named, contains the test."""
    name, _, test = path.partition("::")
    files: list[Path] = list(ROOT.glob(name))
    return bool(files) and (not test or any(f"def {test}(" in file.read_text(encoding="utf-8") for file in files))


def python_of(document: str) -> str:
    """Return the Python code of a document as one doctest."""
    return "\n".join(block.text for block in blocks(document, read(document)) if block.language == "python")


def doctest_failures(text: str, name: str, names: dict[str, object]) -> list[str]:
    """Run a doctest; return a message for each example whose output differs from the output shown."""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    assert test.examples
    messages: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF | doctest.ELLIPSIS).run(test, out=messages.append)
    return messages
