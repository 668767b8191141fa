"""A failing call as a test that needs only torch and the kernel: ``theorems verify --attention … --emit-test FILE``.

The kernel is called as its interface calls it, and compared with the textbook formula. A test is run where it is
written, and is printed only if it fails.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.trace import Trace
from attention_conformance.kernel_process.remote_kernel import RemoteKernel, write_test
from attention_conformance.reproduction.forms import Form
from attention_conformance.reproduction.printed_test_run import why_not
from attention_conformance.reproduction.tensors import OPTIONS, TENSORS
from attention_conformance.reproduction.text import WIDTH, NotWritten, indent

LARGEST = 50_000
"""The largest number of numbers in a test: nobody opens a longer file."""
LONGEST = 1_000_000
"""The largest number of characters in a test."""


def reproducer(trace: Trace, line: str) -> tuple[str, str]:
    """Return the source of a test function, or why there is none.

    Args:
        trace: the failing call with its falsified claims.
        line: the description of the failure; it becomes the docstring of the test.
    """
    if isinstance(trace.kernel.call, RemoteKernel):
        return write_test(trace.kernel.call, trace, line)
    size = numbers_of(trace.call, trace.drawn)
    source = trace.kernel.source
    if not source:
        return "", "the kernel was handed over as an object, and a test has to import it by MODULE:CALLABLE"
    if source.startswith(("jax:", "numpy:")):
        return "", f"the kernel takes arrays of {source.partition(':')[0]}; give one that takes torch tensors"
    if size > LARGEST:
        return "", f"the call has {size:,} numbers, more than {LARGEST:,}"
    why = ""
    for guards, backward in ((False, False), (False, True), (True, True)):
        try:
            test = _function(trace, line, guards, backward)
        except NotWritten as error:
            return "", f"a test cannot say {error}"
        why = why_not(trace, test)
        if not why:
            return (test, "") if len(test) <= LONGEST else ("", f"it would be {len(test):,} characters long")
    return "", why


def numbers_of(call: AttentionCall, drawn: Collection[str] = ()) -> int:
    """Return how many numbers a test of the call has, except those of the tensors that are drawn."""
    names = [name for name in (*TENSORS, *OPTIONS) if name not in drawn and getattr(call, name) is not None]
    return sum(getattr(call, name).size for name in names)


def _function(trace: Trace, line: str, guards: bool, backward: bool) -> str:
    lines = textwrap.fill(line, WIDTH).splitlines()
    doc = '"""' + lines[0] + ("" if len(lines) == 1 else "\n" + "\n".join(lines[1:]) + "\n") + '"""'
    name = trace.capability.replace("-", "_")
    body = indent([doc, *Form(trace, guards, backward).lines()])
    return re.sub(r"\n{3,}", "\n\n", f"def test_{name}():\n{body}")
