"""A signal whose exception Python drops, since it arrives during garbage collection, is raised afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc, os, signal
from max_margin_theorems import signals

signals.listen()
signals.keep()


def interrupt(phase, info):
    gc.callbacks.remove(interrupt)
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(100):  # the handler runs here, and Python drops what it raises
        pass


with signals.interruptible():
    gc.callbacks.append(interrupt)
    gc.collect()
    print("dropped", flush=True)
    try:
        with signals.shield_from_signals():
            with signals.shield_from_signals():
                print("inner", flush=True)
            print("outer", flush=True)
    except KeyboardInterrupt:
        print("raised")
    else:
        print("lost")
"""


def test_a_signal_within_the_garbage_collector_is_raised_after_it(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert process.stdout.split() == ["dropped", "inner", "outer", "raised"], process.stderr
    assert "KeyboardInterrupt" in process.stderr
