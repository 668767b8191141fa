"""Settings of all tests; with ``THEOREMS_TYPECHECK=1`` shapes and dtypes in signatures are checked at every call."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.shapes import check_shapes

# In a process started in the background Ctrl-C is ignored; tests and the commands they start need the default.
signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("THEOREMS_TYPECHECK"):
    check_shapes()

from tests.theorems.fake_statements import install  # noqa: E402 - after the checks of shapes
from theorems.command import options  # noqa: E402 - likewise

# One process, since another takes seconds to start and changes no result; tests of several processes request two.
options.JOBS = 1


def pytest_collection_finish() -> None:
    """Exempt imported modules and collected tests from garbage collection, which would take 0.3 seconds each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _without_the_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels run uncompiled, since compiling takes seconds, except in tests that are marked ``compiler``."""
    if request.node.get_closest_marker("compiler") is not None:
        return
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # for processes that a test starts
    loading = sys.modules.get("attention_conformance.kernel.kernel_loader")
    if loading is not None:
        monkeypatch.setattr(loading, "with_compiler", lambda kernel, *call, **options: kernel)


@pytest.fixture
def own_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the test in an empty directory."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fake_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the statements of all papers by the tiny ones of ``tests/theorems/fake_statements.py``."""
    install(monkeypatch.setattr)
