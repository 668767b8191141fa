"""Steepest descent in other norms than ‖·‖_2: sign descent, coordinate descent, Muon, with momentum. Our own theorems.

| statement | what it says |
|---|---|
| `steepest_one_input` | one input with equal non-optimal scores: the margin's gap at every iterate, from any start |
| `steepest_from_a_margin` | any inputs and scores, from a start of sufficient margin |
| `mirror_one_input` | mirror descent in ℓq, one input: how far its direction is from its limit, from any start |
| `mirror_from_a_margin` | the bounds of mirror-one-input for any inputs and scores, as long as margins stay |
| `steepest_multiclass` | classification data, any norm: arXiv 2502.04664, Theorem 1, with constants |
| `steepest_momentum` | the bounds of steepest-multiclass with momentum, without the factor d of Theorem 2 there |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Steepest descent in other norms",
    "own",
    statements="theorems.steepest_descent",
    without="theorems.steepest_descent.without",
    faults="theorems.steepest_descent.faults",
    figures="theorems.steepest_descent.figures",
    gaps="theorems.steepest_descent.margin_gap:GAPS",
    after=("transformers-as-svms",),
    explained=(),
)
