"""Chain of digests through the lines of a file.

Each line begins with a digest of its own content and of the previous line's digest. A wrong digest reveals that a line
was changed, moved, repeated or taken from another file. The chain detects damage, not malice: whoever may write the
file can compute the digests, too. This module imports only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

BEGIN = ""
"""Digest used for the first line, which has no line before it."""
_LINE = re.compile(rb'\{"digest": "([0-9a-f]{32})", (.*)\}', re.DOTALL)


def seal(content: str, before: str) -> tuple[str, str]:
    """Return the line for ``content``, without an end of line, and the digest with which this line begins.

    Args:
        content: the text of a JSON object that is not empty.
        before: the digest of the line before; :data:`BEGIN` for the first line, or for a line outside any chain.
    """
    digest = _digest(content[1:-1].encode(), before)
    return f'{{"digest": "{digest}", {content[1:]}', digest


def is_whole(line: bytes) -> bool:
    """Return whether a line was not cut off: it has a digest (right or wrong) and a complete JSON object."""
    return _LINE.fullmatch(line) is not None and _object(line) is not None


def unseal(line: bytes, before: str) -> tuple[dict[str, Any], str] | None:
    """Return the content of a line and the line's digest; None if the digest does not fit the content and ``before``.

    Args:
        line: the line, without its end-of-line character.
        before: the digest of the line before, as in :func:`seal`.
    """
    match = _LINE.fullmatch(line)
    if match is None or match[1].decode() != _digest(match[2], before):
        return None
    content = _object(line)
    if content is None:
        return None
    return content, content.pop("digest")


def _digest(content: bytes, before: str) -> str:
    return hashlib.sha256(before.encode() + b"\n" + content).hexdigest()[:32]


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
