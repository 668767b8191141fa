"""The folder of recorded counterexamples: beside the packages in a checkout, inside a package when installed."""

from __future__ import annotations

from pathlib import Path

_INSTALLED = Path(__file__).resolve().parents[1] / "recorded"  # setup.py copies the files there

RECORDED = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[2]
"""The folder in which the folder ``counterexamples`` lies."""
COUNTEREXAMPLES = RECORDED / "counterexamples"
