"""Content of an explanation: tables and paragraphs, the same for a terminal and a notebook."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
from rich.console import Console

from generators.finding import format_tokens
from reference_attention.html_table import html_table
from reference_attention.svm.max_margin import Infeasible
from theorems.explanations.facts import Facts, Token
from theorems.explanations.layer_state import MarginInNorm
from theorems.explanations.rule_ends import STEPS
from theorems.explanations.selection import Chosen, FollowedFlow
from theorems.explanations.sentences import (
    TOKENS,
    data_words,
    factors_words,
    headline,
    length_of,
    paragraphs,
    trained_words,
)
from theorems.run.tables import HOLDS, column_table
from theorems.run.text_report import plain_text

MOST_INPUTS = 12
"""Largest number of inputs whose tokens are shown; the JSON has all."""
ROOMY = 110
"""Least width of a terminal, in characters, at which the columns of a table have space between them."""
MOST_TOKENS = 16
"""Largest number of tokens shown of an input: selected, optimal and neighbours, then those of largest weight."""


@dataclass(frozen=True)
class Section:
    """A table with a caption.

    Attributes:
        caption: the line above the table.
        columns: the titles of the columns.
        rows: the cells, row by row.
        left: titles of the left-aligned columns, which hold words; the others hold numbers.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[str, ...] = ()


def sections(facts: Facts) -> list[Section]:
    """Return all tables: trained weights, their run, tokens, directions, solutions W, flow, other runs, assumptions."""
    tables = [
        *_trained(facts),
        *_run(facts),
        _tokens(facts),
        _directions(facts),
        *_tied(facts),
        *_weights(facts),
        _flow(facts),
        *_ends(facts),
    ]
    if facts.rules:
        tables.append(_rules(facts))
    if facts.joint is not None:
        caption = (
            "Head and prompt trained together, each gradient divided by its norm; 1 − cos for the tokens of the end"
        )
        tables.append(Section(caption, facts.joint.columns, tuple(facts.joint.rows), facts.joint.columns[3:4]))
    if facts.others:
        tables.append(_starts(facts))
    return [*tables, *_assumptions(facts)]


def opening(facts: Facts) -> list[str]:
    """Return the lines before the tables: a description of the data, and a sentence on what the flow selects."""
    problem = facts.case.problem
    queried = facts.case.queried
    trained = "" if queried is None else f"; W is trained, of shape {queried.shape}: p = vec(W), ‖p‖ = ‖W‖_F"
    data = f"{facts.name}: n = {problem.n}, T = {length_of(facts)}, d = {problem.d}; {problem.loss.name} loss{trained}"
    trained_sentence = "" if facts.layer is None else next(trained_words(facts, facts.layer))
    sentences = (
        data,
        *data_words(facts),
        trained_sentence,
        f"{headline(facts)[0].upper()}{headline(facts)[1:]}.",
        factors_words(facts),
    )
    return [sentence for sentence in sentences if sentence]


def _trained(facts: Facts) -> list[Section]:
    """Return the tables on trained weights: tokens of largest weight, and margins beside the largest possible ones."""
    layer = facts.layer
    if layer is None:
        return []
    rows: list[tuple[str, ...]] = []
    by_number = {(token.input, token.token): token for token in facts.tokens}
    for i, (t, runner_up) in enumerate(zip(layer.tokens.tolist(), layer.nearest.tolist(), strict=True)):
        if i == MOST_INPUTS:
            rows.append(("…", "", "", f"{facts.case.problem.n - i} more inputs", "", "", ""))
            break
        token, best = (by_number[i, k] for k in (t, int(facts.optimal.alpha[i])))
        optimal = "yes" if token.globally_optimal else f"no, {best.token} scores {best.score:.5g}"
        numbers = small(layer.off[i]), str(runner_up), f"{layer.margins[i, runner_up]:.4g}"
        rows.append((str(i), str(t), f"{token.score:.5g}", optimal, *numbers))
    caption = (
        f"The trained {layer.weights.name} as given: the token of largest weight s of each input, and the next largest"
    )
    columns: tuple[str, ...] = ("input", "token", "score", "optimal", "1 − s", "next", "logit below")
    tables = [Section(caption, columns, tuple(rows), ("optimal",))]
    if layer.in_norms:
        caption = "Least margin of the trained weights in units of their norm, for the tokens of largest weight"
        columns = ("norm", "value", "least margin", "largest possible", "share", "1 − cos to its direction")
        tables.append(Section(caption, columns, tuple(map(_in_norm, layer.in_norms)), ("norm",)))
    return tables


def _run(facts: Facts) -> list[Section]:
    """Return the table of checkpoints; the caption names the tokens whose weights and margins are in the table."""
    if facts.run is None:
        return []
    tokens = format_tokens(facts.run.about.alpha, TOKENS)
    of_flow = "last column: the flow from the first checkpoint"
    caption = f"The run of training; 1 − s, margin and 1 − cos of {tokens}; {of_flow}"
    return [Section(caption, facts.run.columns, tuple(facts.run.rows), facts.run.columns[2:3])]


def _in_norm(in_norm: MarginInNorm) -> tuple[str, ...]:
    apart = "not decided" if in_norm.one_minus_cosine is None else f"{in_norm.one_minus_cosine:.3g}"
    values = (f"{value:.6g}" for value in (in_norm.norm, in_norm.margin, in_norm.largest))
    return (in_norm.of, *values, f"{100 * in_norm.share:.4g}%", apart)


def small(value: float) -> str:
    """Return a softmax weight as text; a weight that underflowed to 0 is shown as less than 1e-308."""
    return f"{value:.3g}" if value else "< 1e-308"


def _tokens(facts: Facts) -> Section:
    heads = [f"at ‖p‖ = {norm:.3g}" for norm in facts.norms]
    if facts.layer is not None:
        heads.insert(0, "trained")
    columns = ("input", "token", "score", "is", "margin", "λ", *heads)
    rows = []
    for i in range(min(facts.case.problem.n, MOST_INPUTS)):
        tokens_of_input = [token for token in facts.tokens if token.input == i]
        chosen = _tokens_to_show(tokens_of_input)
        rows += [_row(token, facts) for token in chosen]
        if len(chosen) < len(tokens_of_input):
            rows.append((str(i), "…", "", f"{len(tokens_of_input) - len(chosen)} more", *[""] * (len(columns) - 4)))
    if facts.case.problem.n > MOST_INPUTS:
        rows.append(("…", "", "", f"{facts.case.problem.n - MOST_INPUTS} more inputs", *[""] * (len(columns) - 4)))
    caption_end = (
        "" if facts.about is None else f"; margin (k_α − k_t)·p_mm and dual weight λ for α = {facts.about.name} tokens"
    )
    return Section(f"Tokens, with their softmax weights along the flow{caption_end}", columns, tuple(rows), ("is",))


def _tokens_to_show(tokens_of_input: list[Token]) -> list[Token]:
    if len(tokens_of_input) <= MOST_TOKENS:
        return tokens_of_input
    ranked = sorted(tokens_of_input, key=lambda token: (not is_(token), -token.weights[-1], token.token))[:MOST_TOKENS]
    return sorted(ranked, key=lambda token: token.token)


def is_(token: Token) -> str:
    """Describe a token, as in "selected, global, neighbour"; a globally optimal token is not also called local."""
    words = ["selected"] if token.selected else []
    words += ["global"] if token.globally_optimal else ["local"] if token.locally_optimal else []
    return ", ".join([*words, *(["neighbour"] if token.neighbour else [])])


def _row(token: Token, facts: Facts) -> tuple[str, ...]:
    margin = "" if token.margin is None else "1" if token.neighbour else f"{token.margin:.4g}"
    dual = f"{token.dual:.3g}" if token.dual else ""
    trained = () if facts.layer is None else (facts.layer.softmax[token.input, token.token],)
    weights = [f"{weight:.3g}" for weight in (*trained, *token.weights)]
    return (str(token.input), str(token.token), f"{token.score:.5g}", is_(token), margin, dual, *weights)


def _directions(facts: Facts) -> Section:
    columns: tuple[str, ...] = ("α", "tokens", "‖p_mm‖", "margin", "neighbours", "λ > 0", "locally optimal", "1 − cos")
    columns = (*columns, *([] if facts.layer is None else ["trained"]))
    rows = tuple(_direction(facts, choice) for choice in facts.choices)
    trained = "" if facts.layer is None else ", and of the trained weights"
    return Section(
        f"Max-margin directions p_mm(α), exact; 1 − cos at the end of the flow{trained}",
        columns,
        rows,
        ("α", "tokens", "locally optimal"),
    )


def _weights(facts: Facts) -> list[Section]:
    """Return the table of the solutions of least Frobenius and nuclear norm; none unless W is trained."""
    if not facts.weights:
        return []
    caption = "Solutions W of ATT-SVM, the limits of paths of W (least ‖W‖_F) and of paths of K, Q (least ‖W‖_⋆)"
    rows = tuple(row for solution in facts.weights for row in solution.rows)
    return [
        Section(
            caption, ("α", "least", "value", "rank", "tight constraints", "solution"), rows, ("α", "least", "solution")
        )
    ]


def _direction(facts: Facts, choice: Chosen) -> tuple[str, ...]:
    same = "trained" if facts.layer is not None and choice is facts.layer.chosen and choice.name != "trained" else ""
    name = ", ".join(
        [choice.name, *["selected"] * (choice is facts.optimal and choice is facts.selection), *[same] * bool(same)]
    )
    apart_now = None if facts.layer is None else facts.layer.one_minus_cosine(choice)
    now = () if facts.layer is None else ("" if apart_now is None else f"{apart_now:.2g}",)
    if isinstance(choice.svm, Infeasible):
        return (
            name,
            format_tokens(choice.alpha, TOKENS),
            "none",
            "",
            "",
            f"{len(choice.svm.exact)} (Farkas)",
            "no p separates",
            "",
            *now,
        )
    flow = facts.path.flow
    apart = "" if not flow.final.any() else f"{float(flow.one_minus_cosine(choice.svm.direction)[-1]):.2g}"
    word = "yes" if choice.locally_optimal else "no"
    near = f"{int(choice.svm.neighbours.sum())} of {len(facts.tokens) - len(choice.alpha)}"
    norm, margin = f"{choice.svm.norm:.6g}", f"{choice.svm.margin:.6g}"
    return name, format_tokens(choice.alpha, TOKENS), norm, margin, near, str(choice.svm.supports), word, apart, *now


def _tied(facts: Facts) -> list[Section]:
    """Return the table of tokens that tie with optimal ones when a prompt gives optimal tokens the largest logits."""
    if facts.split is None:
        return []
    split, parts = facts.split, facts.path.parts
    rows = []
    for i, t in [pair for pair in np.argwhere(split.sets).tolist() if pair[0] in split.tied_inputs[:MOST_INPUTS]]:
        weight = split.supports.tying.get((i, t))
        score = f"{facts.case.problem.scores[i, t]:.5g}"
        limit = () if parts is None else (f"{parts.weights[i, t]:.6g}",)
        rows.append((str(i), str(t), score, "optimal" if weight is None else str(weight), *limit))
    columns = ("input", "token", "score", "λ", *([] if parts is None else ["weight in the limit"]))
    return [
        Section(
            "Tied with the optimal token under every prompt that gives no token a larger logit: Σ λ (k_opt − k_t) = 0",
            columns,
            tuple(rows),
        )
    ]


def decades(facts: Facts) -> list[int]:
    """Return the indices of the flow's records at norms that are powers of ten, and the index of its last record."""
    norms = facts.path.flow.norms
    logs = np.log10(np.maximum(norms, 1e-300))
    whole = np.flatnonzero((np.abs(logs - np.round(logs)) < 1e-9) & (norms > 0))
    return sorted({*(int(k) for k in whole if norms[k] > 0.09 * facts.norms[0]), len(norms) - 1})


def _flow(facts: Facts) -> Section:
    solved = [choice for choice in facts.choices if choice.solution is not None]
    columns = ("‖p‖", *(f"1 − cos to p_mm({choice.name})" for choice in solved), "max 1 − s_α")
    flow = facts.path.flow
    apart = [flow.one_minus_cosine(choice.solution.direction) for choice in solved if choice.solution is not None]
    off = facts.path.off(facts.case.problem).max(axis=1)
    rows = [
        (f"{flow.norms[k]:.3g}", *("" if np.isnan(a[k]) else f"{a[k]:.2g}" for a in apart), f"{off[k]:.2g}")
        for k in decades(facts)
    ]
    return Section(
        f"The gradient flow; it ended by: {flow.stop}" + (f" ({flow.reason})" if flow.reason else ""),
        columns,
        tuple(rows),
    )


def _ends(facts: Facts) -> list[Section]:
    if not facts.ends:
        return []
    columns = ("flow on", "ends", "tokens", "‖W‖_F", "rank", "1 − cos to W^mm", "1 − cos to W_⋆", "excess of ‖W‖_⋆")
    rows = []
    for end in facts.ends:
        apart = ("" if x is None else f"{x:.2g}" for x in (end.frobenius, end.nuclear, end.excess))
        tokens = format_tokens(end.selects, TOKENS)
        rows.append((end.trained, end.ended, tokens, f"{end.norm:.3g}", str(end.rank), *apart))
    left_aligned = "flow on", "ends", "tokens"
    return [Section("Where gradient flows end: on W, and on (K, Q) with W = K Qᵀ", columns, tuple(rows), left_aligned)]


def _rules(facts: Facts) -> Section:
    columns = ("rule", "‖p‖", "tokens", "since step", "max 1 − s", "flow selects", "1 − cos", "norm")
    caption = f"Rules from the same start, after {STEPS} steps: tokens of largest weight, 1 − cos to their p_mm"
    left_aligned = ("rule", "tokens", "flow selects", "norm")
    return Section(caption, columns, tuple(rule.row for rule in facts.rules), left_aligned)


def _starts(facts: Facts) -> Section:
    rows = tuple(_start(k + 1, path) for k, path in enumerate(facts.others))
    return Section(
        f"Seeded starts (seed {facts.seed})",
        ("start", "‖p(0)‖", "ends at", "kind", "1 − cos"),
        rows,
        ("ends at", "kind"),
    )


def _start(number: int, path: FollowedFlow) -> tuple[str, ...]:
    size = f"{float(np.linalg.norm(path.start)):.3g}"
    if path.parts is not None:
        end = f"norm {path.flow.norms[-1]:.3g}"
        return str(number), size, end, "a finite part and a direction", f"{path.parts.one_minus_cosine:.2g}"
    if isinstance(path.limit, str):
        return str(number), size, f"norm {path.flow.norms[-1]:.3g}", "stationary" if path.stationary else path.limit, ""
    apart = float(path.flow.one_minus_cosine(path.limit.svm.direction)[-1])
    return str(number), size, format_tokens(path.limit.svm.alpha, TOKENS), str(path.limit.kind), f"{apart:.2g}"


def _assumptions(facts: Facts) -> list[Section]:
    words = {
        "optimal": "the optimal tokens",
        "selected": "the tokens that the flow selects",
        "given": "the given tokens",
    }
    tables = []
    printed: set[tuple[str, str]] = set()
    for checked in facts.assumptions:
        new = [finding for finding in checked.findings if (finding.id, finding.evidence) not in printed]
        printed |= {(finding.id, finding.evidence) for finding in new}
        rows = tuple((finding.id, HOLDS[finding.holds][0], finding.evidence) for finding in new)
        if rows:
            columns = ("assumption", "", "because")
            tables.append(Section(f"Assumptions, α = {words[checked.of]}", columns, rows, columns))
    return tables


def write(facts: Facts, out: Console) -> None:
    """Print the explanation on a terminal."""
    for line in opening(facts):
        out.print(line)
    for section in sections(facts):
        out.print(f"\n{section.caption}", style="bold")
        right = [column for column in section.columns if column not in section.left]
        table = column_table(*section.columns, right=right)
        table.padding = (0, 1) if out.width >= ROOMY else (0, 0)
        for row in section.rows:
            table.add_row(*row)
        out.print(table)
    for paragraph in paragraphs(facts):
        out.print(f"{paragraph}\n")


def text(facts: Facts) -> str:
    """Return the explanation as text."""
    return plain_text(lambda out: write(facts, out)).strip()


def html(facts: Facts) -> str:
    """Return the explanation as HTML for a notebook."""
    return "\n".join(
        [
            *map(_paragraph, opening(facts)),
            *(html_table(section.caption, section.columns, section.rows) for section in sections(facts)),
            *map(_paragraph, paragraphs(facts)),
        ]
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
