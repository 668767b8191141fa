"""The internals that the golden record needs: the command in this process, and one statement on one case.

When the engine is rewritten, these functions are written again for it; ``tests/golden/__main__.py`` stays as it is.
"""

from __future__ import annotations

import contextlib
import io
import warnings

from generators.user_data import subject_of
from reference_attention.files import from_json
from tests.theorems.constants.measuring import constants_of
from theorems.command.app import main
from theorems.core.claim import Verdict
from theorems.core.implementation import REFERENCE
from theorems.faults import fault_named
from theorems.run.registry.lookup import statement_named


def run(*words: str) -> int:
    """Run ``theorems`` with the arguments ``words``, print nothing, and return its exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(main(list(words)))


def falsified_claim(id: str, case: str, fault: str = "", constant: str = "", share: float = 1.0) -> str:
    """Return the first claim of a statement that is falsified on a case, or an empty text.

    Args:
        id: the id of the statement.
        case: the case, as the text of a file for ``--data``.
        fault: the name of the fault that is planted; empty for the reference.
        constant: the key of the constant that is weakened; empty for none.
        share: the share by which it is weakened.
    """
    data = subject_of(from_json(case)).normalise()
    under_test = REFERENCE
    if fault:
        planted = fault_named(fault)
        data, under_test = planted.spoil(data) if planted.spoil else data, planted.implementation
    by_key = {constant.key: constant for constant in constants_of(id)}
    with warnings.catch_warnings(), by_key[constant].weakened(share) if constant else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        with contextlib.suppress(ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
            for claim in statement_named(id).conclusion(data, under_test):
                if claim.verdict is Verdict.FALSIFIED:
                    return str(claim.name)
    return ""
