"""The only exception that bad input raises, and functions that make text from users safe to show in a message."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_WORD, LONGEST_LINE = 400, 8000
"""Longest word (a path counts as one word) and longest line, in characters, that are shown in full."""
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""The Unicode categories of characters that control a terminal or are invisible on it."""


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return foreign text (a name, a path, a reason) in readable form: no control characters, bounded length.

    Args:
        text: the text to show.
        lines: whether ends of lines are kept; otherwise the text becomes a single line.

    >>> printable("a\x1b[2Jb\udc80")
    'a\\x1b[2Jb\\udc80'
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


def nearest(name: str, names: Iterable[str], most: int = 3) -> list[str]:
    """Return at most ``most`` of the known ``names``, those spelled most like ``name`` first; case is ignored."""
    spelled = {each.lower(): each for each in names}
    return [spelled[each] for each in get_close_matches(name.lower(), spelled, n=most)]


def suggest(name: str, names: Iterable[str]) -> str:
    """Return a sentence with the nearest three known names, after a space, or an empty string where no name is near.

    >>> suggest("theorem2", ["theorem-1", "theorem-2", "lemma-3"])
    " Did you mean 'theorem-2' or 'theorem-1'?"
    """
    near = [repr(each) for each in nearest(name, names)]
    if not near:
        return ""
    return f" Did you mean {', '.join(near[:-1])}{' or ' if near[:-1] else ''}{near[-1]}?"


class InvalidInput(ValueError):
    """Error raised for data, arguments or files on which no statement can be checked.

    The message is one sentence that names the array (or argument) and the fix; the command prints it without a
    traceback and exits with code 2.
    """

    def __init__(self, message: str = "") -> None:
        """Store the message in printable form, with its line breaks kept."""
        super().__init__(printable(message, lines=True))
