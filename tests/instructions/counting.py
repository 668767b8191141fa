"""The cost of a piece of work, counted rather than timed: the same on a busy machine as on an idle one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from tests.instructions.arrays import allocated
from tests.places import ROOT

OURS = tuple(
    f"{ROOT / package}/" for package in ("reference_attention", "theorems", "attention_conformance", "generators")
)
"""Folders whose functions are counted. Python code of libraries is not, so that their versions do not change counts."""


@dataclass(frozen=True)
class Cost:
    """The cost of a piece of work.

    Attributes:
        instructions: Python bytecode instructions executed in our own functions.
        bytes: the bytes given to NumPy's arrays, including arrays that were soon freed.
    """

    instructions: int
    bytes: int


def cost(work: Callable[[], object]) -> Cost:
    """Return the cost of the work in its second run, when caches are filled."""
    work()
    return Cost(_instructions(work), _bytes(work))


def _instructions(work: Callable[[], object]) -> int:
    # Calls made by the garbage collector are not part of the work.
    gc.collect()
    gc.disable()
    try:
        return _traced(work) if sys.version_info < (3, 12) else _monitored(work)
    finally:
        gc.enable()


def _traced(work: Callable[[], object]) -> int:
    count = 0

    def executed(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        return executed

    def called(frame: FrameType, event: str, value: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return executed

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def _monitored(work: Callable[[], object]) -> int:
    """Count with PEP 669: from Python 3.12 on, tracing misses instructions."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    tool, event, count = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, 0

    def executed(code: CodeType, offset: int) -> Any:
        nonlocal count
        if not code.co_filename.startswith(OURS):
            return monitoring.DISABLE
        count += 1
        return None

    monitoring.use_tool_id(tool, "instructions")
    monitoring.register_callback(tool, event, executed)
    monitoring.restart_events()
    monitoring.set_events(tool, event)
    try:
        work()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return count


def _bytes(work: Callable[[], object]) -> int:
    with allocated() as allocations:
        work()
    return allocations.count
