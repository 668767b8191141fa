"""Results of ``theorems verify`` as SARIF 2.1.0, which code scanning services show beside the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reference_attention.files import to_json
from theorems.core.claim import Verdict
from theorems.core.version import version
from theorems.run.result import Result

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
SHOWN_AS = {Verdict.FALSIFIED: ("fail", "error"), Verdict.INCONCLUSIVE: ("open", "none")}
"""SARIF's kind and level for each reported verdict; by section 3.27.10 the level is "none" unless the kind is
"fail"."""
FOLDERS = ("", "src/")
"""Folders of a repository in which a kernel's package may lie."""


def sarif_text(results: Sequence[Result], kernel: str | None, expected: Mapping[str, str]) -> str:
    """Return a SARIF document with a rule for each statement and a result for each falsified or inconclusive statement.

    Args:
        results: the results of the run.
        kernel: MODULE:CALLABLE of the kernel under test, or None; the results in the document point to the kernel's
            definition if its module is a file below the working directory or below its folder ``src``.
        expected: by id of a statement, the reason why it is known to be falsified; such results are marked as
            suppressed.
    """
    rules = [{"id": result.id, "shortDescription": {"text": result.title or result.id}} for result in results]
    place = _location(kernel) if kernel else {"logicalLocations": [{"name": "theorems"}]}
    entries = [
        _result(k, result, place, expected.get(result.id))
        for k, result in enumerate(results)
        if result.verdict in SHOWN_AS
    ]
    driver = {"name": "max-margin-theorems", "version": version(), "rules": rules}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not any(result.interrupted for result in results)}],
        "results": entries,
    }
    return to_json({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _result(index: int, result: Result, place: dict[str, Any], justification: str | None) -> dict[str, Any]:
    kind, level = SHOWN_AS[result.verdict]
    text = (result.failure.line if result.failure else "") or result.complaint or str(result.verdict)
    entry = {"ruleId": result.id, "ruleIndex": index, "kind": kind, "level": level, "message": {"text": text}}
    suppressed = (
        {} if justification is None else {"suppressions": [{"kind": "external", "justification": justification}]}
    )
    return entry | {"locations": [place]} | suppressed


def _location(kernel: str) -> dict[str, Any]:
    """Return the SARIF location of a kernel's definition, found by name, without importing the kernel."""
    *_, module, path = kernel.split(":")
    logical = {"logicalLocations": [{"fullyQualifiedName": f"{module}.{path}", "kind": "function"}]}
    stem = module.replace(".", "/")
    for file in (f"{folder}{stem}{end}" for folder in FOLDERS for end in (".py", "/__init__.py")):
        if Path(file).is_file():
            region = {"startLine": _line(Path(file), path.partition(".")[0])}
            return {"physicalLocation": {"artifactLocation": {"uri": file}, "region": region}} | logical
    return logical


def _line(file: Path, name: str) -> int:
    """Return the line number at which the top level of a file defines a name; 1 if it does not."""
    with suppress(OSError, ValueError, SyntaxError):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node]
            if name in (getattr(target, "name", getattr(target, "id", "")) for target in targets):
                return node.lineno
    return 1
