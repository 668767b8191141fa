"""The used share of a tolerance, drawn as a bar."""

from __future__ import annotations

from theorems.report.document import Share
from theorems.report.html import _inline


def test_a_share_above_one_is_marked_as_over() -> None:
    bar = '<span class="bar"><span style="width: 25%"></span></span>'
    assert _inline(Share(0.25)) == f'<span class="share">{bar}25%</span>'
    assert 'class="bar over"><span style="width: 100%"' in _inline(Share(1.5))
    assert 'class="bar"' in _inline(Share(1.0))
    assert (Share(9.5).text, Share(11.0).text) == ("950%", "over 1000%")
