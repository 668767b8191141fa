"""The gallery: a page for each figure that has data, and for each recorded counterexample; they share their scripts."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from bokeh.embed import file_html
from bokeh.resources import Resources
from bokeh.settings import settings

from generators.assumptions import ASSUMPTIONS
from reference_attention.files import read_named_values
from theorems.core.recorded_files import COUNTEREXAMPLES
from theorems.explore.data_sources import counterexamples, datasets, state_named
from theorems.explore.export import document_of
from theorems.explore.page_style import TEMPLATE
from theorems.explore.server import COMPONENTS
from theorems.explore.verdicts import assumptions_of
from theorems.library.catalogue import datasets as described
from theorems.run.findings import NamedFinding

SAME_AS_ANOTHER = ("figure-5-c", "figure-4")
"""Beginnings of the names of data that the gallery leaves out, because they are nearly equal to other data."""


@dataclass(frozen=True)
class Entry:
    """A page of the gallery.

    Attributes:
        name: the name of the data set or the counterexample.
        is_counterexample: whether the data set is a counterexample.
        says: a line on what the data set shows.
    """

    name: str
    is_counterexample: bool
    says: str

    @property
    def file(self) -> str:
        """Return the file name of the page."""
        return f"{self.name}.html"


def entries() -> list[Entry]:
    """Return every page, the pages of figures first."""
    figures = [name for name in datasets() if not name.startswith(SAME_AS_ANOTHER)]
    pages = [Entry(name, False, described()[name]) for name in figures]
    for name in counterexamples():
        record = read_named_values(COUNTEREXAMPLES / f"{name}.json")
        pages.append(Entry(name, True, f"refutes: {record['refutes']}"))
    return pages


def write_gallery(folder: Path, names: Collection[str] | None = None) -> Iterator[Entry]:
    """Write the pages and the scripts that they load; yield each page when it is written.

    Args:
        folder: the folder to write to.
        names: the names of the data; all by default.
    """
    scripts = folder / "static" / "js"
    scripts.mkdir(parents=True, exist_ok=True)
    for component in COMPONENTS:
        name = f"{component}.min.js"
        shutil.copyfile(Path(settings.bokehjs_path()) / "js" / name, scripts / name)
    for entry in entries():
        if names is not None and entry.name not in names:
            continue
        (folder / entry.file).write_text(gallery_page(entry), encoding="utf-8")
        yield entry


def gallery_page(entry: Entry) -> str:
    """Return the page of an entry; the page of a counterexample says what is refuted, why, and how to replay it."""
    state = state_named(entry.name)
    findings, sentences = (_record_of(entry.name)) if entry.is_counterexample else (assumptions_of(state.case), "")
    again = f"<p><code>theorems explore --data {escape(entry.name)}</code> opens this page with tokens to drag.</p>"
    document = document_of(
        state, findings, status=f'{sentences}{again}<p><a href="index.html">All pages of the gallery</a></p>'
    )
    scripts = Resources(mode="server", root_url="./")
    page: str = file_html(document, scripts, document.title, template=TEMPLATE, suppress_callback_warning=True)
    return page


def _record_of(name: str) -> tuple[list[NamedFinding], str]:
    """Return the assumptions and the sentences in the record of a counterexample."""
    record = read_named_values(COUNTEREXAMPLES / f"{name}.json")
    findings = [
        NamedFinding(
            finding["id"],
            ASSUMPTIONS[finding["id"]].title if finding["id"] in ASSUMPTIONS else "",
            finding["holds"],
            finding["because"],
        )
        for finding in record["assumptions"]
    ]
    sentences = (f"Refutes of {record['statement']} without {record['without']}: {record['refutes']}.", record["why"])
    violated = f"Violated: {record['violation']}."
    return findings, "".join(f"<p>{escape(sentence)}</p>" for sentence in (*sentences, violated))
