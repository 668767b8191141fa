"""The options of every subcommand, as a dataclass with its help; several have those of :mod:`.options`.

Nothing that takes long to import is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from theorems.command import completion, options


@dataclass(frozen=True)
class ListOptions:
    """List the statements, the definitions and the assumptions."""

    data: Annotated[bool, typer.Option("--data", help="The named datasets instead.")] = False
    assumptions: Annotated[bool, typer.Option("--assumptions", help="The assumptions only.")] = False


@dataclass(frozen=True)
class ShowOptions:
    """Show a statement: text, source, assumptions, tolerances; or an assumption."""

    id: Annotated[
        str,
        options.identifier(
            "A statement, path.py:name, a definition or an assumption.", completion.definitions_or_assumptions
        ),
    ]


@dataclass(frozen=True)
class TolerancesOptions:
    """Print every tolerance of the suite with its formula and its reason."""

    markdown: Annotated[bool, options.as_markdown("a Markdown table")] = False


@dataclass(frozen=True)
class VerifyOptions:
    """Verify statements on generated cases, or on your data; of the reference, or of your attention kernel.

    Exact decisions and limits take time: with 400 tokens in 50 dimensions a statement about locally optimal
    tokens takes minutes, the others seconds.

    Exit code 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad input;
    3: inconclusive, or nothing could be tried.
    """

    ids: options.Ids = None
    examples: options.Examples = 50
    seed: Annotated[int, options.same_seed("cases")] = 0
    realistic: Annotated[
        bool, typer.Option("--realistic", help="Generate only cases as users have them: sparse, rounded, repeated, …")
    ] = False
    relations: Annotated[
        bool,
        typer.Option(
            "--relations", help="Check each case again, changed in a way that changes nothing: the verdict is the same."
        ),
    ] = False
    data: options.DataNotGenerated = None
    attention: Annotated[
        str | None, options.text("MODULE:CALLABLE", "Your attention kernel in place of the reference's softmax.")
    ] = None
    dtype: Annotated[
        str | None,
        options.text(
            "auto|float64|float32|bfloat16|float16",
            "What the kernel computes in; auto: float64 if it takes it and computes in it.",
        ),
    ] = None
    interface: Annotated[
        str | None, options.text("NAME", "Its signature, sdpa, flash, hf, …; recognised by its parameters.")
    ] = None
    device: Annotated[
        str | None,
        options.text("DEVICE", "Where its tensors live, e.g. cuda; the CPU by default."),
    ] = None
    profile: Annotated[
        str | None,
        options.text(
            "minute|deep",
            "What fits into a minute of two cores, and says what it left out; or all, with calls made 3000 times and"
            " compiled to machine code.",
        ),
    ] = None
    json: options.Json = None
    out: Annotated[Path, options.folder("Where failing cases are written.")] = Path("falsified")
    jobs: options.Jobs = options.JOBS
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None
    timeout: options.Timeout = None
    case_timeout: options.CaseTimeout = options.PATIENCE
    isolate: options.Isolate = True
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first falsified statement.")] = False
    junit_xml: Annotated[Path | None, options.file("Write the verdicts as JUnit XML.")] = None
    known_failures: options.KnownFailures = None
    write_known_failures: Annotated[
        Path | None,
        options.file("Write such a file, and how many claims were checked: fewer are a failure."),
    ] = None
    emit_test: Annotated[
        Path | None, options.file("Write a test that fails on your kernel, and needs torch alone.")
    ] = None
    sarif: Annotated[Path | None, options.file("Write what is not upheld as SARIF 2.1.0, for code scanning.")] = None
    badge: Annotated[
        Path | None, options.file("Write how many capabilities your kernel has as JSON for a badge of shields.io.")
    ] = None


@dataclass(frozen=True)
class ScoreboardOptions:
    """Try the attention kernels of other libraries: a table of capabilities, with a test of each red cell.

    A kernel whose library is not installed is named, and no failure; nor is a red cell that the list of kernels
    explains.

    Exit code 0: all else is upheld; 1: a cell is red, and nobody has looked at it; 2: bad input; 3: a cell could not be
    decided, or no kernel could be tested.
    """

    kernels: Annotated[Path | None, options.file("A list of kernels in TOML, in place of the suite's own.")] = None
    examples: Annotated[int, options.examples_option("calls of each capability")] = 25
    seed: Annotated[int, options.same_seed("calls")] = 0
    json: options.Json = None
    markdown: Annotated[bool, options.as_markdown("docs/scoreboard.md has it")] = False
    out: Annotated[Path, options.folder("Where the tests of red cells are written.")] = Path("scoreboard")
    jobs: options.Jobs = options.JOBS
    resume: options.Resume = None
    timeout: options.Timeout = None
    case_timeout: options.CaseTimeout = options.PATIENCE


@dataclass(frozen=True)
class ExplainOptions:
    """Explain what attention selects on your data, why, and which theorems speak of it.

    The gradient flow from p(0) (0 unless the data have a start), the tokens with their margins and weights, p_mm,
    assumptions that hold and fail, and the theorems that therefore apply.

    Exit code 0: explained; 2: bad input; 3: where the flow goes could not be decided.
    """

    data: Annotated[str, options.data("A .npz or .json file or a named dataset.")]
    starts: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also flows from so many seeded starts, besides that from p(0).")
    ] = 0
    seed: Annotated[int, options.same_seed("starts")] = 0
    json: Annotated[Path | None, options.file("Everything as JSON, with the exact rationals.")] = None
    plot: Annotated[
        Path | None, options.text("FILE.svg|FILE.png|FILE.pdf", "The path of p in the plane, or margins and weights.")
    ] = None


@dataclass(frozen=True)
class ExploreOptions:
    """Open a page in the browser: drag a token, and see what the theorems say.

    Tokens, max-margin directions and runs in the plane, drawn anew as you drag; assumptions and statements with their
    verdicts; what you find is saved as data, a test, a picture or a link. It is served from this machine to this
    machine, at an address with a secret in it, until Ctrl-C.

    Exit code 0: the file is written; 2: bad input, or bokeh is not installed; 130: ended by Ctrl-C.
    """

    data: Annotated[
        str | None,
        options.data("A .npz or .json file, a named dataset, a recorded counterexample, or a link."),
    ] = None
    html: Annotated[Path | None, options.file("Write the page as a file that needs no server, and end.")] = None
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Of the server; 0 is any free one.")] = 0
    open: Annotated[bool, typer.Option("--open/--no-open", help="Open the browser; the address is printed anyway.")] = (
        True
    )


@dataclass(frozen=True)
class DrawnOptions:
    """Print what the strategies draw: sizes, losses, and how many of the cases have which property.

    Exit code 0: drawn; 2: bad input.
    """

    ids: options.Ids = None
    examples: options.Examples = 50
    seed: Annotated[int, options.same_seed("cases; those of verify")] = 0
    json: options.Json = None
    markdown: Annotated[bool, options.as_markdown("the site has it")] = False


@dataclass(frozen=True)
class HuntOptions:
    """Hunt for data on which a statement fails once one of its assumptions is left out.

    All other assumptions hold exactly, the violation is far above rounding, limits are followed to norms of a
    million, and what is found is made as small and as round as it gets.

    Exit code 1: a counterexample was found and written; 0: none was; 2: bad input; 3: no case could be decided.
    """

    id: Annotated[str, options.identifier("A statement, or path.py:name.", completion.ids)]
    without: Annotated[
        str,
        options.text(
            "ASSUMPTION", "The assumption to leave out; none hunts the statement itself.", completion.assumptions
        ),
    ] = ""
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="Give up after that long.")] = 60.0
    seed: Annotated[int, options.same_seed("counterexample")] = 0
    cases: Annotated[int | None, typer.Option(min=1, metavar="N", help="Try at most so many cases.")] = None
    out: Annotated[Path, options.folder("Where a counterexample is written.")] = Path("hunted")
    record: Annotated[
        bool, typer.Option("--record", help="Write ID-without-ASSUMPTION.json, also if nothing is found.")
    ] = False
    json: options.Json = None
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None
    case_timeout: options.CaseTimeout = options.PATIENCE
    isolate: options.Isolate = True


@dataclass(frozen=True)
class ReplayOptions:
    """Check a counterexample again, from its data alone.

    Exit code 1: it still falsifies; 0: it does not; 2: bad input; 3: undecided.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="A counterexample that hunt wrote.")]
    json: options.Json = None


@dataclass(frozen=True)
class PowerOptions:
    """Tabulate which statement catches which planted fault, on how many examples, and how small a one.

    Exit code 0: each fault is caught by some statement; 1: one escapes them all; 2: bad input; 3: the right
    implementation is falsified itself.
    """

    ids: Annotated[list[str] | None, options.identifiers("Statements; all by default.", completion.ids)] = None
    faults: Annotated[
        list[str] | None,
        options.text("NAME", "A planted fault; repeat it for several; all by default.", completion.faults),
    ] = None
    examples: Annotated[int, options.examples_option("cases per statement at most")] = 10
    seed: Annotated[int, options.same_seed("table")] = 0
    jobs: Annotated[int, options.processes("the table does")] = options.JOBS
    sizes: Annotated[bool, typer.Option(help="Also how small a fault is still caught.")] = True
    markdown: Annotated[bool, options.as_markdown("the site has it")] = False
    json: Annotated[Path | None, options.file("Write the table as JSON.")] = None
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None
    case_timeout: Annotated[float, options.limit("End a statement of your file that takes longer for a fault.")] = (
        options.PATIENCE
    )


@dataclass(frozen=True)
class CounterexamplesOptions:
    """Replay every counterexample of a folder; print the table statement × assumption.

    Exit code 0: every pair is accounted for; 1: one does not replay or was never hunted; 2: bad input.
    """

    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder; those of this project by default.")
    ] = None
    markdown: Annotated[bool, options.as_markdown("a Markdown document")] = False
    json: Annotated[Path | None, options.file("Write the table as JSON.")] = None
    jobs: Annotated[int, options.processes("the table does")] = options.JOBS


@dataclass(frozen=True)
class RegimeMapOptions:
    """Print where the joint regularization path of Theorem 6 ends, by how the two radii grow."""

    data: options.Data = None
    markdown: Annotated[bool, options.as_markdown("docs/regime_map.md has it")] = False
    json: Annotated[Path | None, options.file("Write the map as JSON.")] = None
    jobs: Annotated[int, options.processes("the map does")] = options.JOBS


@dataclass(frozen=True)
class BenchOptions:
    """Compare optimisers: iterations until the direction is, and stays, that of the limit, and fitted rates.

    The limit is that of the rule's own theory, for the tokens that the gradient flow from the same start selects:
    p_mm, of mirror descent the least ‖p‖_q; p_mm, too, where no theorem about attention names one.

    Exit code 0: compared; 1: a row is worse than in --compare; 2: bad input; 3: some data have no limit direction, or
    none of the generated problems has, or a rule of your file failed.
    """

    data: Annotated[
        list[str] | None,
        options.data("Data; repeat it for several. Figures 1(a), 1(b) and 1(c) by default."),
    ] = None
    rule: Annotated[
        list[str] | None,
        options.text(
            "RULE",
            "gd-1/L, gd-ETA, normalized-ETA, flow-ETA, polyak, heavy-ball-ETA, adam-ETA, muon-ETA, spectral-ETA,"
            " factored-ETA, normalized-factored-ETA, factored-apart-ETA, mirror-Q-ETA, normalized-mirror-Q-ETA, or a"
            " class of yours, path.py:name; repeat it for several.",
            completion.rules,
        ),
    ] = None
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="The cap: iterations of each run.")] = 20_000
    examples: Annotated[int, options.examples_option("problems", least=0)] = 20
    seed: Annotated[int, options.same_seed("problems")] = 0
    json: options.Json = None
    markdown: Annotated[bool, options.as_markdown("Markdown tables")] = False
    time: Annotated[bool, typer.Option("--time", help="Also the time of an iteration relative to the first rule.")] = (
        False
    )
    jobs: options.Jobs = options.JOBS
    resume: options.Resume = None
    plot: Annotated[Path | None, options.file("Draw the distance from the limit against t: svg, png or pdf.")] = None
    compare: Annotated[
        Path | None, options.file("Say of every row whether it is better or worse than in this earlier --json.")
    ] = None
    case_timeout: Annotated[float, options.limit("End a rule of your file that makes no headway for so long.")] = (
        options.PATIENCE
    )


@dataclass(frozen=True)
class FiguresOptions:
    """Draw the paper's figures anew, and write the numbers that each one draws beside it as JSON.

    Figures 6 and 7 train a small vision transformer, which takes minutes; what it has reached is kept in the folder of
    --out after every epoch, and the same command goes on from there.

    Exit code 0: drawn; 2: bad input, or matplotlib is not installed; 3: a figure could not be computed.
    """

    names: Annotated[
        list[str] | None,
        options.identifiers("1a, 3b, 9a, …, or 3 for 3a to 3c; all by default.", completion.figures, "NAME"),
    ] = None
    out: Annotated[Path, options.folder("Where the files are written.")] = Path("figures")
    kind: Annotated[str, typer.Option("--format", metavar="svg|png|pdf", help="Of the drawings.")] = "svg"
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Random trials per dimension in 9a, 9b, 10.")] = 200
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Training of the transformer in 6 and 7.")] = 120
    cifar10: Annotated[
        Path | None, options.text("DIR", "Train it on CIFAR-10, the binary version, instead of the digits.")
    ] = None
    seed: Annotated[int, options.same_seed("trials and training")] = 0
    jobs: Annotated[int, options.processes("the files do")] = options.JOBS
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None


@dataclass(frozen=True)
class ReportOptions:
    """Verify, and write one document: verdicts, claims with their tolerances and reasons, counterexamples, power.

    Exit code as of verify. 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad
    input; 3: inconclusive, or nothing could be tried.
    """

    ids: options.Ids = None
    examples: options.Examples = 50
    seed: Annotated[int, options.same_seed("report")] = 0
    data: options.DataNotGenerated = None
    results: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A file of verify --json instead of a run.")
    ] = None
    out: Annotated[
        Path | None, options.text("FILE.md|FILE.html", "The document; Markdown to standard output if left out.")
    ] = None
    json: Annotated[Path | None, options.file("Also the results, as verify --json writes them.")] = None
    jobs: Annotated[int, options.processes("the report does")] = options.JOBS
    resume: options.Resume = None
    timeout: options.Timeout = None
    case_timeout: options.CaseTimeout = options.PATIENCE
    isolate: options.Isolate = True
