"""Tiny statements, true and false, on which to test the runner and the command; also runnable as a command.

``python fake_statements.py verify …`` is ``theorems verify …`` on these statements, also in its child processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from hypothesis import strategies as st

import theorems.command.listings
import theorems.run.registry.lookup
from generators.case import Case
from reference_attention.floats import EPS
from reference_attention.losses import LOSSES
from reference_attention.problem import Problem
from reference_attention.risk import softmax_weights
from theorems.core.claim import Claim, Form, at_least
from theorems.core.implementation import Implementation
from theorems.core.statement import Statement


@st.composite
def small_cases(draw: st.DrawFn, least_n: int = 1) -> Case:
    """Draw one to three inputs of two or three tokens; keys are in the plane, and all numbers are whole."""
    n, tokens = draw(st.integers(least_n, 3)), draw(st.integers(2, 3))
    whole = st.integers(-9, 9)
    keys = draw(st.lists(whole, min_size=2 * n * tokens, max_size=2 * n * tokens))
    scores = draw(st.lists(whole, min_size=n * tokens, max_size=n * tokens))
    problem = Problem(
        np.array(keys, dtype=np.float64).reshape(n, tokens, 2),
        np.array(scores, dtype=np.float64).reshape(n, tokens) / 3,
        LOSSES[draw(st.sampled_from(sorted(LOSSES)))],
    )
    start = np.array(draw(st.tuples(whole, whole)), dtype=np.float64) / 7
    return Case(problem, start=start, arrays={"u": np.array([0.1, 1 / 3])}, seed=draw(st.integers(0, 2**32)))


def weights_sum_to_one(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Softmax weights sum to one.

    A second paragraph, to be shown.
    """
    total = under_test[softmax_weights](case.problem.keys, case.start).sum(axis=-1)
    rounding = 4 * EPS * case.problem.T
    yield at_least("sum-at-least-one", Form.EXACT, total, 1.0, rounding=rounding, why="rounding")
    yield at_least("sum-at-most-one", Form.EXACT, 1.0, total, rounding=rounding, why="rounding")


def single_input_only(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that fails for two inputs or more, and a second one that fails on a few cases of one input."""
    yield Claim("one-input", Form.EXACT, 1.0 - case.problem.n, 0.0, "exact", f"n = {case.problem.n}")
    rare = case.problem.n == 1 and case.problem.scores.max() == 1 / 3 and not case.problem.keys.any()
    yield Claim("rarely-false", Form.EXACT, -1.0 if rare else 1.0, 0.0, "exact")


def sometimes_undecided(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a claim that is undecided for three tokens."""
    undecided = "three tokens are too many" if case.problem.T == 3 else ""
    yield Claim("two-tokens", Form.LIMIT, float(case.problem.T), 0.0, "exact", undecided=undecided)


def breaks_down(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Divide by zero where there are two inputs."""
    yield Claim("before", Form.EXACT, 1.0, 0.0, "exact")
    if case.problem.n > 1:
        raise ZeroDivisionError("n is two")


def says_nothing(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make no claim at all."""
    yield from ()


def takes_its_time(case: Case, under_test: Implementation) -> Iterator[Claim]:
    """Make a true claim after a while."""
    time.sleep(0.3)
    yield Claim("slow", Form.EXACT, 1.0, 0.0, "exact")


def fake_statement(
    id: str,
    conclusion: Callable[[Case, Implementation], Iterator[Claim]],
    assumptions: tuple[str, ...] = (),
    least_n: int = 1,
    from_data: Callable[[Case], Iterator[Case]] = lambda case: iter([case]),
    aliases: tuple[str, ...] = (),
) -> Statement:
    """Return a statement that is not registered."""
    text = conclusion.__doc__ or ""
    title = text.partition(".")[0]
    return Statement(
        id, title, "no paper", assumptions, lambda: small_cases(least_n), conclusion, text, from_data, aliases
    )


FAKES = {
    fake.id: fake
    for fake in (
        fake_statement("true", weights_sum_to_one, aliases=("also-true",)),
        fake_statement("true-too", weights_sum_to_one),
        fake_statement("false", single_input_only),
        fake_statement("undecided", sometimes_undecided),
        fake_statement("broken", breaks_down),
        fake_statement("silent", says_nothing),
        fake_statement("never", weights_sum_to_one, ("single-input",), least_n=2),
        fake_statement("single", weights_sum_to_one, ("single-input",)),
        fake_statement("slow", takes_its_time),
    )
}


def install(put: Callable[[object, str, object], object] = setattr, fakes: dict[str, Statement] = FAKES) -> None:
    """Replace the suite's statements by the given ones; with ``put`` = ``monkeypatch.setattr`` only for one test."""
    for module in (theorems.run.registry.lookup, theorems.command.listings):
        put(module, "statements", lambda: fakes)


WORKER = """
import sys; sys.path[:] = sys.argv[2:]
from theorems.run.worker import serve, watch
watch()  # what follows takes longer to import than an orphan may live
from tests.theorems.fake_statements import install; install(); serve()
"""

if __name__ == "__main__":
    import theorems.run.pool
    from max_margin_theorems import signals
    from theorems.command.app import main

    install()
    theorems.run.pool.PROGRAM = WORKER
    signals.listen()
    code = main()
    sys.exit(signals.exit_code() or code)
