"""Our own theorems on steepest descent in norms other than ‖·‖_2: sign descent, coordinate descent, Muon, momentum.

m(p) is the margin of p, γ the largest margin over ‖p‖ = 1.

| statement | content |
|---|---|
| `steepest_one_input` | one input, equal non-optimal scores, any start: a bound of γ − m(p)/‖p‖ at every iterate |
| `steepest_from_a_margin` | a bound of γ − m(p)/‖p‖ for any inputs and scores, from a start of sufficient margin |
| `mirror_one_input` | mirror descent in ℓq, one input, any start: a bound of the distance to the limit direction |
| `mirror_from_a_margin` | the bounds of mirror-one-input for any inputs and scores, while margins suffice |
| `steepest_multiclass` | classification data, any norm: arXiv 2502.04664, Theorem 1, with constants |
| `steepest_momentum` | the bounds of steepest-multiclass with momentum, without the factor d of the paper's Theorem 2 |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Steepest descent in other norms",
    "own",
    statements="theorems.steepest_descent",
    without="theorems.steepest_descent.without",
    faults="theorems.steepest_descent.faults",
    gaps="theorems.steepest_descent.margin_gap:GAPS",
    after=("token-selection", "transformers-as-svms"),
    explained=(),
)
