"""A failing call as a test that needs torch and the kernel alone: ``theorems verify --attention … --emit-test FILE``.

The kernel is called as its interface calls it: :mod:`attention_conformance.reproduction.recording` writes down what
that does.
A test is run where it is written, and is one only if it fails.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection

from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction.forms import form_of
from attention_conformance.reproduction.placement import OPTIONS, TENSORS
from attention_conformance.reproduction.text import WIDTH, indent
from attention_conformance.reproduction.trying import why_not
from attention_conformance.reproduction.wording import NotWritten
from generators.attention_call import AttentionCall

LARGEST = 50_000
"""Numbers in a test at most: more are a file that nobody opens."""
LONGEST = 1_000_000
"""Characters of one."""


def reproducer(found: Trace, line: str) -> tuple[str, str]:
    """The source of a test function, or why there is none.

    Args:
        line: what is said of the failure; its docstring.
    """
    size = numbers_of(found.call, found.drawn)
    source = found.kernel.source
    if not source:
        return "", "the kernel was handed over as an object, and a test has to import it by MODULE:CALLABLE"
    if source.startswith(("jax:", "numpy:")):
        return "", f"the kernel takes arrays of {source.partition(':')[0]}; give one that takes torch tensors"
    if size > LARGEST:
        return "", f"the call has {size:,} numbers, more than {LARGEST:,}"
    why = ""
    for guards, backward in ((False, False), (False, True), (True, True)):
        try:
            test = _function(found, line, guards, backward)
        except NotWritten as error:
            return "", f"a test cannot say {error}"
        why = why_not(found, test)
        if not why:
            return (test, "") if len(test) <= LONGEST else ("", f"it would be {len(test):,} characters long")
    return "", why


def numbers_of(call: AttentionCall, drawn: Collection[str] = ()) -> int:
    """How many numbers a test of the call has, but for those of the tensors that are drawn."""
    names = [name for name in (*TENSORS, *OPTIONS) if name not in drawn and getattr(call, name) is not None]
    return sum(getattr(call, name).size for name in names)


def _function(found: Trace, line: str, guards: bool, backward: bool) -> str:
    lines = textwrap.fill(line, WIDTH - 4).splitlines()
    doc = '"""' + lines[0] + ("" if len(lines) == 1 else "\n" + "\n".join(lines[1:]) + "\n") + '"""'
    name = found.capability.replace("-", "_")
    return f"def test_{name}():\n{indent([doc, *form_of(found, guards, backward)])}"
