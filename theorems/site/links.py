"""Where names in docstrings, and modules, are found on the site."""

from __future__ import annotations

from functools import cache

from theorems.report.document import Code, Link, Text
from theorems.run.identity import PACKAGES
from theorems.run.registry.suite import statements
from theorems.site.derivations import derivations, resolve


def source_of(module: str) -> str:
    """The file of a module, from the root of the checkout."""
    return f"{module.replace('.', '/')}.py"


def source_link(module: str) -> Text:
    """A link to the file of a module of ours; the name of one of another package."""
    if module.partition(".")[0] not in PACKAGES:
        return Code(module)
    source = source_of(module)
    return Link(source, f"../{source}")


def link_from(place: str, reference: str) -> str:
    """The page of what a docstring refers to, from a page of a statement or of a derivation; empty where none is.

    Args:
        place: the module of the docstring.
        reference: as it stands there.
    """
    resolved = resolve(reference, place)
    if resolved is None:
        return ""
    module, name = resolved
    if module in _statement_pages():
        return f"../statements/{_statement_pages()[module]}.html"
    found = derivations().get(module)
    if found is None:
        return ""
    return f"../derivations/{found.name}.html" + (f"#{anchor(name)}" if name in found.objects else "")


def anchor(name: str) -> str:
    """Of an object on the page of its module."""
    return name.replace(".", "-").replace("_", "-").lower()


@cache
def _statement_pages() -> dict[str, str]:
    return {one.conclusion.__module__: one.id for one in statements().values()}
