"""The explanation in plain words: what the flow selects, where it goes, and which theorems say so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int64

from generators.finding import format_tokens, number, vector
from reference_attention.next_token.unwinnable_scores import SplitFlow
from reference_attention.training.descent import Stop
from theorems.explaining.applying import Applicability
from theorems.explaining.factored_ends import ends_in_words
from theorems.explaining.facts import Facts
from theorems.explaining.selection import FollowedFlow

SENSE = {
    "theorem-1": "the prompt of least risk within ‖p‖ ≤ R turns to p̄_mm of the optimal tokens as R grows",
    "theorem-2": "from every start gradient descent with η ≤ 1/L_p diverges; with several inputs it leaves the"
    " direction open",
    "theorem-3": "gradient descent with η ≤ 1/L_p that starts in a cone around p̄_mm(α) keeps α and turns to p̄_mm(α)",
    "theorem-4": "local regularization paths end in no directions but p̄_mm of locally optimal tokens",
    "theorem-5": "trained together within growing radii, head and prompt turn to v̄_mm and p̄_mm of α",
    "theorem-6": "where head and prompt are trained together, the head's radius growing fast enough, and the prompt"
    " selects α, it turns to p_relax, on which only the support inputs of v_mm press",
    "theorem-8": "the prompt of least risk within ‖p‖ ≤ R turns to the solutions of ATT-SVM' over the optimal sets",
}
"""What a theorem says of data to which it applies; for another its title."""
SINGLE = {"theorem-2": "from every start gradient descent with η ≤ 1/L_p turns to p̄_mm of the optimal token"}
"""The same where there is one input."""
AT_ZERO = 1e-9
"""A stationary point nearer to 0 than this, in units of the keys, is called 0."""
MOST_TIED = 4
"""Inputs or tokens that are named where some cannot be won."""
TOKENS = 16
"""Up to so many chosen tokens are all named."""


def headline(it: Facts) -> str:
    """What the flow from p(0) selects, in a sentence without its full stop."""
    path, origin = it.path, _origin(it)
    if path.stationary:
        return f"from {origin} the flow {_rests(it)} and selects nothing"
    if path.parts is not None:
        return f"from {origin} the flow {_divides(path.parts)}"
    if path.selects is None:
        if path.tied_inputs.size:
            return f"from {origin} the flow ties {_tied_inputs(path)}, exactly"
        return f"where the flow from {origin} goes is undecided: {path.limit}"
    return f"from {origin} the flow selects {_comparison(it, path.selects)}"


def paragraphs(it: Facts) -> list[str]:
    """Return the headline with its reasons, what is proven of tied tokens, where training ends, the theorems."""
    first = f"{headline(it)[0].upper()}{headline(it)[1:]}."
    trained = ends_in_words(it.ends)
    return [
        " ".join([first, *_reasons(it)]),
        *_tied_words(it),
        *[trained] * bool(trained),
        *_theorems(it.speaks, it.case.problem.n),
    ]


def _origin(it: Facts) -> str:
    return f"p(0) = {vector(it.path.start)}" if it.path.start.any() else "p(0) = 0"


def _rests(it: Facts) -> str:
    end = it.path.flow.final
    if np.array_equal(end, it.path.start):
        return "stays where it is, as the gradient is zero there,"
    at_zero = np.linalg.norm(end) * it.case.problem.key_scale <= AT_ZERO
    return "goes to p = 0" if at_zero else f"goes to a finite prompt of norm {_size(float(np.linalg.norm(end)))}"


def _size(norm: float) -> str:
    return f"{norm:.3g}"


def _divides(parts: SplitFlow) -> str:
    """Return what a flow with a finite part and a direction does at the inputs."""
    won = [i for i in range(parts.split.problem.n) if i not in parts.split.tied_inputs]
    weights_kept = []
    for i in parts.split.tied_inputs[:MOST_TIED]:
        tied = np.flatnonzero(parts.split.sets[i])
        weights = ", ".join(f"{weight:.3g}" for weight in parts.weights[i, tied])
        weights_kept.append(f"tokens {format_tokens(tied)} of input {i} at weights {weights}")
    if (left := len(parts.split.tied_inputs) - MOST_TIED) > 0:
        weights_kept.append(f"tokens of {left} more inputs")
    kept = " and ".join(([", ".join(weights_kept[:-1])] if weights_kept[:-1] else []) + weights_kept[-1:])
    if not won:
        return f"keeps {kept}, and rules out their other tokens"
    of = f"input {won[0]}" if len(won) == 1 else f"inputs {format_tokens(np.array(won), TOKENS)}"
    return f"selects the optimal token of {of}, and keeps {kept}"


def _tied_words(it: Facts) -> Iterator[str]:
    """Yield what is proven where no prompt selects all optimal tokens, and what is only seen along the flow."""
    split, parts = it.split, it.path.parts
    if split is None:
        return
    rank = len(split.level)
    pairs = [pair for pair in split.master.pairs if split.sets[pair]]
    named = ", ".join(f"({i},{t})" for i, t in pairs[:MOST_TIED]) + (", …" if len(pairs) > MOST_TIED else "")
    proven = (
        "Proven (unwinnable-scores): every prompt that loses no optimal token ties these tokens (input,token) with it:"
        f" {named}; their differences to it, weighted by positive λ, add up to 0. They span a space F of dimension"
        f" {rank}."
    )
    if len(split.across):
        proven += f" One prompt, U = {vector(split.svm.floats)}, ties these alone and puts all others behind."
    else:
        proven += " No other token is left to be ruled out, so the risk depends on the part of p in F alone."
    if split.bounds_risk and len(split.across):
        proven += (
            " The risk is nowhere below that of the tied tokens alone, L_F, at the part of p in F, and comes down to it"
            " along U: inf L = inf L_F, which no finite prompt attains."
        )
    elif len(split.across):
        proven += " Some of the others score more than a tied token, so the least risk may lie elsewhere."
    yield proven
    if parts is None:
        return
    least = (
        "its least value, as L_F is convex in the weights" if split.convex else "which is not proven to be the least"
    )
    yield (
        f"Seen along the flow: from norm {_size(parts.apart_from)} on its part in F stays at"
        f" {vector(parts.finite_part)},"
        f" where the slope of L_F is 0 and L_F = {parts.risk:.6g}, {least}; the rest grows without bound towards the"
        f" max-margin direction across F, {vector(split.direction)}: at norm {_size(it.path.flow.norms[-1])},"
        f" 1 − cos = {parts.one_minus_cosine:.2g}."
    )


def _tied_inputs(path: FollowedFlow) -> str:
    said = [f"tokens {format_tokens(np.flatnonzero(path.largest[i]))} of input {i}" for i in path.tied_inputs[:2]]
    return " and ".join(said) + (
        f" and tokens of {len(path.tied_inputs) - 2} more" if len(path.tied_inputs) > 2 else ""
    )


def _comparison(it: Facts, alpha: Int64[np.ndarray, "n"]) -> str:
    """α against the tokens of highest score."""
    scores = it.case.problem.scores
    rows = np.arange(len(alpha))
    lower = np.flatnonzero(scores[rows, alpha] < scores.max(axis=1))
    every = "the optimal token of every input" if len(alpha) > 1 else f"the optimal token, {alpha[0]}"
    if not lower.size:
        return f"{every} (GMM)"
    i = int(lower[0])
    t, best = int(alpha[i]), int(it.optimal.alpha[i])
    low, high = float(scores[i, t]), float(scores[i, best])
    instead = f"token {t} of input {i} scores {number(low, high)}, below the {number(high, low)} of token {best}"
    kind = "locally optimal tokens (LMM)" if len(alpha) > 1 else f"the locally optimal token {t} (LMM)"
    of = f", the optimal one in {len(alpha) - lower.size} of {len(alpha)} inputs" if len(alpha) > 1 else ""
    return f"{kind}{of}: {instead}"


def _reasons(it: Facts) -> Iterator[str]:
    path, flow = it.path, it.path.flow
    if flow.stop is Stop.FAILED:
        return
    if path.stationary:
        yield "A finite stationary point has no limit direction; the weights there are those of the table."
    elif it.selection is not None and it.selection.solution is not None:
        solution = it.selection.solution
        apart = float(flow.one_minus_cosine(solution.direction)[-1])
        yield (
            f"Its direction goes to p̄_mm of these tokens, the widest margin 1/‖p_mm‖ = {number(solution.margin)}: at"
            f" norm {_size(flow.norms[-1])}, 1 − cos = {apart:.2g}."
        )
        yield _limit(it)
    yield from _rivals(it)


def _limit(it: Facts) -> str:
    """The theorem that names this limit."""
    two = next((one for one in it.speaks if one.id == "theorem-2"), None)
    if it.case.problem.n == 1 and two is not None and two.applies:
        return "Theorem 2 names this limit, whatever the start."
    if it.entry is not None:
        return (
            f"Theorem 3 names this limit: at norm {_size(it.entry.norm)} the flow is in its cone"
            f" (1 − cos ≤ {it.entry.mu:.2g}, ‖p‖ ≥ {_size(it.entry.radius)}), from which gradient descent with"
            " η ≤ 1/L_p is proven to turn there."
        )
    return "No theorem that is established here names this limit; it is what the flow does."


def _rivals(it: Facts) -> Iterator[str]:
    if it.optimal.solution is None:
        yield "No prompt separates the optimal tokens from the others, so there is no GMM direction."
    if it.locally_optimal is not None and len(it.locally_optimal) > 1:
        named = ", ".join(format_tokens(one.alpha, TOKENS) for one in it.locally_optimal[:4])
        more = ", …" if len(it.locally_optimal) > 4 else ""
        yield f"{len(it.locally_optimal)} choices α are locally optimal: {named}{more}; the start decides between them."
    if it.others:
        yield _count_ends(it.others)


def _count_ends(others: Iterable[FollowedFlow]) -> str:
    counts: dict[str, int] = {}
    for one in others:
        ends = (
            "a finite prompt"
            if one.stationary
            else "a finite part and a direction"
            if one.parts is not None
            else "undecided"
            if one.selects is None
            else format_tokens(one.selects, TOKENS)
        )
        counts[ends] = counts.get(ends, 0) + 1
    return f"Of the seeded starts {', '.join(f'{n} end at {ends}' for ends, n in counts.items())}."


def _theorems(speaks: Iterable[Applicability], n: int) -> list[str]:
    """A paragraph for those that apply, one for those that do not, one for those that are open."""
    speaks = list(speaks)
    lemmas = [one for one in speaks if one.id.startswith("lemma-")]
    theorems = [one for one in speaks if not one.id.startswith("lemma-")]
    apply = [f"{_citation(one)}: {_sense(one, n)}." for one in theorems if one.applies]
    made = [f"What applies: {' '.join(apply)}" if apply else "No theorem applies."]
    if any(one.applies for one in lemmas):
        made[0] += f" Also {_numbers([one for one in lemmas if one.applies])}."
    for opening, holds in (("What does not", False), ("What is open", None)):
        wanting: dict[str, list[Applicability]] = {}
        for one in theorems:
            if one.applies is holds:
                ids = [found.id for found in one.missing if found.holds is holds]
                wanting.setdefault(" and ".join(ids), []).append(one)
        word = "does not hold" if holds is False else "not established"
        if wanting:
            said = [f"{_numbers(those)} ({ids}: {word})" for ids, those in wanting.items()]
            made.append(f"{opening}: {'; '.join(said)}.")
    return made


def _numbers(those: Sequence[Applicability]) -> str:
    """ "Theorem 2", "Lemmas 1, 3 and 6"; statements without a number by their ids."""
    named = [one for one in those if not one.id.partition("-")[2].isdigit()]
    if named:
        rest = [one for one in those if one not in named]
        return ", ".join([*([_numbers(rest)] if rest else []), *(one.id for one in named)])
    kind, *_ = those[0].id.partition("-")
    numbers = [one.id.partition("-")[2] for one in those]
    if len(numbers) == 1:
        return f"{kind.capitalize()} {numbers[0]}"
    return f"{kind.capitalize()}s {', '.join(numbers[:-1])} and {numbers[-1]}"


def _sense(one: Applicability, n: int) -> str:
    said = SINGLE.get(one.id, "") if n == 1 else ""
    return said or SENSE.get(one.id, one.title)


def _citation(one: Applicability) -> str:
    of = {"optimal": "", "selected": ", α what the flow selects", "given": ", α as given"}[one.of]
    return f"{_numbers([one])}{of}"
