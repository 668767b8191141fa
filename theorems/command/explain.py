"""The subcommand ``theorems explain``: from its options to tables, files and an exit code."""

from __future__ import annotations

from shlex import quote

from reference_attention.files import write_bytes, write_text
from theorems.command.common import check_targets, complain
from theorems.command.subcommands import ExplainOptions
from theorems.core.exit_code import Exit
from theorems.explanations.head_explanations import HeadExplanations
from theorems.explanations.plot import check_kind
from theorems.library.arguments import as_given
from theorems.library.explain import explain
from theorems.run.tables import console

LONG = 3.0
"""Seconds; an estimated duration longer than this is printed before the explanation is computed."""


def explain_and_report(options: ExplainOptions) -> int:
    """Explain what attention selects on the data, print the explanation, write the files, and return the exit code.

    Raises:
        InvalidInput: the data cannot be used or an output file cannot be written; raised before anything runs.
    """
    kind = options.plot.suffix.removeprefix(".") if options.plot else ""
    check_targets(options.json)
    if options.plot is not None:
        check_kind(kind, "--plot")
    check_targets(options.plot)
    case = as_given(options.data, options.seed).case
    seconds = case.explained_in
    if seconds > LONG:
        complain(f"the exact solution takes about {seconds:.2g} seconds.")
    explanation = explain(
        options.data,
        module=options.module,
        rules=options.rule or (),
        train=options.train,
        starts=options.starts,
        seed=options.seed,
    )
    drawing = None if options.plot is None else explanation.plot(kind)
    explanation.write(console())
    data = f"--data {quote(options.data)}"
    if isinstance(explanation, HeadExplanations):
        head = quote(f"{options.module}[0]")
        console().print(f"To explain one head in full: theorems explain {data} --module {head}", soft_wrap=True)
    if options.json is not None:
        write_text(options.json, explanation.to_json())
    if options.plot is not None and drawing is not None:
        write_bytes(options.plot, drawing)
    return Exit.UPHELD if explanation.is_decided else Exit.INCONCLUSIVE
