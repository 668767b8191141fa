"""A killed run leaves no process and a complete journal, and gives the same result when it is resumed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.places import ROOT
from tests.random_kills import Run, killed, session, workers

FAKE = Run((str(ROOT / "tests" / "theorems" / "fake_statements.py"),), ("slow", "true", "false", "undecided"), 8, 3.0)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_run_killed_at_random_moments_can_be_resumed() -> None:
    done = killed(2, 3, FAKE)
    assert len(done.moments) == 2
    assert done.runs >= 1


def test_the_test_s_search_for_worker_processes_finds_running_ones(tmp_path: Path) -> None:
    process = FAKE.start(tmp_path)
    until = time.monotonic() + 60
    while not workers(process.pid):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert set(workers(process.pid)) <= set(session(process.pid))
    process.kill()
    process.wait()
