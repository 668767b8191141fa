"""Rendering of a statement's docstring as HTML: paragraphs, lists, displayed formulas, subscripts and superscripts.

The docstrings are plain text. In x_it the letters "it" become a subscript, in e^{−R} the braces' content becomes a
superscript, and indented lines become a displayed formula.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import groupby

Linked = Callable[[str], str]
"""Function of the dotted name of a Python object that returns the target of a link to it, or an empty string if there
is none."""

ITEM = re.compile(r"(?:-|\d+\.) ")
BEGINS = re.compile(r"(?:-|\d+\.|\([a-z]\)) ")
"""Pattern of the beginning of a list item: "- ", "1. " or "(a) "."""
LEAD = re.compile(
    r"(Derivation|Effective forms?|Exact form|Limit|Sharp|Notation|Main results?|References|The path|Exact)(?=[.:,])"
)
"""Pattern of the first words of a paragraph, such as "Derivation", that say of what kind the paragraph is."""
GREEK = "Α-Ωα-χω"  # not ψ: ψ denotes a function, and Y_iψ(x) has the subscript i alone
LETTER = rf"[A-Za-z{GREEK}ϑ∇ℓψ𝒲\u00c0-\u017f]"
OPERATOR = "max|min|sum|mean|argmin|argmax|gap|slack|opt|Var"
BASE = rf"(?:{OPERATOR}|{LETTER}[\u0300-\u036f]*['*]?|(?<!\w)\d|(?<=\w)\d|[)|‖⁺⁻ᵀ⋆])"
"""Pattern of what may have a subscript: an operator, a letter with accents, a digit, a bracket, a bar or a
superscript."""
INDEX = rf"(?:\{{[^{{}}]*\}}|[*⋆∞⊥]|\d+|[A-Za-z\u0100-\u017f{GREEK}]+(?:,[A-Za-z{GREEK}]+)?\d*)"
EXPONENT = r"(?:\{(?:[^{}]|\{[^{}]*\})*\}|[+−-]?\w+|[+−*])"
WORD = re.compile(r"[A-Za-z]{2,}(?:_[A-Za-z0-9]+)+(?!\w)")
INLINE = re.compile(
    r"``(?P<code>[^`]+)``"
    r"|:\w+:`(?P<reference>[^`]+)`"
    r"|`(?P<quoted>[^`]+)`"
    r"|\*\*(?P<strong>\S(?:[^*]*[^\s*])?)\*\*"
    r"|(?<![\w*)\]'])\*(?P<emphasis>\w(?:[^*]*[^\s*])?)\*(?![\w*])"
)


def html(text: str, linked: Linked = lambda name: "") -> str:
    """Return a docstring as HTML without empty lines; an empty line would end the HTML block in Markdown."""
    return "\n".join(_block(lines, linked) for lines in _paragraphs(inspect.cleandoc(text)))


def inline(text: str, linked: Linked = lambda name: "") -> str:
    """Return a line of text as HTML, with code, references, emphasis, subscripts and superscripts."""
    parts, end = [], 0
    for match in INLINE.finditer(text):
        parts.append(formula(text[end : match.start()]))
        end = match.end()
        kind, inner = next((kind, content) for kind, content in match.groupdict().items() if content is not None)
        if kind in ("strong", "emphasis"):
            tag = "strong" if kind == "strong" else "em"
            parts.append(f"<{tag}>{inline(inner, linked)}</{tag}>")
        else:
            target = linked(inner.lstrip("~")) if kind == "reference" else ""
            code = f"<code>{escape(inner.lstrip('.~'))}</code>"
            parts.append(f'<a href="{escape(target)}">{code}</a>' if target else code)
    return "".join([*parts, formula(text[end:])])


def formula(text: str) -> str:
    """Return text as HTML with subscripts and superscripts; Python names with underscores are left as they are."""
    parts, at = [], 0
    pattern = re.compile(rf"(?P<base>{BASE})_(?P<index>{INDEX})|\^(?P<exponent>{EXPONENT})")
    while match := pattern.search(text, at):
        name = next((word for word in WORD.finditer(text) if word.start() < match.end() <= word.end()), None)
        if name and not re.match(rf"{BASE}_", name[0]):
            parts.append(escape(text[at : name.end()]))
            at = name.end()
            continue
        parts.append(escape(text[at : match.start()]))
        if match["base"]:
            index, at = match["index"], match.end()
            deeper = re.compile(rf"_{INDEX}").match(text, at) if index[-1].isalpha() else None
            if deeper:  # a subscript may have a subscript itself, as in s_iα_i
                index, at = index + deeper[0], deeper.end()
            parts.append(f"{escape(match['base'])}<sub>{formula(_bare(index))}</sub>")
        else:
            at = match.end()
            parts.append(f"<sup>{formula(_bare(match['exponent']))}</sup>")
    return "".join([*parts, escape(text[at:])])


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith("{") else text


def _paragraphs(text: str) -> Iterator[list[str]]:
    for empty, lines in groupby(text.splitlines(), lambda line: not line.strip()):
        if not empty:
            yield list(lines)


def _block(lines: list[str], linked: Linked) -> str:
    """Return as HTML the paragraphs, lists and displayed formulas in a block of lines without an empty line."""
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        kind, last = _kind(line), parts[-1][0] if parts else ""
        if kind == "display" and last == "item" and not line.startswith(" " * 6):
            parts[-1][1].append(line.strip())
        elif kind == last and not BEGINS.match(line):
            parts[-1][1].append(line)
        else:
            parts.append((kind, [line]))
    blocks = []
    for kind, group in groupby(parts, lambda part: part[0]):
        texts = [texts for _, texts in group]
        blocks += [_list(texts, linked)] if kind == "item" else [_render_block(kind, block, linked) for block in texts]
    return "\n".join(blocks)


def _list(items: list[list[str]], linked: Linked) -> str:
    number = re.match(r"\d+", items[0][0])
    entries = "".join(f"<li>{inline(ITEM.sub('', ' '.join(lines), count=1), linked)}</li>" for lines in items)
    return f'<ol start="{number[0]}">{entries}</ol>' if number else f"<ul>{entries}</ul>"


def _render_block(kind: str, lines: list[str], linked: Linked) -> str:
    """Return the HTML of a displayed formula (kind "display"), with its line breaks kept, or of a paragraph."""
    if kind == "display":
        rows = inspect.cleandoc("\n" + "\n".join(lines)).splitlines()
        return f'<div class="display">{"<br>".join(inline(line, linked) for line in rows)}</div>'
    text = " ".join(lines)
    lead = LEAD.match(text)
    return f"<p>{inline(f'**{lead[0]}**{text[lead.end() :]}' if lead else text, linked)}</p>"


def _kind(line: str) -> str:
    if ITEM.match(line):
        return "item"
    return "display" if line.startswith("  ") else "text"
