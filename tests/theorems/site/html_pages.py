"""Parser of built HTML pages: their anchors, the targets of links, and what a browser would load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

LOADED = {"src", "srcset", "data", "poster"}
"""HTML attributes whose target a browser loads without a click, as it loads the href of a <link>."""
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//")


@dataclass
class Page(HTMLParser):
    """An HTML page.

    Attributes:
        ids: the anchors.
        links: the targets of <a>.
        loads: the addresses of scripts, styles and pictures.
        text: the visible text.
    """

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in LOADED or (name == "href" and tag == "link"):
                self.loads.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def page(html: str) -> Page:
    """Return the parsed HTML text."""
    page = Page()
    page.feed(html)
    return page


def pages(folder: Path) -> dict[Path, Page]:
    """Return every page of a site."""
    return {path: page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def dead_links(site: dict[Path, Page]) -> Iterator[str]:
    """Yield links to missing pages, files and anchors; links that leave the site are not followed."""
    for path, page in site.items():
        for target in [*page.links, *page.loads]:
            if ELSEWHERE.match(target) or target.startswith("data:"):
                continue
            name, _, anchor = unquote(target).partition("#")
            file = (path.parent / name.partition("?")[0]).resolve() if name else path
            if not file.exists() or (anchor and file in site and anchor not in site[file].ids):
                yield f"{path.name}: {target}"


def fetched(folder: Path, site: dict[Path, Page]) -> Iterator[str]:
    """Yield the addresses outside the site that its pages and styles load."""
    for path, page in site.items():
        yield from (f"{path.name}: {target}" for target in page.loads if ELSEWHERE.match(target))
    for style in folder.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        targets = re.findall(r"(?:url\(|@import)\s*[\"']?\s*([^\"')\s]+)", text)
        yield from (f"{style.name}: {target}" for target in targets if ELSEWHERE.match(target))
