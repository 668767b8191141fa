"""Kills of processes of ``theorems verify``, by signal 9 at random moments, and checks of what is left.

``python -m tests.random_kills 100 1`` kills a hundred parent processes, at moments drawn from seed 1, and often one of
a parent's worker processes before. Each time the journal must have lost no line, and two seconds after the parent's end
no process of the run may be alive. In the end each run is resumed, and its result must equal that of an uninterrupted
run byte for byte, except for the seconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

GONE_WITHIN = 2.0


@dataclass(frozen=True)
class Run:
    """A run of ``theorems verify`` to be killed.

    Attributes:
        program: the arguments of Python that start ``theorems``, or a program like it.
        ids: the ids of the statements to verify.
        examples: the number of generated cases of each statement.
        longest: the latest moment of a kill, in seconds after the start or after the first worker process exists.
    """

    program: tuple[str, ...] = ("-m", "theorems")
    ids: tuple[str, ...] = ("lemma-4", "lemma-5", "lemma-9", "lemma-10", "lemma-11", "lemma-12")
    examples: int = 5
    longest: float = 5.0

    def start(self, folder: Path, *, journal: bool = True) -> subprocess.Popen[bytes]:
        """Start the run as a new session of processes; without a journal it uses a single process."""
        resume = ["--jobs", "2", "--resume", "run.jsonl"] if journal else ["--jobs", "1"]
        options = ["--examples", str(self.examples), "--json", "run.json", *resume]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        quiet = subprocess.DEVNULL
        command = [sys.executable, *self.program, "verify", *self.ids, *options]
        return subprocess.Popen(
            command, stdout=quiet, stderr=quiet, env=environment, cwd=folder, start_new_session=True
        )

    def ended(self, folder: Path, *, journal: bool = True) -> tuple[int, str]:
        """Run to the end; return the exit code and the JSON result without its seconds."""
        code = self.start(folder, journal=journal).wait()
        record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        for statement in record["statements"]:
            del statement["seconds"]
        return code, json.dumps(record)


@dataclass
class Killed:
    """What has been killed and compared so far.

    Attributes:
        moments: the moment at which each parent process was killed, in seconds after the start.
        workers: the number of worker processes that were killed before their parent.
        runs: the number of runs that were resumed to their end and compared.
    """

    moments: list[float]
    workers: int = 0
    runs: int = 0


def session(leader: int) -> list[int]:
    """Return the ids of the living processes of a session, without the leader (Linux only)."""
    processes = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z" and int(stat.parent.name) != leader:
            processes.append(int(stat.parent.name))
    return processes


def workers(leader: int) -> list[int]:
    """Return the ids of a session's worker processes."""
    processes = []
    for pid in session(leader):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"theorems.run.worker" in line:
            processes.append(pid)
    return processes


def whole(journal: Path) -> list[bytes]:
    """Return the lines of a journal that were written to their end."""
    return journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []


@contextmanager
def a_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def kill_at(run: Run, folder: Path, chance: random.Random, so_far: Killed) -> bool:
    """Start the run, perhaps kill a worker, then kill the parent; return False if the run ended before that."""
    moment = run.longest * chance.random()
    at_worker = moment * (1 + chance.random()) / 2 if chance.random() < 0.7 else None
    before = whole(folder / "run.jsonl")
    while_it_starts = chance.random() < 0.3
    process = run.start(folder)
    while not while_it_starts and process.poll() is None and not workers(process.pid):
        time.sleep(0.01)
    began = time.monotonic()
    try:
        while time.monotonic() - began < moment:
            if process.poll() is not None:
                return False
            if at_worker is not None and time.monotonic() - began > at_worker:
                at_worker = None
                alive = workers(process.pid)
                if alive:
                    os.kill(chance.choice(alive), signal.SIGKILL)
                    so_far.workers += 1
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    so_far.moments.append(round(time.monotonic() - began, 2))
    deadline = time.monotonic() + GONE_WITHIN
    while (left := session(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"alive {GONE_WITHIN:g} s after their parent was killed: {left}"
    after = whole(folder / "run.jsonl")
    assert after[: len(before)] == before, "a line of the journal is lost"
    return True


def killed(moments: int, seed: int, run: Run) -> Killed:
    """Kill parent processes at ``moments`` moments; resume each run until it ends by itself, and compare its result."""
    chance = random.Random(seed)
    so_far = Killed([])
    with a_folder() as folder:
        right = run.ended(folder, journal=False)
    while len(so_far.moments) < moments:
        with a_folder() as folder:
            while len(so_far.moments) < moments and kill_at(run, folder, chance, so_far):
                pass
            assert run.ended(folder) == right, "the resumed result is another"
            so_far.runs += 1
    return so_far


if __name__ == "__main__":
    count, seed = (int(text) for text in sys.argv[1:])
    done = killed(count, seed, Run())
    print(f"{len(done.moments)} parents and {done.workers} workers killed in {done.runs} runs: no process alive after")
    print(f"{GONE_WITHIN:g} s, no line of a journal lost, each resumed result that of the uninterrupted run.")
