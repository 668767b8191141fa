"""A failing call as a test that needs only torch and the kernel: ``theorems verify --attention … --emit-test FILE``.

The test calls the kernel as the kernel's interface does, and compares the results with the textbook formula. Each test
is run before it is printed; a test that passes is not printed.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import re
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from attention_conformance.calls.attention_call import AttentionCall
from attention_conformance.kernel.trace import Trace
from attention_conformance.kernel_process.remote_kernel import RemoteKernel, write_test
from attention_conformance.reproduction import printed_functions
from attention_conformance.reproduction.forms import Form
from attention_conformance.reproduction.python_text import WIDTH, NotWritten, indent
from attention_conformance.reproduction.tensors import OPTIONS, TENSORS

FUNCTIONS = {name: x for name, x in vars(printed_functions).items() if inspect.isfunction(x)}
"""The functions that printed tests may call, by name; their source is printed with the tests."""
LARGEST = 50_000
"""The most entries of tensors that a test may contain, so that the test stays readable."""
LONGEST = 1_000_000
"""The most characters that a test may have."""


def reproducer(trace: Trace, line: str) -> tuple[str, str]:
    """Return a pair: the source of a test function and "", or "" and the reason why there is no test.

    Args:
        trace: the failing call with its falsified claims.
        line: the description of the failure, which becomes the docstring of the test.
    """
    if isinstance(trace.kernel.call, RemoteKernel):
        return write_test(trace.kernel.call, trace, line)
    size = numbers_of(trace.call, trace.drawn)
    source = trace.kernel.source
    if not source:
        return "", "the kernel was passed as an object, but a test has to import it by MODULE:CALLABLE"
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
            return (test, "") if len(test) <= LONGEST else ("", f"the test would be {len(test):,} characters long")
    return "", why


def numbers_of(call: AttentionCall, drawn: Collection[str] = ()) -> int:
    """Return how many entries of tensors a test of the call would print, without the tensors ``drawn`` at random."""
    names = [name for name in (*TENSORS, *OPTIONS) if name not in drawn and getattr(call, name) is not None]
    return sum(getattr(call, name).size for name in names)


def _function(trace: Trace, line: str, guards: bool, backward: bool) -> str:
    lines = textwrap.fill(line, WIDTH).splitlines()
    doc = '"""' + lines[0] + ("" if len(lines) == 1 else "\n" + "\n".join(lines[1:]) + "\n") + '"""'
    name = trace.capability.replace("-", "_")
    body = indent([doc, *Form(trace, guards, backward).lines()])
    return re.sub(r"\n{3,}", "\n\n", f"def test_{name}():\n{body}")


def functions_of(tests: Sequence[str]) -> str:
    """Return the source of all functions of :data:`FUNCTIONS` that ``tests`` need, for a file with math and torch."""
    sources = {name: inspect.getsource(x) for name, x in FUNCTIONS.items()}
    called: set[str] = set()
    left = [*tests]
    while left:
        new = {name for name in FUNCTIONS if re.search(rf"\b{name}\(", left[0])} - called
        called |= new
        left = [*left[1:], *(sources[name] for name in new)]
    chosen = [re.sub(r"  # type: ignore.*", "", sources[name]) for name in FUNCTIONS if name in called]
    return "\n\n".join(["inf, nan = math.inf, math.nan\n", *chosen])


def why_not(trace: Trace, test: str) -> str:
    """Run a test and return why it does not show the kernel's failure; empty if it does.

    A reason is that the test passes, raises an error, or has a formula that differs from this suite's. Executing the
    test is safe: this process has just written its source, and calls the kernel anyway.
    """
    due = {entry.what.symbol: entry for entry in trace.entries}
    apart: list[str] = []

    def check(what: str, theirs: Any, expected: Any, allowed: Any) -> None:
        with np.errstate(invalid="ignore"):
            off = np.abs(expected.numpy() - due[what].due) > due[what].allowed
        if off.any() and not trace.call.dropout:  # with dropout each call drops other weights
            apart.append(what)
        printed_functions.check(what, theirs, expected, allowed)

    namespace: dict[str, Any] = {
        **vars(printed_functions),
        "contextlib": contextlib,
        "math": math,
        "check": check,
        "kernel": trace.kernel.call,
    }
    exec(test, namespace)
    (name,) = re.findall(r"^def (\w+)\(", test, re.MULTILINE)
    try:
        namespace[name]()
    except AssertionError:
        why = ""
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split())[:200]
        why = f"saved as a test, the call raises {type(error).__name__}: {message}"
    else:
        why = "saved as a test, the call passes: the kernel's results depend on earlier calls"
    return f"the test's formula of {apart[0]} is not this suite's, which is a fault of this suite" if apart else why
