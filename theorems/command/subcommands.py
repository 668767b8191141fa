"""The options of every subcommand: a dataclass each, whose docstring is the help of the subcommand.

Options that several subcommands share are in :mod:`theorems.command.options`. Nothing slow is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from theorems.command import completion, options


@dataclass(frozen=True)
class ListOptions:
    """List statements, capabilities of kernels, definitions and assumptions; or print one of the tables below.

    assumptions: the assumptions alone. data: the named datasets. tolerances: every tolerance of the suite, with its
    formula and its reason. drawn [ID]...: sizes and properties of the first 50 generated cases of each statement.
    counterexamples [ID]...: for each statement and each of its assumptions, the recorded counterexample without the
    assumption, replayed.

    Exit code 0: listed; 1: a counterexample does not replay, or a pair was never hunted; 2: bad input.
    """

    what: Annotated[
        list[str] | None,
        options.identifiers(
            "assumptions, data, tolerances, drawn or counterexamples; after the last two, ids of statements.",
            completion.lists,
            "TABLE|ID",
        ),
    ] = None


@dataclass(frozen=True)
class ShowOptions:
    """Show a statement with its source, assumptions, claims and tolerances; or a definition, or an assumption."""

    id: Annotated[
        str,
        options.identifier(
            "The id of a statement, a definition or an assumption; or path.py:name of a statement in your file.",
            completion.definitions_or_assumptions,
        ),
    ]


@dataclass(frozen=True)
class VerifyOptions:
    """Verify statements on generated cases or on your data, for the reference or for your attention kernel.

    Exact decisions and limits take time: with 400 tokens in 50 dimensions a statement about locally optimal
    tokens takes minutes, the others take seconds.

    Exit code 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad input;
    3: inconclusive, or nothing could be checked.
    """

    ids: options.Ids = None
    examples: options.Examples = 50
    seed: Annotated[int, options.seed_or_fresh("cases")] = 0
    realistic: Annotated[
        bool,
        typer.Option(
            "--realistic", help="Generate only cases that resemble users' data: sparse, rounded, repeated numbers."
        ),
    ] = False
    data: options.DataNotGenerated = None
    attention: Annotated[
        str | None, options.text("MODULE:CALLABLE", "Your attention kernel, tested in place of the reference.")
    ] = None
    dtype: Annotated[
        str | None,
        options.text(
            "auto|float64|float32|bfloat16|float16",
            "The kernel's number format; auto: float64 if the kernel takes it and computes in it.",
        ),
    ] = None
    interface: Annotated[
        str | None, options.text("NAME", "The kernel's signature: sdpa, flash, hf, …; by default recognised.")
    ] = None
    device: Annotated[
        str | None,
        options.text("cpu|cuda|…", "The device of the kernel's tensors, e.g. cuda; the CPU by default."),
    ] = None
    profile: Annotated[
        str | None,
        options.text(
            "minute|deep",
            "Checks of a kernel. minute: about a minute on two cores, and a list of what is left out; deep: everything,"
            " also 3000 repeated calls and calls compiled to machine code.",
        ),
    ] = None
    json: options.Json = None
    out: Annotated[Path, options.folder("Folder for failing cases.")] = Path("falsified")
    jobs: Annotated[
        int,
        options.processes(
            "the results do", 0, " With 0 your files and your kernel run in this process, too, to debug them."
        ),
    ] = options.JOBS
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None
    timeout: options.Timeout = None
    case_timeout: options.CaseTimeout = options.PATIENCE
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first falsified statement.")] = False
    known_failures: options.KnownFailures = None
    write_known_failures: Annotated[
        Path | None,
        options.file("Write a file for --known-failures; a later run fails if it checks fewer claims than this run."),
    ] = None


@dataclass(frozen=True)
class ExplainOptions:
    """Explain what attention selects on your data, why, and which theorems apply.

    Prints the gradient flow from p(0) (0 unless the data have a start), the tokens with their margins and weights,
    p_mm, the assumptions that hold or fail, and the theorems that therefore apply.

    Trained weights in the file (p; with queries W_trained, or K_trained and Q_trained) or of a module are explained as
    they are: softmax weights and margins, the chosen tokens, whether this choice is locally optimal, and the distance
    of the trained weights from the max-margin direction. The flow then starts from them.

    Exit code 0: explained; 2: bad input; 3: the limit of the flow could not be decided, or the module's file ended its
    process.
    """

    data: Annotated[str, options.data("A .npz or .json file or a named dataset.", "--data", "--inputs")]
    module: Annotated[
        str | None,
        options.text(
            "PATH.py:NAME",
            "Trained weights: an nn.MultiheadAttention, linear layers (query, key), arrays of those names, or a"
            " function that returns one of these; NAME[2] is head number 2, counted from 0.",
        ),
    ] = None
    rule: Annotated[
        list[str] | None,
        options.text(
            "NAME",
            "Also run a rule of bench, such as adam-0.1, for 20,000 steps from the same start; repeat it for several.",
            completion.rules,
        ),
    ] = None
    train: Annotated[
        str, options.text("v", "Also train the head v of tokens and labels together with p, as in Figure 3.")
    ] = ""
    starts: Annotated[int, typer.Option(min=0, metavar="N", help="Also follow the flow from N seeded starts.")] = 0
    seed: Annotated[int, options.same_seed("starts")] = 0
    json: Annotated[Path | None, options.file("Write everything as JSON, with the exact rationals.")] = None
    plot: Annotated[
        Path | None,
        options.text("FILE.svg|FILE.png|FILE.pdf", "Draw the path of p in the plane, or margins and weights."),
    ] = None


@dataclass(frozen=True)
class HuntOptions:
    """Hunt for data on which a statement fails once one of its assumptions is dropped.

    All other assumptions hold exactly, the violation is far above rounding, and limits are followed until the norm
    is 10⁶. A counterexample is shrunk to few and round numbers.

    Exit code 1: a counterexample was found and written; 0: none was; 2: bad input; 3: no case could be decided.
    """

    id: Annotated[str, options.identifier("A statement, or path.py:name.", completion.ids)]
    without: Annotated[
        str,
        options.text(
            "ASSUMPTION",
            "The assumption to drop; if left out, a counterexample to the statement itself is hunted.",
            completion.assumptions,
        ),
    ] = ""
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="Stop searching after S seconds.")] = 60.0
    seed: Annotated[int, options.same_seed("counterexample")] = 0
    cases: Annotated[int | None, typer.Option(min=1, metavar="N", help="Try at most N cases.")] = None
    out: Annotated[Path, options.folder("Folder for the counterexample.")] = Path("hunted")
    record: Annotated[
        bool, typer.Option("--record", help="Write ID-without-ASSUMPTION.json, even if nothing is found.")
    ] = False
    engine: options.Engine = options.LOCAL
    resume: options.Resume = None


@dataclass(frozen=True)
class ReplayOptions:
    """Check a counterexample again, from its data alone.

    Exit code 1: it still falsifies; 0: it does not; 2: bad input; 3: undecided.
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="A counterexample that hunt wrote.")]


@dataclass(frozen=True)
class BenchOptions:
    """Compare optimisers: iterations until the direction reaches its limit and stays there, and fitted rates.

    The limit is the direction that the theory of the rule names: p_mm, or for mirror descent the solution of ATT-SVM in
    ‖p‖_q; p_mm if no theorem about attention names one. The chosen tokens are those that the gradient flow from the
    same start selects.

    Exit code 0: compared; 1: a row is worse than in --compare; 2: bad input; 3: some data have no limit direction, or
    none of the generated problems has, or a rule of your file failed.
    """

    data: Annotated[
        list[str] | None,
        options.data("Data; the datasets of Figures 1(a), 1(b) and 1(c) by default. Repeat the option for several."),
    ] = None
    rule: Annotated[
        list[str] | None,
        options.text(
            "NAME",
            "gd-1/L, gd-ETA, normalized-ETA, flow-ETA, polyak, heavy-ball-ETA, adam-ETA, adam-B1-B2-ETA, muon-ETA,"
            " spectral-ETA, sign-ETA, rows-ETA, factored-ETA, normalized-factored-ETA, factored-apart-ETA,"
            " mirror-Q-ETA, normalized-mirror-Q-ETA, naive-normalized-ETA, 'torch.optim:CLASS(lr=ETA)', or a class of"
            " yours, path.py:name; repeat it for several, or give several ETA: gd-0.1,1 or lr=[0.1, 1].",
            completion.rules,
        ),
    ] = None
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Largest number of iterations of each run.")] = 20_000
    examples: Annotated[int, options.examples_option("problems", least=0)] = 20
    seed: Annotated[int, options.same_seed("problems")] = 0
    json: options.Json = None
    jobs: options.Jobs = options.JOBS
    resume: options.Resume = None
    plot: Annotated[Path | None, options.file("Draw the distance from the limit against t: svg, png or pdf.")] = None
    compare: Annotated[
        Path | None, options.file("Compare each row with an earlier file of --json: better, worse or the same.")
    ] = None


@dataclass(frozen=True)
class FiguresOptions:
    """Reproduce the paper's figures, and write the numbers of each as JSON.

    Exit code 0: drawn; 2: bad input, or matplotlib is not installed; 3: a figure could not be computed.
    """

    names: Annotated[
        list[str] | None,
        options.identifiers("1a, 3b, 9a, …, or 3 for 3a to 3c; all by default.", completion.figures, "NAME"),
    ] = None
    out: Annotated[Path, options.folder("Folder for the files.")] = Path("figures")
    kind: Annotated[str, typer.Option("--format", metavar="svg|png|pdf", help="Format of the drawings.")] = "svg"
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Random trials per dimension in 9a, 9b.")] = 200
    seed: Annotated[int, options.same_seed("trials")] = 0
    jobs: Annotated[int, options.processes("the files do")] = options.JOBS
