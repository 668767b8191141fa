"""Entry points, under a name that no file of a user's has: the command, the pytest plugin, and a check before both.

Python looks in the working directory before it looks among installed packages, so that a user's ``generators.py``
takes the place of ours. The modules that are imported first therefore lie here, and look for such a file before they
import anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parametrize_with_statements(kernel: str | Callable[..., Any], **options: Any) -> Any:
    """Turn a test with an argument ``check`` into one test for each statement that the kernel is asked for.

    Statements that need a parameter that the kernel does not declare are left out. A kernel given as MODULE:CALLABLE
    is imported when tests are collected, in pytest's own process.

    Args:
        kernel: a callable on torch tensors, or MODULE:CALLABLE.
        options: statements, examples, seed, dtype, as of the fixture ``max_margin_theorems``.

        @parametrize_with_statements(my_kernel, examples=20)
        def test_attention(check):
            check()
    """
    import pytest

    # Called with a function alone a mark would decorate it.
    return pytest.mark.max_margin_statements.with_args(kernel, **options)
