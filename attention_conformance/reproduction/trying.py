"""A test that was written is run where the kernel is: one that cannot fail on it says nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attention_conformance.kernel.trace import Trace
from attention_conformance.kernel.with_torch import torch
from attention_conformance.reproduction.pasted import functions_of


def why_not(found: Trace, test: str) -> str:
    """Why the test is none of this kernel; empty if it fails as it should, and its formula is the suite's."""
    namespace: dict[str, Any] = {"__name__": "emitted", "math": math, "torch": torch}
    exec(functions_of([test]), namespace)
    exec(test, namespace)
    namespace["kernel"] = found.kernel.call
    name = next(one for one in namespace if one.startswith("test_"))
    due = {entry.what.symbol: entry for entry in found.entries}
    apart: list[str] = []
    original = namespace.get("check")

    def check(what: str, theirs: Any, expected: Any, allowed: Any) -> None:
        entry = due[what]
        with np.errstate(invalid="ignore"):
            off = np.abs(expected.numpy() - entry.due) > entry.allowed
        if off.any() and not found.call.dropout:  # other weights are dropped every time
            apart.append(what)
        original(what, theirs, expected, allowed)  # type: ignore[misc]

    if original is not None:
        namespace["check"] = check
    try:
        namespace[name]()
    except AssertionError:
        why = ""
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())[:200]
        why = f"written as a test the call raises {type(error).__name__}: {said}"
    else:
        why = "written as a test the call passes: what the kernel returns depends on what was called before"
    return f"its formula of {apart[0]} is not this suite's, which is a fault of ours" if apart else why
