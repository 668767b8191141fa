"""Configuration of Sphinx for the source that ``python -m theorems.site`` writes; pages load nothing from the web."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from theorems.core.version import version as installed
from theorems.site.docstring import formula

project = "Max-Margin Token Selection"
author = "the authors of max-margin-theorems"
version = release = installed()
extensions = ["myst_parser"]
myst_enable_extensions = ["attrs_inline", "dollarmath", "html_image"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "Max-Margin Token Selection, executable"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # the summaries need fetch(), which a page opened as a file may not call
html_math_renderer = "mathml"
html_show_copyright = False
smartquotes = False  # smart quotes would change --flag and p'
highlight_language = "none"
pygments_style = "friendly"


class Indices(SphinxPostTransform):
    """A transform that typesets indices (x_it) and exponents (e^{−R}) outside code, titles and formulas."""

    default_priority = 900
    formats = ("html",)

    def run(self, **kwargs: Any) -> None:
        for text in list(self.document.findall(nodes.Text)):
            plain = text.astext()
            kept = (nodes.literal, nodes.literal_block, nodes.title, nodes.raw, nodes.math, nodes.math_block)
            if isinstance(text.parent, kept) or not {"_", "^"} & set(plain):
                continue
            typeset = formula(plain)
            if "<su" in typeset:
                text.parent.replace(text, nodes.raw("", typeset, format="html"))


def visit_math(self: Any, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_displaymath(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="display">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    app.add_post_transform(Indices)
