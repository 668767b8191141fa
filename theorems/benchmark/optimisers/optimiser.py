"""The interface of a rule that trains p: a class whose ``step`` returns the next p, and the theorems about its limit.

    class SignDescent(Optimiser):
        '''p ← p − 0.1 sign ∇L(p).'''

        def step(self, p, gradient):
            return p - 0.1 * np.sign(gradient.direction)

``theorems bench --rule my_file.py:SignDescent`` compares this class with the default rules; docs/benchmarks.md is the
manual.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from jaxtyping import Float64

from reference_attention.norms import name_of
from reference_attention.problem import Problem
from reference_attention.risk import ScaledGradient
from theorems.core.implementation import REFERENCE, Implementation


class Against(StrEnum):
    """The variable x in which the distance from the limit is fitted as a power."""

    LOG = "log t"
    """The variable for rules whose steps vanish with the gradient, so that ‖p‖ grows like log t."""
    TIME = "t"
    """The variable for rules whose steps have a length that is bounded from below."""


@dataclass(frozen=True)
class Theory:
    """The theorems about the limit of a rule and about its rate.

    Attributes:
        norm: q, if a theorem about attention proves that the rule converges in direction to the solution of ATT-SVM
            with ‖p‖_q in place of ‖p‖; ``None`` otherwise.
        source: one line on who proves this limit, and what is known for other models than attention.
        against: the variable x, t or log t, in which ‖p/‖p‖ − limit‖ is fitted as a power.
        exponent: the exponent of that power by theory; ``None`` if theory gives none.
        proven: the largest exponent that is proven for attention, up to logarithms of x; ``None`` if none is proven.
        along_gradient: whether every step goes along −∇L, so that ``descent-from-a-margin`` bounds 1 − cos of a run.
        steepest: q, if every step, of any length, is in the direction of steepest descent in ‖·‖_q for the momentum M ←
            β M + ∇L, so that ``steepest-one-input`` or ``steepest-from-a-margin`` bounds the gap between the margin of
            a run and the largest one.
        momentum: the rate β of the momentum M.
        adam: η, r, β1 and β2, if steps are Adam's with ε = 0, bias correction and lengths η/t^r for t = 1, 2, …, so
            that ``adam-one-input`` or ``adam-from-a-margin`` bounds the gap of the ℓ∞ margin of a run.
        blocks: the kind of :class:`~reference_attention.norms.Blocks`, if steps of W are steepest in a norm of this
            kind; else empty.
        statements: ids of the theorems on attention that are about the rule.
        spectral: whether steps of W are steepest in the spectral norm of W, which is ‖·‖_2 for a single column.
    """

    norm: int | float | None = None
    source: str = "no theorem known"
    against: Against = Against.TIME
    exponent: int | float | None = None
    along_gradient: bool = False
    proven: int | float | None = None
    steepest: int | float | None = None
    momentum: int | float = 0.0
    spectral: bool = False
    adam: tuple[float, ...] = ()
    blocks: str = ""
    statements: tuple[str, ...] = ()

    @property
    def limit(self) -> str:
        """The name of the norm whose max-margin direction is the limit, or ``unknown``."""
        return "unknown" if self.norm is None else name_of(self.norm)


@dataclass(frozen=True, eq=False)
class Setting:
    """The problems and starts with which a run begins.

    Attributes:
        problems: one problem per start; a single problem unless the rule is ``batched``.
        start: p(0), (d,), or (b, d) where the rule is ``batched``.
        shape: the shape of the trained parameter: (d,), or (d, e) where p is vec(W).
        under_test: the functions that a rule may call, such as ``log_excess_risk``.
    """

    problems: tuple[Problem, ...]
    start: Float64[np.ndarray, "*b d"]
    shape: tuple[int, ...]
    under_test: Implementation = REFERENCE

    @property
    def problem(self) -> Problem:
        """The problem of a rule that is not batched."""
        return self.problems[0]


class Optimiser:
    """Base class of rules: an instance runs on one problem and start, or on a batch of problems and starts.

    Every run makes an instance (without arguments), calls ``begin`` once and ``step`` once per iteration; the rule
    stores its state in attributes of its own.

    Attributes:
        theory: the theorems about the rule; none by default.
        batched: whether ``step`` takes p and the gradient of b problems at once, as arrays (b, d), rather than of a
            single problem, as arrays (d,).
    """

    theory: ClassVar[Theory] = Theory()
    batched: ClassVar[bool] = False

    def begin(self, setting: Setting) -> None:
        """Prepare for a run; called before the first step."""

    def step(self, p: Float64[np.ndarray, "*b d"], gradient: ScaledGradient) -> Float64[np.ndarray, "*b d"]:
        """Return the next iterate p(t + 1).

        Args:
            p: p(t), (d,); not to be changed in place.
            gradient: ∇L(p(t)) = e^{log_scale} · direction; for large ‖p‖ e^{log_scale} is zero in float64, so use
                ``direction`` alone if the rule does not depend on the scale. Where ∇L = 0, log_scale is −∞ and
                direction 0.

        Returns:
            An array of the shape of p. A run ends if an entry is not finite, or larger than 1e140.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step(p, gradient)")
