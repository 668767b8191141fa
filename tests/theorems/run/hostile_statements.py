"""Statements that attack their process at the second case, and kernels that do so at the fortieth call."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, NoReturn

from theorems.api import Case, Claim, Form, Implementation, Statement, at_least, statement


def forever() -> NoReturn:
    while True:
        time.sleep(0.01)


def endlessly() -> NoReturn:
    endlessly()


def interrupted() -> NoReturn:
    raise KeyboardInterrupt


def rearranged() -> None:
    """Print, close standard output and change the folder; none of this may change the report."""
    print("garbage")
    os.write(1, b"garbage\n")
    os.chdir("/")
    sys.stdout.close()
    os.close(1)


def statement_that(id: str, deed: Callable[[], Any]) -> Statement:
    cases = count(1)

    @statement(id, assumptions=("separable",))
    def conclusion(case: Case, under_test: Implementation) -> Iterator[Claim]:
        """One is more than zero."""
        if next(cases) == 2:
            deed()
        yield at_least("more", Form.EXACT, 1.0, 0.0, rounding=0.0, why="exact")

    return conclusion


segfault = statement_that("segfault", lambda: os.kill(os.getpid(), signal.SIGSEGV))
leaves = statement_that("leaves", lambda: os._exit(0))
loops = statement_that("loops", forever)
exits = statement_that("exits", lambda: sys.exit(0))
out_of_memory = statement_that("out-of-memory", lambda: bytearray(1 << 62))
too_deep = statement_that("too-deep", endlessly)
interrupts = statement_that("interrupts", interrupted)
rearranges = statement_that("rearranges", rearranged)


def kernel_that(deed: Callable[[], Any]) -> Callable[..., Any]:
    calls = count(1)

    def kernel(query: Any, keys: Any, values: Any) -> Any:
        if next(calls) == 40:
            deed()
        return (query @ keys.mT).softmax(dim=-1) @ values

    return kernel


crashes = kernel_that(lambda: os.kill(os.getpid(), signal.SIGSEGV))


def quits(query: Any, keys: Any, values: Any) -> NoReturn:
    """Exit at the first call, which probes the kernel's signature."""
    os._exit(0)
