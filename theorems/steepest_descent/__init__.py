"""Steepest descent in other norms than ‖·‖_2: sign descent, coordinate descent, Muon, with momentum. Our own theorems.

| statement | what |
|---|---|
| `steepest_one_input` | one input with equal non-optimal scores: the margin's gap at every iterate, from any start |
| `steepest_from_a_margin` | any inputs and scores, from a start of sufficient margin |
| `mirror_one_input` | mirror descent in ℓq, one input: how far its direction is from its limit, from any start |
| `mirror_from_a_margin` | the same for any inputs and scores, as long as margins stay |
| `steepest_multiclass` | classification data, any norm: arXiv 2502.04664, Theorem 1, with constants |
| `steepest_momentum` | the same with momentum, without the factor d of its Theorem 2 |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Steepest descent in other norms",
    "own",
    statements="theorems.steepest_descent",
    without="theorems.without",
    faults="theorems.faults.steepest_faults",
    after=("transformers-as-svms",),
    explained=(),
)
