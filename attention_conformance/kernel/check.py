"""Verify the theorems on an attention kernel from Python: in a test, a notebook, another project's suite.

from attention_conformance.kernel.check import assert_kernel

assert_kernel(my_kernel)                          # raises AssertionError with a table and the shrunk failing case
assert_kernel("my_package.attention:kernel", dtype="float32", examples=200)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attention_conformance.kernel.kernel import Kernel
from attention_conformance.kernel.kernel_loader import kernel_named, kernel_of
from attention_conformance.kernel.kernel_source import under_test_of
from reference_attention.errors import InvalidInput
from theorems.core.claim import Verdict
from theorems.core.under_test import KernelDescription, UnderTest
from theorems.run.registry.lookup import statement_named
from theorems.run.registry.suite import kernel_statement_ids
from theorems.run.registry.user_file import is_in_a_file
from theorems.run.result import Result
from theorems.run.session import Request, Session
from theorems.run.text_report import text_report

EXAMPLES = 50
"""The default number of generated cases per statement."""
NOT_TRIED = "not tried"


class NotApplicable(AssertionError):
    """Exception for a test in which no statement was tried, because none applies to the kernel under test."""


def verify_kernel(
    kernel: str | Callable[..., Any] | Kernel,
    *,
    statements: Sequence[str] = (),
    examples: int = EXAMPLES,
    seed: int = 0,
    dtype: str | None = None,
) -> list[Result]:
    """Verify statements on a kernel and return one result per statement.

    A statement is a lemma or theorem, or a capability of kernels such as causal masks.

    Args:
        kernel: a callable on torch tensors with the signature of one of :data:`.interfaces.INTERFACES`, or
            MODULE:CALLABLE.
        statements: ids of statements; by default all capabilities that the kernel has, and all statements that call a
            kernel.
        examples: the number of generated cases per statement.
        seed: the seed of the generated cases; the same seed gives the same cases.
        dtype: the kernel's number format, a key of :data:`.kernel.DTYPES`; by default float64 if the kernel takes it
            and computes in it.

    Raises:
        InvalidInput: the object is no kernel, or an id is unknown.
    """
    ids = tuple(statements or kernel_statement_ids())
    return list(Session(Request(ids, examples, seed, under_test=_under_test(kernel, dtype))).finish().results)


def assert_kernel(
    kernel: str | Callable[..., Any] | Kernel,
    *,
    statements: Sequence[str] = (),
    examples: int = EXAMPLES,
    seed: int = 0,
    dtype: str | None = None,
) -> list[Result]:
    """Verify a kernel in a test as :func:`verify_kernel` does, but stop at the first statement that is falsified.

    Cheap statements are tried first.

    Raises:
        AssertionError: a verdict is not upheld (with a table and the failing case), or the object is no kernel.
        NotApplicable: all statements need options for which the kernel has no parameter.
    """
    __tracebackhide__ = True
    ids = tuple(statements or sorted(kernel_statement_ids(), key=_turn))
    for id in ids:
        if not is_in_a_file(id):
            statement_named(id)
    try:
        under_test = _under_test(kernel, dtype)
        session = Session(Request(ids, examples, seed, under_test=under_test, enough=_note_if_falsified))
        last = session.finish()
    except InvalidInput as error:
        raise AssertionError(str(error)) from None
    results = [result for result in last.results if result.stopped != NOT_TRIED]
    if {result.verdict for result in results} == {Verdict.NOT_APPLICABLE}:
        raise NotApplicable("; ".join(f"{result.id}: {result.reason}" for result in results))
    if {result.verdict for result in results if result.was_tried or statements} != {Verdict.UPHELD}:
        assert session.about.kernel is not None
        raise AssertionError(_text(session.about.kernel, results, last.hints, examples, seed))
    return results


def load_with_statements(kernel: str | Callable[..., Any], dtype: str | None = None) -> tuple[Kernel, list[str]]:
    """Load a kernel in this process; return it and the ids of the statements for which it has the parameters.

    Raises:
        AssertionError: the object is no kernel.
    """
    try:
        loaded = kernel_named(kernel, dtype) if isinstance(kernel, str) else kernel_of(kernel, dtype)
    except InvalidInput as error:
        raise AssertionError(str(error)) from None
    under_test = loaded.as_implementation()
    return loaded, [id for id in kernel_statement_ids() if not under_test.out_of_reach(statement_named(id).kernel)]


def _note_if_falsified(result: Result) -> str:
    return NOT_TRIED if result.verdict is Verdict.FALSIFIED else ""


def _turn(id: str) -> int:
    """Return a number by which statements are sorted: cheap ones come first, since the first failure ends the test."""
    use = statement_named(id).kernel
    return use.turn if use else 0


def _under_test(kernel: str | Callable[..., Any] | Kernel, dtype: str | None) -> UnderTest:
    return kernel.as_implementation() if isinstance(kernel, Kernel) else under_test_of(kernel, dtype)


def _text(kernel: KernelDescription, results: Sequence[Result], hints: Sequence[str], examples: int, seed: int) -> str:
    """Return the results as text, in the form that ``theorems verify`` prints."""

    def again(result: Result) -> str:
        options = f"statements={[result.id]!r}, examples={examples}, seed={seed}, dtype={kernel.dtype!r}"
        return f"Reproduce with: assert_kernel(…, {options})"

    checked = [result for result in results if result.was_tried]
    return text_report(results, again=again, results_in_table=checked, before=kernel.headline, after=hints)
