"""The named constants in the explicit bounds of all papers, each with a weaker value.

The file ``constants.py`` in the folder of a paper's tests has the paper's ``CONSTANTS``, and in ``WITNESSES`` cases to
try first.
"""

from __future__ import annotations

from generators.subject import Subject
from tests.papers import modules_of_papers
from tests.theorems.constants.weakening import Constant

_MODULES = modules_of_papers("constants")

CONSTANTS: tuple[Constant, ...] = tuple(constant for module in _MODULES for constant in module.CONSTANTS)
"""The constants of all statements whose bounds have explicit constants of their own."""
WITNESSES: dict[str, dict[str, Subject]] = {id: cases for module in _MODULES for id, cases in module.WITNESSES.items()}
"""For each statement, cases by name that are tried before any others."""
