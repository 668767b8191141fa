"""HTML tables of assumptions with their evidence, and of statements with verdict and tightest claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from theorems.core.claim import Verdict
from theorems.explore.page_style import KIND_COLORS, RULE_COLORS
from theorems.explore.verdicts import OPEN, StatementOnData, StatementVerdict
from theorems.report.html import escape
from theorems.run.findings import NamedFinding
from theorems.run.registry.suite import statements
from theorems.run.tables import HOLDS

MARKS = {
    str(Verdict.UPHELD): ("✓", "right"),
    str(Verdict.FALSIFIED): ("✗", "wrong"),
    str(Verdict.NOT_APPLICABLE): ("–", "soft"),
    str(Verdict.INCONCLUSIVE): ("?", "open"),
    "fails": ("✗", "wrong"),
    "holds": ("✓", "right"),
}
"""A mark and a CSS class for each verdict."""
MOST_NAMED = 3
"""Largest number of statements that the summary names; if there is one statement more, it is named, too."""
ASSUMED = {True: "right", False: "wrong", None: "open"}


def assumptions_html(findings: Iterable[NamedFinding]) -> str:
    """Return a table with a row per assumption; assumptions that fail come first."""
    order = {False: 0, None: 1, True: 2}
    rows = "".join(
        f'<tr data-id="{escape(finding.id)}"><td>{escape(finding.id)}</td>'
        f'<td class="{ASSUMED[finding.holds]}">{HOLDS[finding.holds][0]}</td>'
        f"<td>{escape(finding.title)}</td><td>{escape(finding.evidence)}</td></tr>"
        for finding in sorted(findings, key=lambda finding: order[finding.holds])
    )
    return _table("Assumptions on these data", ("assumption", "", "meaning", "because"), rows)


def statements_html(units: Sequence[StatementOnData], verdicts: Mapping[int, StatementVerdict]) -> str:
    """Return tables of verdicts (dots: pending) on statements, and on statements with a failing assumption left out."""
    whole, without = [], []
    for k, unit in enumerate(units):
        verdict = verdicts.get(k)
        if not unit.without:
            whole.append(_row(unit, verdict))
        elif verdict is None or verdict.verdict != OPEN:
            without.append(_row(unit, verdict))
    tables = _table(
        "Statements", ("statement", "verdict", "tightest claim: slack ≥ −tolerance", "title"), "".join(whole)
    )
    if without:
        heads = ("statement", "verdict", "because", "title")
        tables += _table("Statements without the assumption that fails here", heads, "".join(without))
    return tables


def summary_text(units: Sequence[StatementOnData], verdicts: Mapping[int, StatementVerdict]) -> str:
    """Return how often each verdict occurs so far, and which statements are falsified or fail without an assumption."""
    counts: dict[str, int] = {}
    for verdict in verdicts.values():
        if not verdict.without:
            word = next((word for word in map(str, Verdict) if verdict.verdict.startswith(word)), verdict.verdict)
            counts[word] = counts.get(word, 0) + 1
    wrong = [units[k].id for k in sorted(verdicts) if verdicts[k].verdict.startswith(str(Verdict.FALSIFIED))]
    names_of_kind = {str(Verdict.FALSIFIED): f" ({', '.join(wrong)})"}
    parts = [f"{count} {word}{names_of_kind.get(word, '')}" for word, count in counts.items()]
    stated = sum(not unit.without for unit in units)
    progress = progress_text(sum(not verdict.without for verdict in verdicts.values()), stated)
    fails = [f"{units[k].id} (without {units[k].without})" for k in sorted(verdicts) if verdicts[k].verdict == "fails"]
    rest = len(fails) - MOST_NAMED
    listed = ", ".join(fails) if rest <= 1 else f"{', '.join(fails[:MOST_NAMED])} and {rest} more"
    needed = f". Not true without an assumption that fails here: {listed}" if fails else ""
    return f"{progress}: {'; '.join(parts)}{needed} (tables below)" if parts else progress


def progress_text(done: int, total: int) -> str:
    """Return how many statements have been verified, in words."""
    return f"{done} of {total} statements tried" if done < total else f"all {total} statements tried"


def error_html(sentence: str) -> str:
    """Return an error message as HTML; "" without an error."""
    return f'<p class="wrong" role="alert">{escape(sentence)}</p>' if sentence else ""


def _row(unit: StatementOnData, answer: StatementVerdict | None) -> str:
    name = f"{unit.id} without {unit.without}" if unit.without else unit.id
    title = escape(statements()[unit.id].title)
    if answer is None:
        return (
            f'<tr data-id="{escape(name)}"><td>{escape(name)}</td><td class="soft">…</td><td></td><td>{title}</td></tr>'
        )
    mark, color = next(
        (mark_and_color for word, mark_and_color in MARKS.items() if answer.verdict.startswith(word)),
        ("?", "open"),
    )
    why = (
        answer.tightest
        if answer.verdict == str(Verdict.UPHELD)
        else " ".join(filter(None, (answer.tightest, answer.because)))
    )
    why += f"; left open: {answer.left_open}" if answer.left_open else ""
    return (
        f'<tr data-id="{escape(name)}"><td>{escape(name)}</td><td class="{color}">{mark} {escape(answer.verdict)}</td>'
        f"<td>{escape(why)}</td><td>{title}</td></tr>"
    )


def _table(caption: str, heads: Sequence[str], rows: str) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in heads)
    return (
        f'<div class="scroll" tabindex="0"><table class="wide"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def legend_html(queried: bool) -> str:
    """Return the legend of the plane, with a coloured line for each kind of line."""
    rules = " ".join(_line(rule, color) for rule, color in RULE_COLORS.items())
    prompt = "W z" if queried else "p"
    kinds = (
        f"{_line('p_mm of the optimal tokens', KIND_COLORS['GMM'], 'dashed')}"
        f" {_line('p_mm of locally optimal tokens', KIND_COLORS['LMM'], 'dashed')}"
        f" {_line('margin band of the ringed token’s input', '#808080', 'dotted')}"
    )
    return (
        f"<p>★ chosen token α · ● other token, coloured by score · <span style='color:{KIND_COLORS['LMM']}'>□</span>"
        f" SVM-neighbour: margin exactly 1 · <span style='color:{RULE_COLORS['normalized descent']}'>◯</span> selected"
        f" · ▲ start {prompt}(0) · ◆ trained {prompt} · ⊕ {prompt} at the slider’s point · i·t: token t of input i;"
        f" other inputs’ tokens are pale</p><p>{kinds}</p><p>runs: {rules}; thin lines: equal risk</p>"
    )


def _line(words: str, color: str, style: str = "solid") -> str:
    swatch = f"display:inline-block;width:1.6em;border-top:3px {style} {color};vertical-align:middle"
    return f'<span style="white-space:nowrap"><span style="{swatch}"></span> {escape(words)}</span>'
