"""Program that prints the processor time of ``theorems verify`` by file: ``python benchmarks/profile.py --examples 5``.

Every 5 ms of processor time the program notes the innermost function of this repository on the stack. So time spent in
NumPy and SciPy counts for the file that calls them.
"""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from theorems.core.implementation import REFERENCE
from theorems.run.registry.suite import statements
from theorems.run.verify import verify_generated
from theorems.run.worker import single_threaded

ROOT = str(Path(__file__).parents[1]) + "/"
EVERY = 0.005
SHOWN = 3


class Sampled:
    """Context manager that samples the stack regularly and counts the samples by the innermost file."""

    def __init__(self) -> None:
        """Start with a count of zero for every file."""
        self.count: Counter[str] = Counter()

    def _note(self, signum: int, frame: FrameType | None) -> None:
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(ROOT) and "/.venv/" not in name:
                self.count[name.removeprefix(ROOT).removesuffix(".py")] += 1
                return
            frame = frame.f_back

    def __enter__(self) -> Sampled:
        """Start to sample the stack, once per ``EVERY`` seconds of processor time."""
        signal.signal(signal.SIGPROF, self._note)
        signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop sampling the stack; the counts stay."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def shares(self, most: int) -> str:
        """Return as text the ``most`` files with the largest counts, each with its share of all samples."""
        total = sum(self.count.values()) or 1
        return ", ".join(f"{name} {count / total:.0%}" for name, count in self.count.most_common(most))


def main() -> None:
    """Profile each statement, and print a table of the statements and the files in which their time is spent."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=None, metavar="ID")
    given = parser.parse_args()
    single_threaded()
    whole, rows, spent = Counter[str](), list[tuple[float, str, Sampled]](), 0.0
    for id in given.only or list(statements()):
        began = time.process_time()
        with Sampled() as sampled:
            verify_generated(id, given.examples, 0, REFERENCE, lambda *_: None, None)
        seconds = time.process_time() - began
        rows.append((seconds, id, sampled))
        whole += sampled.count
        spent += seconds
    print(f"| statement | share of {spent:.0f} s | where |\n|---|---|---|")
    for seconds, id, sampled in sorted(rows, key=lambda row: -row[0]):
        print(f"| {id} | {seconds / spent:.1%} | {sampled.shares(SHOWN)} |")
    everything = Sampled()
    everything.count = whole
    print(f"| all | | {everything.shares(8)} |")


if __name__ == "__main__":
    main()
