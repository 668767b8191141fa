"""Which functions each test reaches, and how long it takes: what a mutant is to face, and in which order."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from tests.mutants.forks import Died, Tell, limit, told_by
from tests.mutants.making import OUTSIDE, Mutant, Outcome
from tests.mutants.swapping import outermost

OPTIONS = ("-qq", "--tb=no", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist")


@dataclass(frozen=True)
class Reach:
    """A test on the sources as they are.

    Attributes:
        test: its node id.
        digest: of its file and of the sources that are mutated.
        seconds: processor time; −1 where it fails or takes too long, and is of no use.
        functions: those of the mutated part that it reaches, as ``file function``.
    """

    test: str
    digest: str
    seconds: float
    functions: tuple[str, ...] = ()


@dataclass
class Bench:
    """What mutants are faced with.

    Attributes:
        root: of the checkout.
        part: what is mutated, a file or folder of it.
        tests: files and folders of tests.
        seconds: processor time of the tests that one mutant may face.
        known: tests that were measured, by node id.
        kills: how many mutants of a function a test killed, by ``file function`` and test.
    """

    root: Path
    part: str
    tests: Sequence[str]
    seconds: float
    known: dict[str, Reach] = field(default_factory=dict)
    kills: dict[str, Counter[str]] = field(default_factory=dict)

    def reaching(self, mutant: Mutant, among: Iterable[str]) -> list[Reach]:
        """The tests that reach a mutant, in order: who killed others of its function, its module's own, the quick."""
        function = f"{mutant.file} {mutant.function}"
        kills = self.kills.get(function, Counter())

        def own(one: Reach) -> bool:
            return f"/test_{Path(mutant.file).stem}.py::" in one.test

        def reaches(one: Reach) -> bool:
            if mutant.function == OUTSIDE:
                return own(one) or any(name.startswith(f"{mutant.file} ") for name in one.functions)
            return function in one.functions

        of_use = [one for one in map(self.known.__getitem__, among) if one.seconds >= 0]
        # A file of constants has no function to reach.
        able = [one for one in of_use if reaches(one)] or (of_use if mutant.function == OUTSIDE else [])
        return sorted(able, key=lambda one: (-kills[one.test], not own(one), one.seconds, one.test))

    def affordable(self, tests: Iterable[Reach]) -> list[Reach]:
        """As many of them as there is time for."""
        found, left = [], self.seconds
        for one in tests:
            if one.seconds <= left:
                found.append(one)
                left -= one.seconds
        return found

    def remember(self, outcome: Outcome) -> None:
        """Which test killed a mutant."""
        if outcome.outcome != "survived" and outcome.by:
            self.kills.setdefault(f"{outcome.file} {outcome.function}", Counter())[outcome.by] += 1

    def source_digest(self) -> str:
        """Of all that is mutated."""
        path = self.root / self.part
        return _digest([path] if path.is_file() else sorted(path.rglob("*.py")))


class Session:
    """pytest, with a loop over the tests of our own."""

    def __init__(self, loop: Callable[[Session, list[pytest.Item]], None]) -> None:
        self.loop, self.failed = loop, False

    def run(self, root: Path, tests: Sequence[str]) -> None:
        """Collect the tests, and give them to the loop.

        Raises:
            RuntimeError: they cannot be collected.
        """
        with suppress(ImportError):
            import jaxtyping

            # Checked shapes take most of the time, and a test should see what is wrong without them.
            jaxtyping.install_import_hook = lambda *_: None
        os.chdir(root)
        if pytest.main([*OPTIONS, *tests], plugins=[self]) != 0:
            raise RuntimeError("the tests cannot be collected")

    def passes(self, item: pytest.Item) -> bool:
        """Run one test with all its fixtures."""
        self.failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    def pytest_configure(self) -> None:
        with suppress(ImportError):
            from hypothesis import HealthCheck, Phase, settings

            # Nobody reads a smaller failure.
            phases = (Phase.explicit, Phase.generate, Phase.target)
            quiet = list(HealthCheck)
            same: dict[str, Any] = {"derandomize": True, "database": None, "deadline": None}
            settings.register_profile("mutants", settings(), phases=phases, suppress_health_check=quiet, **same)
            settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted
        self.loop(self, session.items)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def measured(bench: Bench, session: Session, item: pytest.Item, source: str) -> Reach:
    """A test, as it was measured before or in a forked process."""
    digest = source + _digest([item.path])
    held = bench.known.get(item.nodeid)
    if held is not None and held.digest == digest:
        return held
    found: dict[str, Any] = {"seconds": -1.0, "functions": ()}
    with suppress(Died):
        for told in told_by(lambda tell: _measure(bench, session, item, tell), seconds=30 + 10 * bench.seconds):
            found = told
    return Reach(item.nodeid, digest, found["seconds"], tuple(found["functions"]))


def _measure(bench: Bench, session: Session, item: pytest.Item, tell: Tell) -> None:
    reached: dict[int, CodeType] = {}

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        reached[id(frame.f_code)] = frame.f_code

    # What takes longer is faced by no mutant.
    limit(1 + bench.seconds)
    began = time.process_time()
    passed = session.passes(item)
    seconds = round(time.process_time() - began, 3)
    limit(5 + 5 * bench.seconds)
    sys.settrace(trace)
    passed &= session.passes(item)
    sys.settrace(None)
    home = str(bench.root / bench.part)
    mine = [code for code in reached.values() if code.co_filename.startswith(home)]
    names = {f"{Path(one.co_filename).relative_to(bench.root).as_posix()} {outermost(one.co_qualname)}" for one in mine}
    if passed:
        tell({"seconds": seconds, "functions": sorted(names)})


def as_record(found: Reach) -> dict[str, Any]:
    """For a journal."""
    return asdict(found)


def from_record(record: dict[str, Any]) -> Reach:
    """From a journal."""
    return Reach(**{**record, "functions": tuple(record["functions"])})


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]
