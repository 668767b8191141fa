"""Joint descent on head v and prompt p, from the head of the data and the start of an explanation.

The rule is the one of Figure 3 of the paper: each gradient is divided by its norm, so ‖v‖ and ‖p‖ grow steadily and the
limit becomes visible. A run ends after a number of steps, so nothing is concluded about its limit. Its end is compared
with the directions v̄_mm and p̄_mm of Theorem 5, p̄_relax of Theorem 6, and p(c) of the conjecture on joint descent,
where c is the growth of ‖v‖ divided by the growth of ‖p‖.

References: *Max-Margin Token Selection in Attention Mechanism*, Section 3, Figure 3, Theorems 5 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from generators.assumptions import ASSUMPTIONS
from generators.case import Case
from generators.finding import Finding, format_tokens, number
from reference_attention.angles import one_minus_cosine_along
from reference_attention.errors import InvalidInput
from reference_attention.paths.joint_risk import joint_of_chosen
from reference_attention.paths.scheduled_direction import scheduled_direction
from reference_attention.problem import Dataset
from reference_attention.risk import softmax_weights
from reference_attention.svm.label_svm import relaxed_max_margin
from reference_attention.svm.max_margin import MaxMargin, max_margin
from reference_attention.training.joint_descent import joint_descent

STEPS = 20_000
"""Number of steps of a run."""
STEP_SIZE = 0.1
"""Step size of Figure 3; divided for v by about the largest token norm, for p by about the largest |key entry|."""
RECORDS = (0, 10, 100, 1000, 5000, STEPS)
"""Steps that the table shows."""
BLOCK = 1000
"""Number of points whose logits are computed at once; a larger number would need more memory."""
CHOSEN = 0.5
"""Largest 1 − s, with s the largest weight of an input, at which a run still counts as settled."""
GROWS = 1.5
"""Least factor by which ‖v‖ and ‖p‖ grow in the second half of a divergent run; at a steady rate both double."""


@dataclass(frozen=True, eq=False)
class JointEnd:
    """A run of normalized descent on head and prompt together; r of its points are recorded.

    Attributes:
        head_step, prompt_step: the step sizes η_v of the head and η_p of the prompt.
        iterations: the recorded steps, shape (r,).
        head_norms, prompt_norms: ‖v‖ and ‖p‖, shape (r,).
        tokens: the token of largest weight of each input, shape (r, n).
        off: the largest 1 − s over the inputs, with s the softmax weight of the token in ``tokens``, shape (r,).
        since: the first step from which on the tokens of largest weight are those of the last step.
        grows: whether both norms still grow at the end.
        ratio: c, the growth of ‖v‖ divided by the growth of ‖p‖ over the last three quarters of the run.
        apart: 1 − cos between v or p and each theoretical direction that exists, by name, shape (r,); NaN for zeros.
        findings: for each assumption of Theorems 5 and 6, whether the last step's tokens of largest weight satisfy it.
    """

    head_step: float
    prompt_step: float
    iterations: Int64[np.ndarray, "r"]
    head_norms: Float64[np.ndarray, "r"]
    prompt_norms: Float64[np.ndarray, "r"]
    tokens: Int64[np.ndarray, "r n"]
    off: Float64[np.ndarray, "r"]
    since: int
    grows: bool
    ratio: float
    apart: dict[str, Float64[np.ndarray, "r"]]
    findings: dict[str, Finding]

    @property
    def settled(self) -> bool:
        """Return whether both norms grow, and the last tokens have had most of the weight for half of the steps."""
        return self.grows and bool(self.off[-1] <= CHOSEN) and self.since <= STEPS // 2

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the titles of the table's columns."""
        return "steps", "‖v‖", "‖p‖", "tokens of largest weight", "max 1 − s", *self.apart

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table."""
        return [
            (
                str(step),
                f"{self.head_norms[k]:.3g}",
                f"{self.prompt_norms[k]:.3g}",
                format_tokens(self.tokens[k]) if self.prompt_norms[k] else "ties",
                f"{self.off[k]:.2g}",
                *("" if np.isnan(x[k]) else f"{x[k]:.2g}" for x in self.apart.values()),
            )
            for k, step in enumerate(self.iterations.tolist())
        ]

    @property
    def words(self) -> list[str]:
        """Return a paragraph on the run, then one on what theory says of its limit."""
        tokens = format_tokens(self.tokens[-1])
        rule = (
            "Head and prompt trained together by normalized gradient descent, as in Figure 3 (η_v ="
            f" {self.head_step:g}, η_p = {self.prompt_step:g})"
        )
        if not self.settled:
            why = (
                "a norm no longer grows, so that a limit direction is not in sight"
                if not self.grows
                else f"largest weights at {tokens} since step {self.since}, 1 − s up to {self.off[-1]:.2g}"
            )
            return [f"{rule}, have not settled after {STEPS} steps ({why}). Where they end is not decided."]
        near = ", ".join(f"{x[-1]:.2g} for {name}" for name, x in self.apart.items() if not np.isnan(x[-1]))
        run = (
            f"{rule}, select {tokens} from step {self.since} to step {STEPS}, while ‖v‖ grows {self.ratio:.3g} times as"
        )
        run += (
            f" fast as ‖p‖. At the end 1 − cos is {near}."
            if near
            else " fast as ‖p‖. No head separates the labels of these tokens."
        )
        return [run, self._theory()]

    def _theory(self) -> str:
        theory = (
            "No theorem is about the limit of joint descent: Theorems 5 and 6 are about minimisers of the risk over"
            " ‖v‖ ≤ r and ‖p‖ ≤ R, as r and R grow."
        )
        separable, supports, tokens = (
            self.findings[id] for id in ("separable", "optimal-support-tokens", "optimal-tokens")
        )
        if separable.holds is not True or supports.holds is not True or "v to v̄_mm" not in self.apart:
            reason = separable.evidence if separable.holds is not True else supports.evidence
            return f"{theory} Their assumptions are not established for these tokens: {reason}."
        path = (
            "By Theorem 5, whose assumption optimal-tokens holds, the minimisers converge in direction to v̄_mm and"
            " p̄_mm, the max-margin directions of head and prompt for these tokens"
            if tokens.holds is True
            else "By Theorem 6 the minimisers converge in direction to v̄_mm, the max-margin direction of the head for"
            " these tokens, and to p̄_relax, which only the support inputs of v_mm constrain, where r grows fast enough"
        )
        return (
            f"{theory} {path}. For joint descent conjecture-joint-descent gives v̄_mm and p(c) as the limits, with"
            f" c = lim ‖v‖/‖p‖, here about {number(round(self.ratio, 4))}."
        )

    def as_json(self) -> dict[str, Any]:
        """Return every number in full for JSON."""
        assumptions = {
            id: {"holds": finding.holds, "because": finding.evidence} for id, finding in self.findings.items()
        }
        return vars(self) | {"findings": assumptions, "settled": self.settled}


def check_trains(case: Case, train: str) -> Dataset:
    """Return the tokens, labels and head of data whose head can be trained.

    Raises:
        InvalidInput: ``train`` is not ``v``; the data have no head, or have queries, or their loss is not logistic.
    """
    if train != "v":
        raise InvalidInput(
            f"--train: {train!r} is not v, the only choice (the head); p and W are trained without this option."
        )
    if case.dataset is None:
        reason = (
            "keys and scores have no head" if case.queried is None and case.sequence is None else "W is trained here"
        )
        raise InvalidInput(f"--train: {reason}; give X, Y and the head v from which training starts, without queries.")
    if case.problem.loss.name != "logistic":
        raise InvalidInput(
            f"--train: joint descent needs the logistic loss, but the data have the {case.problem.loss.name} loss."
        )
    return case.dataset


def joint_end(case: Case, start: Float64[np.ndarray, "k"]) -> JointEnd:
    """Run joint descent from the head of the data and the prompt ``start``, (k,), and compare its end with theory."""
    data = check_trains(case, "v")
    tokens, keys = data.signed_tokens, case.problem.keys
    size = float(np.linalg.norm(tokens, axis=-1).max())
    unit = 2.0 ** math.floor(math.log2(size)) if size else 1.0
    head_step, prompt_step = STEP_SIZE / unit, STEP_SIZE / case.problem.key_scale
    run = joint_descent(tokens, keys, data.v, start, steps=STEPS, head_step=head_step, prompt_step=prompt_step)
    blocks = np.array_split(run.prompts, 1 + run.prompts.shape[0] // BLOCK)
    chosen = np.concatenate([np.argmax(np.einsum("ntk,sk->snt", keys, p), axis=-1) for p in blocks])
    heads, prompts = (np.linalg.norm(x, axis=1) for x in (run.heads, run.prompts))
    other = np.flatnonzero((chosen != chosen[-1]).any(axis=1) | (prompts == 0))
    records, half, quarter = np.array(RECORDS), STEPS // 2, STEPS // 4
    weights = softmax_weights(keys, run.prompts[records])
    off = np.where(np.arange(keys.shape[1]) != chosen[records][..., None], weights, 0.0).sum(axis=-1).max(axis=-1)
    growth = prompts[-1] - prompts[quarter]
    alpha = chosen[-1].astype(np.int64)
    ratio = float((heads[-1] - heads[quarter]) / growth) if growth > 0 else math.nan
    apart = {}
    for name, target in _targets(data, keys, alpha, ratio).items():
        points, norms = (run.heads, heads) if name.startswith("v") else (run.prompts, prompts)
        apart[name] = one_minus_cosine_along(points[records], norms[records], target)
    of_end = case.replace(alpha=alpha, start=None)
    names = ("separable", "optimal-support-tokens", "optimal-tokens")
    return JointEnd(
        head_step,
        prompt_step,
        records,
        heads[records],
        prompts[records],
        chosen[records].astype(np.int64),
        off,
        0 if not other.size else int(other[-1]) + 1,
        bool(heads[-1] >= GROWS * heads[half] and prompts[-1] >= GROWS * prompts[half] > 0),
        ratio,
        apart,
        {id: ASSUMPTIONS[id].check(of_end) for id in names},
    )


def _targets(
    data: Dataset, keys: Float64[np.ndarray, "n T k"], alpha: Int64[np.ndarray, "n"], ratio: float
) -> dict[str, Float64[np.ndarray, "_"]]:
    """Return, by name, those of the unit vectors v̄_mm, p̄_mm, p̄_relax and p(c) that exist for the tokens ``alpha``."""
    joint, separator = joint_of_chosen(data.signed_tokens, keys, alpha), max_margin(keys, alpha)
    if joint is None:
        return {}
    targets = {"v to v̄_mm": joint.svm.direction}
    if isinstance(separator, MaxMargin):
        targets["p to p̄_mm"] = separator.direction
        relaxed = relaxed_max_margin(keys, alpha, joint.svm.support)
        if isinstance(relaxed, MaxMargin) and not joint.svm.support.all():
            targets["p to p̄_relax"] = relaxed.direction
        if 0 < ratio < math.inf:
            direction = scheduled_direction(joint, ratio)
            targets["p to p(c)"] = np.asarray(direction / np.linalg.norm(direction))
    return targets
