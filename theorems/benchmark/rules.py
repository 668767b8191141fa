"""The rules that train p, by name: a kind and its numbers, as in ``mirror-1.5-0.1``, or a class in a user's file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float64

from reference_attention.errors import InvalidInput
from reference_attention.problem import Problem
from theorems.benchmark.optimisers import adam, factored_descent, flow, gradient_descent
from theorems.benchmark.optimisers.adam import Adam
from theorems.benchmark.optimisers.factored_descent import Factored, Way
from theorems.benchmark.optimisers.heavy_ball import HeavyBall
from theorems.benchmark.optimisers.mirror_descent import MirrorDescent, theory_of
from theorems.benchmark.optimisers.muon import Muon, SpectralDescent
from theorems.benchmark.optimisers.naive_gradient import NaiveNormalized
from theorems.benchmark.optimisers.optimiser import Optimiser, Theory
from theorems.benchmark.optimisers.polyak_steps import Polyak
from theorems.benchmark.optimisers.run import Progress, Run, follow, nothing, recorded_iterations
from theorems.benchmark.optimisers.sign_descent import RowDescent, SignDescent
from theorems.benchmark.optimisers.torch_rule import FORM, TorchRule, is_of_torch, swept, torch_rule
from theorems.benchmark.optimisers.user_rules import optimiser_in_file
from theorems.core.implementation import REFERENCE, Implementation
from theorems.run.registry.user_file import is_in_a_file

SMOOTH = "1/L"
"""Name of gradient descent with the step size 1/L_p of Theorems 2 and 3."""
DEFAULT = (
    "gd-1",
    "gd-1/L",
    "normalized-0.1",
    "normalized-1",
    "flow-1",
    "polyak",
    "heavy-ball-1",
    "adam-0.1",
    "mirror-1.5-1",
    "normalized-mirror-1.5-0.1",
)
"""Names of the rules that are compared by default."""
FORMS = (
    "gd-ETA",
    "gd-1/L",
    "normalized-ETA",
    "flow-ETA",
    "polyak",
    "heavy-ball-ETA",
    "adam-ETA",
    "adam-B1-B2-ETA",
    "muon-ETA",
    "spectral-ETA",
    "sign-ETA",
    "rows-ETA",
    "factored-ETA",
    "normalized-factored-ETA",
    "factored-apart-ETA",
    "mirror-Q-ETA",
    "normalized-mirror-Q-ETA",
    "naive-normalized-ETA",
    FORM,
    "FILE.py:NAME",
)
"""The forms of the names of rules; capital letters stand for numbers."""


@dataclass(frozen=True)
class Rule:
    """A rule that trains p, with the numbers in its name.

    Attributes:
        name: the name that ``--rule`` takes.
        theory: the theorems about the rule.
        step: the step size η; ``None`` for gradient descent with η = 1/L_p of the problem, and for a rule without a
            step size.
        power: the power q of mirror descent's potential.
        betas: β1 and β2 of Adam, if they are given.
        own: the class in a user's file, or the class of ``torch.optim`` with its arguments; None for a rule of this
            package.
    """

    name: str
    theory: Theory
    step: float | None = None
    power: float = 2.0
    betas: tuple[float, float] | None = None
    own: type[Optimiser] | TorchRule | None = None

    def run(
        self,
        problems: Sequence[Problem],
        starts: Float64[np.ndarray, "b d"],
        steps: int,
        under_test: Implementation = REFERENCE,
        *,
        shape: tuple[int, ...] | None = None,
        record_every: int = 1,
        progress: Progress = nothing,
    ) -> Run:
        """Run the rule on problems of one shape and loss, with one start for each problem.

        Args:
            problems: one problem per start.
            starts: p(0), (b, d).
            steps: the number of iterations.
            under_test: the implementation that computes gradients.
            shape: the shape of the trained parameter, (d,) unless p is vec(W).
            record_every: the number m such that every m-th iterate is recorded, besides the first and the last.
            progress: called with the number of iterations done, for rules with a ``step`` method.

        Raises:
            NotAPoint: a user's rule did not return a point.
        """
        kind = kind_of(self.name)
        if self.own is None and kind in ("gd", "normalized"):
            return gradient_descent.run_gradient_descent(
                problems,
                starts,
                steps,
                self.step,
                under_test,
                normalized=kind == "normalized",
                record_every=record_every,
            )
        if self.own is None and kind == "flow":
            assert self.step is not None
            return flow.read_at(problems, starts, self.step, recorded_iterations(steps, record_every), under_test)
        return follow(
            self.own or self._factory(kind),
            problems,
            starts,
            steps,
            under_test,
            shape=shape,
            record_every=record_every,
            progress=progress,
        )

    def _factory(self, kind: str) -> Callable[[], Optimiser]:
        if self.step is None:
            return Polyak
        by_kind: dict[str, Callable[[float], Optimiser]] = {
            "heavy-ball": HeavyBall,
            "adam": partial(Adam, betas=self.betas),
            "muon": Muon,
            "spectral": SpectralDescent,
            "sign": SignDescent,
            "rows": RowDescent,
            "naive-normalized": NaiveNormalized,
            "factored": partial(Factored, Way.PLAIN),
            "normalized-factored": partial(Factored, Way.JOINTLY),
            "factored-apart": partial(Factored, Way.APART),
            "mirror": partial(MirrorDescent, self.power, normalized=False),
            "normalized-mirror": partial(MirrorDescent, self.power, normalized=True),
        }
        return partial(by_kind[kind], self.step)


STEPPED: dict[str, Theory] = {
    "gd": gradient_descent.PLAIN,
    "normalized": gradient_descent.NORMALIZED,
    "flow": flow.THEORY,
    "heavy-ball": HeavyBall.theory,
    "adam": Theory(),
    "muon": Muon.theory,
    "spectral": SpectralDescent.theory,
    "sign": SignDescent.theory,
    "rows": RowDescent.theory,
    "naive-normalized": NaiveNormalized.theory,
    "factored": factored_descent.PLAIN,
    "normalized-factored": factored_descent.JOINTLY,
    "factored-apart": factored_descent.APART,
}
"""The kinds of rules whose only number is a step size, and the theorems about each kind."""
POWERED = {"mirror": False, "normalized-mirror": True}
"""The kinds of rules with two numbers, a power q and a step size; True if the kind is normalized."""


def kind_of(name: str) -> str:
    """Return the longest kind of rule that, followed by a hyphen, begins ``name``; ``name`` itself if there is none."""
    kinds = [kind for kind in (*STEPPED, *POWERED) if name.startswith(f"{kind}-")]
    return max(kinds, key=len, default=name)


def rule_named(name: str) -> Rule:
    """Return the rule with a name; if it is a class in a user's file, run that file.

    Raises:
        InvalidInput: the name has none of the :data:`FORMS`, its numbers are out of range, or a file cannot be used.
    """
    if is_in_a_file(name):
        own, theory = optimiser_in_file(name)
        return Rule(name, theory, own=own)
    if is_of_torch(name):
        return Rule(name, Theory(), own=torch_rule(name))
    kind = kind_of(name)
    numbers = name.removeprefix(f"{kind}-")
    if name == "polyak":
        return Rule(name, Polyak.theory)
    if name == f"gd-{SMOOTH}":
        return Rule(name, STEPPED["gd"])
    if kind == "adam" and (numbers_given := [_number(text) for text in numbers.split("-")]):
        if len(numbers_given) == 1 and numbers_given[0] > 0:
            return Rule(name, adam.theory_of(numbers_given[0]), numbers_given[0])
        if len(numbers_given) == 3 and all(0 <= beta < 1 for beta in numbers_given[:2]) and numbers_given[2] > 0:
            first, second, step = numbers_given
            return Rule(name, adam.theory_of(step, (first, second)), step, betas=(first, second))
    elif kind in STEPPED and (step := _number(numbers)) > 0:
        return Rule(name, STEPPED[kind], step)
    power, _, last = numbers.partition("-")
    if kind in POWERED and (q := _number(power)) > 1 and (step := _number(last)) > 0:
        return Rule(name, theory_of(q, POWERED[kind]), step, q)
    raise InvalidInput(
        f"--rule: {name!r} is none of {', '.join(FORMS)} with ETA > 0, Q > 1, 0 ≤ B1 < 1 and 0 ≤ B2 < 1;"
        f" without --rule the rules are {', '.join(DEFAULT)}."
    )


def expand_rules(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without duplicates; split ``gd-0.1,1``, or a list in arguments, into one name per value.

    Raises:
        InvalidInput: an argument of a ``torch.optim`` class is no literal.

    >>> expand_rules(["normalized-0.01,0.1", "mirror-1.5-1,2", "torch.optim:SGD(lr=[1, 2])"])[:4]
    ('normalized-0.01', 'normalized-0.1', 'mirror-1.5-1', 'mirror-1.5-2')
    """
    expanded: list[str] = []
    for name in names:
        if is_in_a_file(name):
            expanded.append(name)
        elif is_of_torch(name):
            expanded += swept(name)
        else:
            kind = kind_of(name)
            head, numbers = (f"{kind}-", name.removeprefix(f"{kind}-")) if kind != name else ("", name)
            if kind in POWERED:
                power, hyphen, numbers = numbers.partition("-")
                head += power + hyphen
            expanded += [head + number for number in numbers.split(",")] if head else [name]
    return tuple(dict.fromkeys(expanded))


def _number(text: str) -> float:
    """Parse a number; return NaN for a text that denotes no finite number."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
