"""State of the page: data, starts and display settings; states are immutable, and each change makes a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from generators.case import Case
from generators.layer_weights import layer_weights_of
from reference_attention.errors import InvalidInput
from reference_attention.problem import Dataset, Problem
from reference_attention.query_dataset import QueryDataset

REACHES = (2.0, 6.0, 20.0, 60.0, 200.0)
"""‖p‖ at the edge of the picture, in units of ‖p_mm‖, or of about 1/max |key entry| where there is no p_mm."""
MOST_STARTS = 12
"""Largest number of starts in a picture."""
EDITED = " (edited)"


@dataclass(frozen=True, eq=False)
class State:
    """Data and starts on the page.

    Attributes:
        case: the data; if the case has a ``start``, this is the first of the starts.
        starts: p(0), shape (s, p); vec(W(0)) where W is trained.
        token: (i, t), the token with a ring; the picture shows the margin band of its input.
        alpha: the tokens whose p_mm is shown; None for the optimal ones.
        reach: ‖p‖ at the edge of the picture, one of :data:`REACHES`.
        rule: the rule whose run the slider shows, by its name in :data:`theorems.explore.runs.RULES`.
        start: the number of the start whose run the slider shows.
    """

    case: Case
    starts: Float64[np.ndarray, "s p"]
    token: tuple[int, int] = (0, 0)
    alpha: tuple[int, ...] | None = None
    reach: float = REACHES[1]
    rule: str = "flow"
    start: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the trained parameter, a prompt or W."""
        queried = self.case.queried or self.case.sequence
        return (self.case.problem.d,) if queried is None else queried.shape

    @property
    def tokens(self) -> Float64[np.ndarray, "n T m"]:
        """Return the tokens that can be dragged: X where W is trained, otherwise the keys, (n, T, m)."""
        return self.case.problem.keys if self.case.queried is None else self.case.queried.X

    @property
    def scores_follow(self) -> bool:
        """Return whether scores are computed from tokens, labels and head, so that they cannot be edited."""
        dataset = self.case.dataset
        return self.case.queried is not None or (dataset is not None and dataset.W is None)

    def but(self, **changed: object) -> State:
        """Return the state with some attributes replaced."""
        return replace(self, **changed)  # type: ignore[arg-type]

    def with_token(self, i: int, t: int, place: Float64[np.ndarray, "m"]) -> State:
        """Return the state with token t of input i moved; a score computed from tokens is updated.

        Raises:
            InvalidInput: the place is not finite, or the data have several queries per input, which share tokens.
        """
        if self.case.sequence is not None:
            raise InvalidInput(
                "tokens: several inputs of a sequence share them, so they cannot be dragged; change them in the file."
            )
        tokens = self.tokens.copy()
        tokens[i, t] = place
        case = self.case
        if case.queried is not None:
            former = case.queried
            queried = QueryDataset(tokens, former.queries, former.Y, former.v, former.loss)
            return self._with_case(case.replace(problem=queried.problem, queried=queried))
        if case.dataset is not None and self.scores_follow:
            dataset = Dataset(tokens, case.dataset.Y, case.dataset.v, None, case.dataset.loss)
            return self._with_case(case.replace(problem=dataset.problem, dataset=dataset))
        return self._with_problem(Problem(tokens, case.problem.scores, case.problem.loss))

    def with_score(self, i: int, t: int, score: float) -> State:
        """Return the state with another score for token t of input i.

        Raises:
            InvalidInput: the score is not finite, or scores are computed from tokens.
        """
        if self.scores_follow or self.case.sequence is not None:
            raise InvalidInput("scores: computed from tokens, labels and head here; move the token instead.")
        scores = self.case.problem.scores.copy()
        scores[i, t] = score
        return self._with_problem(Problem(self.case.problem.keys, scores, self.case.problem.loss))

    def with_start(self, k: int, start: Float64[np.ndarray, "p"]) -> State:
        """Return the state with start number k moved; number 0 is also the start in the data, if they have one."""
        starts = self.starts.copy()
        starts[k] = start
        moved = self.but(starts=starts)
        if k == 0 and self.case.start is not None:
            return moved._with_case(self.case.replace(start=starts[0]))
        return moved

    def with_starts(self, count: int) -> State:
        """Return the state with ``count`` starts: drop the last ones, or add new ones near p = 0.

        Raises:
            InvalidInput: the count is less than 1 or too large.
        """
        if not 1 <= count <= MOST_STARTS:
            raise InvalidInput(f"starts: give a number between 1 and {MOST_STARTS}, not {count}.")
        new = np.zeros((max(0, count - len(self.starts)), self.starts.shape[1]))
        for k, row in enumerate(new):
            row[(len(self.starts) + k) % len(row)] = 1 / self.case.problem.key_scale
        starts = np.concatenate([self.starts[:count], new])
        return self.but(starts=starts, start=min(self.start, count - 1))

    def _with_problem(self, problem: Problem) -> State:
        """Return the state with other keys and scores; if the state has a dataset, adapt the dataset to them."""
        dataset = None if self.case.dataset is None else Dataset.realising(problem)
        return self._with_case(self.case.replace(problem=problem, dataset=dataset))

    def _with_case(self, case: Case) -> State:
        name = case.name if case.name.endswith(EDITED) else case.name + EDITED
        return self.but(case=case.replace(name=name))


def state_of(case: Case) -> State:
    """Return the initial state for data, with their start or starts, otherwise with p(0) = 0.

    Raises:
        InvalidInput: trained weights do not fit the data.
    """
    if case.sequence is None:
        layer_weights_of(case)
    prompts = case.arrays.get("start_prompts")
    if case.start is not None:
        starts = case.start[None]
    elif prompts is not None and prompts.ndim == 2 and prompts.shape[1] == case.problem.d:
        starts = prompts[:MOST_STARTS]
    else:
        starts = np.zeros((1, case.problem.d))
    alpha = None if case.alpha is None else tuple(case.alpha.tolist())
    return State(case, np.array(starts, dtype=np.float64), (0, int(case.chosen_tokens[0])), alpha)
