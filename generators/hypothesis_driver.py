"""Cases drawn by Hypothesis that depend on the seed alone; nothing is stored between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.strategies import SearchStrategy

from generators.subject import Subject


def seed_from(text: str) -> int:
    """Return a seed that depends only on the text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def drive(
    cases: SearchStrategy[Any],
    visit: Callable[[Any], None],
    *,
    examples: int,
    seed: int,
    phases: Sequence[Phase],
    unchecked: Sequence[HealthCheck],
    near_copies: bool,
) -> None:
    """Draw cases from the strategy, and call ``visit`` on each of them.

    Args:
        cases: the strategy from which cases are drawn.
        visit: the function that is called on each case. If the function raises an ``Exception``, the case fails;
            another ``BaseException`` ends the run.
        examples: the largest number of cases.
        seed: the seed of all draws.
        phases: the phases of Hypothesis to run, such as generation and shrinking.
        unchecked: the health checks of Hypothesis that are left out.
        near_copies: whether Hypothesis may follow a case with near copies of the case, see
            :func:`each_case_drawn_anew`.
    """

    @hypothesis_seed(seed)
    @settings(
        max_examples=examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=unchecked,
    )
    @given(cases)
    def example(case: Subject) -> None:
        visit(case)

    with drawing_from_the_seed_alone(), nullcontext() if near_copies else each_case_drawn_anew():
        example()


@contextmanager
def drawing_from_the_seed_alone() -> Iterator[None]:
    """Keep Hypothesis from drawing constants of imported modules, so that draws do not depend on imports."""
    try:
        from hypothesis.internal import constants_ast
        from hypothesis.internal.conjecture import providers

        usual = providers._get_local_constants
        providers._get_local_constants = constants_ast.Constants
        providers.CONSTANTS_CACHE.cache.clear()
    except (ImportError, AttributeError):
        # This version of Hypothesis lacks these internals, so draws may depend on the modules that are imported.
        yield
        return
    try:
        yield
    finally:
        providers._get_local_constants = usual
        providers.CONSTANTS_CACHE.cache.clear()


@contextmanager
def each_case_drawn_anew() -> Iterator[None]:
    """Keep Hypothesis from following each case with up to five near copies of the case.

    With near copies only about 30 of 50 examples would be distinct, and a kind of case that a strategy draws one time
    in five might be missing. Corner cases such as equal tokens are drawn by the strategies themselves.
    """
    name = "generate_mutations_from"
    try:
        from hypothesis.internal.conjecture.engine import ConjectureRunner

        usual = getattr(ConjectureRunner, name)
    except (ImportError, AttributeError):
        # This version of Hypothesis lacks the method, so near copies may be drawn.
        yield
        return
    setattr(ConjectureRunner, name, lambda self, data: None)
    try:
        yield
    finally:
        setattr(ConjectureRunner, name, usual)
