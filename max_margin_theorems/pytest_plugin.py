"""Pytest plugin with a decorator and two fixtures, by which another project's tests check the theorems.

    @parametrize_with_statements(my_kernel)        # imported from max_margin_theorems: one test per statement
    def test_attention(check):
        check()

    def test_attention_is_softmax(max_margin_theorems):
        max_margin_theorems(my_kernel)             # every statement that calls a kernel, in one test

    def test_attention(max_margin_theorem):
        max_margin_theorem(my_kernel)              # one test per statement; skipped for options that my_kernel lacks

Only pytest is imported at first, so that a project that does not use the decorator or the fixtures loses no time and
may have files of any name. If a project's file shadows one of our packages, as ``generators.py`` does, the tests that
use the decorator or the fixtures fail.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from max_margin_theorems.hidden import shadowing_warning

Check = Callable[..., Any]
MARK = "max_margin_statements"

_OPTIONS = {
    "attention": ("MODULE:CALLABLE", "kernel for fixtures that are called without one"),
    "examples": ("N", "generated cases per statement (default 50)"),
    "seed": ("S", "same seed, same cases (default 0)"),
    "dtype": ("float64|float32", "number format of the kernel (default float64 if the kernel takes it)"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options such as ``--max-margin-attention``, which a configuration file sets as ``max_margin_attention``."""
    group = parser.getgroup("max-margin theorems")
    for name, (metavar, text) in _OPTIONS.items():
        group.addoption(f"--max-margin-{name}", metavar=metavar, default=None, help=text)
        parser.addini(f"max_margin_{name}", text, default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark that the decorator puts on a test."""
    config.addinivalue_line("markers", f"{MARK}(kernel, …): as max_margin_theorems.parametrize_with_statements sets it")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize by statement the tests that use the fixture ``max_margin_theorem`` or the decorator."""
    for mark in metafunc.definition.iter_markers(MARK):
        metafunc.parametrize("check", _items(metafunc.config, *mark.args, **mark.kwargs))
    # If a file shadows a package of ours, let only the fixture fail, rather than the collection of all tests.
    if "max_margin_theorem" in metafunc.fixturenames and not shadowing_warning():
        from theorems.run.registry.suite import kernel_statement_ids

        metafunc.parametrize("max_margin_theorem", kernel_statement_ids(), indirect=True)


@pytest.fixture
def max_margin_theorems(request: pytest.FixtureRequest) -> Check:
    """Return ``check(kernel, statements=…, examples=…, seed=…, dtype=…)``, which raises AssertionError on a failure."""
    _nothing_hidden()
    return partial(_check, request.config)


@pytest.fixture
def max_margin_theorem(request: pytest.FixtureRequest) -> Check:
    """Return a function that checks the test's statement on a kernel; the test runs once for each statement."""
    _nothing_hidden()
    return partial(_check_one, request.config, request.param)


def _items(config: pytest.Config, kernel: Any, **options: Any) -> list[Any]:
    """Return, as pytest's parameters, a check for each statement that applies to the kernel.

    If the kernel cannot be loaded, return a single check, which fails.
    """
    ids = options.pop("statements", None)
    try:
        _not_hidden()
        from reference_attention.errors import InvalidInput

        try:
            from attention_conformance.kernel.check import load_with_statements
        except InvalidInput as error:  # no torch
            raise AssertionError(str(error)) from None
        dtype = options.pop("dtype", None) or _option(config, "dtype")
        attention, default_ids = load_with_statements(kernel, dtype)
    except AssertionError as error:
        return [pytest.param(partial(pytest.fail, str(error), pytrace=False), id="no-kernel")]
    return [
        pytest.param(partial(_check, config, attention, statements=[id], **options), id=id) for id in ids or default_ids
    ]


def _check_one(config: pytest.Config, id: str, kernel: Any = None, **options: Any) -> Any:
    """Check the statement ``id`` on the kernel; skip the test if the statement does not apply to the kernel."""
    __tracebackhide__ = True
    try:
        return _check(config, kernel, statements=[id], **options)
    except AssertionError as error:
        if type(error).__name__ == "NotApplicable":
            pytest.skip(str(error))
        raise


def _nothing_hidden() -> None:
    warning = shadowing_warning()
    if warning:
        pytest.fail(warning, pytrace=False)


def _not_hidden() -> None:
    warning = shadowing_warning()
    if warning:
        raise AssertionError(warning)


def _check(config: pytest.Config, kernel: Any = None, **options: Any) -> Any:
    __tracebackhide__ = True
    chosen = kernel if kernel is not None else _option(config, "attention")
    if chosen is None:
        raise pytest.UsageError("pass a kernel to the fixture, or give pytest --max-margin-attention MODULE:CALLABLE")
    for name in ("examples", "seed"):
        number = _option(config, name)
        if number is not None:
            options.setdefault(name, _whole(name, number))
    options.setdefault("dtype", _option(config, "dtype"))
    from reference_attention.errors import InvalidInput

    try:
        from attention_conformance.kernel.check import assert_kernel
    except InvalidInput as error:  # no torch
        pytest.fail(str(error), pytrace=False)
    return assert_kernel(chosen, **options)


def _option(config: pytest.Config, name: str) -> str | None:
    """Return an option from the command line or, failing that, the configuration file; None if neither sets it."""
    value = config.getoption(f"--max-margin-{name}") or config.getini(f"max_margin_{name}")
    return str(value) if value else None


def _whole(name: str, text: str) -> int:
    if not text.isdigit():
        raise pytest.UsageError(f"--max-margin-{name}: {text!r} is not a whole number")
    return int(text)
