"""Lines that carry digests: each line begins with a digest of its content and of the line before it.

A line that was changed, moved, repeated or taken from another file does not fit the digest of the line before it.
This detects damage, not malice: whoever may write the file can compute the digests, too. Only the standard library is
imported.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

BEGIN = ""
"""The digest before the first line."""
_LINE = re.compile(rb'\{"digest": "([0-9a-f]{32})", (.*)\}', re.DOTALL)


def seal(content: str, before: str) -> tuple[str, str]:
    """Return a line with its digest, without an end of line, and the digest.

    Args:
        content: a JSON object that is not empty.
        before: the digest of the line before, :data:`BEGIN`, or a name of what the line belongs to.
    """
    digest = _digest(content[1:-1].encode(), before)
    return f'{{"digest": "{digest}", {content[1:]}', digest


def is_whole(line: bytes) -> bool:
    """Return whether a line has a digest, right or wrong, and a JSON object after it; a torn line has none."""
    return _LINE.fullmatch(line) is not None and _object(line) is not None


def unseal(line: bytes, before: str) -> tuple[dict[str, Any], str] | None:
    """Return the content of a line and its digest, or None if the line was not written after ``before``."""
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
