"""*Max-Margin Token Selection in Attention Mechanism* (NeurIPS 2023), statement by statement, a package per chapter.

| package | statements |
|---|---|
| `softmax` | lemmas 1, 3, 6: the softmax and its gradient at any point |
| `global_paths` | lemmas 4, 5, 11, theorems 1, 2: towards the optimal tokens from anywhere |
| `local_paths` | lemma 7, theorem 3: towards locally optimal tokens from a cone |
| `directions` | lemmas 8, 9, 10, theorem 4: paths reach no other direction |
| `joint_paths` | lemmas 12, 13, theorems 5, 6, the conjecture: head and prompt together |
| `nonlinear_heads` | lemma 14, theorem 8: sets of optimal tokens |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Max-Margin Token Selection in Attention Mechanism",
    "Ataee Tarzanagh, Li, Zhang, Oymak, NeurIPS 2023, arXiv 2306.13596",
    statements="theorems.token_selection",
    without="theorems.without",
    figures="theorems.token_selection.figures",
    limits="theorems.token_selection.figures.limits:LIMITS",
    definitions="theorems.token_selection.directions.definitions:DEFINITIONS",
    explained=("lemma-", "theorem-"),
)
