"""The doors of the house, under a name that no file of a user's has: the command, the pytest plugin, and their
doorkeeper.

Python looks in the working directory before it looks among installed packages, so that a user's ``generators.py``
takes the place of ours. What is imported first therefore lies here, and looks for such a file before it imports
anything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def parametrize_with_statements(kernel: str | Callable[..., Any], **wanted: Any) -> Any:
    """Make a test with an argument ``check`` one test for each statement that the kernel is asked for.

    What it declares no parameter for is not among them. A kernel given as MODULE:CALLABLE is imported when tests are
    collected, in pytest's own process.

    Args:
        kernel: a callable on torch tensors, or MODULE:CALLABLE.
        wanted: statements, examples, seed, dtype, as of the fixture ``max_margin_theorems``.

        @parametrize_with_statements(my_kernel, examples=20)
        def test_attention(check):
            check()
    """
    import pytest

    # Called with a function alone a mark would decorate it.
    return pytest.mark.max_margin_statements.with_args(kernel, **wanted)
