"""Entry points: the command and the pytest plugin, with a check for users' files that shadow our packages.

Python searches the working directory before the installed packages. A user's file ``generators.py`` would therefore be
imported in place of our package ``generators``. The modules that are imported first are therefore in this package,
whose name no user's file is likely to have; they look for such files before they import any other package of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parametrize_with_statements(kernel: str | Callable[..., Any], **options: Any) -> Any:
    """Decorate a test with an argument ``check``, so that it runs once for each statement that applies to a kernel.

    A statement is left out if it needs an option that the kernel has no parameter for. A kernel given as
    MODULE:CALLABLE is imported when tests are collected, in pytest's own process.

    Args:
        kernel: a callable on torch tensors, or MODULE:CALLABLE.
        options: ``statements``, ``examples``, ``seed`` and ``dtype`` of the checks, as for the fixture
            ``max_margin_theorems``.

        @parametrize_with_statements(my_kernel, examples=20)
        def test_attention(check):
            check()
    """
    import pytest

    # Use with_args: if the mark is called with a function as its only argument, it decorates that function.
    return pytest.mark.max_margin_statements.with_args(kernel, **options)
