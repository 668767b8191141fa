"""Source of the site as a folder: the documents, generated pages beside them, and the files to which they link."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Collection, Iterable
from fnmatch import fnmatch
from pathlib import Path

from reference_attention.errors import InvalidInput
from theorems.core.recorded_files import RECORDED
from theorems.report.evidence import RECORDS, signs
from theorems.report.record import RunRecord, read
from theorems.run.registry.suite import statements
from theorems.site.derivations import derivations
from theorems.site.notebooks import write_notebook_pages
from theorems.site.reference_pages import (
    assumptions_page,
    definitions_page,
    derivation_page,
    statements_page,
    tolerances_page,
)
from theorems.site.statement_page import Evidence, statement_page

START = "README.md"
"""Document that is the site's first page."""
MEASURED = RECORDS / "verify.json"
"""Recorded run of ``theorems verify`` whose worst slacks the pages of the statements show."""
ABOUT = ("docs/releasing.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
REFERENCE = ("docs/library.md", "docs/glossary.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", *ABOUT)
FINDINGS = ("FINDINGS.md", "docs/regime_map.md", "docs/constants.md", f"{RECORDS}/*.md")
FIRST = ("docs/trust.md", "docs/verify.md", "docs/kernels.md", "docs/drawn.md", "docs/hunting.md")
"""The document in the table of contents "Start", followed by the documents with which the table "Guides" begins. Other
documents that are in no table are added to "Guides"."""
LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)|<img src=\"(?P<image>[^\"]+)\"")
FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def write_source(folder: Path, root: Path = RECORDED) -> None:
    """Write the source of the site to a folder.

    Args:
        folder: the folder; an earlier source of the site in this folder is replaced.
        root: the root folder of the repository.

    Raises:
        InvalidInput: the folder has other content, or a record cannot be read.
    """
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "statements" / "index.md").exists()):
            raise InvalidInput(
                f"{folder}: is neither an empty folder nor an earlier source of the site; give another folder."
            )
        shutil.rmtree(folder)
    pages = generate_pages(root)
    documents = {name: (root / name).read_text(encoding="utf-8") for name in _documents(root)}
    for name, text in (documents | pages).items():
        for path in {_path(target, name) for target in _targets(text)} - set(documents):
            if (root / path).is_file():
                _copy(path, folder, root)
        _write(folder / _site_name(name), _relink(text, name, root))
    notebooks = write_notebook_pages(folder, root)
    start = (folder / "index.md").read_text(encoding="utf-8")
    _write(folder / "index.md", f"{start}\n{contents(documents, notebooks)}")


def generate_pages(root: Path = RECORDED) -> dict[str, str]:
    """Return the text of each generated page, by the page's path."""
    measured: RunRecord | None = read(root / MEASURED) if (root / MEASURED).exists() else None
    evidence = Evidence(measured, signs(root) or {}, root)
    pages = {
        "statements/index.md": f"{statements_page(measured)}\n{_toctree('', (*statements(), 'derivations'))}",
        "statements/derivations.md": "# Derivations\n\nDerivations to which statements and other derivations refer.\n\n"
        + _toctree("", [f"../derivations/{derivation.name}" for derivation in derivations().values()], visible=True),
        "statements/definitions.md": definitions_page(),
        "statements/assumptions.md": assumptions_page(),
        "statements/tolerances.md": tolerances_page(),
    }
    pages |= {
        f"statements/{statement.id}.md": statement_page(statement, evidence) for statement in statements().values()
    }
    return pages | {
        f"derivations/{derivation.name}.md": derivation_page(derivation) for derivation in derivations().values()
    }


def contents(documents: Iterable[str], notebooks: Collection[str] = ()) -> str:
    """Return the tables of contents of the site as Markdown, for the first page."""
    documents = list(documents)
    findings = [name for pattern in FINDINGS for name in sorted(documents) if fnmatch(name, pattern)]
    listed = (START, *REFERENCE, *findings, *FIRST)
    guides = [*FIRST[1:], *(name for name in documents if name not in listed)]
    reference = ("statements/definitions", "statements/assumptions", "statements/tolerances")
    return "\n".join(
        (
            _toctree("Start", ("self", *FIRST[:1])),
            *[_toctree("Notebooks", notebooks)] * bool(notebooks),
            _toctree("Guides", guides),
            _toctree("Statements", ("statements/index", *reference)),
            _toctree("Findings", findings),
            _toctree("Reference", REFERENCE),
        )
    )


def _toctree(caption: str, names: Iterable[str], visible: bool = False) -> str:
    options = [":maxdepth: 1", *([f":caption: {caption}"] if caption else ()), *(() if visible else (":hidden:",))]
    return "\n".join(["```{toctree}", *options, "", *(name.removesuffix(".md") for name in names), "```\n"])


def _documents(root: Path) -> list[str]:
    return [
        path.relative_to(root).as_posix()
        for folder in (root, root / "docs", root / RECORDS)
        for path in sorted(folder.glob("*.md"))
    ]


def _site_name(name: str) -> str:
    return "index.md" if name == START else name


def _targets(text: str) -> list[str]:
    return [link["target"] or link["image"] for link in LINK.finditer(FENCED.sub("", text))]


def _path(target: str, name: str) -> str:
    """Return the path, from the root of the repository, to which a link of the document ``name`` leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target.partition("#")[0]))


def _copy(path: str, folder: Path, root: Path) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(root / path, folder / path)


def _relink(text: str, name: str, root: Path) -> str:
    """Return the text of the document ``name`` with its links adapted to the site.

    Links to the first page and to notebooks lead to their pages on the site; links to folders become plain text.
    """

    def relink_one(link: re.Match[str]) -> str:
        target = link["target"]
        if target is None:
            return link[0]
        if (root / _path(target, name)).is_dir() and not target.startswith("#"):
            return link["text"][1:-1]
        target = re.sub(r"\.ipynb$", ".md", target)
        return f"{link['text']}({re.sub(rf'(^|/){START}(?=#|$)', _index, target)})"

    return "".join(part if part.startswith("```") else LINK.sub(relink_one, part) for part in FENCED.split(text))


def _index(match: re.Match[str]) -> str:
    return f"{match[1]}{_site_name(START)}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
