"""The relative gap between a run's margin and the largest possible margin: its proven bound and its measured value.

``Paper.gaps`` maps the id of each statement that proves such a bound to the function that computes it, ``(problem,
solution of ATT-SVM, consecutive iterates, norm, theory of the rule) → Gap | None``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reference_attention.norms import Norm


@dataclass(frozen=True)
class Gap:
    """The relative gap between the margin of a run's last p and the largest possible margin, proven and measured.

    Attributes:
        norm: the norm in which margins are measured: q for ‖·‖_q, or a norm of the matrix W.
        statement: the id of the statement that proves the bound.
        at_most: the proven upper bound of 1 − (m/‖p‖_q)/γ, where m is the least margin of p and γ the largest possible
            margin at ‖p‖_q = 1; None if the bound is 1 or more, which says nothing.
        measured: the value of 1 − (m/‖p‖_q)/γ at the end of the run.
    """

    norm: Norm
    statement: str
    at_most: float | None
    measured: float
