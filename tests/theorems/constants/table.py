"""The named constants of the effective bounds of all papers, and a weaker value for each.

Those of a paper are ``CONSTANTS`` of ``constants.py`` in the folder of its tests, beside ``WITNESSES``, cases to try
first.
"""

from __future__ import annotations

from generators.subject import Subject
from tests.papers import modules_of_papers
from tests.theorems.constants.weakening import Constant

_MODULES = modules_of_papers("constants")

CONSTANTS: tuple[Constant, ...] = tuple(constant for module in _MODULES for constant in module.CONSTANTS)
"""The constants of all statements that have effective bounds with constants of their own."""
WITNESSES: dict[str, dict[str, Subject]] = {id: cases for module in _MODULES for id, cases in module.WITNESSES.items()}
"""Cases for each statement that are tried before any others."""
