"""*Max-Margin Token Selection in Attention Mechanism* (NeurIPS 2023): its statements, one package per chapter.

| package | statements |
|---|---|
| `softmax` | lemmas 1, 3, 6: the softmax and its gradient at any point |
| `global_paths` | lemmas 4, 5, 11, theorems 1, 2: training from any start leads to the optimal tokens |
| `local_paths` | lemma 7, theorem 3: training from a start in a cone leads to locally optimal tokens |
| `directions` | lemmas 8, 9, 10, theorem 4: regularization paths reach no other direction |
| `joint_paths` | lemmas 12, 13, theorems 5, 6, a conjecture: head v and prompt p trained together |
| `nonlinear_heads` | lemma 14, theorem 8: nonlinear heads, and inputs with several optimal tokens |
"""

from max_margin_theorems.papers import Paper

PAPER = Paper(
    "Max-Margin Token Selection in Attention Mechanism",
    "Ataee Tarzanagh, Li, Zhang, Oymak, NeurIPS 2023, arXiv 2306.13596",
    statements="theorems.token_selection",
    without="theorems.without",
    figures="theorems.token_selection.figures",
    definitions="theorems.token_selection.directions.definitions:DEFINITIONS",
    explained=("lemma-", "theorem-"),
)
