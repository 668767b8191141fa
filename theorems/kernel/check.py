"""The theorems on an attention kernel, from Python: for a test, a notebook, another project's suite.

from theorems.kernel.check import assert_kernel

assert_kernel(my_kernel)                          # raises AssertionError with a table and the shrunk failing case
assert_kernel("my_package.attention:kernel", dtype="float32", examples=200)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.core.on_kernel import OnKernel, out_of_reach
from theorems.kernel.apart import headline_of, hints_of, kernel_under_test
from theorems.kernel.kernel import Kernel
from theorems.kernel.loading import kernel_named, kernel_of
from theorems.kernel.table import was_tried
from theorems.registry.lookup import statement_named
from theorems.registry.suite import asked_of_a_kernel
from theorems.run.apart import Apart, apart, results_here, units_of
from theorems.run.result import Result
from theorems.run.told import told

EXAMPLES = 50
"""Generated cases per statement unless told otherwise."""
NOT_TRIED = "not tried"


class NotAsked(AssertionError):
    """Nothing was tried: the statements are not about such a kernel."""


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
    with _somewhere(kernel) as here:
        under_test = _found(kernel, dtype, here)
        ids = [statement_named(id).id for id in statements or asked_of_a_kernel()]
        return _results(ids, examples, seed, under_test, here)


def assert_kernel(
    kernel: str | Callable[..., Any] | Kernel,
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
        NotAsked: the statements ask for what this kernel has no parameter for.
    """
    __tracebackhide__ = True
    with _somewhere(kernel) as here:
        try:
            under_test = _found(kernel, dtype, here)
        except InvalidInput as error:
            raise AssertionError(str(error)) from None
        ids = [statement_named(id).id for id in statements or sorted(asked_of_a_kernel(), key=_turn)]
        results = _results(ids, examples, seed, under_test, here, enough=_falsified)
        if {result.verdict for result in results} == {Verdict.NOT_APPLICABLE}:
            raise NotAsked("; ".join(f"{result.id}: {result.reason}" for result in results))
        if {result.verdict for result in results if was_tried(result) or statements} != {Verdict.UPHELD}:
            raise AssertionError(_told(under_test, results, examples, seed, here))
    return results


def asked_of(kernel: str | Callable[..., Any], dtype: str | None = None) -> tuple[Kernel, list[str]]:
    """The kernel, loaded in this process, and the ids of what is asked of it: not what it has no parameter for.

    Raises:
        AssertionError: it is no kernel.
    """
    try:
        found = kernel_named(kernel, dtype) if isinstance(kernel, str) else kernel_of(kernel, dtype)
    except InvalidInput as error:
        raise AssertionError(str(error)) from None
    under_test = found.as_implementation()
    return found, [id for id in asked_of_a_kernel() if not out_of_reach(statement_named(id).kernel, under_test)]


def _somewhere(kernel: str | Callable[..., Any] | Kernel) -> AbstractContextManager[Apart | None]:
    """Other processes for a kernel that is given by its name."""
    return apart(1) if isinstance(kernel, str) else nullcontext()


def _results(
    ids: Sequence[str],
    examples: int,
    seed: int,
    under_test: OnKernel,
    here: Apart | None,
    enough: Callable[[Result], str] | None = None,
) -> list[Result]:
    units = units_of([statement_named(id) for id in ids], examples, seed, None, under_test, here)
    return [result for result in results_here(units, here, enough) if result.stopped != NOT_TRIED]


def _falsified(result: Result) -> str:
    return NOT_TRIED if result.verdict is Verdict.FALSIFIED else ""


def _turn(id: str) -> int:
    """Cheap statements first: the test ends with the first that fails."""
    use = statement_named(id).kernel
    return use.turn if use else 0


def _found(kernel: str | Callable[..., Any] | Kernel, dtype: str | None, here: Apart | None) -> OnKernel:
    if isinstance(kernel, Kernel):
        return kernel.as_implementation()
    if isinstance(kernel, str):
        return kernel_under_test(kernel, dtype, here)
    return kernel_of(kernel, dtype).as_implementation()


def _told(under_test: OnKernel, results: Sequence[Result], examples: int, seed: int, here: Apart | None) -> str:
    """The report of the command, as text."""

    def again(result: Result) -> str:
        options = f"statements={[result.id]!r}, examples={examples}, seed={seed}, dtype={under_test.kernel.dtype!r}"
        return f"Reproduce with: assert_kernel(…, {options})"

    tried = [result for result in results if was_tried(result)]
    after = hints_of(under_test, results, here)
    return told(results, again=again, tried=tried, before=headline_of(under_test), after=after)
