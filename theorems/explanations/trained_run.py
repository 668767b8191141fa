"""A run of training, given by checkpoints: its tokens, margins and direction by step, beside the flow from its start.

The run is compared with the max-margin direction of the tokens of largest weight at its last checkpoint, and with the
gradient flow from its first checkpoint at equal norms, since steps of a rule and times of a flow cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from generators.case import Case
from generators.finding import format_tokens
from generators.layer_weights import Checkpoints
from reference_attention.angles import one_minus_cosine_along
from reference_attention.next_token.unwinnable_scores import ScoreSplit
from theorems.explanations.layer_state import layer_state
from theorems.explanations.ragged_problem import beside
from theorems.explanations.selection import Chosen, FollowedFlow, follow_flow

SAME_NORM = 1e-9
"""A recorded point of the flow has the norm of a checkpoint if the two norms differ by at most this relative amount."""
SHOWN = 16
"""Largest number of checkpoints in the table, evenly spaced; the JSON has all."""
TOKENS = 5
"""Largest number of tokens in a row of the table."""


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A run of training, with s checkpoints.

    Attributes:
        steps: the number of steps before each checkpoint, shape (s,).
        norms: ‖p‖ or ‖W‖_F, shape (s,).
        tokens: the first token of largest weight of each input, exact, shape (s, n).
        ties: whether several tokens of some input have the largest weight, exact, shape (s,).
        about: the tokens of largest weight at the last checkpoint; if an input has a tie there, the optimal tokens.
        off: for each input, the sum of the softmax weights of all tokens except the one in ``about``, shape (s, n).
        margins: the least margin of the tokens ``about``, divided by the norm; NaN at norm 0, shape (s,).
        apart: 1 − cos between the weights and the max-margin direction of ``about``; NaN at norm 0, or where no such
            direction exists, shape (s,).
        flow_apart: 1 − cos between that max-margin direction and the flow at the norm of the checkpoint; NaN where the
            flow does not reach that norm, shape (s,).
        flow: the gradient flow from the first checkpoint.
    """

    steps: Float64[np.ndarray, "s"]
    norms: Float64[np.ndarray, "s"]
    tokens: Int64[np.ndarray, "s n"]
    ties: Bool[np.ndarray, "s"]
    about: Chosen
    off: Float64[np.ndarray, "s n"]
    margins: Float64[np.ndarray, "s"]
    apart: Float64[np.ndarray, "s"]
    flow_apart: Float64[np.ndarray, "s"]
    flow: FollowedFlow

    @property
    def largest(self) -> float | None:
        """Return the largest possible margin, 1/‖p_mm‖; None where the tokens cannot be separated."""
        return None if self.about.solution is None else self.about.solution.margin

    @property
    def since(self) -> int:
        """Return the index of the first checkpoint from which on the tokens of largest weight stay the same."""
        other = (self.tokens != self.tokens[-1]).any(axis=1) | self.ties
        return 0 if not other.any() else int(np.flatnonzero(other)[-1]) + 1

    @property
    def shown(self) -> list[int]:
        """Return the indices of the checkpoints that the table shows."""
        return sorted({*np.linspace(0, len(self.steps) - 1, SHOWN).round().astype(int).tolist()})

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the titles of the table's columns."""
        margin = "least margin" if self.largest is None else f"least margin (≤ {self.largest:.4g})"
        return "steps", "norm", "tokens of largest weight", "max 1 − s", margin, "1 − cos", "flow at this norm"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table."""
        table_rows: list[tuple[str, ...]] = []
        for k in self.shown:
            tokens = "ties" if self.ties[k] else format_tokens(self.tokens[k], TOKENS)
            numbers = (self.margins[k], self.apart[k], self.flow_apart[k])
            margin, apart, flow = ("" if np.isnan(x) else f"{x:.3g}" for x in numbers)
            table_rows.append(
                (f"{self.steps[k]:g}", f"{self.norms[k]:.4g}", tokens, f"{self.off[k].max():.3g}", margin, apart, flow)
            )
        return table_rows

    @property
    def words(self) -> str:
        """Return sentences on the run, and on where the flow from its first checkpoint goes."""
        first, last = f"{self.steps[0]:g}", f"{self.steps[-1]:g}"
        grows = f"The run of {len(self.steps)} checkpoints goes from norm {self.norms[0]:.3g} at step {first}"
        sentences = [f"{grows} to {self.norms[-1]:.3g} at step {last}."]
        if self.ties[-1]:
            sentences.append("At its end several tokens of an input have the largest weight.")
        elif self.since == len(self.steps) - 1:
            sentences.append("Its tokens of largest weight still changed before the last checkpoint.")
        else:
            sentences.append(f"Its final tokens have had the largest weight since step {self.steps[self.since]:g}.")
        if not np.isnan(self.apart[-1]):
            which_tokens = "these" if self.about.name != "optimal" or not self.ties[-1] else "the optimal"
            at_start = "" if np.isnan(self.apart[0]) else f" from {self.apart[0]:.2g}"
            sentences.append(
                f"1 − cos to the max-margin direction of {which_tokens} tokens goes{at_start} to {self.apart[-1]:.2g}."
            )
            if not np.isnan(self.flow_apart[-1]):
                sentences.append(
                    f"For the flow from the first checkpoint it is {self.flow_apart[-1]:.2g} at the norm of the last."
                )
        return " ".join([*sentences, self._end_of_flow()])

    def _end_of_flow(self) -> str:
        selects = self.flow.selects
        if selects is None:
            return "This flow selects no tokens, or its tokens could not be decided."
        if not self.ties[-1] and np.array_equal(selects, self.tokens[-1]):
            return "In the limit, this flow selects the final tokens of the run."
        return f"In the limit, this flow selects {format_tokens(selects)}, other tokens than the run ends with."

    def as_json(self) -> dict[str, Any]:
        """Return every number in full for JSON."""
        arrays = ("steps", "norms", "tokens", "ties", "off", "margins", "apart", "flow_apart")
        return {name: getattr(self, name) for name in arrays} | {
            "about": self.about.name,
            "largest_margin": self.largest,
            "since": self.steps[min(self.since, len(self.steps) - 1)],
            "flow_selects": self.flow.selects,
        }


def trained_run(
    case: Case, checkpoints: Checkpoints | None, chosen: Chosen, split: ScoreSplit | None
) -> TrainedRun | None:
    """Evaluate the run at each checkpoint, and follow the flow from the first; None without several checkpoints.

    Args:
        case: the data.
        checkpoints: the trained weights.
        chosen: the tokens with whose max-margin direction the run is compared, :attr:`TrainedRun.about`.
        split: as for :func:`theorems.explanations.selection.follow_flow`.
    """
    if checkpoints is None or len(checkpoints.weights) == 1:
        return None
    states = [layer_state(case, weights) for weights in checkpoints.weights]
    points = np.array([weights.prompt for weights in checkpoints.weights])
    norms = np.linalg.norm(points, axis=1)
    problem, alpha = case.problem, chosen.alpha
    flow = follow_flow(problem, points[0], norms, split)
    others = np.arange(problem.T) != alpha[:, None]
    keys = beside(problem, alpha).keys
    rows = (np.take_along_axis(keys, alpha[:, None, None], axis=1) - keys)[others]
    with np.errstate(invalid="ignore", divide="ignore"):
        margins = (points @ rows.T).min(axis=1) / norms
    apart, flow_apart = np.full((2, len(points)), np.nan)
    if chosen.solution is not None:
        apart = one_minus_cosine_along(points, norms, chosen.solution.direction)
        along = flow.flow.one_minus_cosine(chosen.solution.direction)
        at_norm = np.abs(flow.flow.norms - norms[:, None]) <= SAME_NORM * norms[:, None]
        flow_apart = np.where(at_norm.any(axis=1), along[np.argmax(at_norm, axis=1)], np.nan)
        flow_apart[0] = apart[0]
    return TrainedRun(
        checkpoints.steps,
        norms,
        np.array([state.tokens for state in states]),
        np.array([state.tied_inputs.size > 0 for state in states]),
        chosen,
        np.array([(state.softmax * others).sum(axis=1) for state in states]),
        margins,
        np.asarray(apart),
        flow_apart,
        flow,
    )
