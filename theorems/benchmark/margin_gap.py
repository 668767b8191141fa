"""The relative gap between a run's margin and the largest one: what a statement proves of it, and what it is.

A paper brings the functions that prove one as a mapping, ``Paper.gaps``, from ids of statements to
``(problem, solution of ATT-SVM, consecutive iterates, norm, theory of the rule) → Gap | None``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_attention.norms import Norm


@dataclass(frozen=True)
class Gap:
    """The relative gap between a margin and the largest one, proven and measured.

    Attributes:
        norm: q, or the spectral norm of W.
        statement: the statement that proves the bound.
        at_most: the bound of 1 − (m/‖p‖_q)/γ; None where it is 1 or more, which says nothing.
        measured: 1 − (m/‖p‖_q)/γ itself.
    """

    norm: Norm
    statement: str
    at_most: float | None
    measured: float
