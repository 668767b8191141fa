"""The one error that bad input raises, and how what others have named is shown in a sentence."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_WORD, LONGEST_LINE = 400, 8000
"""Characters that are shown of a word, as a path is one, and of a line."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode's categories of what a terminal obeys or does not show."""


def printable(text: str, *, lines: bool = False) -> str:
    """Return foreign text (a name, a path, a reason) as a reader can see it: no controls, nothing endless.

    Args:
        lines: whether ends of lines are kept; otherwise the text is one line.

    >>> printable("a\\x1b[2Jb\\udc80")
    'a\\\\x1b[2Jb\\\\udc80'
    """
    if lines:
        return "\n".join(map(printable, text.split("\n")))
    text = text[: 100 * LONGEST_LINE]
    if not text.isprintable():
        text = "".join(map(_visible, text))
    if len(text) > LONGEST_WORD:
        text = re.sub(rf"\S{{{LONGEST_WORD + 1},}}", _shorten, text)
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 1]}…"


def _shorten(word: re.Match[str]) -> str:
    half = LONGEST_WORD // 2
    return f"{word[0][:half]}…{word[0][-half + 1 :]}"


def _visible(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode()


def nearest(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names that are spelled most alike, the nearest first; case is ignored."""
    spelled = {each.lower(): each for each in known}
    return [spelled[each] for each in get_close_matches(name.lower(), spelled, n=most)]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest three known names, after a space; empty where none is near.

    >>> suggest("theorem2", ["theorem-1", "theorem-2", "lemma-3"])
    " Did you mean 'theorem-2' or 'theorem-1'?"
    """
    near = [repr(each) for each in nearest(name, known)]
    if not near:
        return ""
    return f" Did you mean {', '.join(near[:-1])}{' or ' if near[:-1] else ''}{near[-1]}?"


class InvalidInput(ValueError):
    """Data, arguments or files that no statement can be checked on.

    The message is one sentence that names the array (or argument) and the fix; the command prints it
    without a traceback and exits with code 2.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message, lines=True))
