"""``verify --report`` and ``theorems report``: one document per run, reproducible and escaped, with
verify's exit code.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.places import ROOT
from tests.theorems.fake_statements import FAKES, install
from theorems.command.app import main
from theorems.counterexamples.assumption_table import Status
from theorems.counterexamples.weakened_statements import entries
from theorems.report.document import (
    Code,
    Folded,
    Heading,
    Heat,
    HeatMap,
    Link,
    Listing,
    Picture,
    Reference,
    Table,
    paragraph,
)
from theorems.report.evidence import hunt_records
from theorems.report.html import html
from theorems.report.markdown import markdown
from theorems.report.svg import element
from theorems.run.registry.suite import statements

QUICK = ["--examples", "20", "--jobs", "1"]


def document_of(*arguments: str, code: int = 0) -> str:
    """Run verify, and return the document in Markdown."""
    assert main(["verify", *arguments, "--jobs", "1", "--report", "live.md"]) == code
    return Path("live.md").read_text(encoding="utf-8")


pytestmark = pytest.mark.usefixtures("own_directory")


@pytest.fixture
def _fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    entries()  # register the registries' entries while the real statements are installed
    install(monkeypatch.setattr)


fakes = pytest.mark.usefixtures("_fakes")


@fakes
@pytest.mark.parametrize(
    ("ids", "code"),
    [(["true"], 0), (["false"], 1), (["true", "false", "undecided"], 1), (["undecided"], 3), (["never"], 3)],
)
def test_a_report_exits_like_verify_live_and_from_results(
    ids: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    live = document_of(*ids, *QUICK, "--json", "verified.json", code=code)
    capsys.readouterr()
    assert main(["report", "verified.json"]) == code
    recorded = capsys.readouterr().out
    for id in ids:
        rows = [[line for line in text.splitlines() if line.startswith(f"| `{id}` |")] for text in (live, recorded)]
        assert rows[0] == rows[1] != []
        sections = [section_of(id, text) for text in (live, recorded)]
        assert sections[0].startswith(sections[1].rstrip())  # the JSON results lack the falsified case


def section_of(id: str, text: str) -> str:
    """Return the section of the document that lists the claims of a statement."""
    return re.split(r"^##", text.partition(f"\n### {id}: ")[2], flags=re.MULTILINE)[0]


@fakes
def test_a_falsified_statement_is_reported_with_its_case() -> None:
    text = document_of("false", *QUICK, code=1)
    assert "Verdict: falsified" in text
    assert "The smallest failing case found" in text
    case = re.search(r"^```\n(\{.*?\n\})\n```$", text, re.MULTILINE | re.DOTALL)
    assert case is not None
    Path("case.json").write_text(case[1], encoding="utf-8")
    assert main(["verify", "--data", "case.json", "--jobs", "1"]) == 1


@fakes
@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_the_same_seed_gives_the_same_report(name: str) -> None:
    written = []
    for seed in ("0", "0", "1"):
        assert main(["verify", "true", *QUICK, "--seed", seed, "--report", name]) == 0
        written.append(Path(name).read_bytes())
    assert written[0] == written[1] != written[2]


def test_the_real_statements_have_source_reason_and_evidence() -> None:
    text = document_of("lemma-11", "--examples", "2")
    assert "Source: Section 2, Lemma 2; Appendix B, Lemma 11." in text
    assert "| `margins-at-least-one` | exact | upheld |" in text
    assert "| `rounding` | the bound of the rounding error of left − right, divided by the larger side | both" in text
    assert "theorems verify lemma-11 --examples 2 --seed 0" in text
    assert "| without | L11 |" in text
    for without in ("positive-labels", "strict-optimum", "head-in-key-range"):
        assert f"| `{without}` | R |" in text
    assert "| numpy | " in text


@pytest.mark.parametrize(
    ("data", "verdicts", "sentence"),
    [
        (None, ["upheld"], "The statement s1 is upheld on 4 generated cases each: none of the 2 claims is violated"),
        ("m.npz", ["upheld"] * 2, "All 2 statements are upheld on the data m.npz: none of the 4 claims is violated"),
        (
            None,
            ["falsified", "upheld"],
            "Of 2 statements, on 4 generated cases each, 1 is falsified (s1), 1 is upheld.",
        ),
        ("m.npz", ["not-applicable"], "Of the one statement, on the data m.npz, 1 is not-applicable (s1)."),
        (
            None,
            ["inconclusive", "falsified", "inconclusive"],
            "Of 3 statements, on 4 generated cases each, 1 is falsified (s2), 2 are inconclusive (s1, s3).",
        ),
    ],
)
def test_a_report_begins_with_the_verdict(
    data: str | None, verdicts: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    claims = [
        {
            "name": name,
            "form": "exact",
            "verdict": "upheld",
            "worst_slack": slack,
            "tolerance": 1e-15,
            "why": "rounding",
        }
        for name, slack in (("half", -5e-16), ("none", 0.25))
    ]
    made = [
        {"id": f"s{k}", "title": "", "verdict": verdict, "examples": 4, "counts": {}, "claims": claims, "reason": ""}
        for k, verdict in enumerate(verdicts, 1)
    ]
    made[0] |= {"never_made": ["one", "two"], "not_found": 1}
    run = {"version": "0", "seed": 0, "examples": 4, "data": data, "implementation": "r", "statements": made}
    Path("run.json").write_text(json.dumps(run), encoding="utf-8")
    main(["report", "run.json"])
    text = capsys.readouterr().out
    assert text.split("\n\n")[1].startswith(sentence)
    assert "Never made on these 4 examples: `one`, `two`." in text
    assert "On 1 of 4 examples a search by this suite failed." in text
    assert "| `half` | exact | upheld | 1 | -5e-16 | 1e-15 | 50% | `rounding` |" in text
    assert f"{len(made)} of {2 * len(made)} use none, the others at most 50%" in text
    main(["report", "run.json", "--out", "report.html"])
    page = Path("report.html").read_text(encoding="utf-8")
    assert '<p class="lead">' + html([paragraph(sentence)]).partition("<p>")[2].partition("</p>")[0] in page
    assert page.count("<title>s1, half: 50%</title>") == 1
    assert re.search(r"<details>\s*<summary>Versions and settings", page)


def test_a_report_on_user_data_lists_the_assumptions() -> None:
    text = document_of("lemma-3", "lemma-5", "--data", "figure-1c")
    assert "## Assumptions on these data" in text
    assert "| `single-input` |" in text
    assert "does not hold" in text
    assert "not-applicable" in text


def test_every_pair_of_statement_and_dropped_assumption_has_a_recorded_hunt() -> None:
    every = list(statements().values())
    result = hunt_records(every)
    assert result is not None
    assert [item.id for item in result] == list(statements())
    assert not any(Status.HOLE in item.by_status for item in result)
    by_id = {item.id: item.by_status for item in result}
    assert "single-input" in by_id["theorem-2"][Status.REFUTED]
    assert "step-size" not in by_id["theorem-2"].get(Status.REFUTED, [])  # FINDINGS.md: the assumption is not needed
    assert by_id["theorem-3"][Status.NEEDED] == ["separable"]


def test_a_missing_hunt_is_reported(tmp_path: Path) -> None:
    assert hunt_records(statements().values(), tmp_path) is None
    (tmp_path / "counterexamples").mkdir()
    result = hunt_records([statements()["lemma-4"]], tmp_path)
    assert result is not None
    assert set(result[0].by_status) == {Status.HOLE}


def test_a_statement_in_a_file_brings_its_tolerances_and_no_evidence() -> None:
    file = ROOT / "examples" / "not_separable.py"
    assert main(["verify", f"{file}:locally_optimal_limit", "--examples", "2", "--report", "live.md"]) in (0, 3)
    text = Path("live.md").read_text(encoding="utf-8")
    assert "## Claims" in text
    assert "| `beside-the-ray` | √‖p‖ at ‖p‖ = 10⁶" in text
    assert "## Why each assumption is needed" not in text


class Balanced(HTMLParser):
    """A parser that checks that tags are closed in order, and collects loaded addresses and scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


NASTY = '<script>alert("x")</script> a|b *c* `d` [e](f) & _g_ p_mm'


def test_every_text_in_a_report_is_escaped() -> None:
    texts = (NASTY, Code(NASTY), Reference(NASTY), Link(NASTY, "a&b.md"))
    document = [
        Heading(1, NASTY, NASTY),
        paragraph(*texts),
        Table((NASTY,), tuple((item,) for item in texts)),
        Listing("```\n" + NASTY),
        Picture((element(NASTY, 1.0, 1.0, ""),), NASTY),
        Folded(NASTY, (HeatMap((NASTY, NASTY), ((NASTY, (Heat(NASTY, 1),)),)),)),
    ]
    parser = Balanced()
    parser.feed(html(document))
    assert not parser.open
    assert "script" not in parser.seen
    assert "".join(parser.text).count(NASTY) == 2 + 4 + 5 + 1 + 1 + 5
    assert f'aria-label="{escape(NASTY)}"' in html(document)
    text = markdown(document)
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in table] == [2] * 6 + [3] * 3
    assert "\\<script\\>" in text
    assert "\\_g\\_ p_mm" in text
    assert "````\n```\n" in text


@fakes
def test_a_title_that_is_markup_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr, {"true": replace(FAKES["true"], title=NASTY)})
    assert main(["verify", *QUICK, "--report", "report.html"]) == 0
    text = Path("report.html").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"\b(?:src|href)=\"(?!#|docs/)", text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lemma-3"], "the name must end in .json"),
        (["good.json", "--out", "report.txt"], "--out: report.txt does not end in .md or .html; rename it."),
        (["good.json", "--out", "no/report.md"], "there is no directory no"),
        (["none.json"], "there is no such file"),
        (["list.json"], "is not a JSON object"),
        (["empty.json"], "empty.json: version is missing"),
        (["verdict.json"], "verdict.json: statements[0].verdict is not what theorems verify --json writes"),
        (["slack.json"], "slack.json: statements[0].claims[0].worst_slack is not what"),
        (["claims.json"], "claims.json: statements[0].claims is missing"),
        (["never.json"], "never.json: statements[0].never_made[0] is not what theorems verify --json writes"),
        (["found.json"], "found.json: statements[0].not_found is not what theorems verify --json writes"),
    ],
)
def test_bad_input_is_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    claim = {"name": "c", "form": "exact", "verdict": "upheld", "worst_slack": None, "tolerance": 0, "why": "exact"}
    one = {"id": "x", "title": "", "verdict": "upheld", "examples": 1, "counts": {}, "claims": [claim], "reason": ""}
    good = {"version": "0", "seed": 0, "examples": 1, "data": None, "implementation": "r", "statements": [one]}
    files: dict[str, Any] = {
        "good": good,
        "list": [],
        "empty": {},
        "verdict": good | {"statements": [one | {"verdict": "fine"}]},
        "slack": good | {"statements": [one | {"claims": [claim | {"worst_slack": "small"}]}]},
        "never": good | {"statements": [one | {"never_made": [1]}]},
        "found": good | {"statements": [one | {"not_found": "none"}]},
        "claims": good | {"statements": [{key: one[key] for key in one if key != "claims"}]},
    }
    for name, held in files.items():
        Path(f"{name}.json").write_text(json.dumps(held), encoding="utf-8")
    assert main(["report", *arguments]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not printed.out
    assert main(["report", "good.json"]) == 0


@fakes
def test_ctrl_c_writes_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("theorems.run.statement_unit.verify_generated", interrupted)
    assert main(["verify", "true", *QUICK, "--report", "report.md"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not Path("report.md").exists()


@fakes
def test_an_unwritable_document_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    usual = os.replace

    def full(source: str, target: Path) -> None:
        if Path(target).suffix == ".md":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        usual(source, target)

    monkeypatch.setattr("reference_attention.files.os.replace", full)
    assert main(["verify", "true", *QUICK, "--report", "r.md"]) == 2
    assert capsys.readouterr().err.endswith("theorems: r.md: cannot be written (No space left on device).\n")
    assert not list(Path().iterdir())


def test_names_from_outside_are_escaped_and_shortened() -> None:
    name = "\x1b[31m" + "x" * 100_000 + "\u202e"
    document = [Heading(1, name), paragraph(name, Code(name)), Table((name,), ((name,),)), Listing(name)]
    for text in (html(document), markdown(document)):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\x1b[31m" in text.replace("\\\\", "\\").replace("\\[", "[")
        assert len(text) < 10_000


def test_verify_refuses_reports_of_other_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "lemma-3", "--report", "report.txt"]) == 2
    assert "--report: report.txt does not end in .md, .html or .sarif; rename it." in capsys.readouterr().err
    kernel = "torch.nn.functional:scaled_dot_product_attention"
    assert main(["verify", "--attention", kernel, "--report", "report.md"]) == 2
    assert "--report: with --attention only a .sarif file can be written" in capsys.readouterr().err
