"""The explanation as tables and paragraphs, the same for a terminal and a notebook."""

from __future__ import annotations

import io
from dataclasses import dataclass
from html import escape

import numpy as np
from rich.console import Console

from generators.finding import format_tokens
from reference_attention.notebook import html_table
from reference_attention.svm.max_margin import Infeasible
from theorems.explaining.facts import Facts, Token
from theorems.explaining.selection import Chosen, FollowedFlow
from theorems.explaining.words import TOKENS, headline, paragraphs
from theorems.run.tables import HOLDS, column_table
from theorems.run.text_report import WIDTH

MOST_INPUTS = 12
"""Inputs whose tokens are shown; the JSON has all."""
ROOMY = 110
"""Columns of a terminal from which on tables have air between theirs."""
MOST_TOKENS = 16
"""Tokens of an input that are shown: the marked ones, then those of largest weight."""


@dataclass(frozen=True)
class Section:
    """A table with what it is of; ``left`` are the columns of words, the others are numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: tuple[str, ...] = ()


def sections(it: Facts) -> list[Section]:
    """Tokens, directions, solutions in W, the flow, where W and (K, Q) end, other starts, assumptions."""
    made = [_tokens(it), _directions(it), *_tied(it), *_weights(it), _flow(it), *_ends(it)]
    if it.others:
        made.append(_starts(it))
    return [*made, *_assumptions(it)]


def opening(it: Facts) -> list[str]:
    """Before the tables: the data, and the answer in a sentence."""
    problem = it.case.problem
    queried = it.case.queried
    trained = "" if queried is None else f"; W is trained, of shape {queried.shape}: p = vec(W), ‖p‖ = ‖W‖_F"
    data = f"{it.name}: n = {problem.n}, T = {problem.T}, d = {problem.d}; {problem.loss.name} loss{trained}"
    return [data, f"{headline(it)[0].upper()}{headline(it)[1:]}."]


def _tokens(it: Facts) -> Section:
    heads = [f"at ‖p‖ = {norm:.3g}" for norm in it.norms]
    columns = ("input", "token", "score", "is", "margin", "λ", *heads)
    rows = []
    for i in range(min(it.case.problem.n, MOST_INPUTS)):
        own = [one for one in it.tokens if one.input == i]
        shown = _tokens_to_show(own)
        rows += [_row(one) for one in shown]
        if len(shown) < len(own):
            rows.append((str(i), "…", "", f"{len(own) - len(shown)} more", *[""] * (len(columns) - 4)))
    if it.case.problem.n > MOST_INPUTS:
        rows.append(("…", "", "", f"{it.case.problem.n - MOST_INPUTS} more inputs", *[""] * (len(columns) - 4)))
    of = "" if it.about is None else f"; margin (k_α − k_t)·p_mm and dual weight λ for α = {it.about.name} tokens"
    return Section(f"Tokens, with their softmax weights along the flow{of}", columns, tuple(rows), ("is",))


def _tokens_to_show(own: list[Token]) -> list[Token]:
    if len(own) <= MOST_TOKENS:
        return own
    ranked = sorted(own, key=lambda one: (not is_(one), -one.weights[-1], one.token))[:MOST_TOKENS]
    return sorted(ranked, key=lambda one: one.token)


def is_(one: Token) -> str:
    """What a token is, in words; a global optimum is not also called a local one."""
    said = ["selected"] if one.selected else []
    said += ["global"] if one.globally_optimal else ["local"] if one.locally_optimal else []
    return ", ".join([*said, *(["neighbour"] if one.neighbour else [])])


def _row(one: Token) -> tuple[str, ...]:
    margin = "" if one.margin is None else "1" if one.neighbour else f"{one.margin:.4g}"
    dual = f"{one.dual:.3g}" if one.dual else ""
    weights = [f"{weight:.3g}" for weight in one.weights]
    return (str(one.input), str(one.token), f"{one.score:.5g}", is_(one), margin, dual, *weights)


def _directions(it: Facts) -> Section:
    columns = ("α", "tokens", "‖p_mm‖", "margin", "neighbours", "λ > 0", "locally optimal", "1 − cos")
    rows = tuple(_direction(it, one) for one in it.choices)
    return Section(
        "Max-margin directions p_mm(α), exact; 1 − cos at the end of the flow",
        columns,
        rows,
        ("α", "tokens", "locally optimal"),
    )


def _weights(it: Facts) -> list[Section]:
    """Both max-margin solutions, where W is trained."""
    if not it.weights:
        return []
    caption = "Solutions W of ATT-SVM: paths of W turn to that of least ‖W‖_F, paths of K, Q to that of least ‖W‖_⋆"
    rows = tuple(row for one in it.weights for row in one.rows)
    return [Section(caption, ("α", "least", "norm", "rank", "tight", ""), rows, ("α", "least", ""))]


def _direction(it: Facts, one: Chosen) -> tuple[str, ...]:
    name = "optimal, selected" if one is it.optimal and one is it.selection else one.name
    if isinstance(one.svm, Infeasible):
        return (
            name,
            format_tokens(one.alpha, TOKENS),
            "none",
            "",
            "",
            f"{len(one.svm.exact)} (Farkas)",
            "no p separates",
            "",
        )
    flow = it.path.flow
    apart = "" if not flow.final.any() else f"{float(flow.one_minus_cosine(one.svm.direction)[-1]):.2g}"
    word = "yes" if one.locally_optimal else "no"
    near = f"{int(one.svm.neighbours.sum())} of {one.svm.neighbours.size - len(one.alpha)}"
    norm, margin = f"{one.svm.norm:.6g}", f"{one.svm.margin:.6g}"
    return name, format_tokens(one.alpha, TOKENS), norm, margin, near, str(one.svm.supports), word, apart


def _tied(it: Facts) -> list[Section]:
    """Return the tokens that no prompt puts behind the optimal ones without losing another."""
    if it.split is None:
        return []
    split, parts = it.split, it.path.parts
    rows = []
    for i, t in [pair for pair in np.argwhere(split.sets).tolist() if pair[0] in split.tied_inputs[:MOST_INPUTS]]:
        weight = split.supports.tying.get((i, t))
        score = f"{it.case.problem.scores[i, t]:.5g}"
        limit = () if parts is None else (f"{parts.weights[i, t]:.6g}",)
        rows.append((str(i), str(t), score, "optimal" if weight is None else str(weight), *limit))
    columns = ("input", "token", "score", "λ", *([] if parts is None else ["weight in the limit"]))
    return [Section("Tied with the optimal token wherever none is lost: Σ λ (k_opt − k_t) = 0", columns, tuple(rows))]


def decades(it: Facts) -> list[int]:
    """The records of the flow nearest to whole decades of the norm, and its last."""
    norms = it.path.flow.norms
    logs = np.log10(np.maximum(norms, 1e-300))
    whole = np.flatnonzero((np.abs(logs - np.round(logs)) < 1e-9) & (norms > 0))
    return sorted({*(int(k) for k in whole if norms[k] > 0.09 * it.norms[0]), len(norms) - 1})


def _flow(it: Facts) -> Section:
    known = [one for one in it.choices if one.solution is not None]
    columns = ("‖p‖", *(f"1 − cos to p_mm({one.name})" for one in known), "max 1 − s_α")
    flow = it.path.flow
    apart = [flow.one_minus_cosine(one.solution.direction) for one in known if one.solution is not None]
    off = it.path.off(it.case.problem.keys).max(axis=1)
    rows = [
        (f"{flow.norms[k]:.3g}", *("" if np.isnan(a[k]) else f"{a[k]:.2g}" for a in apart), f"{off[k]:.2g}")
        for k in decades(it)
    ]
    return Section(f"The flow: {flow.stop}" + (f" ({flow.reason})" if flow.reason else ""), columns, tuple(rows))


def _ends(it: Facts) -> list[Section]:
    if not it.ends:
        return []
    columns = ("trained", "ends", "tokens", "‖W‖_F", "rank", "1 − cos to W^mm", "1 − cos to W_⋆", "excess of ‖W‖_⋆")
    rows = []
    for one in it.ends:
        apart = ("" if x is None else f"{x:.2g}" for x in (one.frobenius, one.nuclear, one.excess))
        tokens = format_tokens(one.selects, TOKENS)
        rows.append((one.trained, one.ended, tokens, f"{one.norm:.3g}", str(one.rank), *apart))
    left = "trained", "ends", "tokens"
    return [Section("Where training ends: W by itself, and as K Qᵀ", columns, tuple(rows), left)]


def _starts(it: Facts) -> Section:
    rows = tuple(_start(k + 1, one) for k, one in enumerate(it.others))
    return Section(
        f"Seeded starts (seed {it.seed})", ("start", "‖p(0)‖", "ends at", "kind", "1 − cos"), rows, ("ends at", "kind")
    )


def _start(number: int, one: FollowedFlow) -> tuple[str, ...]:
    size = f"{float(np.linalg.norm(one.start)):.3g}"
    if one.parts is not None:
        end = f"norm {one.flow.norms[-1]:.3g}"
        return str(number), size, end, "a finite part and a direction", f"{one.parts.one_minus_cosine:.2g}"
    if isinstance(one.limit, str):
        return str(number), size, f"norm {one.flow.norms[-1]:.3g}", "stationary" if one.stationary else one.limit, ""
    apart = float(one.flow.one_minus_cosine(one.limit.svm.direction)[-1])
    return str(number), size, format_tokens(one.limit.svm.alpha, TOKENS), str(one.limit.kind), f"{apart:.2g}"


def _assumptions(it: Facts) -> list[Section]:
    words = {"optimal": "the optimal tokens", "selected": "what the flow selects", "given": "the given tokens"}
    made = []
    seen: set[tuple[str, str]] = set()
    for looked in it.looked:
        new = [one for one in looked.findings if (one.id, one.evidence) not in seen]
        seen |= {(one.id, one.evidence) for one in new}
        rows = tuple((one.id, HOLDS[one.holds][0], one.evidence) for one in new)
        if rows:
            columns = ("assumption", "", "because")
            made.append(Section(f"Assumptions, α = {words[looked.of]}", columns, rows, columns))
    return made


def write(it: Facts, out: Console) -> None:
    """To a terminal."""
    for line in opening(it):
        out.print(line)
    for section in sections(it):
        out.print(f"\n{section.caption}", style="bold")
        right = [column for column in section.columns if column not in section.left]
        table = column_table(*section.columns, right=right)
        table.padding = (0, 1) if out.width >= ROOMY else (0, 0)
        for row in section.rows:
            table.add_row(*row)
        out.print(table)
    for paragraph in paragraphs(it):
        out.print(f"{paragraph}\n")


def text(it: Facts) -> str:
    """The same as text."""
    held = io.StringIO()
    write(it, Console(file=held, width=WIDTH, markup=False, emoji=False, highlight=False, no_color=True))
    return "\n".join(line.rstrip() for line in held.getvalue().strip().splitlines())


def html(it: Facts) -> str:
    """The same for a notebook."""
    return "\n".join(
        [
            *map(_paragraph, opening(it)),
            *(html_table(one.caption, one.columns, one.rows) for one in sections(it)),
            *map(_paragraph, paragraphs(it)),
        ]
    )


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
