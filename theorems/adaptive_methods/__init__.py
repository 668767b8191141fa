"""Our own theorems on adaptive and mini-batch rules: Adam, incremental Adam, Signum and Muon on batches.

γ is the largest margin, D the largest dual norm of a row.

| statement | content |
|---|---|
| `gradient_proxy` | attention, one score gap per input: γZ ≤ ‖∇L‖_* ≤ DZ in every norm, Z a sum of softmax weights |
| `minibatch_momentum` | steepest descent with momentum on batches in any order, any norm: the margin at every step |
| `adam_max_margin` | full-batch Adam without ε on classification data: the ℓ∞ margin |
| `incremental_adam_equal_moduli` | Adam on single samples of equal moduli: the ℓ2 margin |
| `adam_one_input` | Adam on attention, one input, from any start |
| `adam_from_a_margin` | Adam on attention, from a start of sufficient margin |
| `minibatch_from_a_margin` | the bounds of steepest descent from a margin for batches of inputs, any norm and order |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Adaptive and mini-batch rules",
    "own",
    statements="theorems.adaptive_methods",
    without="theorems.adaptive_methods.without",
    faults="theorems.adaptive_methods.faults",
    gaps="theorems.adaptive_methods.margin_gap:GAPS",
    after=("steepest-descent",),
    explained=(),
)
