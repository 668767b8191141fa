"""Links on the site: to source files, and to the pages of modules to which docstrings refer."""

from __future__ import annotations

from functools import cache

from theorems.report.document import Code, Link, Text
from theorems.run.identity import PACKAGES
from theorems.run.registry.suite import statements
from theorems.site.derivations import derivations, resolve


def source_of(module: str) -> str:
    """Return the path of a module's file, relative to the root of the repository."""
    return f"{module.replace('.', '/')}.py"


def source_link(module: str) -> Text:
    """Return a link to the file of a module of this repository; for another package's module return only its name."""
    if module.partition(".")[0] not in PACKAGES:
        return Code(module)
    source = source_of(module)
    return Link(source, f"../{source}")


def link_from(place: str, reference: str) -> str:
    """Return the link from the page of a statement or derivation to what a reference names; empty if that has no page.

    Args:
        place: the module of the docstring with the reference.
        reference: the reference as written in the docstring.
    """
    resolved = resolve(reference, place)
    if resolved is None:
        return ""
    module, name = resolved
    if module in _statement_pages():
        return f"../statements/{_statement_pages()[module]}.html"
    derivation = derivations().get(module)
    if derivation is None:
        return ""
    return f"../derivations/{derivation.name}.html" + (f"#{anchor(name)}" if name in derivation.objects else "")


def anchor(name: str) -> str:
    """Return the anchor (the part of a link after ``#``) of the object ``name`` on the page of its module."""
    return name.replace(".", "-").replace("_", "-").lower()


@cache
def _statement_pages() -> dict[str, str]:
    return {statement.conclusion.__module__: statement.id for statement in statements().values()}
