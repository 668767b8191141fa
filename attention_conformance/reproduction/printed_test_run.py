"""A test that was written is run where the kernel is; a test that cannot fail on it is not printed."""

from __future__ import annotations

import contextlib
import inspect
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from attention_conformance.kernel.trace import Trace
from attention_conformance.reproduction import printed_functions

FUNCTIONS = {name: x for name, x in vars(printed_functions).items() if inspect.isfunction(x)}


def functions_of(tests: Sequence[str]) -> str:
    """Return the source of the functions that tests call; of a file that imports math and torch."""
    sources = {name: inspect.getsource(x) for name, x in FUNCTIONS.items()}
    called: set[str] = set()
    remaining = [*tests]
    while remaining:
        new = {name for name in FUNCTIONS if re.search(rf"\b{name}\(", remaining[0])} - called
        called |= new
        remaining = [*remaining[1:], *(sources[name] for name in new)]
    chosen = [re.sub(r"  # type: ignore.*", "", sources[name]) for name in FUNCTIONS if name in called]
    return "\n\n".join(["inf, nan = math.inf, math.nan\n", *chosen])


def why_not(trace: Trace, test: str) -> str:
    """Return why the test does not fail on this kernel as it should; empty if it does, by the suite's own formula.

    The text is this package's, made a moment ago in this process, in which the kernel is called anyway.
    """
    entry_by_symbol = {entry.what.symbol: entry for entry in trace.entries}
    apart: list[str] = []

    def check(symbol: str, theirs: Any, expected: Any, allowed: Any) -> None:
        with np.errstate(invalid="ignore"):
            off = np.abs(expected.numpy() - entry_by_symbol[symbol].due) > entry_by_symbol[symbol].allowed
        if off.any() and not trace.call.dropout:  # other weights are dropped every time
            apart.append(symbol)
        printed_functions.check(symbol, theirs, expected, allowed)

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
        why = "saved as a test, the call passes: what the kernel returns depends on what was called before"
    return f"its formula of {apart[0]} is not this suite's, which is a fault of ours" if apart else why
