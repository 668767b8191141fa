"""The ``theorems`` command: its subcommands, their options and their help.

Exit codes: 0 upheld, 1 falsified, 2 usage or bad input, 3 inconclusive, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM or
SIGHUP.
What takes long to import (NumPy, Hypothesis, the statements) is imported by the command that needs it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from theorems.command import completion, options
from theorems.core.exit_code import Exit

# Before NumPy is loaded: processes share the work, threads within one only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")


app = typer.Typer(
    pretty_exceptions_enable=False,
    help="The theorems of 'Max-Margin Token Selection in Attention Mechanism' as executable specifications.",
)


def _version(wanted: bool) -> bool:
    if wanted:
        from theorems.core.version import version

        print(version())
        raise typer.Exit(0)
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the command as a whole."""


@app.command("list")
def list_(
    data: Annotated[bool, typer.Option("--data", help="The named datasets instead.")] = False,
    assumptions: Annotated[bool, typer.Option("--assumptions", help="The assumptions only.")] = False,
) -> None:
    """List the statements, the definitions and the assumptions."""
    from theorems.command import describe
    from theorems.run.tables import console

    if data or assumptions:
        console().print(describe.datasets() if data else describe.assumptions())
        return
    console().print(describe.statements_table())
    console().print(describe.capabilities_table())
    console().print(describe.definitions())
    console().print(describe.assumptions())


@app.command()
def show(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A statement, path.py:name, a definition or an assumption.",
            autocompletion=completion.definitions_or_assumptions,
        ),
    ],
) -> None:
    """Show a statement: text, source, assumptions, tolerances; or an assumption."""
    from theorems.command import describe
    from theorems.run.tables import console

    describe.show(console(), id)


@app.command()
def tolerances(
    markdown: Annotated[bool, options.as_markdown("a Markdown table")] = False,
) -> None:
    """Print every tolerance of the suite with its formula and its reason."""
    from theorems.command import describe
    from theorems.run.tables import console

    if markdown:
        print(describe.tolerances_markdown())
    else:
        console().print(describe.tolerances_table())


@app.command()
def verify(
    ids: options.Ids = None,
    examples: options.Examples = 50,
    seed: Annotated[int, options.same_seed("cases")] = 0,
    realistic: Annotated[
        bool, typer.Option("--realistic", help="Generate only cases as users have them: sparse, rounded, repeated, …")
    ] = False,
    data: options.DataNotGenerated = None,
    attention: Annotated[
        str | None,
        typer.Option(metavar="MODULE:CALLABLE", help="Your attention kernel in place of the reference's softmax."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="auto|float64|float32|bfloat16|float16",
            help="What the kernel computes in; auto: float64 if it takes it and computes in it.",
        ),
    ] = None,
    interface: Annotated[
        str | None,
        typer.Option(metavar="plain|sdpa|flash|hf|jax", help="Its signature; recognised by its parameters."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="DEVICE", help="Where its tensors live, e.g. cuda; the CPU by default.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="minute", help="What fits into a minute of two cores; says what it left out.")
    ] = None,
    json: options.Json = None,
    out: Annotated[Path, options.folder("Where failing cases are written.")] = Path("falsified"),
    jobs: options.Jobs = options.JOBS,
    engine: options.Engine = options.LOCAL,
    resume: options.Resume = None,
    timeout: options.Timeout = None,
    case_timeout: options.CaseTimeout = options.PATIENCE,
    isolate: options.Isolate = True,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first falsified statement.")] = False,
    junit_xml: Annotated[Path | None, options.file("Write the verdicts as JUnit XML.")] = None,
    known_failures: options.KnownFailures = None,
    write_known_failures: Annotated[
        Path | None,
        options.file("Write such a file, and how many claims were checked: fewer are a failure."),
    ] = None,
    emit_test: Annotated[
        Path | None, options.file("Write a test that fails on your kernel, and needs torch alone.")
    ] = None,
) -> int:
    """Verify statements on generated cases, or on your data; of the reference, or of your attention kernel.

    Exact decisions and limits take time: with 400 tokens in 50 dimensions a statement about locally optimal
    tokens takes minutes, the others seconds.

    Exit code 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad input;
    3: inconclusive, or nothing could be tried.
    """
    from generators.user_data import load
    from theorems.command.verify import Outputs, in_profile, under_test_of, verify_and_report
    from theorems.run.session import Request

    under_test, kernel = under_test_of(attention, dtype, interface, device)
    given = None if data is None else load(data, seed, calls=True)
    request = Request(
        tuple(ids or ()),
        examples,
        seed,
        given,
        under_test,
        capabilities=attention is not None and given is None,
        jobs=jobs,
        timeout=timeout,
        patience=case_timeout,
        isolate=isolate,
        engine=engine,
        journal=resume,
        realistic=realistic,
    )
    outputs = Outputs(
        out,
        json,
        junit_xml,
        known_failures,
        write_known_failures,
        emit_test,
        fail_fast,
        data,
        kernel,
        profile,
    )
    return verify_and_report(in_profile(request, outputs), outputs)


@app.command()
def explain(
    data: Annotated[str, options.data("A .npz or .json file or a named dataset.")],
    starts: Annotated[
        int, typer.Option(min=0, metavar="N", help="Also flows from so many seeded starts, besides that from p(0).")
    ] = 0,
    seed: Annotated[int, options.same_seed("starts")] = 0,
    json: Annotated[Path | None, options.file("Everything as JSON, with the exact rationals.")] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE.svg|FILE.png|FILE.pdf", help="The path of p in the plane, or margins and weights."),
    ] = None,
) -> int:
    """Explain what attention selects on your data, why, and which theorems speak of it.

    The gradient flow from p(0) (0 unless the data have a start), the tokens with their margins and weights, p_mm,
    assumptions that hold and fail, and the theorems that therefore apply.

    Exit code 0: explained; 2: bad input; 3: where the flow goes could not be decided.
    """
    from theorems.command.explain import explain_and_report

    return explain_and_report(data, starts, seed, json, plot)


@app.command("drawn")
def draws(
    ids: options.Ids = None,
    examples: options.Examples = 50,
    seed: Annotated[int, options.same_seed("cases; those of verify")] = 0,
    json: options.Json = None,
    markdown: Annotated[bool, options.as_markdown("docs/drawn.md has it")] = False,
) -> int:
    """Print what the strategies draw: sizes, losses, and how many of the cases have which property.

    Exit code 0: drawn; 2: bad input.
    """
    from theorems.command.draws import draw_and_report

    return draw_and_report(tuple(ids or ()), examples, seed, json, markdown)


@app.command()
def hunt(
    id: Annotated[
        str,
        typer.Argument(metavar="ID", help="A statement, or path.py:name.", autocompletion=completion.ids),
    ],
    without: Annotated[
        str,
        typer.Option(
            metavar="ASSUMPTION",
            help="The assumption to leave out; none hunts the statement itself.",
            autocompletion=completion.assumptions,
        ),
    ] = "",
    seconds: Annotated[float, typer.Option(min=0.1, metavar="S", help="Give up after that long.")] = 60.0,
    seed: Annotated[int, options.same_seed("counterexample")] = 0,
    cases: Annotated[int | None, typer.Option(min=1, metavar="N", help="Try at most so many cases.")] = None,
    out: Annotated[Path, options.folder("Where a counterexample is written.")] = Path("hunted"),
    record: Annotated[
        bool, typer.Option("--record", help="Write ID-without-ASSUMPTION.json, also if nothing is found.")
    ] = False,
    json: options.Json = None,
    engine: options.Engine = options.LOCAL,
    resume: options.Resume = None,
    case_timeout: options.CaseTimeout = options.PATIENCE,
    isolate: options.Isolate = True,
) -> int:
    """Hunt for data on which a statement fails once one of its assumptions is left out.

    All other assumptions hold exactly, the violation is far above rounding, limits are followed to norms of a
    million, and what is found is made as small and as round as it gets.

    Exit code 1: a counterexample was found and written; 0: none was; 2: bad input; 3: no case could be decided.
    """
    from theorems.command.hunting import HuntRequest, hunt_and_report

    request = HuntRequest(
        id,
        without,
        seconds,
        seed,
        out,
        cases,
        record,
        json,
        resume,
        patience=case_timeout,
        isolate=isolate,
        engine=engine,
    )
    return hunt_and_report(request)


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A counterexample that hunt wrote.")],
    json: options.Json = None,
) -> int:
    """Check a counterexample again, from its data alone.

    Exit code 1: it still falsifies; 0: it does not; 2: bad input; 3: undecided.
    """
    from theorems.command.hunting import replay_and_report

    return replay_and_report(file, json)


@app.command()
def power(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Statements; all by default.", autocompletion=completion.ids),
    ] = None,
    faults: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A planted fault; repeat it for several; all by default.",
            autocompletion=completion.faults,
        ),
    ] = None,
    examples: Annotated[int, options.examples_option("cases per statement at most")] = 10,
    seed: Annotated[int, options.same_seed("table")] = 0,
    jobs: Annotated[int, options.processes("the table does")] = options.JOBS,
    sizes: Annotated[bool, typer.Option(help="Also how small a fault is still caught.")] = True,
    markdown: Annotated[bool, options.as_markdown("the document docs/power.md")] = False,
    json: Annotated[Path | None, options.file("Write the table as JSON.")] = None,
    engine: options.Engine = options.LOCAL,
    resume: options.Resume = None,
    case_timeout: Annotated[
        float,
        typer.Option(min=0.001, metavar="SECONDS", help="End a statement of your file that takes longer for a fault."),
    ] = options.PATIENCE,
) -> int:
    """Tabulate which statement catches which planted fault, on how many examples, and how small a one.

    Exit code 0: each fault is caught by some statement; 1: one escapes them all; 2: bad input; 3: the right
    implementation is falsified itself.
    """
    from theorems.command.power import PowerRequest, power_and_report

    chosen = tuple(ids or ()), tuple(faults or ())
    limits = case_timeout, engine
    return power_and_report(PowerRequest(*chosen, examples, seed, jobs, sizes, markdown, json, resume, *limits))


@app.command()
def counterexamples(
    directory: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="The folder; those of this project by default.")
    ] = None,
    markdown: Annotated[bool, options.as_markdown("a Markdown document")] = False,
    json: Annotated[Path | None, options.file("Write the table as JSON.")] = None,
    jobs: Annotated[int, options.processes("the table does")] = options.JOBS,
) -> int:
    """Replay every counterexample of a folder; print the table statement × assumption.

    Exit code 0: every pair is accounted for; 1: one does not replay or was never hunted; 2: bad input.
    """
    from theorems.command.hunting import table_and_report
    from theorems.core.recorded_files import COUNTEREXAMPLES

    return table_and_report(directory or COUNTEREXAMPLES, markdown, jobs, json)


@app.command("regime-map")
def regime_map(
    data: options.Data = None,
    markdown: Annotated[bool, options.as_markdown("docs/regime_map.md has it")] = False,
    json: Annotated[Path | None, options.file("Write the map as JSON.")] = None,
    jobs: Annotated[int, options.processes("the map does")] = options.JOBS,
) -> int:
    """Print where the joint regularization path of Theorem 6 ends, by how the two radii grow."""
    from theorems.command.regime_map import regime_map_and_report

    return regime_map_and_report(data, markdown=markdown, jobs=jobs, json=json)


@app.command()
def bench(
    data: Annotated[
        list[str] | None,
        options.data("Data; repeat it for several. Figures 1(a), 1(b) and 1(c) by default."),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="gd-1/L, gd-ETA, normalized-ETA, flow-ETA, polyak, heavy-ball-ETA, adam-ETA, muon-ETA,"
            " factored-ETA, normalized-factored-ETA, factored-apart-ETA, mirror-Q-ETA, normalized-mirror-Q-ETA, or a"
            " class of yours, path.py:name; repeat it for several.",
            autocompletion=completion.rules,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="The cap: iterations of each run.")] = 20_000,
    examples: Annotated[int, options.examples_option("problems", least=0)] = 20,
    seed: Annotated[int, options.same_seed("problems")] = 0,
    json: options.Json = None,
    markdown: Annotated[bool, options.as_markdown("Markdown tables")] = False,
    time: Annotated[
        bool, typer.Option("--time", help="Also the time of an iteration relative to the first rule.")
    ] = False,
    jobs: options.Jobs = options.JOBS,
    resume: options.Resume = None,
    plot: Annotated[Path | None, options.file("Draw the distance from the limit against t: svg, png or pdf.")] = None,
    compare: Annotated[
        Path | None, options.file("Say of every row whether it is better or worse than in this earlier --json.")
    ] = None,
    case_timeout: Annotated[
        float,
        typer.Option(min=0.001, metavar="SECONDS", help="End a rule of your file that makes no headway for so long."),
    ] = options.PATIENCE,
) -> int:
    """Compare optimisers: iterations until the direction is, and stays, that of the limit, and fitted rates.

    The limit is that of the rule's own theory, for the tokens that the gradient flow from the same start selects:
    p_mm, of mirror descent the least ‖p‖_q; p_mm, too, where no theorem about attention names one.

    Exit code 0: compared; 1: a row is worse than in --compare; 2: bad input; 3: some data have no limit direction, or
    none of the generated problems has, or a rule of your file failed.
    """
    from theorems.command.benchmark import BenchRequest, bench_and_report

    chosen = tuple(data or ()), tuple(rule or ())
    files = resume, plot, compare
    return bench_and_report(
        BenchRequest(*chosen, steps, examples, seed, jobs, json, markdown, time, *files, patience=case_timeout)
    )


@app.command()
def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="1a, 3b, 9a, …, or 3 for 3a to 3c; all by default.",
            autocompletion=completion.figures,
        ),
    ] = None,
    out: Annotated[Path, options.folder("Where the files are written.")] = Path("figures"),
    kind: Annotated[str, typer.Option("--format", metavar="svg|png|pdf", help="Of the drawings.")] = "svg",
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Random trials per dimension in 9a, 9b, 10.")] = 200,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Training of the transformer in 6 and 7.")] = 120,
    cifar10: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Train it on CIFAR-10, the binary version, instead of the digits."),
    ] = None,
    seed: Annotated[int, options.same_seed("trials and training")] = 0,
    jobs: Annotated[int, options.processes("the files do")] = options.JOBS,
    engine: options.Engine = options.LOCAL,
    resume: options.Resume = None,
) -> int:
    """Draw the paper's figures anew, and write the numbers that each one draws beside it as JSON.

    Figures 6 and 7 train a small vision transformer, which takes minutes; what it has reached is kept in the folder of
    --out after every epoch, and the same command goes on from there.

    Exit code 0: drawn; 2: bad input, or matplotlib is not installed; 3: a figure could not be computed.
    """
    from theorems.command.figures import FiguresRequest, figures_and_report

    request = FiguresRequest(tuple(names or ()), out, kind, trials, seed, jobs, epochs, cifar10, resume, engine)
    return figures_and_report(request)


@app.command()
def report(
    ids: options.Ids = None,
    examples: options.Examples = 50,
    seed: Annotated[int, options.same_seed("report")] = 0,
    data: options.DataNotGenerated = None,
    results: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="A file of verify --json instead of a run.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.md|FILE.html", help="The document; Markdown to standard output if left out."),
    ] = None,
    json: Annotated[Path | None, options.file("Also the results, as verify --json writes them.")] = None,
    jobs: Annotated[int, options.processes("the report does")] = options.JOBS,
    resume: options.Resume = None,
    timeout: options.Timeout = None,
    case_timeout: options.CaseTimeout = options.PATIENCE,
    isolate: options.Isolate = True,
) -> int:
    """Verify, and write one document: verdicts, claims with their tolerances and reasons, counterexamples, power.

    Exit code as of verify. 0: all upheld, or not applicable with at least one upheld; 1: one is falsified; 2: bad
    input; 3: inconclusive, or nothing could be tried.
    """
    from theorems.command.report import ReportRequest, report_and_write

    request = ReportRequest(
        tuple(ids or ()),
        examples,
        seed,
        data,
        results,
        out,
        json,
        jobs,
        resume=resume,
        timeout=timeout,
        patience=case_timeout,
        isolate=isolate,
    )
    return report_and_write(request)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code. Wrong input, and output that nobody takes, are one sentence on standard
    error.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        with suppress(AttributeError, ValueError):
            getattr(sys, name).reconfigure(errors="replace")
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = app(args=given or ["--help"], prog_name="theorems", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0) if given else Exit.BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return Exit.INTERRUPTED
    except SystemExit as stop:
        # typer turns a closed pipe (theorems list | head) into exit code 1, which means "falsified" here.
        if isinstance(stop.__context__, BrokenPipeError):
            return _close_output(Exit.BROKEN_PIPE)
        return Exit.BAD_INPUT if stop.code else Exit.UPHELD  # 0: shell completion
    except BrokenPipeError:
        return _close_output(Exit.BROKEN_PIPE)
    except Exception as error:
        return _complaint(error)


def _complaint(error: Exception) -> int:
    from reference_attention.errors import InvalidInput

    message = getattr(error, "format_message", None)  # the usage errors of typer, whichever click it carries
    if isinstance(error, InvalidInput) or callable(message):
        _say(message() if callable(message) else str(error))
        return Exit.INCONCLUSIVE if _is_process_death(error) else Exit.BAD_INPUT
    if isinstance(error, OSError) and error.filename is None:
        # Every file of ours that cannot be written is an InvalidInput.
        _say(f"standard output cannot be written ({error.strerror or error}).")
        return _close_output(Exit.BAD_INPUT)
    with suppress(OSError):
        traceback.print_exception(error)
    _say("internal error, nothing is concluded; please report it.")
    return Exit.INCONCLUSIVE


def _is_process_death(error: Exception) -> bool:
    from theorems.run.sandbox import ProcessDied

    return isinstance(error, ProcessDied)


def _say(sentence: str) -> None:
    with suppress(OSError):
        print(f"theorems: {' '.join(sentence.split())}", file=sys.stderr)


def _close_output(code: Exit) -> Exit:
    """What is still to be printed goes nowhere; otherwise Python complains of it at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code
