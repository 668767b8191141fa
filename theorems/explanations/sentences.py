"""Sentences of an explanation: what the gradient flow selects, where it goes, and which theorems prove it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Int64

from generators.case import Case
from generators.finding import format_tokens, number, vector
from reference_attention.next_token.unwinnable_scores import SplitFlow
from reference_attention.training.descent import Stop
from theorems.explanations.applicability import Applicability
from theorems.explanations.change_times import change_times
from theorems.explanations.factored_ends import MOST_ENTRIES, ends_in_words
from theorems.explanations.facts import Facts
from theorems.explanations.layer_state import LayerState
from theorems.explanations.ragged_problem import RaggedProblem, counted_tokens
from theorems.explanations.selection import FollowedFlow

CONCLUSIONS = {
    "theorem-1": "the risk minimiser over ‖p‖ ≤ R converges in direction to p̄_mm of the optimal tokens as R grows",
    "theorem-2": "gradient descent with η ≤ 1/L_p diverges from every start; for several inputs the theorem names no"
    " limit direction",
    "theorem-3": "gradient descent with η ≤ 1/L_p that starts in a cone around p̄_mm(α) keeps α and converges in"
    " direction to p̄_mm(α)",
    "theorem-4": "every limit direction of a local regularization path is p̄_mm of locally optimal tokens",
    "theorem-5": "along the joint regularization path, head and prompt converge in direction to v̄_mm and p̄_mm of α",
    "theorem-6": "if the head's radius grows fast enough along the joint regularization path, and the prompt selects α,"
    " the prompt converges in direction to p_relax, which is constrained only by the support inputs of v_mm",
    "tsvm-sequence": "the risk minimiser over ‖p‖ ≤ R converges in direction to p̄_mm of the optimal tokens as R grows,"
    " as Theorem 1 says of inputs of one length",
    "theorem-8": "the risk minimiser over ‖p‖ ≤ R converges in direction to the solutions of ATT-SVM' over the optimal"
    " sets",
}
"""Conclusion of a theorem by its id, for data to which it applies; other statements are described by their titles."""
CONCLUSIONS_FOR_ONE_INPUT = {
    "theorem-2": "gradient descent with η ≤ 1/L_p converges in direction to p̄_mm of the optimal token from every start"
}
"""Conclusion of a theorem by its id, for data with one input."""
AT_ZERO = 1e-9
"""A stationary point p is called 0 if ‖p‖ times about the largest |entry| of the keys is at most this number."""
MOST_TIED = 4
"""Largest number of inputs or tokens that are named where no prompt selects all optimal tokens."""
LEAST_GRADIENT = 2.0**-53
"""Norm of the gradient below which a step of gradient descent with step size 1 leaves a float64 of size 1 unchanged."""
MOST_OFF = 0.5
"""A token of largest weight does not count as selected if all other tokens together have more weight than this."""
LIKE_PADDING = 2
"""Least number of tokens with zero keys and scores at the end of an input that are reported as likely padding."""
TOKENS = 16
"""Largest number of tokens that a sentence lists in full."""


def headline(facts: Facts) -> str:
    """Return what the flow from p(0) selects, in a sentence without its full stop."""
    path, origin = facts.path, _origin(facts)
    flow = "the flow on W" if facts.layer is not None and facts.layer.weights.factors else "the flow"
    if path.stationary:
        return f"from {origin} {flow} {_rests(facts)} and selects nothing"
    if path.parts is not None:
        return f"from {origin} {flow} {_divides(path.parts)}"
    if path.selects is None:
        if path.tied_inputs.size:
            return f"from {origin} {flow} ties {_ties(path.largest, path.tied_inputs)}, exactly"
        return f"the limit of {flow} from {origin} is undecided: {path.limit}"
    return f"from {origin} {flow} selects {_comparison(facts, path.selects)}"


def paragraphs(facts: Facts) -> list[str]:
    """Return the paragraphs on data, trained weights, the flow and its causes, ties, ends of training, theorems."""
    first = f"{headline(facts)[0].upper()}{headline(facts)[1:]}."
    trained = ends_in_words(facts.ends)
    return [
        *data_words(facts),
        *([] if facts.layer is None else [" ".join(trained_words(facts, facts.layer))]),
        *([] if facts.run is None else [facts.run.words]),
        " ".join([first, *_changes(facts), *_reasons(facts), *filter(None, (factors_words(facts), _scope(facts)))]),
        *_tied_words(facts),
        *[trained] * bool(trained),
        *[rule.words for rule in facts.rules],
        *([] if facts.joint is None else facts.joint.words),
        *_theorems(facts.statements, facts.case.problem.n),
    ]


def data_words(facts: Facts) -> list[str]:
    """Return sentences on tokens and queries that are left out, and a warning where tokens look like padding."""
    return [
        sentence
        for sentence in (_inputs_in_words(facts.case), _tokens_left_out(facts.case), _padding(facts))
        if sentence
    ]


def length_of(facts: Facts) -> str:
    """Return the number of tokens per input, or the range of these numbers."""
    counts = counted_tokens(facts.case.problem).sum(axis=1)
    return str(counts.max()) if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _inputs_in_words(case: Case) -> str:
    """Return how many inputs of several lengths are left out, and how the others are numbered."""
    data, problem = case.sequence, case.problem
    if data is None or not isinstance(problem, RaggedProblem):
        return ""
    several, sentences = data.Y.shape[1] > 1, []
    if problem.left_out:
        inputs = "queries" if several else "inputs"
        sentences.append(
            f"Left out: {problem.left_out} of {data.total} {inputs}, as a single token has all weight there."
        )
    for number_here, (i, k) in enumerate(problem.pairs.tolist()):
        if i != number_here:
            of = f"query {k} of input {i}" if several else f"input {i}"
            sentences.append(f"Inputs are renumbered here: input {number_here} is {of} of the file.")
            break
    return " ".join(sentences)


def _tokens_left_out(case: Case) -> str:
    positions = case.positions
    if positions is None or positions.shape != case.problem.scores.shape:
        return ""
    counted = counted_tokens(case.problem)
    least, most = counted.sum(axis=1).min(), counted.sum(axis=1).max()
    moved = np.argwhere((positions != np.arange(positions.shape[1])) & counted)
    kept = str(most) if least == most else f"{least} to {most}"
    sentence = f"The mask keeps {kept} tokens of each input, and the others are left out"
    if not moved.size:
        return f"{sentence}."
    i, t = moved[0].tolist()
    number_in_file = f"token {t} of input {i} is number {positions[i, t]} of the file"
    return f"{sentence}; tokens are numbered without them: {number_in_file}."


def _padding(facts: Facts) -> str:
    """Return a warning of tokens that look like padding, several at the end of an input with zero keys and scores."""
    problem = facts.case.problem
    zero = ~problem.keys.any(axis=2) & (problem.scores == 0) & counted_tokens(problem)
    count = np.where(zero.all(axis=1), 0, np.argmin(zero[:, ::-1], axis=1))
    padded = np.flatnonzero(count >= LIKE_PADDING)
    if not padded.size:
        return ""
    i = int(padded[0])
    more = f" and the last ones of {len(padded) - 1} more inputs" if len(padded) > 1 else ""
    tokens = f"Tokens {problem.T - count[i]} to {problem.T - 1} of input {i}{more}"
    return (
        f"{tokens} have zero keys and scores, as padding has. They count as tokens here: they take weight, and may be"
        " called optimal. Say in an array mask of shape (n, T) which tokens count: 1 for these, 0 for padding."
    )


def _origin(facts: Facts) -> str:
    if facts.layer is not None:
        return "the trained W = K Qᵀ" if facts.layer.weights.factors else f"the trained {facts.layer.weights.name}"
    return f"p(0) = {vector(facts.path.start)}" if facts.path.start.any() else "p(0) = 0"


def _rests(facts: Facts) -> str:
    end = facts.path.flow.final
    if np.array_equal(end, facts.path.start):
        return "stays at its start, where the gradient is zero,"
    at_zero = np.linalg.norm(end) * facts.case.problem.key_scale <= AT_ZERO
    return "converges to p = 0" if at_zero else f"converges to a prompt of norm {_size(float(np.linalg.norm(end)))}"


def trained_words(facts: Facts, layer: LayerState) -> Iterator[str]:
    """Yield sentences on trained weights: tokens of largest weight, 1 − s, gradient, local optimality, margins."""
    name = _origin(facts)
    if not layer.norm:
        yield f"{name[0].upper()}{name[1:]} is 0: all tokens of an input have the same weight, and nothing is selected."
        return
    size = f"{name[0].upper()}{name[1:]}, of norm {_size(layer.norm)},"
    if layer.tied_inputs.size:
        ties = _ties(layer.largest, layer.tied_inputs)
        yield f"{size} gives the largest weight, exactly equal, to {ties}: tied tokens have no max-margin direction."
        return
    worst = int(np.argmax(layer.off))
    yield (
        f"{size} gives the largest weight to {_against_optimal(facts, layer.tokens, _named(layer.tokens))};"
        f" 1 − s, the weight of all other tokens, is largest at input {worst}: {_weight(layer.off[worst])}."
    )
    if (open_inputs := np.flatnonzero(layer.off > MOST_OFF)).size:
        yield f"No token is selected yet at inputs {format_tokens(open_inputs, TOKENS)}, where 1 − s is above 1/2."
    if -math.inf < (slope := float(facts.path.flow.log_gradient_norm[0])) < math.log(LEAST_GRADIENT):
        power = math.floor(slope / math.log(10))
        yield f"The gradient there has norm 1e{power}: steps of gradient descent in float64 hardly move it."
    yield _local(facts, layer)
    for in_norm in layer.in_norms:
        direction = "W_⋆" if in_norm.of == "‖W‖_⋆" else "W^mm" if in_norm.of == "‖W‖_F" else "p_mm"
        apart = (
            f"which weights attain it is not decided: {in_norm.undecided}"
            if in_norm.one_minus_cosine is None
            else f"1 − cos to {direction}, which attains the largest, is {in_norm.one_minus_cosine:.3g}"
        )
        yield (
            f"The least margin of these tokens, divided by {in_norm.of} = {_size(in_norm.norm)}, is"
            f" {number(in_norm.margin)}, {100 * in_norm.share:.4g}% of the largest possible; {apart}."
        )


def _named(alpha: Int64[np.ndarray, "n"]) -> str:
    return f"token{'' if len(alpha) == 1 else 's'} {format_tokens(alpha, TOKENS) if len(alpha) > 1 else alpha[0]}"


def _local(facts: Facts, layer: LayerState) -> str:
    """Say whether the chosen tokens are locally optimal; if not, name a neighbour that scores no less."""
    if layer.chosen is not None and layer.chosen.locally_optimal:
        return "This choice is locally optimal (Definition 2, decided exactly)."
    [(i, t), *_] = layer.offending(facts.case)
    scores, chosen = facts.case.problem.scores[i], int(layer.tokens[i])
    return (
        f"This choice is not locally optimal (Definition 2, decided exactly): token {t} of input {i}, a"
        f" neighbour of token {chosen}, scores {number(scores[t])}, not below {number(scores[chosen])}."
    )


def _weight(value: float) -> str:
    return f"{value:.3g}" if value else "1e-308"


def factors_words(facts: Facts) -> str:
    """Return where the flow on K and Q from the trained factors ends, in a sentence; empty without trained factors."""
    if facts.layer is None or facts.layer.weights.factors is None:
        return ""
    if isinstance(facts.case.problem, RaggedProblem):
        return (
            "The flow on the factors K and Q is followed only where inputs keep the same number of tokens; it may end"
            " at other tokens than the flow on W."
        )
    K, Q = facts.layer.weights.factors
    followed = [trained_end for trained_end in facts.ends if trained_end.trained == "(K, Q)"]
    if not followed:
        return (
            f"The flow on the factors K and Q is not followed, as they have {K.size + Q.size} entries, more than"
            f" {MOST_ENTRIES}; it may end at other tokens than the flow on W."
        )
    [end] = followed
    differs = end.grows and facts.path.selects is not None and end.selects != tuple(facts.path.selects.tolist())
    other = ", not with those of the flow on W" if differs else ""
    dated = end.changes is not None and end.grows and not facts.layer.tied_inputs.size
    changes = f" {end.changes.sentence}" if end.changes is not None and dated else ""
    return f"{end.sentence('The flow on the factors K and Q')}{other}.{changes}"


def _changes(facts: Facts) -> Iterator[str]:
    """Yield sentences on whether the flow keeps the tokens of the trained weights, and on the flow from p(0)."""
    layer, selects = facts.layer, facts.path.selects
    if layer is None:
        return
    if selects is not None and not layer.tied_inputs.size:
        moved = np.flatnonzero(selects != layer.tokens)
        if moved.size:
            i = int(moved[0])
            yield (
                f"It leaves the tokens of largest weight in {len(moved)} of {len(selects)} inputs: input {i} goes from"
                f" token {layer.tokens[i]} to {selects[i]}."
            )
        else:
            yield "It keeps the tokens of largest weight."
        changes = change_times(facts.case.problem, facts.path.flow.points, facts.path.flow.log_time)
        if changes is not None:
            yield changes.sentence
    if facts.before is not None:
        start, end = vector(facts.before.start), facts.before.selects
        if end is None:
            yield f"The flow from p(0) = {start} selects no tokens, or its tokens could not be decided."
        else:
            same = selects is not None and np.array_equal(end, selects)
            yield f"The flow from p(0) = {start} selects {'the same' if same else format_tokens(end, TOKENS)}."


def _scope(facts: Facts) -> str:
    """Warn that training may end elsewhere than the flow; return "" without trained weights or a decided flow."""
    if facts.layer is None or not facts.is_decided:
        return ""
    runs = facts.rules or isinstance(facts.case.problem, RaggedProblem)
    how = "" if runs else " (--rule NAME runs a rule from here)"
    return f"This is the gradient flow: training in longer steps, or by another rule, may end at other tokens{how}."


def _size(norm: float) -> str:
    return f"{norm:.3g}"


def _divides(parts: SplitFlow) -> str:
    """Say which optimal tokens a flow selects, and which tied tokens share the weight in the limit."""
    untied = [i for i in range(parts.split.problem.n) if i not in parts.split.tied_inputs]
    weights_kept = []
    for i in parts.split.tied_inputs[:MOST_TIED]:
        tied = np.flatnonzero(parts.split.sets[i])
        weights = ", ".join(f"{weight:.3g}" for weight in parts.weights[i, tied])
        weights_kept.append(f"tokens {format_tokens(tied)} of input {i} at weights {weights}")
    if (remaining := len(parts.split.tied_inputs) - MOST_TIED) > 0:
        weights_kept.append(f"tokens of {remaining} more inputs")
    kept_tokens = " and ".join(([", ".join(weights_kept[:-1])] if weights_kept[:-1] else []) + weights_kept[-1:])
    if not untied:
        return f"keeps {kept_tokens}, and rules out the other tokens of these inputs"
    place = f"input {untied[0]}" if len(untied) == 1 else f"inputs {format_tokens(np.array(untied), TOKENS)}"
    return f"selects the optimal token of {place}, and keeps {kept_tokens}"


def _tied_words(facts: Facts) -> Iterator[str]:
    """Yield proven, then merely observed facts on tied tokens; nothing if some prompt selects all optimal tokens."""
    split, parts = facts.split, facts.path.parts
    if split is None:
        return
    rank = len(split.level)
    pairs = [pair for pair in split.master.pairs if split.sets[pair]]
    tied_pairs = ", ".join(f"({i},{t})" for i, t in pairs[:MOST_TIED]) + (", …" if len(pairs) > MOST_TIED else "")
    proven = (
        "Proven (unwinnable-scores): every prompt that gives no token a larger logit than the optimal one gives these"
        f" tokens (input,token) the same logit as the optimal one: {tied_pairs}. The differences of their keys to the"
        f" optimal one's, weighted by positive λ, add up to 0, and span a space F of dimension {rank}."
    )
    if len(split.across):
        proven += (
            f" One prompt, U = {vector(split.svm.floats)}, ties only these tokens and gives all others smaller logits."
        )
    else:
        proven += " There is no other token, so the risk depends only on the part of p in F."
    if split.bounds_risk and len(split.across):
        proven += (
            " Let L_F be the risk of the tied tokens only, a function of the part of p in F. The risk L is never below"
            " L_F and approaches it along U: inf L = inf L_F, which no finite prompt attains."
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
        f"Observed along the flow: from norm {_size(parts.apart_from)} on, the part of p in F stays at"
        f" {vector(parts.finite_part)},"
        f" where the slope of L_F is 0 and L_F = {parts.risk:.6g}, {least}; the rest of p grows without bound towards"
        f" the max-margin direction orthogonal to F, {vector(split.direction)}: at norm"
        f" {_size(facts.path.flow.norms[-1])}, 1 − cos = {parts.one_minus_cosine:.2g}."
    )


def _ties(largest: Bool[np.ndarray, "n T"], inputs: Int64[np.ndarray, "k"]) -> str:
    ties = [f"tokens {format_tokens(np.flatnonzero(largest[i]))} of input {i}" for i in inputs[:2]]
    return " and ".join(ties) + (f" and tokens of {len(inputs) - 2} more" if len(inputs) > 2 else "")


def _comparison(facts: Facts, alpha: Int64[np.ndarray, "n"]) -> str:
    """Return a phrase that compares locally optimal tokens α, (n,), with the tokens of highest score."""
    if len(alpha) > 1:
        return _against_optimal(facts, alpha, "locally optimal tokens (LMM)")
    return _against_optimal(facts, alpha, f"the locally optimal token {alpha[0]} (LMM)")


def _against_optimal(facts: Facts, alpha: Int64[np.ndarray, "n"], otherwise: str) -> str:
    """Return a phrase that compares tokens α, (n,), with the tokens of highest score.

    Args:
        facts: scores and optimal tokens.
        alpha: the tokens α.
        otherwise: what to call α if not all of its tokens have the highest score.
    """
    scores = facts.case.problem.scores
    rows = np.arange(len(alpha))
    lower = np.flatnonzero(scores[rows, alpha] < scores.max(axis=1))
    if not lower.size:
        return f"{'the optimal token of every input' if len(alpha) > 1 else f'the optimal token, {alpha[0]}'} (GMM)"
    i = int(lower[0])
    t, best = int(alpha[i]), int(facts.optimal.alpha[i])
    low, high = float(scores[i, t]), float(scores[i, best])
    instead = f"token {t} of input {i} scores {number(low, high)}, below the {number(high, low)} of token {best}"
    share = f", the optimal one in {len(alpha) - lower.size} of {len(alpha)} inputs" if len(alpha) > 1 else ""
    return f"{otherwise}{share}: {instead}"


def _reasons(facts: Facts) -> Iterator[str]:
    path, flow = facts.path, facts.path.flow
    if flow.stop is Stop.FAILED:
        return
    if path.stationary:
        yield "A finite stationary point has no limit direction; the table shows the weights there."
    elif facts.selection is not None and facts.selection.solution is not None:
        solution = facts.selection.solution
        apart = float(flow.one_minus_cosine(solution.direction)[-1])
        yield (
            f"Its direction converges to p̄_mm, the max-margin direction of these tokens, whose margin is 1/‖p_mm‖ ="
            f" {number(solution.margin)}: at norm {_size(flow.norms[-1])}, 1 − cos = {apart:.2g}."
        )
        yield _limit(facts)
    yield from _rivals(facts)


def _limit(facts: Facts) -> str:
    """Return a sentence on the theorem that proves the limit of the flow, if one is shown to apply."""
    theorem_2 = next((statement for statement in facts.statements if statement.id == "theorem-2"), None)
    if facts.case.problem.n == 1 and theorem_2 is not None and theorem_2.applies:
        return "Theorem 2 names this limit for every start."
    if facts.entry is not None:
        return (
            f"Theorem 3 names this limit: at norm {_size(facts.entry.norm)} the flow is in its cone"
            f" (1 − cos ≤ {facts.entry.mu:.2g}, ‖p‖ ≥ {_size(facts.entry.radius)}), from which gradient descent with"
            " η ≤ 1/L_p provably converges to that direction."
        )
    return "No theorem shown to apply here names this limit; it is observed along the flow."


def _rivals(facts: Facts) -> Iterator[str]:
    if facts.optimal.solution is None:
        yield "No prompt separates the optimal tokens from the others, so they have no max-margin direction (GMM)."
    if facts.locally_optimal is not None and len(facts.locally_optimal) > 1:
        choices = ", ".join(format_tokens(choice.alpha, TOKENS) for choice in facts.locally_optimal[:4])
        more = ", …" if len(facts.locally_optimal) > 4 else ""
        decides = (
            "the start decides between them" if facts.path.selects is not None else "this flow selects none of them"
        )
        ending = f"; {decides}" if facts.is_decided else ""
        yield f"{len(facts.locally_optimal)} choices α are locally optimal: {choices}{more}{ending}."
    if facts.others:
        yield _count_ends(facts.others)


def _count_ends(others: Iterable[FollowedFlow]) -> str:
    counts: dict[str, int] = {}
    for flow in others:
        ends = (
            "a finite prompt"
            if flow.stationary
            else "a finite part and a direction"
            if flow.parts is not None
            else "undecided"
            if flow.selects is None
            else format_tokens(flow.selects, TOKENS)
        )
        counts[ends] = counts.get(ends, 0) + 1
    return f"Of the seeded starts {', '.join(f'{n} end at {ends}' for ends, n in counts.items())}."


def _theorems(statements: Iterable[Applicability], n: int) -> list[str]:
    """Return three paragraphs: on theorems that apply, that do not apply, and whose assumptions are not decided."""
    statements = list(statements)
    lemmas = [statement for statement in statements if statement.id.startswith("lemma-")]
    theorems = [statement for statement in statements if not statement.id.startswith("lemma-")]
    apply = [f"{_citation(statement)}: {_conclusion(statement, n)}." for statement in theorems if statement.applies]
    texts = [f"Applies: {' '.join(apply)}" if apply else "No theorem applies."]
    if applicable_lemmas := [statement for statement in lemmas if statement.applies]:
        is_single = len(applicable_lemmas) == 1
        if apply:
            texts[0] += f" {_numbers(applicable_lemmas)} {'applies' if is_single else 'apply'}, too."
        else:
            texts[0] = f"No theorem applies; {_numbers(applicable_lemmas)} {'does' if is_single else 'do'}."
    for opening, holds in (("Does not apply", False), ("Not decided", None)):
        by_lack: dict[tuple[str, ...], list[Applicability]] = {}
        for statement in theorems:
            if statement.applies is holds:
                by_lack.setdefault(
                    tuple(finding.id for finding in statement.missing if finding.holds is holds), []
                ).append(statement)
        if by_lack:
            reasons = [
                f"{_numbers(applicable_lemmas)} ({_lack_in_words(ids, holds)})"
                for ids, applicable_lemmas in by_lack.items()
            ]
            texts.append(f"{opening}: {'; '.join(reasons)}.")
    return texts


def _lack_in_words(ids: Sequence[str], holds: bool | None) -> str:
    """Return a phrase that says that assumptions fail, or where ``holds`` is None that they are not established."""
    is_single = len(ids) == 1
    verb = (
        ("fails" if is_single else "fail")
        if holds is False
        else ("is not established" if is_single else "are not established")
    )
    return f"assumption{'' if is_single else 's'} {' and '.join(ids)} {verb}"


def _numbers(statements: Sequence[Applicability]) -> str:
    """Return the names of statements: "Theorem 2", "Lemmas 1, 3 and 6"; their ids where they have no number."""
    without_number = [statement for statement in statements if not statement.id.partition("-")[2].isdigit()]
    if without_number:
        rest = [statement for statement in statements if statement not in without_number]
        return ", ".join([*([_numbers(rest)] if rest else []), *(statement.id for statement in without_number)])
    kind, *_ = statements[0].id.partition("-")
    numbers = [statement.id.partition("-")[2] for statement in statements]
    if len(numbers) == 1:
        return f"{kind.capitalize()} {numbers[0]}"
    return f"{kind.capitalize()}s {', '.join(numbers[:-1])} and {numbers[-1]}"


def _conclusion(statement: Applicability, n: int) -> str:
    sentence = CONCLUSIONS_FOR_ONE_INPUT.get(statement.id, "") if n == 1 else ""
    return sentence or CONCLUSIONS.get(statement.id, statement.title)


def _citation(statement: Applicability) -> str:
    choice = {"optimal": "", "selected": ", α = tokens that the flow selects", "given": ", α as given"}[statement.of]
    return f"{_numbers([statement])}{choice}"
