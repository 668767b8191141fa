"""Chain of digests through the lines of a file: a line begins with a digest of its content and of the digest before.

The digest reveals a line that was changed, moved, repeated or taken from another file. This detects damage, not
malice: whoever may write the file can compute the digests, too. Only the standard library is imported.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

BEGIN = ""
"""The digest that stands for a line before the first line."""
_LINE = re.compile(rb'\{"digest": "([0-9a-f]{32})", (.*)\}', re.DOTALL)


def seal(content: str, before: str) -> tuple[str, str]:
    """Return the line for ``content``, without an end of line, and the digest with which the line begins.

    Args:
        content: a JSON object that is not empty.
        before: the digest of the line before; :data:`BEGIN` for the first line, or for a line outside any chain.
    """
    digest = _digest(content[1:-1].encode(), before)
    return f'{{"digest": "{digest}", {content[1:]}', digest


def is_whole(line: bytes) -> bool:
    """Return whether a line has a digest (right or wrong) and a complete JSON object, so that it was not cut off."""
    return _LINE.fullmatch(line) is not None and _object(line) is not None


def unseal(line: bytes, before: str) -> tuple[dict[str, Any], str] | None:
    """Return the content of a line and its digest; None if the digest does not fit the line and ``before``.

    Args:
        line: the line, without its end.
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
