"""The theorems on an attention kernel, from Python: for a test, a notebook, another project's suite.

from theorems.kernel.check import assert_kernel

assert_kernel(my_kernel)                          # raises AssertionError with a table and the shrunk failing case
assert_kernel("my_package.attention:kernel", dtype="float32", examples=200)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.kernel.kernel import Kernel
from theorems.kernel.loading import kernel_named, kernel_of
from theorems.kernel.report import headline, hints, was_tried
from theorems.registry.lookup import statement_named
from theorems.registry.suite import asked_of_a_kernel
from theorems.run.result import Result
from theorems.run.told import told
from theorems.run.verify import verify_generated

EXAMPLES = 50
"""Generated cases per statement unless told otherwise."""


def verify_kernel(
    kernel: str | Callable[..., Any] | Kernel,
    *,
    statements: Sequence[str] = (),
    examples: int = EXAMPLES,
    seed: int = 0,
    dtype: str | None = None,
) -> list[Result]:
    """One result per statement.

    Args:
        kernel: a callable on torch tensors with the signature of one of :data:`.interface.INTERFACES`, or
            MODULE:CALLABLE.
        statements: ids; by default what a kernel is able to do, and all statements that call one.
        examples: generated cases per statement.
        seed: same seed, same cases.
        dtype: a key of :data:`.kernel.DTYPES`; by default float64 if the kernel takes it and computes in it.

    Raises:
        InvalidInput: no kernel, an unknown id.
    """
    found = kernel if isinstance(kernel, Kernel) else _found(kernel, dtype)
    ids = [statement_named(id).id for id in statements or asked_of_a_kernel()]
    return [verify_generated(id, examples, seed, found.as_implementation()) for id in ids]


def assert_kernel(
    kernel: str | Callable[..., Any],
    *,
    statements: Sequence[str] = (),
    examples: int = EXAMPLES,
    seed: int = 0,
    dtype: str | None = None,
) -> list[Result]:
    """As :func:`verify_kernel`, for a test: it ends with the first statement that is falsified.

    Cheap statements are tried first.

    Raises:
        AssertionError: anything but upheld, with a table and the failing case; an object that is no kernel.
    """
    __tracebackhide__ = True
    try:
        found = _found(kernel, dtype)
    except InvalidInput as error:
        raise AssertionError(str(error)) from None
    results: list[Result] = []
    for id in statements or sorted(asked_of_a_kernel(), key=_turn):
        results += verify_kernel(found, statements=[id], examples=examples, seed=seed)
        if results[-1].verdict is Verdict.FALSIFIED:
            break
    if {result.verdict for result in results if was_tried(result) or statements} != {Verdict.UPHELD}:
        raise AssertionError(_told(found, results, examples, seed))
    return results


def _turn(id: str) -> int:
    """Cheap statements first: the test ends with the first that fails."""
    use = statement_named(id).kernel
    return use.turn if use else 0


def _found(kernel: str | Callable[..., Any], dtype: str | None) -> Kernel:
    return kernel_named(kernel, dtype) if isinstance(kernel, str) else kernel_of(kernel, dtype)


def _told(kernel: Kernel, results: Sequence[Result], examples: int, seed: int) -> str:
    """The report of the command, as text."""

    def again(result: Result) -> str:
        options = f"statements={[result.id]!r}, examples={examples}, seed={seed}, dtype={kernel.dtype!r}"
        return f"Reproduce with: assert_kernel(…, {options})"

    tried = [result for result in results if was_tried(result)]
    return told(results, again=again, tried=tried, before=headline(kernel), after=hints(kernel))
