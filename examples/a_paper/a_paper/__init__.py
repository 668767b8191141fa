"""A paper with one theorem as a package: copy the folder, and replace the theorem by your own."""

from __future__ import annotations

from pathlib import Path

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "A prompt that ranks tokens as their scores do",
    "Chebyshev's association inequality, applied to attention",
    statements="a_paper.ordered_logits",
    without="a_paper.without",
    faults="a_paper.faults",
    data="a_paper.data:DATA",
    recorded=Path(__file__).parent / "recorded",
)
